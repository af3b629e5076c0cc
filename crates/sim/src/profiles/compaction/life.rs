//! One process: it opens the directory, works, and ends.

use std::path::Path;
use std::time::Duration;

use towpath_log::{
    CompactionRules, DataDirectory, Identity, Log, LogConfig, LogPlace, WriteAheadLimits,
};
use towpath_model::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicName, Uuid};
use towpath_records::{Scratch, records};

use super::ghost::{Found, Ghost, Given};
use super::steps::{Op, draw_ops};
use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::trace::Trace;

const ROOT: &str = "/data";

/// What outlives a process.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) disk: SimDisk,
    pub(super) clock: SimClock,
    pub(super) trace: Trace,
    pub(super) events: Events,
    /// The compacted log's, and the other one's.
    pub(super) ghosts: [Ghost; 2],
    pub(super) rules: CompactionRules,
    pub(super) ops: Vec<(u64, Op)>,
    /// The latest that the wall clock has shown.
    pub(super) latest: towpath_model::Timestamp,
    pub(super) sequence: i32,
    pub(super) keys: u64,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) is_full: bool,
    pub(super) segment_bytes: u32,
    limits: WriteAheadLimits,
    crashes_percent: u64,
    calls_max: u64,
    steps_max: u64,
}

/// Why a life is over.
#[derive(Debug)]
pub(super) enum Over {
    /// The machine stopped, or a fault has ended the process.
    Ended,
    /// A promise was broken.
    Broken(Violation),
}

impl From<Violation> for Over {
    fn from(violation: Violation) -> Over {
        Over::Broken(violation)
    }
}

/// A running process.
pub(super) struct Life<'w> {
    pub(super) world: &'w mut World,
    pub(super) directory: DataDirectory<SimDisk>,
    pub(super) logs: Vec<Log<SimDisk>>,
    pub(super) round: Vec<towpath_log::Dirty<SimDisk>>,
    pub(super) running: Option<towpath_log::Compaction<SimDisk>>,
    syncs_failed: u64,
}

impl World {
    pub(super) fn new(seed: u64, trace: Trace) -> World {
        let mut rng = Rng::new(seed);
        let rules = CompactionRules {
            min_lag: Duration::from_millis(rng.weighted(&[(3, 0), (1, 500)])),
            max_lag: None,
            min_dirty_ratio: 0.0,
            tombstones_kept: Duration::from_millis(rng.weighted(&[(1, 0), (2, 3_000)])),
            key_bytes_max: rng.weighted(&[(1, 0), (2, 1 << 20)]),
        };
        let mut ghost = Ghost::default();
        ghost.tombstones_kept = rules.tombstones_kept;
        World {
            disk: SimDisk::new(rng.draw(), trace.clone()),
            clock: SimClock::new(),
            events: Events::new(),
            ghosts: [ghost, Ghost::default()],
            rules,
            ops: draw_ops(&mut rng),
            latest: SimClock::new().now().wall,
            sequence: 0,
            keys: rng.weighted(&[(1, 2), (3, 8), (1, 300)]),
            leader_epoch: LeaderEpoch(0),
            is_full: false,
            segment_bytes: rng.between(500, 6_000) as u32,
            limits: WriteAheadLimits {
                file_bytes_max: rng.between(4, 64) << 10,
                direct_bytes_min: rng.weighted(&[(1, 600), (2, 4 << 10)]),
            },
            crashes_percent: rng.weighted(&[(1, 0), (4, 70), (1, 95)]),
            calls_max: rng.weighted(&[(1, 30), (2, 120), (1, 400)]),
            steps_max: rng.between(20, 150),
            trace,
            rng,
        }
    }

    pub(super) fn into_events(mut self) -> Events {
        self.events.merge(&self.disk.events());
        self.events
    }

    pub(super) fn open_directory(
        &self,
        disk: &SimDisk,
    ) -> Result<(DataDirectory<SimDisk>, towpath_log::OpenReport), String> {
        let identity = || Identity {
            cluster_id: "sim".to_owned(),
            node_id: BrokerId(1),
            directory_id: Uuid([7; 16]),
        };
        DataDirectory::open_with(disk.clone(), Path::new(ROOT), identity, "boot", self.limits)
            .map_err(|error| error.to_string())
    }

