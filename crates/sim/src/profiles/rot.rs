//! Bits that flip where nobody looks (fault F4), between two processes: in batches that were durable, and
//! in indexes, checkpoints, producer snapshots, write-ahead files and the list of damage.
//!
//! What is promised is little and certain: nothing behind the damage is cut, nothing else is called
//! damaged, and every other batch is read as it was. Where a recovery does not scan, because a
//! checkpoint vouches for the segment, the flipped batch is served as it lies there, and the reader's
//! checksum tells; that is counted. Flips hit records, not headers: a header that lies about its offsets,
//! in a segment that nobody scans, also hides what follows it, and that is for a scrub to find. A scrub
//! names every damaged batch of the segments that lie still, and nothing else.
//!
//! Of the files beside the segments one is hit at a time: each is there to make up for another, and two
//! that are gone at once are a loss that only a replica makes good. So a checkpoint is hit once in a run, and
//! never in a run that hits batches.

use std::path::{Path, PathBuf};

use towpath_log::disk::DiskFile;
use towpath_log::{
    DataDirectory, Identity, Log, LogConfig, LogPlace, ReadError, Recovery, ScrubStep,
    WriteAheadLimits,
};
use towpath_model::{
    BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicName, TopicPartition, Uuid,
};
use towpath_records::{BatchHeader, HEADER_LEN, set_base_offset, set_leader_epoch, split_batches};

use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::events::Events;
use crate::profile::{Profile, Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;
use crate::workload::{BatchShape, Producer, draw_batch};

/// The profile.
#[derive(Debug)]
pub struct Rot;

impl Profile for Rot {
    fn name(&self) -> &'static str {
        "rot"
    }

    fn about(&self) -> &'static str {
        "bits that flip in durable batches: damage is named, and costs nothing else"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "disk: bit flipped",
            "rot: bit flipped in a checkpoint",
            "rot: bit flipped in a producer snapshot",
            "rot: bit flipped in a write-ahead file",
            "rot: bit flipped in an index",
            "rot: bit flipped in the list of damage",
            "rot: damage found by a recovery",
            "rot: damage found by a scrub",
            "rot: damaged batch served, its checksum tells",
            "rot: index rebuilt by a scrub",
            "rot: other batches read",
            "rot: repaired from the write-ahead file",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        for _ in 0..world.rng.between(1, 4) {
            world.life(live)?;
        }
        Ok(world.into_events())
    }
}

const ROOT: &str = "/data";

struct World {
    rng: Rng,
    trace: Trace,
    disk: SimDisk,
    clock: SimClock,
    events: Events,
    limits: WriteAheadLimits,
    config: LogConfig,
    partitions: Vec<Kept>,
    /// A checkpoint is hit in this run, and no batch: without the checkpoint nobody knows that a
    /// damaged batch at the end was durable.
    hits_checkpoint: bool,
    has_hit_checkpoint: bool,
}

/// Files beside the segments, by what their paths contain.
const OTHER_FILES: [(&str, &str); 6] = [
    (".index", "rot: bit flipped in an index"),
    (".timeindex", "rot: bit flipped in an index"),
    (CHECKPOINT, "rot: bit flipped in a checkpoint"),
    (".producers", "rot: bit flipped in a producer snapshot"),
    (".wal", "rot: bit flipped in a write-ahead file"),
    ("/damage", "rot: bit flipped in the list of damage"),
];
const CHECKPOINT: &str = "/checkpoint.";

/// What one partition was given.
struct Kept {
    place: LogPlace,
    producer: Producer,
    /// Every batch, and whether it has been damaged.
    batches: Vec<(BatchHeader, Vec<u8>, bool)>,
    durable: Offset,
}

impl Parted for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn trace(&self) -> &Trace {
        &self.trace
    }
}

