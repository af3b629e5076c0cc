//! Random work and crashes, against a model of what was promised.
//!
//! Promised: what a commit made durable is there after any crash, byte for byte; what is there is a
//! prefix of what was appended; the log start is where it was moved to; nothing is reported as
//! damaged, for the disk loses only what was not synced.

use proptest::prelude::*;
use towpath_model::Offset;
use towpath_records::Compression;

use super::fixture::*;
use crate::LogError;
use crate::testing::{Dice, MemoryDisk};

const PARTITIONS: usize = 3;

#[derive(Debug, Clone)]
enum Op {
    Append {
        partition: usize,
        records: usize,
        bytes: usize,
    },
    /// Bit per partition; `late` appends come after the bytes were taken.
    Commit {
        partitions: u8,
        late: bool,
    },
    Tidy,
    MoveStart {
        partition: usize,
        part: u8,
    },
    Truncate {
        partition: usize,
        part: u8,
        during_commit: bool,
    },
    Checkpoint {
        partition: usize,
    },
    Roll {
        partition: usize,
    },
    Delete {
        partition: usize,
    },
    SaveProducers {
        partition: usize,
    },
    CloseAndOpen,
    Kill,
    PowerCut {
        seed: u64,
    },
    /// The n-th call from now on ends the process.
    StopSoon {
        calls: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let partition = 0..PARTITIONS;
    prop_oneof![
        12 => (partition.clone(), 1..4usize, prop_oneof![1..60usize, 300..900usize, 1500..2500usize])
            .prop_map(|(partition, records, bytes)| Op::Append { partition, records, bytes: bytes / records }),
        8 => (1..8u8, any::<bool>()).prop_map(|(partitions, late)| Op::Commit { partitions, late }),
        2 => Just(Op::Tidy),
        1 => (partition.clone(), any::<u8>()).prop_map(|(partition, part)| Op::MoveStart { partition, part }),
        2 => (partition.clone(), any::<u8>(), any::<bool>())
            .prop_map(|(partition, part, during_commit)| Op::Truncate { partition, part, during_commit }),
        1 => partition.clone().prop_map(|partition| Op::Checkpoint { partition }),
        1 => partition.clone().prop_map(|partition| Op::Roll { partition }),
        1 => partition.clone().prop_map(|partition| Op::Delete { partition }),
        1 => partition.prop_map(|partition| Op::SaveProducers { partition }),
        1 => Just(Op::CloseAndOpen),
        1 => Just(Op::Kill),
        3 => any::<u64>().prop_map(|seed| Op::PowerCut { seed }),
        3 => (1..25u64).prop_map(|calls| Op::StopSoon { calls }),
    ]
}

/// What was promised about one log, and what may have happened besides.
#[derive(Debug, Clone, Default)]
struct Model {
    batches: Vec<(Offset, Vec<u8>)>,
    start: i64,
    durable: i64,
    /// A move of the start, a truncation or a deletion was under way when the process ended.
    maybe_start: Option<i64>,
    maybe_truncated: Option<i64>,
    maybe_deleted: bool,
}

impl Model {
    fn end(&self) -> i64 {
        self.batches.last().map_or(self.start, |(next, _)| next.0).max(self.start)
    }

    fn truncate(&mut self, to: i64) {
        self.batches.retain(|(next, _)| next.0 <= to);
        self.durable = self.durable.min(self.end().max(self.start));
    }

    /// Stands for the producer state: it follows from the newest batch.
    fn state_at(&self, at: i64) -> Vec<u8> {
        let newest = self.batches.iter().find(|(next, _)| next.0 == at);
        newest.map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    fn bytes(&self, from: i64, to: i64) -> Vec<u8> {
        let kept = self.batches.iter().filter(|(next, _)| from < next.0 && next.0 <= to);
        kept.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }
}

struct World {
    disk: MemoryDisk,
    directory: Directory,
    logs: Vec<TestLog>,
    models: Vec<Model>,
    appended: i64,
}

impl World {
    fn new() -> World {
        let disk = MemoryDisk::default();
        let (directory, _) = open(&disk);
        let logs = (0..PARTITIONS as i32).map(|n| open_log(&directory, n).0).collect();
        World { disk, directory, logs, models: vec![Model::default(); PARTITIONS], appended: 0 }
    }