    pub(super) fn open_log(
        &self,
        directory: &DataDirectory<SimDisk>,
        nth: usize,
    ) -> Result<Log<SimDisk>, Over> {
        let place = LogPlace::Partition {
            topic: Uuid([nth as u8 + 1; 16]),
            name: TopicName::new("state").expect("letters"),
            partition: PartitionIndex(nth as i32),
        };
        let config = LogConfig {
            segment_bytes: self.segment_bytes,
            segment_age: Duration::from_secs(60),
            index_interval_bytes: 300,
        };
        let opened = directory.open_log(place, config);
        let (log, recovery) = opened.map_err(|error| self.excuse(0, &error))?;
        ensure!(recovery.damage.is_empty(), "INV-D1", "log {nth}: damage {:?}", recovery.damage);
        Ok(log)
    }

    /// An error needs a fault that explains it.
    pub(super) fn excuse(&self, syncs_failed: u64, error: &dyn std::fmt::Display) -> Over {
        let has_failed = syncs_failed < self.disk.events().count("disk: sync failed");
        if self.disk.has_crashed() || has_failed || self.is_full {
            return Over::Ended;
        }
        Over::Broken(Violation::new("INV-X2", format!("refused without a fault: {error}")))
    }
}

/// Everything that a log holds, as its folds and its consumers get it; both must be the same.
pub(super) fn read_all(log: &Log<SimDisk>) -> Result<Found, Unread> {
    let refused = |error: &dyn std::fmt::Display| Unread::Refused(error.to_string());
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut found = Found { start, end, ..Found::default() };
    for batch in log.batches(start, end) {
        let (header, bytes) = batch.map_err(|error| refused(&error))?;
        found.headers.push(header);
        collect(&bytes, start, &mut found)?;
    }
    let mut consumed = Found::default();
    let mut at = start;
    while let Some(slice) = log.read(at, end, 900, true).map_err(|error| refused(&error))? {
        let bytes = slice.read().map_err(|error| refused(&error))?;
        for batch in towpath_records::split_batches(&bytes) {
            ensure!(
                0 < batch.header.record_count(),
                "INV-T1",
                "a consumer at {at} gets a batch without records"
            );
            collect(batch.bytes, start, &mut consumed)?;
        }
        ensure!(at < slice.next_offset, "INV-R13", "a read at {at} does not move on");
        at = slice.next_offset;
    }
    ensure!(at == end, "INV-R13", "a consumer comes to {at} only, the log ends at {end}");
    ensure!(consumed.records == found.records, "INV-R13", "consumers and folds get other records");
    Ok(found)
}

fn collect(batch: &[u8], start: Offset, found: &mut Found) -> Result<(), Violation> {
    let broken = |error: &dyn std::fmt::Display| Violation::new("INV-T1", error.to_string());
    let mut scratch = Scratch::new();
    let iter = records(batch, 1 << 20, &mut scratch).map_err(|error| broken(&error))?;
    let header = *iter.header();
    for record in iter {
        let record = record.map_err(|error| broken(&error))?;
        let offset = header.offset_of(record.offset_delta);
        if start <= offset {
            let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let timestamp = header.timestamp_of(record.timestamp_delta);
            let given = Given { timestamp, key: own(record.key), value: own(record.value) };
            found.records.insert(offset, given);
        }
    }
    Ok(())
}

/// Why a comparison was not finished.
#[derive(Debug)]
pub(super) enum Unread {
    Refused(String),
    Wrong(Violation),
}

impl From<Violation> for Unread {
    fn from(violation: Violation) -> Unread {
        Unread::Wrong(violation)
    }
}

/// A whole life.
pub(super) fn live(world: &mut World) -> Result<(), Violation> {
    if world.rng.percent(world.crashes_percent) {
        world.disk.crash_at(world.rng.between(1, world.calls_max));
    }
    let over = match Life::begin(world) {
        Ok(mut life) => life.work().and_then(|()| life.close_or_not()).err(),
        Err(over) => {
            world.events.note("life: ended during the start");
            Some(over)
        }
    };
    world.disk.set_capacity(None);
    world.is_full = false;
    if let Some(Over::Broken(violation)) = over {
        return Err(violation);
    }
    let was_closed = over.is_none();
    if world.rng.percent(if was_closed { 30 } else { 65 }) {
        world.disk.lose_power();
        world.events.note("life: power lost");
    } else {
        world.disk.kill();
        world.events.note("life: killed");
    }
    world.disk.restart();
    Ok(())
}