impl World {
    fn new(seed: u64, trace: Trace) -> World {
        trace.begin_world();
        let mut rng = Rng::new(seed);
        let count = rng.between(1, 3);
        let partitions = (0..count).map(|at| Kept {
            place: LogPlace::Partition {
                topic: Uuid::from_random_bytes([at as u8 + 1; 16]),
                name: TopicName::new("rot").expect("letters"),
                partition: PartitionIndex(at as i32),
            },
            producer: Producer::new(at as i64),
            batches: Vec::new(),
            durable: Offset::ZERO,
        });
        World {
            partitions: partitions.collect(),
            hits_checkpoint: rng.percent(25),
            has_hit_checkpoint: false,
            disk: SimDisk::new(rng.draw(), trace.clone()),
            clock: SimClock::new(),
            events: Events::new(),
            limits: WriteAheadLimits {
                file_bytes_max: rng.between(4, 32) << 10,
                direct_bytes_min: rng.weighted(&[(1, 200), (1, 4 << 10)]),
            },
            config: LogConfig {
                segment_bytes: rng.between(1_000, 8_000) as u32,
                index_interval_bytes: rng.weighted(&[(1, 1), (1, 1_000)]),
                ..LogConfig::default()
            },
            rng,
            trace,
        }
    }

    fn into_events(mut self) -> Events {
        self.events.merge(&self.disk.events());
        self.events
    }

    fn open(&mut self) -> Result<(DataDirectory<SimDisk>, u64), Violation> {
        let identity = || Identity {
            cluster_id: "rot".to_owned(),
            node_id: BrokerId(1),
            directory_id: Uuid([7; 16]),
        };
        let (disk, root) = (self.disk.clone(), Path::new(ROOT));
        let opened = DataDirectory::open_with(disk, root, identity, "boot", self.limits);
        let (directory, report) = opened.map_err(|error| refused(&error))?;
        Ok((directory, report.repaired_bytes))
    }
}

/// Nothing of this profile fails a disk.
fn refused(error: &dyn std::fmt::Display) -> Violation {
    Violation::new("INV-F1", format!("a healthy disk, and yet: {error}"))
}

/// A process: it looks at what is there, writes more, and ends; then a bit flips.
fn live(world: &mut World) -> Result<(), Violation> {
    let (directory, repaired_bytes) = world.open()?;
    if 0 < repaired_bytes {
        world.events.note("rot: repaired from the write-ahead file");
    }
    let mut logs = Vec::new();
    for at in 0..world.partitions.len() {
        let place = world.partitions[at].place.clone();
        let opened = directory.open_log(place, world.config);
        let (log, recovery) = opened.map_err(|error| refused(&error))?;
        world.check(at, &log, &recovery)?;
        logs.push(log);
    }
    for _ in 0..world.rng.between(1, 30) {
        world.part(|world| world.step(&directory, &mut logs))?;
    }
    if world.rng.percent(40) {
        world.part(|world| world.scrub(&mut logs))?;
    }
    if world.rng.percent(30) {
        let closed = directory.close(logs.iter_mut());
        closed.map_err(|error| refused(&error))?;
        for (kept, log) in world.partitions.iter_mut().zip(&logs) {
            kept.durable = log.log_end_offset();
        }
    }
    drop((logs, directory));
    world.disk.kill();
    world.disk.restart();
    world.part(|world| {
        match world.rng.percent(60) && !world.hits_checkpoint {
            true => world.flip(),
            false => world.flip_elsewhere(),
        }
        Ok(())
    })
}

impl World {
    fn step(
        &mut self,
        directory: &DataDirectory<SimDisk>,
        logs: &mut [Log<SimDisk>],
    ) -> Result<(), Violation> {
        let at = self.rng.index(logs.len());
        match self.rng.below(11) {
            9 => {
                let payload = vec![7; self.rng.between(0, 300) as usize];
                let end = logs[at].log_end_offset();
                logs[at].save_producers(end, &payload).map_err(|error| refused(&error))
            }
            0..6 => self.append(at, &mut logs[at]),
            6..9 => {
                let round = logs.iter_mut().filter_map(Log::take_dirty).collect();
                for committed in directory.commit(round) {
                    committed.result().map_err(|error| refused(&error))?;
                    let is_it = |kept: &Kept| kept.place.partition() == committed.partition();
                    let of = self.partitions.iter().position(is_it).expect("it was taken");
                    logs[of].committed(&committed);
                    self.partitions[of].durable = logs[of].durable_offset();
                }
                Ok(())
            }
            _ => {
                logs[at].save_checkpoint().map_err(|error| refused(&error))?;
                self.partitions[at].durable = logs[at].durable_offset();
                Ok(())
            }
        }
    }

