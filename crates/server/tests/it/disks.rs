//! Several data directories: one stalls, fails or is not there, and the others go on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use towpath_driver::VolumeIndex;
use towpath_model::PartitionIndex;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::*;
use towpath_server::disk::{DiskCall, Hindrance, NodeDisk};

use crate::broker::{Broker, Options};
use crate::cluster::{Cluster, ClusterOptions};
use crate::groups::{commit, committed};
use crate::wire::{Wire, batch, code};

/// What the disk does to its users, as a test tells it.
#[derive(Debug, Default)]
struct Faults {
    now: Mutex<Fault>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Fault {
    /// Nothing is written below this.
    stalled: Option<PathBuf>,
    /// Syncs below this fail.
    failing: Option<PathBuf>,
    /// Syncs below this do not come back.
    unsynced: Option<PathBuf>,
    /// Nothing that is read below this is in memory, unless it was read before.
    cold: Option<PathBuf>,
    cold_reads: usize,
}

impl Faults {
    fn set(&self, change: impl FnOnce(&mut Fault)) {
        change(&mut self.now.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Hindrance for Faults {
    fn before(&self, call: DiskCall, path: &Path) -> io::Result<()> {
        let is_below = |root: &Option<PathBuf>| root.as_ref().is_some_and(|r| path.starts_with(r));
        let is_write = matches!(call, DiskCall::Write | DiskCall::Sync | DiskCall::Resize);
        let mut now = self.now.lock().unwrap();
        if call == DiskCall::ReadResident && is_below(&now.cold) {
            now.cold_reads += 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if is_write {
            now = self.changed.wait_while(now, |now| is_below(&now.stalled)).unwrap();
        }
        if call == DiskCall::Sync {
            now = self.changed.wait_while(now, |now| is_below(&now.unsynced)).unwrap();
        }
        if call == DiskCall::Sync && is_below(&now.failing) {
            return Err(io::Error::other("the device has lost it"));
        }
        Ok(())
    }
}

/// A broker with two data directories, and a topic in each.
struct Pair {
    /// Dropped first: a broker stops only when its disks answer.
    _release: Release,
    broker: Broker,
    faults: Arc<Faults>,
    second: TempDir,
    /// A topic in the first directory.
    here: &'static str,
    /// A topic in the second directory.
    there: &'static str,
}

impl Pair {
    fn start() -> Pair {
        let second = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let broker = Broker::start_with(Options {
            more_directories: vec![second.path().join("data")],
            disk: NodeDisk::hindered(faults.clone()),
            ..Options::default()
        });
        let mut wire = broker.connect();
        wire.create("one", 1, &[]);
        wire.create("two", 1, &[]);
        let is_one_here = volume_of(&broker, "one") == VolumeIndex::FIRST;
        let (here, there) = if is_one_here { ("one", "two") } else { ("two", "one") };
        assert_eq!(volume_of(&broker, there), VolumeIndex(1), "one topic in each directory");
        for topic in [here, there] {
            assert_eq!(wire.produce(topic, &batch(&["first"])).error, ErrorCode::None);
        }
        // So that the topic of offsets is there.
        commit_when_ready(&mut wire, here);
        Pair { _release: Release(faults.clone()), broker, faults, second, here, there }
    }

    fn second(&self) -> PathBuf {
        self.second.path().join("data")
    }
}

/// Ends every fault.
struct Release(Arc<Faults>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.set(|now| *now = Fault::default());
    }
}

fn volume_of(broker: &Broker, topic: &str) -> VolumeIndex {
    let id = broker.node().driver().partition_of(topic, PartitionIndex(0)).unwrap();
    broker.node().driver().volume_of(id).unwrap()
}

fn commit_when_ready(wire: &mut Wire, topic: &str) {
    let find = FindCoordinatorRequest { key: "group", ..Default::default() };
    wire.ask(3, &find);
    let until = Instant::now() + Duration::from_secs(20);
    while commit(wire, "group", topic, 1, "") != ErrorCode::None {
        assert!(Instant::now() < until, "the group's coordinator does not come up");
        thread::sleep(Duration::from_millis(10));
    }
}

fn log_dirs(wire: &mut Wire) -> Vec<(String, ErrorCode, Vec<String>)> {
    let answer = wire.ask(4, &DescribeLogDirsRequest { topics: None });
    let answer: DescribeLogDirsResponse<'_> = answer.read();
    let result = |result: &DescribeLogDirsResult<'_>| {
        let names = result.topics.iter().map(|topic| topic.name.to_owned());
        let names = names.filter(|name| !name.starts_with("__")).collect();
        (result.log_dir.to_owned(), code(result.error_code), names)
    };
    answer.results.iter().map(result).collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stalled_directory_holds_up_nobody_else() {
    let pair = Pair::start();
    let Pair { broker, faults, here, there, .. } = &pair;
    let root = pair.second();
    faults.set(|now| now.stalled = Some(root));
    // More than there are workers, each with a write that does not come back.
    let stuck: Vec<_> = (0..6)
        .map(|_| {
            let mut wire = broker.connect();
            let topic = *there;
            thread::spawn(move || wire.produce(topic, &batch(&["late"])))
        })
        .collect();
    let mut wire = broker.connect();
    let status = || broker.node().driver().volume_statuses().remove(1);
    let mut offset = 1;
    let until = Instant::now() + Duration::from_secs(20);
    while status().stalled_for.is_none() {
        assert!(Instant::now() < until, "nobody notices the stall");
        let produced = wire.produce(here, &batch(&["on time"]));
        assert_eq!((produced.error, produced.base_offset), (ErrorCode::None, offset));
        offset += 1;
        assert_eq!(wire.fetch(here, offset - 1).values(), ["on time"]);
        assert_eq!(commit(&mut wire, "group", here, offset, ""), ErrorCode::None);
    }
    // From now on nothing new is begun there, and nobody waits in vain.
    let refused = wire.produce(there, &batch(&["refused"]));
    assert_eq!(refused.error, ErrorCode::KafkaStorageError);
    assert!(refused.message.unwrap().contains("does not answer"));
    // Changes that concern its partitions go through without it.
    assert_eq!(wire.alter(there, "retention.ms", Some("1000000000")), ErrorCode::None);
    assert_eq!(wire.produce(here, &batch(&["still"])).error, ErrorCode::None);

    faults.set(|now| now.stalled = None);
    let acknowledged = stuck.into_iter().map(|stuck| stuck.join().unwrap());
    let acknowledged = acknowledged.filter(|produced| produced.error == ErrorCode::None).count();
    assert!(0 < acknowledged, "what was begun before the stall was known is acknowledged after it");
    wait_until("the disk answers again", || status().stalled_for.is_none());
    let last = wire.produce(there, &batch(&["after"]));
    assert_eq!((last.error, last.base_offset), (ErrorCode::None, 1 + acknowledged as i64));
}

#[test]
fn nothing_is_decided_while_the_disk_under_the_metadata_does_not_answer() {
    let faults = Arc::new(Faults::default());
    let disk = NodeDisk::hindered(faults.clone());
    let broker = Broker::start_with(Options { disk, ..Options::default() });
    let _release = Release(faults.clone());
    let root = broker.data().to_owned();
    faults.set(|now| now.unsynced = Some(root));
    // Something has to be written for the disk to be waited for.
    let mut late = broker.connect();
    let begun = thread::spawn(move || late.try_create("begun", 1, &[]).0);
    let status = || broker.node().driver().volume_statuses().remove(0);
    wait_until("nobody notices the stall", || status().stalled_for.is_some());
    let mut wire = broker.connect();
    for _ in 0..20 {
        let began = Instant::now();
        assert_eq!(wire.try_create("refused", 1, &[]).0, ErrorCode::NotController);
        assert!(began.elapsed() < Duration::from_secs(5), "nobody waits for the disk");
    }
    faults.set(|now| now.unsynced = None);
    assert_eq!(begun.join().unwrap(), ErrorCode::None);
    wait_until("the disk answers again", || status().stalled_for.is_none());
    assert_eq!(wire.try_create("refused", 1, &[]).0, ErrorCode::None);
}

#[test]
fn a_controller_whose_disk_does_not_answer_hands_its_office_over() {
    let faults = Arc::new(Faults::default());
    let disk = NodeDisk::hindered(faults.clone());
    let cluster = Cluster::start_with(3, ClusterOptions { disk, ..ClusterOptions::default() });
    let _release = Release(faults.clone());
    let first = cluster.controller();
    let root = cluster.data(first).to_owned();
    faults.set(|now| now.unsynced = Some(root));
    let others: Vec<i32> = (1..=3).filter(|id| *id != first).collect();
    let mut late = cluster.connect(others[0]);
    thread::spawn(move || late.try_create("late", 1, &[]));
    let deadline = Instant::now() + Duration::from_secs(60);
    while cluster.controller() == first {
        assert!(Instant::now() < deadline, "the office is not handed over");
        thread::sleep(Duration::from_millis(20));
    }
    let mut wire = cluster.connect(others[1]);
    wait_until("nothing is decided", || wire.try_create("decided", 1, &[]).0 == ErrorCode::None);
    faults.set(|now| now.unsynced = None);
    cluster.settle();
    cluster.eventually("the topic is known", |image| image.topic("decided").is_some());
}

#[test]
fn a_failed_sync_ends_a_directory_and_the_others_go_on() {
    let pair = Pair::start();
    let Pair { broker, faults, here, there, .. } = &pair;
    let root = pair.second();
    faults.set(|now| now.failing = Some(root.clone()));
    let mut wire = broker.connect();
    assert_eq!(wire.produce(there, &batch(&["lost"])).error, ErrorCode::KafkaStorageError);
    // The device works again, and nobody believes it.
    faults.set(|now| now.failing = None);
    let refused = wire.produce(there, &batch(&["refused"]));
    assert_eq!(refused.error, ErrorCode::KafkaStorageError);
    assert!(refused.message.unwrap().contains(&root.display().to_string()));
    assert_eq!(wire.fetch(there, 0).values(), ["first"], "what was durable before is still read");
    assert_eq!(wire.fetch(there, 0).high_watermark, 1);

    assert_eq!(wire.produce(here, &batch(&["second"])).base_offset, 1);
    assert_eq!(commit(&mut wire, "group", here, 2, ""), ErrorCode::None);
    let dirs = log_dirs(&mut wire);
    assert_eq!(dirs[0].1, ErrorCode::None);
    assert_eq!(
        (&dirs[1].0, dirs[1].1),
        (&root.display().to_string(), ErrorCode::KafkaStorageError)
    );
    wire.create("three", 1, &[]);
    assert_eq!(volume_of(broker, "three"), VolumeIndex::FIRST, "nothing new goes there");

    let Pair { broker, here, there, second, .. } = pair;
    let broker = broker.restart();
    let mut wire = broker.connect();
    assert_eq!(wire.fetch(here, 0).values(), ["first", "second"]);
    let found = wire.fetch(there, 0);
    assert_eq!(found.error, ErrorCode::None);
    assert_eq!(found.values().first().map(String::as_str), Some("first"), "{found:?}");
    assert_eq!(wire.produce(there, &batch(&["again"])).error, ErrorCode::None);
    drop((broker, second));
}

#[test]
fn a_directory_that_is_not_there_keeps_its_partitions_offline() {
    let pair = Pair::start();
    let Pair { broker, here, there, second, .. } = pair;
    let root = second.path().join("data");
    let first = broker.stop();
    let away = second.path().join("away");
    std::fs::rename(&root, &away).unwrap();
    // As if its disk were not mounted.
    std::fs::create_dir(&root).unwrap();
    let options = || Options { more_directories: vec![root.clone()], ..Options::default() };

    let broker = Broker::start_in(first, options());
    let mut wire = broker.connect();
    let refused = wire.produce(there, &batch(&["refused"]));
    assert_eq!(refused.error, ErrorCode::KafkaStorageError);
    let message = refused.message.unwrap();
    assert!(message.contains(there) && message.contains("mounted"), "{message}");
    assert_eq!(wire.fetch(there, 0).error, ErrorCode::KafkaStorageError);
    assert_eq!(wire.fetch(here, 0).values(), ["first"]);
    assert_eq!(wire.produce(here, &batch(&["second"])).base_offset, 1);
    assert_eq!(committed(&mut wire, "group", here).0, 1);
    assert_eq!(log_dirs(&mut wire)[1].1, ErrorCode::KafkaStorageError);
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "nothing is begun in its place");
    let first = broker.stop();

    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    let broker = Broker::start_in(first, options());
    let mut wire = broker.connect();
    assert_eq!(wire.fetch(there, 0).values(), ["first"]);
    assert_eq!(wire.produce(there, &batch(&["second"])).base_offset, 1);
    assert_eq!(wire.fetch(here, 0).values(), ["first", "second"]);
}

#[test]
fn a_new_directory_takes_new_partitions_and_old_ones_stay_where_they_are() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    for topic in ["one", "two"] {
        wire.create(topic, 1, &[]);
        assert_eq!(wire.produce(topic, &batch(&["first"])).error, ErrorCode::None);
    }
    let first = broker.stop();
    let second = tempfile::tempdir().unwrap();
    let more_directories = vec![second.path().to_owned()];
    let broker = Broker::start_in(first, Options { more_directories, ..Options::default() });
    let mut wire = broker.connect();
    // The old ones count: the first directory has two already.
    for topic in ["three", "four"] {
        wire.create(topic, 1, &[]);
        assert_eq!(volume_of(&broker, topic), VolumeIndex(1));
    }
    assert_eq!(wire.produce("three", &batch(&["first"])).error, ErrorCode::None);
    let broker = broker.restart();
    let mut wire = broker.connect();
    for topic in ["one", "two", "three"] {
        assert_eq!(wire.fetch(topic, 0).values(), ["first"]);
    }
    let dirs = log_dirs(&mut wire);
    assert!(["one", "two"].iter().all(|topic| dirs[0].2.iter().any(|name| name == topic)));
    assert!(dirs[1].2.iter().any(|name| name == "three"));
}

#[test]
fn records_that_are_not_in_memory_are_fetched_where_waiting_is_allowed() {
    let faults = Arc::new(Faults::default());
    let disk = NodeDisk::hindered(faults.clone());
    let broker = Broker::start_with(Options { disk, ..Options::default() });
    let mut wire = broker.connect();
    wire.create("topic", 1, &[("durability", "relaxed"), ("max.message.bytes", "4000000")]);
    let large = "x".repeat(3_000_000);
    // More than what counts as in memory because it was appended last.
    for _ in 0..15 {
        assert_eq!(wire.produce("topic", &batch(&[&large])).error, ErrorCode::None);
    }
    faults.set(|now| now.cold = Some(PathBuf::from("/")));
    let cold_reads = || faults.now.lock().unwrap().cold_reads;
    assert!(!wire.fetch("topic", 14).bytes.is_empty());
    assert_eq!(cold_reads(), 0, "the end of a log needs no probe");
    assert!(!wire.fetch("topic", 0).bytes.is_empty());
    assert_eq!(cold_reads(), 1, "one probe, and no worker waits");
}
