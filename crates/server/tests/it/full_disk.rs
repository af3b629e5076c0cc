//! A full disk: producing is refused with an error that says why, everything else goes on, and with
//! room it works again by itself.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use towpath_driver::{Room, Space};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::*;
use towpath_server::disk::{DiskCall, Hindrance, NodeDisk};

use crate::broker::{Broker, Options};
use crate::groups::{commit, committed};
use crate::wire::{Produced, Wire, batch, numbered};

const PATIENCE: Duration = Duration::from_secs(20);

/// A file system that is as full as a test says.
#[derive(Debug)]
struct Gauge(AtomicU64);

impl Hindrance for Gauge {
    fn before(&self, _: DiskCall, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn space(&self, _: &Path, _: Space) -> Space {
        Space { free_bytes: self.0.load(Ordering::Relaxed), total_bytes: 100 << 30 }
    }
}

/// The registered defaults, which other tests do without.
fn with_watermarks(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let usual =
        [("disk.low.watermark.bytes", "21474836480"), ("disk.high.watermark.bytes", "5368709120")];
    [&usual[..], more].concat()
}

fn wait_for(broker: &Broker, room: Room) {
    let until = Instant::now() + PATIENCE;
    while broker.node().driver().volume_statuses()[0].room != room {
        assert!(Instant::now() < until, "the room is never {room:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn has_coordinator(wire: &mut Wire, topic: &str) {
    wire.ask(3, &FindCoordinatorRequest { key: "group", ..Default::default() });
    let until = Instant::now() + PATIENCE;
    while commit(wire, "group", topic, 1, "") != ErrorCode::None {
        assert!(Instant::now() < until, "the group's coordinator does not come up");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn below_the_high_watermark_only_producing_is_refused() {
    let gauge = Arc::new(Gauge(AtomicU64::new(50 << 30)));
    let disk = NodeDisk::hindered(gauge.clone());
    let properties = with_watermarks(&[]);
    let broker = Broker::start_with(Options { disk, properties, ..Options::default() });
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let id = crate::produce::producer_id(&mut wire);
    let first = numbered(id, 0, &["a", "b"]);
    assert_eq!(wire.produce("topic", &first).base_offset, 0);
    has_coordinator(&mut wire, "topic");

    gauge.0.store(5 << 30, Ordering::Relaxed);
    wait_for(&broker, Room::Low);
    assert_eq!(wire.produce("topic", &numbered(id, 2, &["c"])).base_offset, 2, "only a warning");

    gauge.0.store(1 << 30, Ordering::Relaxed);
    wait_for(&broker, Room::Full);
    let Produced { error, message, .. } = wire.produce("topic", &numbered(id, 3, &["d"]));
    assert_eq!(error, ErrorCode::KafkaStorageError);
    let message = message.unwrap();
    let named = ["broker 1", "1024 MiB free", "3072 MiB", "disk.high.watermark"];
    assert!(named.iter().all(|part| message.contains(part)), "{message}");
    let again = wire.produce("topic", &first);
    assert_eq!((again.error, again.base_offset), (ErrorCode::None, 0), "a repeat takes no room");
    assert_eq!(wire.fetch("topic", 0).values(), ["a", "b", "c"]);
    assert_eq!(commit(&mut wire, "group", "topic", 3, ""), ErrorCode::None);
    assert_eq!(committed(&mut wire, "group", "topic").0, 3);
    wire.create("other", 1, &[]);
    wire.delete("other");

    gauge.0.store(50 << 30, Ordering::Relaxed);
    wait_for(&broker, Room::Ample);
    let accepted = wire.produce("topic", &numbered(id, 3, &["d"]));
    assert_eq!((accepted.error, accepted.base_offset), (ErrorCode::None, 3));
}

/// A file system in memory, for as long as it is held.
struct Mounted(TempDir);

impl Mounted {
    /// `None`: this process may not mount anything.
    fn tmpfs(size: &str) -> Option<Mounted> {
        let place = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(place.path());
        mount.output().is_ok_and(|output| output.status.success()).then_some(Mounted(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_real_full_disk_is_survived_and_left_behind() {
    let Some(mounted) = Mounted::tmpfs("48m") else {
        eprintln!("NOT TESTED: mounting a small file system is not permitted here (needs root)");
        return;
    };
    let first = TempDir::new_in(mounted.0.path()).unwrap();
    let properties =
        with_watermarks(&[("disk.reserve.bytes", "67108864"), ("log.segment.bytes", "4194304")]);
    let broker = Broker::start_in(first, Options { properties, ..Options::default() });
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    has_coordinator(&mut wire, "topic");
    let value = "x".repeat(200_000);
    let produce = |wire: &mut Wire| wire.produce("topic", &batch(&[&value]));

    // Filled by a producer.
    let mut acknowledged = 0;
    let refused = loop {
        let produced = produce(&mut wire);
        if produced.error != ErrorCode::None {
            break produced;
        }
        assert_eq!(produced.base_offset, acknowledged);
        acknowledged += 1;
        assert!(acknowledged < 1_000, "48 MiB never fill up");
    };
    assert_eq!(refused.error, ErrorCode::KafkaStorageError, "{refused:?}");
    assert!(50 < acknowledged, "{acknowledged} batches of 200 kB fit into 48 MiB");
    wait_for(&broker, Room::Full);

    // And to the last byte by somebody else.
    let foreign = mounted.0.path().join("foreign");
    fill(&foreign);
    assert_eq!(produce(&mut wire).error, ErrorCode::KafkaStorageError);
    let until = Instant::now() + PATIENCE;
    for offset in 1..=50 {
        while commit(&mut wire, "group", "topic", offset, "note") != ErrorCode::None {
            assert!(Instant::now() < until, "offsets cannot be committed on a full disk");
        }
    }
    assert_eq!(wire.fetch("topic", acknowledged - 1).values(), [value.as_str()]);
    assert!(!broker.node().driver().is_failed(), "full is not broken");

    std::fs::remove_file(&foreign).unwrap();
    let deleted = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: "topic",
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset: acknowledged - 5,
            }],
        }],
        timeout_ms: 10_000,
    };
    wire.ask(2, &deleted);
    let until = Instant::now() + PATIENCE;
    let accepted = loop {
        let produced = produce(&mut wire);
        if produced.error == ErrorCode::None {
            break produced;
        }
        assert!(Instant::now() < until, "with room again it is still refused: {produced:?}");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(accepted.base_offset, acknowledged, "nothing that was acknowledged is gone");
    assert_eq!(committed(&mut wire, "group", "topic").0, 50);
    drop(wire);
    drop(broker);
    drop(mounted);
}

/// Takes what a file system has left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut piece = vec![0u8; 1 << 20];
    while !piece.is_empty() {
        match file.write_all(&piece) {
            Ok(()) => {}
            Err(_) => piece.truncate(piece.len() / 2),
        }
    }
}