    fn append(&mut self, at: usize, log: &mut Log<SimDisk>) -> Result<(), Violation> {
        let shape = BatchShape {
            records_max: 3,
            value_bytes_max: 600,
            large_per_10_000: 0,
            large_value_bytes: 0,
            tombstones_percent: 3,
        };
        let now = self.clock.now();
        let kept = &mut self.partitions[at];
        let mut drawn = draw_batch(&mut self.rng, &mut kept.producer, shape, now.wall);
        set_base_offset(&mut drawn.bytes, log.log_end_offset());
        set_leader_epoch(&mut drawn.bytes, LeaderEpoch(1));
        let header = BatchHeader::parse(&drawn.bytes)
            .map_err(|error| Violation::new("workload", error.to_string()))?;
        log.append(&drawn.bytes, &header, now).map_err(|error| refused(&error))?;
        kept.batches.push((header, drawn.bytes, false));
        Ok(())
    }

    /// Everything that lies still is read, and what is damaged there is named.
    fn scrub(&mut self, logs: &mut [Log<SimDisk>]) -> Result<(), Violation> {
        for (kept, log) in self.partitions.iter().zip(logs) {
            let mut after = None;
            while let Some(mut job) = log.next_to_scrub(after) {
                after = Some(job.segment());
                let scrubbed = loop {
                    let bytes = self.rng.between(1, 4_000);
                    match job.step(bytes).map_err(|error| refused(&error))?.0 {
                        ScrubStep::More => {}
                        ScrubStep::Done(scrubbed) => break Some(scrubbed),
                        ScrubStep::Gone => break None,
                    }
                };
                let Some(scrubbed) = scrubbed else { continue };
                let report = log.scrubbed(scrubbed).map_err(|error| refused(&error))?;
                self.events.add("rot: damage found by a scrub", report.new_damage.len() as u64);
                let rebuilt = u64::from(report.has_rebuilt_index);
                self.events.add("rot: index rebuilt by a scrub", rebuilt);
            }
            let named = log.damaged();
            for (header, _, is_damaged) in &kept.batches {
                let base = header.base_offset();
                let is_named = named.iter().any(|range| range.offsets.contains(&base));
                let was_read = log.scrub_of(base).is_some();
                ensure!(*is_damaged || !is_named, "INV-D1", "a scrub blames the batch at {base}");
                ensure!(
                    is_named || !*is_damaged || !was_read,
                    "INV-D1",
                    "a scrub passes over the damaged batch at {base}"
                );
            }
        }
        Ok(())
    }

    /// One bit of a file that is no segment.
    fn flip_elsewhere(&mut self) {
        let may_hit_checkpoint = self.hits_checkpoint && !self.has_hit_checkpoint;
        let rng = &mut self.rng;
        let (kind, event) = OTHER_FILES[rng.index(OTHER_FILES.len())];
        if kind == CHECKPOINT && !may_hit_checkpoint {
            return;
        }
        let files = self.disk.files().into_iter();
        let files: Vec<_> =
            files.filter(|(path, bytes)| path.contains(kind) && !bytes.is_empty()).collect();
        if files.is_empty() {
            return;
        }
        let (path, bytes) = &files[rng.index(files.len())];
        let position = rng.index(bytes.len());
        let bit = rng.below(8) as u8;
        if self.disk.flip_bit(Path::new(path), position as u64, bit).is_ok() {
            self.has_hit_checkpoint |= kind == CHECKPOINT;
            self.events.note(event);
            self.trace.event("flip elsewhere", &[position as u64, u64::from(bit)]);
        }
    }

