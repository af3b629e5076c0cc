//! A whole data directory with damage in it: segments, indexes, checkpoints, producer snapshots, the
//! write-ahead files and the marks beside them.
//!
//! ```text
//!   input = five bytes per change:  file u8 │ what u8 │ where u16 │ value u8
//! ```
//!
//! Whatever is there, opening and reading ends in records or in an error, never in a panic.

use std::io::IoSlice;
use std::path::Path;
use std::sync::OnceLock;

use towpath_log::disk::{Disk, DiskFile};
use towpath_log::{
    DataDirectory, Identity, LOOKUP_PLAIN_BYTES_MAX, Log, LogConfig, LogPlace, Patience,
    TimeLookup, TimeQuery, TimeStep, WriteAheadLimits,
};
use towpath_model::{BrokerId, LeaderEpoch, Now, PartitionIndex, Time, Timestamp, TopicName, Uuid};
use towpath_records::{BatchBuilder, BatchHeader, Compression, Scratch, set_leader_epoch};
use towpath_sim::{SimDisk, Trace};

use crate::shape::Shape;
use crate::target::Target;

/// Damage to a data directory, as changes of five bytes.
pub(super) const DIRECTORY: Target =
    Target { name: "directory", seeds, run: open, memory_max: 64 << 20, waits_for_others: false };

pub(super) const ROOT: &str = "/data";
pub(super) const BOOT: &str = "boot";
const CHANGE_BYTES: usize = 5;
const CHANGES_MAX: usize = 64;

pub(super) fn limits() -> WriteAheadLimits {
    WriteAheadLimits { file_bytes_max: 16 << 10, direct_bytes_min: 8 << 10 }
}

pub(super) fn config() -> LogConfig {
    LogConfig { segment_bytes: 2_000, index_interval_bytes: 200, ..LogConfig::default() }
}

pub(super) fn identity() -> Identity {
    Identity { cluster_id: "fuzz".to_owned(), node_id: BrokerId(1), directory_id: Uuid([7; 16]) }
}

pub(super) fn places() -> Vec<LogPlace> {
    let name = TopicName::new("orders").expect("a legal name");
    let partition = |index| LogPlace::Partition {
        topic: Uuid([9; 16]),
        name: name.clone(),
        partition: PartitionIndex(index),
    };
    vec![LogPlace::Metadata, partition(0), partition(1)]
}

/// Directories that broker processes left behind: one was stopped, one was killed in the middle.
fn left_behind() -> &'static [SimDisk; 2] {
    static DISKS: OnceLock<[SimDisk; 2]> = OnceLock::new();
    DISKS.get_or_init(|| [true, false].map(leave_behind))
}

fn leave_behind(is_stopped: bool) -> SimDisk {
    let disk = SimDisk::new(1, Trace::hashing());
    let root = Path::new(ROOT);
    let (directory, _) =
        DataDirectory::open_with(disk.clone(), root, identity, BOOT, limits()).expect("a new one");
    let mut logs: Vec<Log<SimDisk>> = places()
        .into_iter()
        .map(|place| directory.open_log(place, config()).expect("a new log").0)
        .collect();
    for round in 0..12 {
        for log in &mut logs {
            append(log, round);
            if round == 6 {
                log.save_producers(log.durable_offset(), b"snapshot").expect("a healthy disk");
                log.save_checkpoint().expect("a healthy disk");
            }
        }
        // The last rounds of a broker that is killed stay in the page cache.
        if is_stopped || round < 10 {
            commit(&directory, &mut logs);
        }
    }
    if is_stopped {
        directory.close(&mut logs).expect("a healthy disk");
    }
    drop((logs, directory));
    disk.kill();
    disk.restart();
    disk
}

/// Makes everything durable that can be.
pub(super) fn commit(directory: &DataDirectory<SimDisk>, logs: &mut [Log<SimDisk>]) {
    let dirty = logs.iter_mut().filter_map(Log::take_dirty).collect();
    for committed in directory.commit(dirty) {
        let is_its = |log: &&mut Log<SimDisk>| log.partition() == committed.partition();
        logs.iter_mut().find(is_its).expect("one of ours").committed(&committed);
    }
}

pub(super) fn append(log: &mut Log<SimDisk>, round: i64) {
    let wall = Timestamp(1_700_000_000_000 + round * 1000);
    let mut batch = BatchBuilder::new(Compression::None, wall);
    batch.set_base_offset(log.log_end_offset());
    for index in 0..3_u8 {
        batch.append(wall, Some(&[index]), Some(&[round as u8; 60]), []).expect("it is small");
    }
    let mut batch = batch.build();
    set_leader_epoch(&mut batch, LeaderEpoch(i32::try_from(round / 5).expect("it is small")));
    let header = BatchHeader::parse(&batch).expect("our own batch");
    let now = Now { time: Time(round as u64), wall };
    log.append(&batch, &header, now).expect("a healthy disk");
}

