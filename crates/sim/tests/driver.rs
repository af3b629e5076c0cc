//! The driver at moments that a campaign rarely meets: one fault each, and what must follow.

#[path = "driver/compaction.rs"]
mod compaction;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_broker::OFFSETS_TOPIC;
use towpath_coordinator::groups::{self, CommitOffsets, CommitPartition, CommitTopic};
use towpath_driver::{
    Clock, Delivery, Driver, FetchRefusal, Net, OpenError, Produced, ReadLimits, ScrubWork,
    Settings, VolumeIndex,
};
use towpath_log::Identity;
use towpath_metadata::{NewTopic, Overrides, Request, Resource, ResourceKind, TopicRef};
use towpath_model::{
    BrokerId, LeaderEpoch, Now, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Time,
    Timestamp, Token, TopicPartition, Uuid,
};
use towpath_records::{
    BatchBuilder, Compression, ProduceRules, Scratch, TimestampType, validate_produced,
};
use towpath_replication::Acks;
use towpath_sim::{SimClock, SimDisk, Trace};

const ROOT: &str = "/data";

/// One machine's time; nobody needs to be woken here.
#[derive(Debug, Clone, Default)]
struct TestClock(Arc<Mutex<SimClock>>);

impl Clock for TestClock {
    fn now(&self) -> Now {
        self.0.lock().unwrap().now()
    }

    fn sync_wanted(&self, _volume: VolumeIndex) {}

    fn wake_at(&self, _: Time) {}
}

/// Everything that was ever answered.
#[derive(Debug, Clone, Default)]
struct Answers(Arc<Mutex<Vec<(Token, Delivery)>>>);

impl Net for Answers {
    fn deliver(&self, token: Token, delivery: Delivery) {
        self.0.lock().unwrap().push((token, delivery));
    }
}

struct Broker {
    driver: Arc<Driver<SimDisk, TestClock, Answers>>,
    clock: TestClock,
    answers: Answers,
}

fn id(seed: u8) -> Uuid {
    Uuid::from_random_bytes([seed; 16])
}

fn disk() -> SimDisk {
    SimDisk::new(1, Trace::hashing())
}

/// Every process is another one.
static STARTS: AtomicU8 = AtomicU8::new(1);

fn open(disk: &SimDisk) -> Result<Broker, OpenError> {
    let (clock, answers) = (TestClock::default(), Answers::default());
    let identity =
        || Identity { cluster_id: "test".to_owned(), node_id: BrokerId(1), directory_id: id(1) };
    let settings = Settings {
        broker_id: BrokerId(1),
        statics: Overrides::from([("disk.reserve.bytes".to_owned(), "0".to_owned())]),
        incarnation: Uuid::from_random_bytes([STARTS.fetch_add(1, Ordering::Relaxed); 16]),
        addresses: Vec::new(),
        forgotten_directories: Vec::new(),
        rack: None,
        role: towpath_metadata::Role::Broker,
        formation: towpath_driver::Formation::Alone,
    };
    let (disk, root) = (disk.clone(), Path::new(ROOT));
    let driver =
        Driver::open(disk, root, identity, "boot", settings, clock.clone(), answers.clone())?;
    Ok(Broker { driver, clock, answers })
}

fn rules() -> ProduceRules {
    ProduceRules {
        batch_bytes_max: 1 << 20,
        plain_bytes_max: 1 << 20,
        record_bytes_max: 1 << 20,
        requires_keys: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: i64::MAX,
        now: Timestamp(0),
    }
}

/// Ends the process without a word to the broker.
fn kill(disk: &SimDisk, broker: Broker) {
    drop(broker);
    disk.kill();
    disk.restart();
}

impl Broker {
    fn sync(&self) {
        while self.driver.has_unsynced() {
            self.driver.sync_round();
        }
    }

    fn ask_metadata(&self, request: Request) {
        self.driver.ask_metadata(Token(1), request).unwrap();
        self.sync();
    }

    fn create(&self, name: &str, configs: &[(&str, &str)]) -> TopicPartition {
        let topic = NewTopic {
            partitions: 1,
            internal: name.starts_with("__"),
            configs: configs.iter().map(|(k, v)| ((*k).into(), Some((*v).into()))).collect(),
            ..NewTopic::named(name, id(u8::try_from(name.len()).unwrap()))
        };
        self.ask_metadata(Request::CreateTopics { topics: vec![topic], validate_only: false });
        self.driver.partition_of(name, PartitionIndex(0)).expect("it was created")
    }