    /// Carries out one operation; an error means that the process has ended.
    fn run(&mut self, op: &Op) -> Result<(), LogError> {
        match *op {
            Op::Append { partition, records, bytes } => self.append(partition, records, bytes),
            Op::Commit { partitions, late } => self.commit(partitions, late, None),
            Op::Tidy => {
                self.directory.tidy();
                self.ended_if_failed()
            }
            Op::MoveStart { partition, part } => {
                let (log, model) = (&mut self.logs[partition], &mut self.models[partition]);
                let span = model.durable - model.start;
                let to = model.start + span * i64::from(part) / 255;
                model.maybe_start = Some(to);
                log.start_moves_to(Offset(to))?;
                model.maybe_start = None;
                model.start = to;
                Ok(())
            }
            Op::Truncate { partition, part, during_commit } => {
                let model = &self.models[partition];
                let to = model.start + (model.end() - model.start) * i64::from(part) / 255;
                if during_commit {
                    return self.commit(0xff, false, Some((partition, to)));
                }
                self.truncate(partition, to)
            }
            Op::Checkpoint { partition } => {
                self.logs[partition].save_checkpoint()?;
                self.models[partition].durable = self.models[partition].end();
                Ok(())
            }
            Op::Roll { partition } => self.logs[partition].roll_if_due(now(i64::MAX / 4)).map(drop),
            Op::Delete { partition } => {
                self.models[partition].maybe_deleted = true;
                self.directory.delete_log(place(partition as i32))?;
                self.models[partition] = Model::default();
                self.logs[partition] = open_log(&self.directory, partition as i32).0;
                Ok(())
            }
            Op::SaveProducers { partition } => {
                let log = &mut self.logs[partition];
                let at = log.log_end_offset();
                log.save_producers(at, &self.models[partition].state_at(at.0))
            }
            Op::CloseAndOpen => {
                self.directory.close(self.logs.iter_mut())?;
                for model in &mut self.models {
                    model.durable = model.end();
                }
                let report = self.reopen();
                assert!(report.was_clean());
                assert_eq!(report.replayed_frames, 0);
                Ok(())
            }
            Op::Kill | Op::PowerCut { .. } => Err(self.ended()),
            Op::StopSoon { calls } => {
                self.disk.stop_after(calls);
                Ok(())
            }
        }
    }

    fn append(&mut self, partition: usize, records: usize, bytes: usize) -> Result<(), LogError> {
        self.appended += 1;
        let (log, model) = (&mut self.logs[partition], &mut self.models[partition]);
        let batch =
            batch(log.log_end_offset(), &vec![self.appended; records], bytes, Compression::None);
        // Bytes of a refused append may be on the disk whole: then it may be there after a crash.
        model.batches.push((log.log_end_offset() + records as i64, batch.clone()));
        try_append(log, &batch, self.appended).map(drop)
    }

    fn commit(
        &mut self,
        partitions: u8,
        late: bool,
        truncate: Option<(usize, i64)>,
    ) -> Result<(), LogError> {
        let chosen: Vec<usize> = (0..PARTITIONS).filter(|n| partitions & (1 << n) != 0).collect();
        let round: Vec<_> = chosen.iter().filter_map(|n| self.logs[*n].take_dirty()).collect();
        if late {
            for partition in &chosen {
                self.append(*partition, 1, 33)?;
            }
        }
        if let Some((partition, to)) = truncate {
            self.truncate(partition, to)?;
        }
        for committed in self.directory.commit(round) {
            if committed.result().is_err() {
                return Err(self.ended());
            }
            let partition = committed.partition().partition.0 as usize;
            self.logs[partition].committed(&committed);
            let durable = self.logs[partition].durable_offset();
            self.models[partition].durable = durable.0;
        }
        Ok(())
    }

    fn truncate(&mut self, partition: usize, to: i64) -> Result<(), LogError> {
        let (log, model) = (&mut self.logs[partition], &mut self.models[partition]);
        model.maybe_truncated = Some(to);
        log.truncate_to(Offset(to))?;
        model.maybe_truncated = None;
        model.truncate(to);
        assert_eq!(log.log_end_offset().0, model.end());
        assert!(log.durable_offset().0 <= model.durable);
        Ok(())
    }

