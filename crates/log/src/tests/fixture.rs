//! One helper per thing the tests do, so that they do not name the API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use towpath_model::{
    BrokerId, LeaderEpoch, Now, Offset, PartitionIndex, Time, Timestamp, TopicName, Uuid,
};
use towpath_records::{BatchBuilder, BatchHeader, Compression, set_leader_epoch};

use crate::testing::MemoryDisk;
use crate::{
    Appended, DamageCause, DamagedRange, DataDirectory, Identity, Log, LogConfig, LogError,
    LogPlace, OpenReport, Recovery, WriteAheadLimits,
};

pub(crate) const ROOT: &str = "/data";

pub(crate) type TestLog = Log<MemoryDisk>;
pub(crate) type Directory = DataDirectory<MemoryDisk>;

pub(crate) fn identity() -> Identity {
    Identity {
        cluster_id: "cluster".to_owned(),
        node_id: BrokerId(1),
        directory_id: Uuid::from_random_bytes([5; 16]),
    }
}

/// Small enough that files turn often.
pub(crate) const LIMITS: WriteAheadLimits =
    WriteAheadLimits { file_bytes_max: 4096, direct_bytes_min: 1500 };

pub(crate) const CONFIG: LogConfig = LogConfig {
    segment_bytes: 2000,
    segment_age: Duration::from_secs(3600),
    index_interval_bytes: 200,
};

pub(crate) fn open(disk: &MemoryDisk) -> (Directory, OpenReport) {
    Directory::open_with(disk.clone(), Path::new(ROOT), identity, "boot", LIMITS).unwrap()
}

pub(crate) fn place(partition: i32) -> LogPlace {
    LogPlace::Partition {
        topic: Uuid::from_random_bytes([9; 16]),
        name: TopicName::new("orders").unwrap(),
        partition: PartitionIndex(partition),
    }
}

pub(crate) fn open_log(directory: &Directory, partition: i32) -> (TestLog, Recovery) {
    directory.open_log(place(partition), CONFIG).unwrap()
}

pub(crate) fn file(partition: i32, name: &str) -> PathBuf {
    Path::new(ROOT).join(place(partition).path()).join(name)
}

pub(crate) fn now(wall: i64) -> Now {
    Now { time: Time(0), wall: Timestamp(wall) }
}

/// A batch of records with these timestamps and values of `bytes` bytes.
pub(crate) fn batch(at: Offset, timestamps: &[i64], bytes: usize, codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec, Timestamp(timestamps[0]));
    builder.set_base_offset(at);
    for (n, timestamp) in timestamps.iter().enumerate() {
        let value = vec![b'a' + ((at.0 + n as i64) % 26) as u8; bytes];
        builder.append(Timestamp(*timestamp), None, Some(&value), std::iter::empty()).unwrap();
    }
    let mut batch = builder.build();
    set_leader_epoch(&mut batch, LeaderEpoch(0));
    batch
}

pub(crate) fn try_append(log: &mut TestLog, batch: &[u8], wall: i64) -> Result<Appended, LogError> {
    let header = BatchHeader::parse(batch).unwrap();
    log.append(batch, &header, now(wall))
}

/// Appends one batch of `records` records of `bytes` bytes each; the time is their offset.
pub(crate) fn append(log: &mut TestLog, records: usize, bytes: usize) -> Vec<u8> {
    let at = log.log_end_offset();
    let times: Vec<i64> = (0..records as i64).map(|n| at.0 + n).collect();
    let batch = batch(at, &times, bytes, Compression::None);
    try_append(log, &batch, at.0).unwrap();
    batch
}

pub(crate) fn commit(directory: &Directory, logs: &mut [&mut TestLog]) {
    let round = logs.iter_mut().filter_map(|log| log.take_dirty()).collect();
    for committed in directory.commit(round) {
        assert_eq!(committed.result(), Ok(()));
        let log = logs.iter_mut().find(|log| log.partition() == committed.partition()).unwrap();
        log.committed(&committed);
    }
}

/// Every batch from `from` on, as a reader sees it.
pub(crate) fn contents(log: &TestLog, from: Offset) -> Vec<u8> {
    let mut at = from;
    let mut all = Vec::new();
    while let Some(slice) = log.read(at, log.log_end_offset(), 700, true).unwrap() {
        assert!(slice.first_offset <= at && at < slice.next_offset);
        all.extend_from_slice(&slice.read().unwrap());
        at = slice.next_offset;
    }
    assert_eq!(at, log.log_end_offset());
    all
}

pub(crate) fn changed(from: i64, to: i64) -> DamagedRange {
    DamagedRange { offsets: Offset(from)..Offset(to), cause: DamageCause::Changed }
}

pub(crate) fn missing(from: i64, to: i64) -> DamagedRange {
    DamagedRange { offsets: Offset(from)..Offset(to), cause: DamageCause::Missing }
}
