//! `towpath verify`: flipped bytes in the files of a stopped node are named, and nothing changes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use towpath_process::kafka::KafkaConnection;
use towpath_process::{Finished, Start};

use crate::support::{COMMAND_PATIENCE, stop};

fn verify(data: &Path) -> (Option<i32>, Value, String) {
    let directory = data.to_str().unwrap();
    let start = Start::command("verify").arguments([directory, "-o", "json"]);
    let Finished { status, stdout, stderr } = start.run(COMMAND_PATIENCE).unwrap();
    let report = serde_json::from_str(&stdout).unwrap_or(Value::Null);
    (status.code(), report, stderr)
}

/// The newest segment of a topic's first partition.
fn segment_of(data: &Path, topic: &str) -> PathBuf {
    let mut topics = fs::read_dir(data.join("topics")).unwrap().map(|entry| entry.unwrap().path());
    let is_of_topic = |path: &PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{topic}-"))
    };
    topics.find(is_of_topic).unwrap().join("0/00000000000000000000.log")
}

fn partition_of<'r>(report: &'r Value, topic: &str) -> &'r Value {
    let partitions = report["partitions"].as_array().unwrap();
    partitions.iter().find(|partition| partition["topic"] == topic).unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn flipped_bytes_are_named_by_partition_and_offset() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let data = directory.path().join("data");
    let start = Start::dev(&data);
    let broker = start.ready().unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    for topic in ["broken", "whole"] {
        kafka.create_topic(topic, 1, &[]).unwrap();
        for _ in 0..3 {
            kafka.produce(topic, 0, &[&[b'a'; 100], &[b'b'; 100]]).unwrap();
        }
    }
    let (code, _, stderr) = verify(&data);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("in use by another process"), "{stderr}");
    stop(broker);

    let (code, report, _) = verify(&data);
    assert_eq!((code, &report["state"]), (Some(0), &"ok".into()), "{report:#}");
    let segment = segment_of(&data, "broken");
    // In the second of three batches; the file goes on with reserved space.
    let bytes =
        usize::try_from(partition_of(&report, "broken")["bytes"].as_u64().unwrap()).unwrap();
    flip(&segment, bytes / 2);
    let before = fs::read(&segment).unwrap();
    let (code, report, _) = verify(&data);
    assert_eq!(code, Some(1), "{report:#}");
    let problems = report["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{report:#}");
    assert_eq!(
        (&problems[0]["topic"], &problems[0]["where"]),
        (&"broken".into(), &"[2, 4)".into())
    );
    assert_eq!(fs::read(&segment).unwrap(), before);

    // The node starts all the same, and serves whatever is whole.
    let broker = start.ready().unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    let (records, end) = kafka.read_all("whole", 0, 0).unwrap();
    assert_eq!((records.len(), end), (6, 6));
    let (records, _) = kafka.read_all("broken", 0, 4).unwrap();
    assert_eq!(records.len(), 2);
    stop(broker);
}