    /// Appends one record as producer 7.
    fn produce(&self, id: TopicPartition, sequence: i32, acks: Acks, token: u64) -> Produced {
        self.produce_bytes(id, sequence, acks, token, b"record")
    }

    fn produce_bytes(
        &self,
        id: TopicPartition,
        sequence: i32,
        acks: Acks,
        token: u64,
        value: &[u8],
    ) -> Produced {
        let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
        builder.set_producer(ProducerId(7), ProducerEpoch(0), Sequence(sequence));
        builder.append(Timestamp(1), None, Some(value), std::iter::empty()).unwrap();
        let mut batch = builder.build();
        let validated = validate_produced(&batch, &rules(), &mut Scratch::new()).unwrap();
        self.driver.produce(id, &mut batch, &validated, acks, Token(token)).unwrap()
    }

    fn leader_epoch(&self, id: TopicPartition) -> LeaderEpoch {
        self.driver.position(id, None).unwrap().leader_epoch
    }

    fn durable_offset(&self, id: TopicPartition) -> Offset {
        self.driver.with_partition(id, |partition| partition.durable_offset()).unwrap()
    }

    /// Commits an offset that expires at once.
    fn commit_offset(&self, token: u64) -> Result<(), towpath_driver::NotCoordinator> {
        let partition = CommitPartition {
            partition: PartitionIndex(0),
            offset: Offset(1),
            leader_epoch: None,
            metadata: "".into(),
        };
        let topics =
            vec![CommitTopic { name: "topic".into(), id: Uuid::ZERO, partitions: vec![partition] }];
        let commit = CommitOffsets {
            group: "group".into(),
            member_id: "".into(),
            group_instance_id: None,
            generation: None,
            retention: Some(Duration::from_millis(1)),
            knows_group_id_not_found: true,
            topics,
        };
        self.driver.ask_group("group", Token(token), groups::Request::CommitOffsets(commit))
    }

    /// Commits an offset as a consumer without a group would, durably.
    fn commit_for(&self, topic: &str, id: Uuid, offset: Offset) {
        let partition = CommitPartition {
            partition: PartitionIndex(0),
            offset,
            leader_epoch: None,
            metadata: "".into(),
        };
        let topics = vec![CommitTopic { name: topic.into(), id, partitions: vec![partition] }];
        let commit = CommitOffsets {
            group: "group".into(),
            member_id: "".into(),
            group_instance_id: None,
            generation: None,
            retention: None,
            knows_group_id_not_found: true,
            topics,
        };
        let commit = groups::Request::CommitOffsets(commit);
        self.driver.ask_group("group", Token(50), commit).unwrap();
        self.sync();
    }

    /// What is committed for partition 0 of this topic.
    fn committed_offset(&self, topic: &str, id: Uuid) -> Option<Offset> {
        let partitions = vec![PartitionIndex(0)];
        let fetch = groups::FetchOffsets {
            group: "group".into(),
            topics: Some(vec![groups::FetchTopic { name: topic.into(), id, partitions }]),
            require_stable: true,
        };
        self.answers.0.lock().unwrap().clear();
        self.driver.ask_group("group", Token(51), groups::Request::FetchOffsets(fetch)).unwrap();
        self.sync();
        let mut answers = self.answers.0.lock().unwrap();
        let (_, delivery) = answers.pop().expect("an answer");
        let Delivery::Groups(groups::Reply::FetchOffsets(topics)) = delivery else {
            panic!("another answer: {delivery:?}");
        };
        topics[0].partitions[0].committed.as_ref().map(|committed| committed.offset)
    }

    /// Breaks the data directory through a partition that nothing else depends on.
    fn advance(&self, wait: Duration) {
        self.clock.0.lock().unwrap().advance(wait);
    }
}

#[test]
fn a_start_that_cannot_say_that_it_started_does_not_start() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let partition = broker.create("topic", &[]);
    broker.produce(partition, 0, Acks::All, 2);
    broker.sync();
    let epoch = broker.leader_epoch(partition);
    kill(&disk, broker);
    let mut refused = 0;
    for nth in 1..30 {
        let disk = disk.fork(nth);
        disk.fail_sync_in(nth);
        match open(&disk) {
            Err(_) => refused += 1,
            Ok(broker) => assert!(epoch < broker.leader_epoch(partition), "sync {nth}"),
        }
    }
    assert!(0 < refused);
}