fn open(input: &[u8]) -> Shape {
    let which = usize::from(input.len().is_multiple_of(2));
    open_changed(&left_behind()[which].fork(1), input, Shape::default().size(which))
}

/// Changes a disk, and starts on it. What the changes were says little, and is no part of the shape;
/// what they lead to is what counts.
pub(super) fn open_changed(disk: &SimDisk, changes: &[u8], mut shape: Shape) -> Shape {
    for change in changes.chunks_exact(CHANGE_BYTES).take(CHANGES_MAX) {
        damage(disk, change);
    }
    let root = Path::new(ROOT);
    let opened = DataDirectory::open_with(disk.clone(), root, identity, BOOT, limits());
    let (directory, report) = match opened {
        Ok(opened) => opened,
        Err(error) => return shape.error(&error),
    };
    shape = shape
        .size(report.was_clean().into())
        .size(report.replayed_frames as usize)
        .size(report.damaged_places as usize);
    let mut logs = Vec::new();
    for place in places() {
        match directory.open_log(place, config()) {
            Err(error) => shape = shape.error(&error),
            Ok((log, recovery)) => {
                shape = shape.size(recovery.damage.len()).size(recovery.cut.is_some().into());
                shape = read(&log, shape);
                logs.push(log);
            }
        }
    }
    for log in &mut logs {
        log.assert_invariants();
        append(log, 20);
    }
    commit(&directory, &mut logs);
    match directory.close(&mut logs) {
        Ok(()) => shape.word("closed"),
        Err(error) => shape.error(&error),
    }
}

/// Does one change, or none where the disk refuses it.
fn damage(disk: &SimDisk, change: &[u8]) {
    let files = disk.files();
    let Some((path, bytes)) = files.get(usize::from(change[0]) % files.len().max(1)) else {
        return;
    };
    let path = Path::new(path);
    let at = u64::from(u16::from_be_bytes([change[2], change[3]])) % (bytes.len() as u64 + 1);
    let Ok(file) = disk.open(path) else { return };
    let value = change[4];
    let _ = match change[1] % 6 {
        0 => disk.flip_bit(path, at.min(bytes.len().saturating_sub(1) as u64), value % 8),
        1 => file.write_at(&[IoSlice::new(&[value])], at),
        2 => file.write_at(&[IoSlice::new(&[value; 8])], at),
        3 => file.truncate(at),
        4 => file.write_at(&[IoSlice::new(&[0; 512])], at & !511),
        _ if value.is_multiple_of(16) => disk.remove_file(path),
        _ => file.write_at(&[IoSlice::new(&bytes[..bytes.len().min(usize::from(value))])], at),
    };
}

/// Reads a log in every way there is.
fn read(log: &Log<SimDisk>, mut shape: Shape) -> Shape {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(start <= end && log.durable_offset() <= end);
    let mut from = start;
    while from < end {
        match log.read(from, end, 1 << 20, true) {
            Err(error) => {
                shape = shape.error(&error);
                break;
            }
            Ok(None) => break,
            Ok(Some(slice)) => {
                // A damaged offset may leave a gap, as compaction does; it must not stop a reader.
                assert!(from < slice.next_offset, "a reader stands still at {from}");
                let bytes = slice.read();
                shape = shape.word(if bytes.is_ok() { "slice" } else { "unreadable" });
                from = slice.next_offset;
            }
        }
    }
    let headers = log.headers(start).take_while(Result::is_ok).count();
    let batches = log.batches(start, end).take_while(Result::is_ok).count();
    let producers = log.load_producers(end).is_some();
    shape = shape.size(headers).size(batches).size(producers.into());
    for query in [TimeQuery::AtOrAfter(Timestamp(1_700_000_005_000)), TimeQuery::Newest] {
        shape = look_up(log.time_lookup(query, start, end), shape);
    }
    shape
}

fn look_up(mut lookup: TimeLookup<SimDisk>, shape: Shape) -> Shape {
    let mut scratch = Scratch::new();
    loop {
        match lookup.advance(Patience::Patient) {
            Err(error) => return shape.error(&error),
            Ok(TimeStep::Done) => return shape.size(lookup.found().is_some().into()),
            Ok(TimeStep::Look) => {
                if let Err(error) = lookup.look(LOOKUP_PLAIN_BYTES_MAX, &mut scratch) {
                    return shape.error(&error);
                }
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![Vec::new(), vec![0]];
    for disk in left_behind() {
        for file in 0..disk.files().len().min(255) {
            let file = u8::try_from(file).expect("there are few files");
            seeds.push(vec![file, 0, 0, 20, 3]);
            seeds.push(vec![file, 3, 0, 40, 0, file, 2, 0, 8, 0xff]);
            seeds.push(vec![file, 5, 0, 0, 0, 0]);
        }
    }
    seeds
}