/// Nothing goes wrong any more; in the end the whole log is compacted.
pub(super) fn last(world: &mut World) -> Result<(), Violation> {
    world.disk.crash_never();
    let over = match Life::begin(world) {
        Ok(mut life) => life.finish().err(),
        Err(over) => Some(over),
    };
    match over {
        None => Ok(()),
        Some(Over::Broken(violation)) => Err(violation),
        Some(Over::Ended) => Err(Violation::new("INV-F1", "a healthy disk, and yet it ended")),
    }
}

impl<'w> Life<'w> {
    fn begin(world: &'w mut World) -> Result<Life<'w>, Over> {
        let syncs_failed = world.disk.events().count("disk: sync failed");
        let opened = world.open_directory(&world.disk);
        let (directory, report) = opened.map_err(|error| world.excuse(syncs_failed, &error))?;
        if 0 < report.repaired_bytes {
            world.events.note("log: write-ahead frames repaired a segment");
        }
        let logs =
            (0..2).map(|nth| world.open_log(&directory, nth)).collect::<Result<Vec<_>, Over>>()?;
        let (round, running) = (Vec::new(), None);
        let mut life = Life { world, directory, logs, round, running, syncs_failed };
        for nth in 0..2 {
            let found = life.read(nth)?;
            life.check(nth, &found)?;
            let durable = life.logs[nth].durable_offset();
            let ghost = &mut life.world.ghosts[nth];
            ghost.recovered(&found)?;
            ghost.acknowledge(durable)?;
            let numbers = [nth as u64, found.start.0 as u64, found.end.0 as u64];
            life.world.trace.event("recovered", &numbers);
        }
        life.world.leader_epoch = LeaderEpoch(life.world.leader_epoch.0 + 1);
        Ok(life)
    }

    fn work(&mut self) -> Result<(), Over> {
        for _ in 0..self.world.rng.between(0, self.world.steps_max) {
            let op = self.world.rng.weighted(&self.world.ops);
            self.world.trace.event(op.name(), &[]);
            self.step(op)?;
            self.world.clock.advance(Duration::from_millis(1));
            self.world.latest = self.world.latest.max(self.world.clock.now().wall);
        }
        Ok(())
    }

    /// Ends well, or is killed while nothing is going on.
    fn close_or_not(&mut self) -> Result<(), Over> {
        if self.running.is_some() {
            self.world.events.note("compaction: interrupted by the end of the process");
        }
        if self.world.is_full || self.world.rng.percent(50) {
            return Err(Over::Ended);
        }
        if let Some(running) = self.running.take() {
            running.abandon();
        }
        let closed = self.directory.close(self.logs.iter_mut());
        closed.map_err(|error| self.excuse(&error))?;
        for ghost in &mut self.world.ghosts {
            ghost.acknowledge(ghost.end)?;
        }
        self.world.events.note("life: closed");
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Over> {
        self.append(0)?;
        self.append(1)?;
        self.take_round();
        self.commit()?;
        self.roll()?;
        self.world.rules.min_lag = Duration::ZERO;
        self.begin_compaction(true)?;
        while self.running.is_some() {
            self.step_compaction()?;
        }
        let found = self.read(0)?;
        self.check(0, &found)
    }

    pub(super) fn read(&self, nth: usize) -> Result<Found, Over> {
        read_all(&self.logs[nth]).map_err(|unread| match unread {
            Unread::Wrong(violation) => Over::Broken(violation),
            Unread::Refused(error) => self.excuse(&error),
        })
    }

    pub(super) fn check(&mut self, nth: usize, found: &Found) -> Result<(), Over> {
        let World { ghosts, latest, events, .. } = &mut *self.world;
        let (gone, old) = ghosts[nth].check(found, *latest)?;
        events.add("compaction: record removed", gone);
        events.add("compaction: old tombstone removed", old);
        Ok(())
    }

    pub(super) fn excuse(&self, error: &dyn std::fmt::Display) -> Over {
        self.world.excuse(self.syncs_failed, error)
    }
}