#[test]
fn time_pauses_while_the_state_cannot_be_written() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    broker.create(OFFSETS_TOPIC, &[("segment.ms", "60000")]);
    broker.commit_offset(2).unwrap();
    broker.sync();
    // The next record begins a segment, and there is no room for one.
    disk.set_capacity(Some(1));
    broker.advance(Duration::from_secs(3600));
    broker.driver.expire_due();
    let now = broker.clock.now().time;
    let next = broker.driver.next_deadline().expect("the offset still waits to expire");
    assert_eq!(next, now + Duration::from_secs(1));
    broker.advance(Duration::from_secs(1));
    broker.driver.expire_due();
    assert!(now + Duration::from_secs(1) < broker.driver.next_deadline().unwrap());
}

#[test]
fn time_does_not_act_on_a_partition_that_was_closed() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    broker.create(OFFSETS_TOPIC, &[]);
    disk.fail_sync_in(1);
    broker.commit_offset(2).unwrap();
    broker.sync();
    let told = broker.answers.0.lock().unwrap().iter().any(|(token, _)| *token == Token(2));
    assert!(told, "whoever waits hears of the failure");
    assert!(broker.commit_offset(3).is_err());
    broker.driver.upkeep();
    assert_eq!(broker.driver.next_deadline(), None);
}

#[test]
fn a_damaged_leader_epoch_does_not_stop_the_start() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let partition = broker.create("topic", &[]);
    broker.produce(partition, 0, Acks::All, 2);
    broker.sync();
    kill(&disk, broker);
    let segment = |(path, _): &(String, Vec<u8>)| path.contains("topics") && path.ends_with(".log");
    let (path, _) = disk.files().into_iter().find(segment).expect("a segment was written");
    // The leader epoch lies behind the base offset and the length.
    disk.flip_bit(&PathBuf::from(path), 12, 6).unwrap();
    let broker = open(&disk).unwrap();
    let position = broker.driver.position(partition, None).unwrap();
    assert_eq!((position.leader_epoch, position.high_watermark), (LeaderEpoch(1), Offset(1)));
    let end = broker.driver.with_partition(partition, |partition| {
        partition.leader().unwrap().end_offset_of_epoch(LeaderEpoch(1))
    });
    assert_eq!(end, Some(Some((LeaderEpoch(1), Offset(1)))));
}

#[test]
fn a_damaged_header_in_an_old_segment_does_not_stop_the_start() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let partition = broker.create("topic", &[("segment.bytes", "1048576")]);
    for sequence in 0..4 {
        broker.produce_bytes(partition, sequence, Acks::All, 2, &[7; 600_000]);
    }
    broker.sync();
    kill(&disk, broker);
    let is_first = |(path, _): &(String, Vec<u8>)| {
        path.contains("topics") && path.ends_with("00000000000000000000.log")
    };
    let (path, _) = disk.files().into_iter().find(is_first).expect("a segment was written");
    // The number of the format.
    disk.flip_bit(&PathBuf::from(path), 16, 0).unwrap();
    let broker = open(&disk).unwrap();
    let limits = ReadLimits { max_bytes: 1, at_least_one_batch: true };
    let read = |from| broker.driver.read(partition, None, Offset(from), false, limits);
    assert!(matches!(read(0), Err(FetchRefusal::Corrupt(_))));
    assert!(read(3).unwrap().slice.is_some());
    assert!(broker.produce(partition, 3, Acks::All, 3).is_duplicate);
}

#[test]
fn a_topic_that_stops_being_relaxed_makes_durable_what_it_had() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let partition = broker.create("topic", &[("durability", "relaxed")]);
    assert!(!broker.produce(partition, 0, Acks::All, 2).is_pending);
    let resource = Resource { kind: ResourceKind::Topic, name: "topic".to_owned() };
    let values = vec![("durability".to_owned(), Some("synced".to_owned()))];
    broker.ask_metadata(Request::ReplaceConfigs {
        resources: vec![(resource, values)],
        validate_only: false,
    });
    assert_eq!(broker.durable_offset(partition), Offset(1));
    assert!(broker.produce(partition, 1, Acks::All, 3).is_pending);
    assert!(broker.driver.has_unsynced());
}

