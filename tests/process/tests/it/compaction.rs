//! A compacted topic, as somebody sees it who reads it from its start.

use std::time::Duration;

use towpath_process::http;
use towpath_process::kafka::{KafkaConnection, now};
use towpath_records::{BatchBuilder, Compression};

use crate::support::{eventually, output_of, serve, stop};

const KEYS: usize = 100;
const UPDATES: usize = 10_000;
/// Compaction looks again five times a second; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn of_ten_thousand_updates_the_newest_hundred_remain_at_their_offsets() {
    let (broker, _data) = serve("[broker]\n\"log.cleaner.backoff.ms\" = 200\n");
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    let configs = [
        ("cleanup.policy", "compact"),
        ("max.compaction.lag.ms", "500"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ];
    kafka.create_topic("state", 1, &configs).unwrap();
    for first in (0..UPDATES).step_by(500) {
        let mut batch = BatchBuilder::new(Compression::Lz4, now());
        for n in first..first + 500 {
            let (key, value) = (format!("key-{}", n % KEYS), format!("value-{n}"));
            batch.append(now(), Some(key.as_bytes()), Some(value.as_bytes()), []).unwrap();
        }
        kafka.produce_batch("state", 0, &batch.build()).unwrap();
    }
    let records = eventually(PATIENCE, || {
        let (records, end) = kafka.read_all("state", 0, 0).unwrap();
        assert_eq!(end, UPDATES as i64);
        (records.len() <= KEYS).then_some(records)
    });
    assert_eq!(records.len(), KEYS);
    for (n, record) in (UPDATES - KEYS..UPDATES).zip(&records) {
        assert_eq!(record.offset, n as i64);
        assert_eq!(record.key.as_deref(), Some(format!("key-{}", n % KEYS).as_bytes()));
        assert_eq!(record.value.as_deref(), Some(format!("value-{n}").as_bytes()));
    }

    eventually(PATIENCE, || {
        let shown = http::get(broker.addresses.http, "/topics/state").unwrap().success().unwrap();
        let compaction = &shown["partitions"][0]["compaction"];
        let is_clean = compaction["clean_offset"] == UPDATES && compaction["dirty_ratio"] == 0.0;
        is_clean.then_some(())
    });
    let shown = output_of(&broker, "topic", &["show", "state", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let compaction = &shown["compaction"][0];
    assert_eq!((&compaction["partition"], &compaction["dirty_ratio"]), (&0.into(), &0.0.into()));
    assert!(compaction["last_compaction"].as_str().is_some_and(|at| at.starts_with("20")));
    let metrics = http::get(broker.addresses.http, "/metrics").unwrap().body;
    let metrics = String::from_utf8(metrics).unwrap();
    let runs = metrics.lines().find(|line| line.starts_with("towpath_compaction_runs_total "));
    assert!(runs.is_some_and(|line| !line.ends_with(" 0")), "{runs:?}");

    // A deletion: the tombstone overtakes the value, and the offset of what is next stays.
    let mut batch = BatchBuilder::new(Compression::None, now());
    batch.append(now(), Some(b"key-7"), None, []).unwrap();
    assert_eq!(kafka.produce_batch("state", 0, &batch.build()).unwrap(), UPDATES as i64);
    let records = eventually(PATIENCE, || {
        let (records, _) = kafka.read_all("state", 0, 0).unwrap();
        (records.len() == KEYS).then_some(records)
    });
    assert_eq!(records.last().map(|record| (record.offset, &record.value)), Some((10_000, &None)));
    assert!(records.iter().all(|record| record.value.as_deref() != Some(b"value-9907")));
    stop(broker);
}