    fn ended(&self) -> LogError {
        LogError::DirectoryFailed { path: ROOT.into(), reason: "ended".to_owned() }
    }

    fn ended_if_failed(&self) -> Result<(), LogError> {
        if self.directory.is_failed() { Err(self.ended()) } else { Ok(()) }
    }

    fn crash(&mut self, op: &Op, dice: &mut Dice) {
        match op {
            Op::Kill => self.disk.kill(),
            Op::PowerCut { seed } => self.disk.power_cut(&mut Dice(*seed)),
            _ if dice.below(3) == 0 => self.disk.kill(),
            _ => self.disk.power_cut(dice),
        }
        // Now and then the recovery itself is interrupted, more than once.
        while dice.below(3) == 0 {
            self.disk.stop_after(1 + dice.below(30));
            let opened = crate::DataDirectory::open_with(
                self.disk.clone(),
                std::path::Path::new(ROOT),
                identity,
                "boot",
                LIMITS,
            );
            if let Ok((directory, _)) = &opened {
                for partition in 0..PARTITIONS as i32 {
                    if directory.open_log(place(partition), CONFIG).is_err() {
                        break;
                    }
                }
            }
            drop(opened);
            if dice.below(2) == 0 { self.disk.kill() } else { self.disk.power_cut(dice) }
        }
        self.reopen();
    }

    fn reopen(&mut self) -> crate::OpenReport {
        self.logs.clear();
        // The old process' lock is gone with it.
        self.disk.kill();
        let (directory, report) = open(&self.disk);
        self.directory = directory;
        assert_eq!(report.damaged_places, 0);
        for partition in 0..PARTITIONS {
            let (log, recovery) = open_log(&self.directory, partition as i32);
            assert_eq!(recovery.damage, vec![], "partition {partition}: {recovery:?}");
            check(&log, &mut self.models[partition]);
            self.logs.push(log);
        }
        report
    }
}

/// Compares a recovered log with what was promised, and makes what was found the new promise.
fn check(log: &TestLog, model: &mut Model) {
    let (start, end) = (log.log_start_offset().0, log.log_end_offset().0);
    let is_gone = model.maybe_deleted && start == 0 && end == 0 && log.segment_count() == 0;
    if is_gone {
        *model = Model::default();
        return;
    }
    let starts = [Some(model.start), model.maybe_start];
    assert!(starts.contains(&Some(start)), "start {start} of {starts:?}");
    let promised = model.durable.min(model.maybe_truncated.unwrap_or(i64::MAX));
    // A truncation keeps whole batches only.
    let whole = model.batches.iter().map(|(next, _)| next.0).filter(|next| *next <= promised);
    let promised = whole.max().unwrap_or(model.start).max(start);
    assert!(promised <= end, "promised {promised}, found {end}");
    assert_eq!(log.durable_offset().0, end, "all that was found is durable");
    assert_eq!(contents(log, Offset(start)), model.bytes(start, end));
    let headers: Vec<_> = log.headers(Offset(start)).map(|header| header.unwrap()).collect();
    let mut expected = headers.first().map_or(end, |header| header.base_offset().0);
    for header in headers {
        assert_eq!(header.base_offset().0, expected);
        expected = header.next_offset().0;
    }
    assert_eq!(expected, end);
    if let Some((at, payload)) = log.load_producers(Offset(end)) {
        assert_eq!(payload, model.state_at(at.0));
    }
    model.batches.retain(|(next, _)| next.0 <= end);
    model.start = start;
    model.durable = end;
    model.maybe_start = None;
    model.maybe_truncated = None;
    model.maybe_deleted = false;
}

fn run(ops: &[Op], seed: u64) {
    let mut dice = Dice(seed);
    let mut world = World::new();
    for op in ops {
        if world.run(op).is_err() {
            world.crash(op, &mut dice);
        }
    }
    world.crash(&Op::PowerCut { seed }, &mut dice);
}

/// `TOWPATH_LOG_CASES=100000` runs longer.
fn cases() -> u32 {
    std::env::var("TOWPATH_LOG_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_promised_survives_every_crash(
        ops in prop::collection::vec(op(), 1..80),
        seed in any::<u64>(),
    ) {
        run(&ops, seed);
    }
}