#[test]
fn a_topic_made_again_inherits_no_offsets_from_a_crash_in_the_middle_of_its_deletion() {
    // Of this seed the power loss takes what was not synced.
    let disk = SimDisk::new(3, Trace::hashing());
    let broker = open(&disk).unwrap();
    broker.create(OFFSETS_TOPIC, &[]);
    let old = broker.create("orders", &[]).topic;
    broker.commit_for("orders", old, Offset(7));
    assert_eq!(broker.committed_offset("orders", old), Some(Offset(7)));

    let gone = TopicRef { name: Some("orders".to_owned()), id: None };
    broker.driver.ask_metadata(Token(1), Request::DeleteTopics(vec![gone])).unwrap();
    // The deletion is durable, and published; what the coordinator notes of it is not.
    broker.driver.sync_round();
    assert_eq!(broker.driver.partition_of("orders", PartitionIndex(0)), None);
    assert!(broker.driver.has_unsynced(), "the coordinator has written tombstones");
    drop(broker);
    disk.lose_power();
    disk.restart();

    let broker = open(&disk).unwrap();
    assert_eq!(broker.committed_offset("orders", old), Some(Offset(7)), "the note was lost");
    assert_eq!(broker.driver.partition_of("orders", PartitionIndex(0)), None);
    let topic = NewTopic { partitions: 1, ..NewTopic::named("orders", id(99)) };
    broker.ask_metadata(Request::CreateTopics { topics: vec![topic], validate_only: false });
    assert_eq!(broker.committed_offset("orders", id(99)), None);
    broker.commit_for("orders", id(99), Offset(1));
    kill(&disk, broker);
    let broker = open(&disk).unwrap();
    assert_eq!(broker.committed_offset("orders", id(99)), Some(Offset(1)));
    assert_eq!(broker.committed_offset("orders", old), None);
}

#[test]
fn what_moving_the_log_start_has_synced_counts_as_durable() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let partition = broker.create("topic", &[("durability", "relaxed")]);
    broker.produce(partition, 0, Acks::All, 2);
    broker.produce(partition, 1, Acks::All, 3);
    broker.driver.delete_records(partition, Some(Offset(1))).unwrap();
    broker.driver.upkeep();
    broker.sync();
    assert_eq!(broker.durable_offset(partition), Offset(2));
}

/// The files of a topic's first partition.
#[test]
fn a_scrub_reads_everything_wherever_it_begins() {
    const TOPICS: [&str; 5] = ["a", "bb", "ccc", "dddd", "eeeee"];
    let disk = disk();
    let broker = open(&disk).unwrap();
    let ids = TOPICS.map(|name| broker.create(name, &[("segment.ms", "1000")]));
    for sequence in 0..2 {
        for id in ids {
            broker.produce(id, sequence, Acks::All, 1);
        }
        broker.sync();
        // The next batch begins a segment.
        broker.advance(Duration::from_secs(10));
    }
    kill(&disk, broker);
    for moment in 0..TOPICS.len() as u64 {
        let broker = open(&disk).unwrap();
        broker.advance(Duration::from_millis(moment));
        while let ScrubWork::Worked { .. } = broker.driver.scrub_in(VolumeIndex::FIRST) {}
        let totals = broker.driver.scrubbed_so_far();
        assert_eq!((totals.passes, totals.segments), (1, TOPICS.len() as u64), "{moment}");
        kill(&disk, broker);
    }
}

fn directory_of(disk: &SimDisk, topic: &str) -> PathBuf {
    let marker = format!("{ROOT}/topics/{topic}-");
    let files = disk.files();
    let (path, _) = files.iter().find(|(path, _)| path.starts_with(&marker)).unwrap();
    Path::new(path).parent().unwrap().to_owned()
}

fn read(broker: &Broker, id: TopicPartition, from: i64) -> Result<Option<Offset>, FetchRefusal> {
    let limits = ReadLimits { max_bytes: 1 << 20, at_least_one_batch: true };
    let read = broker.driver.read(id, None, Offset(from), false, limits)?;
    Ok(read.slice.map(|slice| slice.next_offset))
}