    /// One bit of one durable batch.
    fn flip(&mut self) {
        let at = self.rng.index(self.partitions.len());
        let kept = &mut self.partitions[at];
        let durable =
            kept.batches.iter().filter(|(header, ..)| header.next_offset() <= kept.durable);
        let count = durable.count();
        if count == 0 {
            return;
        }
        let nth = self.rng.index(count);
        let (header, bytes, is_damaged) = &mut kept.batches[nth];
        if *is_damaged {
            return;
        }
        let within = self.rng.between(HEADER_LEN as u64, bytes.len() as u64 - 1);
        let bit = self.rng.below(8) as u8;
        let Some((path, position)) = find(&self.disk, kept.place.partition(), header, bytes) else {
            return;
        };
        if self.disk.flip_bit(&path, position + within, bit).is_ok() {
            *is_damaged = true;
            self.trace.event("flip", &[at as u64, header.base_offset().0 as u64, within]);
        }
    }

    /// Compares a log that was opened again with what it was given.
    fn check(
        &mut self,
        at: usize,
        log: &Log<SimDisk>,
        recovery: &Recovery,
    ) -> Result<(), Violation> {
        let World { partitions, events, .. } = self;
        let kept = &mut partitions[at];
        let (durable, end) = (kept.durable, log.log_end_offset());
        ensure!(durable <= end, "INV-R1", "the log ends at {end}, {durable} was durable");
        kept.batches.retain(|(header, ..)| header.next_offset() <= end);
        for range in &recovery.damage {
            events.note("rot: damage found by a recovery");
            let inside = kept.batches.iter().filter(|(header, ..)| {
                let offsets = &range.offsets;
                offsets.start < header.next_offset() && header.base_offset() < offsets.end
            });
            for (header, _, is_damaged) in inside {
                ensure!(
                    *is_damaged,
                    "INV-D1",
                    "the batch at {} is called damaged, with {range:?}",
                    header.base_offset()
                );
            }
        }
        for (header, bytes, is_damaged) in &mut kept.batches {
            let base = header.base_offset();
            let is_named = recovery.damage.iter().any(|range| range.offsets.contains(&base));
            let slice = match log.read(base, header.next_offset(), 1 << 20, true) {
                Ok(Some(slice)) => slice,
                Err(ReadError::CorruptBatch { .. }) if is_named => continue,
                other => {
                    let what = other.map(|_| "nothing").map_err(|error| error.to_string());
                    let detail = format!("the batch at {base} is read as {what:?}");
                    return Err(Violation::new("INV-R1", detail));
                }
            };
            let mut read = vec![0; slice.len];
            slice.file.read_at(&mut read, slice.position).map_err(|error| refused(&error))?;
            if read == *bytes {
                let event = match is_damaged {
                    true => "rot: repaired from the write-ahead file",
                    false => "rot: other batches read",
                };
                events.note(event);
                *is_damaged = false;
                continue;
            }
            ensure!(*is_damaged, "INV-R13", "the batch at {base} has other bytes");
            let tells = split_batches(&read).next().is_some_and(|batch| batch.check_crc().is_err());
            ensure!(tells, "INV-R13", "the batch at {base} is damaged, and its checksum is right");
            events.note("rot: damaged batch served, its checksum tells");
        }
        Ok(())
    }
}

/// Where a batch lies on the disk.
fn find(
    disk: &SimDisk,
    partition: TopicPartition,
    header: &BatchHeader,
    bytes: &[u8],
) -> Option<(PathBuf, u64)> {
    let topic = partition.topic.to_string();
    let files = disk
        .files()
        .into_iter()
        .filter(|(path, _)| path.contains(&topic) && path.ends_with(".log"));
    for (path, content) in files {
        let mut position = 0;
        for batch in split_batches(&content) {
            if batch.header.base_offset() == header.base_offset() && batch.bytes == bytes {
                return Some((path.into(), position));
            }
            position += batch.bytes.len() as u64;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Campaign, run};

    #[test]
    fn a_few_seeds_keep_every_promise() {
        let outcome = run(&Rot, Campaign { from: 1, seeds: 100, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 100);
    }
}
