//! Compaction by the driver: internal topics stop growing, and nobody sees a difference.

use std::fmt::Write;

use towpath_coordinator::groups::{FetchOffsets, FetchTopic, Reply};
use towpath_driver::{CompactionWork, Finding, OffsetQuery};
use towpath_metadata::TopicRef;
use towpath_sim::Rng;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

impl Broker {
    fn compact_all(&self) -> u64 {
        let before = self.driver.compaction_totals().runs;
        while let CompactionWork::Worked { .. } = self.driver.compact() {}
        self.driver.compaction_totals().runs - before
    }

    fn ask(&self, group: &str, request: groups::Request) -> Reply {
        self.answers.0.lock().unwrap().clear();
        self.driver.ask_group(group, Token(9), request).unwrap();
        self.sync();
        let mut answers = self.answers.0.lock().unwrap();
        match answers.pop() {
            Some((Token(9), Delivery::Groups(reply))) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&self, group: &str, partition: i32, offset: i64) {
        let partition = CommitPartition {
            partition: PartitionIndex(partition),
            offset: Offset(offset),
            leader_epoch: None,
            metadata: "".into(),
        };
        let topics =
            vec![CommitTopic { name: "topic".into(), id: Uuid::ZERO, partitions: vec![partition] }];
        let reply = self.ask(
            group,
            groups::Request::CommitOffsets(CommitOffsets {
                group: group.into(),
                member_id: "".into(),
                group_instance_id: None,
                generation: None,
                retention: None,
                knows_group_id_not_found: true,
                topics,
            }),
        );
        assert!(matches!(reply, Reply::CommitOffsets(Ok(_))), "{reply:?}");
    }

    /// Everything that the groups have committed, as text.
    fn committed(&self) -> String {
        let mut all = String::new();
        for group in (0..6).map(|n| format!("g{n}")) {
            let fetch = groups::Request::FetchOffsets(FetchOffsets {
                group: group.as_str().into(),
                require_stable: false,
                topics: Some(vec![FetchTopic {
                    name: "topic".into(),
                    id: Uuid::ZERO,
                    partitions: (0..4).map(PartitionIndex).collect(),
                }]),
            });
            writeln!(all, "{group} {:?}", self.ask(&group, fetch)).unwrap();
        }
        all
    }

    fn put(&self, id: TopicPartition, sequence: i32, key: &str) -> Produced {
        let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
        builder.set_producer(ProducerId(7), ProducerEpoch(0), Sequence(sequence));
        builder.append(Timestamp(1), Some(key.as_bytes()), Some(b"value"), []).unwrap();
        let mut batch = builder.build();
        let validated = validate_produced(&batch, &rules(), &mut Scratch::new()).unwrap();
        let produced = self.driver.produce(id, &mut batch, &validated, Acks::All, Token(3));
        self.sync();
        produced.unwrap()
    }
}

#[test]
fn the_groups_topic_stops_growing_and_says_what_it_said() {
    let disk = disk();
    let mut broker = open(&disk).unwrap();
    let id = broker.create(
        OFFSETS_TOPIC,
        &[("cleanup.policy", "compact"), ("max.compaction.lag.ms", "3600000")],
    );
    let mut rng = Rng::new(7);
    let mut sizes = Vec::new();
    for round in 0..4 {
        for n in 0..200 {
            let group = format!("g{}", rng.below(5));
            if rng.percent(4) {
                let delete = groups::Request::Delete { group: group.as_str().into() };
                broker.ask(&group, delete);
            } else {
                broker.commit(&group, rng.below(4) as i32, n);
            }
        }
        assert_eq!(broker.compact_all(), 0, "the active segment is young");
        let (before, said) = (broker.driver.size_bytes(id).unwrap(), broker.committed());
        broker.advance(HOUR);
        assert_eq!(broker.compact_all(), 1);
        let after = broker.driver.size_bytes(id).unwrap();
        assert!(after * 3 < before, "{before} bytes became {after}");
        sizes.push(after);
        assert_eq!(broker.committed(), said);
        let state = broker.driver.compaction_of(id).unwrap();
        assert_eq!((state.state.dirty_bytes, state.stopped), (0, None));
        kill(&disk, broker);
        broker = open(&disk).unwrap();
        assert_eq!(broker.committed(), said, "round {round}");
    }
    assert!(sizes[3] < sizes[0] * 2, "{sizes:?}");
    // The tombstones of deleted groups and offsets go a day later, without a new record.
    let before = broker.driver.size_bytes(id).unwrap();
    broker.commit("g0", 0, 7);
    broker.advance(HOUR);
    assert_eq!(broker.compact_all(), 1);
    broker.advance(24 * HOUR);
    assert_eq!(broker.compact_all(), 1);
    assert!(broker.driver.size_bytes(id).unwrap() < before);
}

#[test]
fn a_producer_is_still_recognised_when_its_records_are_gone() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let id = broker.create("topic", &[("cleanup.policy", "compact"), ("segment.ms", "1000")]);
    for sequence in 0..9 {
        broker.put(id, sequence, "key");
    }
    // Somebody else has the newest record.
    broker.produce_bytes(id, 9, Acks::All, 4, b"no key");
    broker.sync();
    broker.advance(Duration::from_secs(2));
    assert_eq!(broker.compact_all(), 1);
    kill(&disk, broker);
    let broker = open(&disk).unwrap();
    for sequence in 5..10 {
        let again = broker.put(id, sequence, "key");
        assert_eq!((again.is_duplicate, again.base_offset), (true, Offset(sequence.into())));
    }
    assert!(!broker.put(id, 10, "key").is_duplicate);
    let earliest = broker.driver.find_offset(id, None, false, OffsetQuery::Earliest);
    let Finding::Found(Some(earliest)) = earliest.unwrap() else { panic!("it is known at once") };
    assert_eq!(earliest.offset, Offset(0), "the log start does not move");
}

#[test]
fn damage_stops_a_partition_by_name_and_a_deleted_topic_is_let_go() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let config = [("cleanup.policy", "compact"), ("segment.ms", "1000")];
    let damaged = broker.create("damaged", &config);
    let other = broker.create("other", &config);
    for sequence in 0..5 {
        broker.put(damaged, sequence, "key");
        broker.put(other, sequence, "key");
    }
    let segment =
        |(path, _): &(String, Vec<u8>)| path.contains("damaged-") && path.ends_with(".log");
    let (path, _) = disk.files().into_iter().find(segment).expect("a segment was written");
    disk.flip_bit(&PathBuf::from(path), 250, 3).unwrap();
    broker.advance(Duration::from_secs(2));
    assert_eq!(broker.compact_all(), 1, "the other one");
    let stopped = broker.driver.compaction_of(damaged).unwrap().stopped.expect("it is stopped");
    assert!(stopped.contains("damaged"), "{stopped}");
    assert_eq!(broker.driver.compaction_of(other).unwrap().stopped, None);
    broker.advance(Duration::from_secs(20));
    assert_eq!(broker.compact_all(), 0);
    assert_eq!(broker.driver.compaction_totals().stopped_partitions, 1);

    for sequence in 5..15 {
        broker.put(other, sequence, "key");
    }
    broker.advance(Duration::from_secs(20));
    assert!(matches!(broker.driver.compact(), CompactionWork::Worked { .. }));
    broker.ask_metadata(Request::DeleteTopics(vec![TopicRef {
        name: Some("other".to_owned()),
        id: None,
    }]));
    while let CompactionWork::Worked { .. } = broker.driver.compact() {}
    broker.driver.upkeep();
    assert!(!disk.files().iter().any(|(path, _)| path.contains("other-")));
}