#[test]
fn a_partition_whose_files_cannot_be_read_is_offline_and_all_others_are_served() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let (lost, kept) = (broker.create("lost", &[]), broker.create("other", &[]));
    broker.produce(lost, 0, Acks::All, 2);
    broker.produce(kept, 0, Acks::All, 3);
    broker.sync();
    kill(&disk, broker);
    let files = disk.files();

    disk.make_unreadable(&directory_of(&disk, "lost"));
    let broker = open(&disk).unwrap();
    let offline = broker.driver.offline_partitions();
    assert_eq!(offline.iter().map(|o| o.id).collect::<Vec<_>>(), [lost]);
    let refusal = read(&broker, lost, 0).unwrap_err();
    let FetchRefusal::Offline(text) = &refusal else { panic!("{refusal:?}") };
    assert!(text.starts_with("partition lost-0 is offline on this broker: cannot "), "{text}");
    assert!(broker.driver.delete_records(lost, None).is_err());
    assert_eq!(read(&broker, kept, 0), Ok(Some(Offset(1))));
    broker.produce(kept, 1, Acks::All, 4);
    broker.sync();
    assert_eq!(read(&broker, kept, 1), Ok(Some(Offset(2))));
    broker.driver.close_cleanly().unwrap();
    kill(&disk, broker);

    // Nothing of it was touched, and what was acknowledged is there when it can be read again.
    let broker = open(&disk).unwrap();
    assert!(broker.driver.offline(lost).is_some());
    kill(&disk, broker);
    let now = disk.files();
    for file in files.iter().filter(|(path, _)| path.contains("/lost-")) {
        assert!(now.contains(file), "{}", file.0);
    }
    disk.make_readable();
    let broker = open(&disk).unwrap();
    assert_eq!(broker.driver.offline_partitions(), []);
    assert_eq!(read(&broker, lost, 0), Ok(Some(Offset(1))));
}

#[test]
fn an_offline_partition_is_removed_with_its_topic() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let lost = broker.create("lost", &[]);
    broker.produce(lost, 0, Acks::All, 2);
    broker.sync();
    kill(&disk, broker);
    let directory = directory_of(&disk, "lost");
    disk.make_unreadable(&directory.join("checkpoint.1"));
    let segment = directory.join("00000000000000000000.log");
    disk.make_unreadable(&segment);
    let broker = open(&disk).unwrap();
    assert!(broker.driver.offline(lost).is_some());
    let topic = TopicRef { name: Some("lost".to_owned()), id: None };
    broker.ask_metadata(Request::DeleteTopics(vec![topic]));
    assert_eq!(broker.driver.offline_partitions(), []);
    assert!(!disk.files().iter().any(|(path, _)| path.contains("/lost-")), "{:?}", disk.files());
}

#[test]
fn damaged_state_takes_its_partition_offline_and_damaged_records_are_named() {
    let disk = disk();
    let broker = open(&disk).unwrap();
    let topic = broker.create("topic", &[]);
    let offsets = broker.create(OFFSETS_TOPIC, &[]);
    for n in 0..3 {
        broker.produce_bytes(topic, n, Acks::All, 2, &[7; 300]);
        broker.commit_offset(3).unwrap();
        broker.sync();
    }
    kill(&disk, broker);
    // The next start brings everything from the write-ahead file into the segments.
    kill(&disk, open(&disk).unwrap());
    for topic in ["topic", OFFSETS_TOPIC] {
        let segment = directory_of(&disk, topic).join("00000000000000000000.log");
        disk.flip_bit(&segment, 80, 3).unwrap();
    }
    for _ in 0..2 {
        let broker = open(&disk).unwrap();
        // Who coordinates groups must know every record; what records are served need not.
        assert!(broker.driver.offline(offsets).is_some());
        let refused = broker.commit_offset(9).unwrap_err();
        assert_eq!(refused, towpath_driver::NotCoordinator::Offline);
        let damage = broker.driver.damage(topic);
        assert_eq!(damage.len(), 1);
        assert_eq!(damage[0].offsets, Offset(0)..Offset(1));
        let refused = read(&broker, topic, 0).unwrap_err();
        assert!(refused.to_string().contains("records [0, 1) are damaged"), "{refused}");
        assert_eq!(read(&broker, topic, 1), Ok(Some(Offset(3))));
        kill(&disk, broker);
    }
    let broker = open(&disk).unwrap();
    broker.driver.delete_records(topic, Some(Offset(1))).unwrap();
    assert_eq!(broker.driver.damage(topic), []);
}
