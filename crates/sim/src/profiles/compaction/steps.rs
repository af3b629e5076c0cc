//! The single steps of a life, each compared with the ghost at once.

use std::time::Duration;

use towpath_log::{CompactionError, Log, LogError, Step};
use towpath_model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_records::{BatchBuilder, BatchHeader, Compression, set_leader_epoch};

use super::ghost::Given;
use super::life::{Life, Over, World};
use crate::profile::{Violation, ensure};
use crate::rng::Rng;

/// One operation of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Append,
    AppendToOther,
    TakeRound,
    Commit,
    Roll,
    BeginCompaction,
    StepCompaction,
    Read,
    MoveStart,
    Checkpoint,
    LetTimePass,
    JumpClock,
    FillDisk,
    FreeDisk,
    FailSync,
    CutPowerOfACopy,
}

impl Op {
    /// Its name in the trace.
    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Append => "append",
            Op::AppendToOther => "append to the other log",
            Op::TakeRound => "take round",
            Op::Commit => "commit",
            Op::Roll => "roll",
            Op::BeginCompaction => "begin compaction",
            Op::StepCompaction => "step compaction",
            Op::Read => "read",
            Op::MoveStart => "move start",
            Op::Checkpoint => "checkpoint",
            Op::LetTimePass => "let time pass",
            Op::JumpClock => "jump clock",
            Op::FillDisk => "fill disk",
            Op::FreeDisk => "free disk",
            Op::FailSync => "fail sync",
            Op::CutPowerOfACopy => "cut power of a copy",
        }
    }
}

/// Appends, commits and compactions always happen; each of the others is off in every other seed.
pub(super) fn draw_ops(rng: &mut Rng) -> Vec<(u64, Op)> {
    const SOMETIMES: [(u64, Op); 9] = [
        (8, Op::AppendToOther),
        (5, Op::Read),
        (2, Op::MoveStart),
        (2, Op::Checkpoint),
        (3, Op::LetTimePass),
        (1, Op::JumpClock),
        (1, Op::FillDisk),
        (1, Op::FailSync),
        (2, Op::CutPowerOfACopy),
    ];
    let mut ops = vec![
        (rng.between(15, 40), Op::Append),
        (rng.between(4, 15), Op::TakeRound),
        (rng.between(5, 20), Op::Commit),
        (rng.between(1, 5), Op::Roll),
        (rng.between(2, 8), Op::BeginCompaction),
        (rng.between(5, 30), Op::StepCompaction),
        (3, Op::FreeDisk),
    ];
    ops.extend(SOMETIMES.iter().filter(|_| rng.percent(50)));
    ops
}

impl Life<'_> {
    pub(super) fn step(&mut self, op: Op) -> Result<(), Over> {
        match op {
            Op::Append => self.append(0),
            Op::AppendToOther => self.append(1),
            Op::TakeRound => {
                self.take_round();
                Ok(())
            }
            Op::Commit => self.commit(),
            Op::Roll => self.roll(),
            Op::BeginCompaction => self.begin_compaction(false),
            Op::StepCompaction => self.step_compaction(),
            Op::Read => {
                let found = self.read(0)?;
                self.check(0, &found)
            }
            Op::MoveStart => self.move_start(),
            Op::Checkpoint => {
                let saved = self.logs[0].save_checkpoint();
                self.forgive(saved)?;
                self.acknowledge(0)
            }
            Op::LetTimePass => {
                let pause = self.world.rng.weighted(&[(3, 300), (3, 2_000), (1, 70_000)]);
                self.world.clock.advance(Duration::from_millis(pause));
                Ok(())
            }
            Op::JumpClock => {
                self.world.clock.jump_wall(&mut self.world.rng);
                Ok(())
            }
            Op::FillDisk => {
                let space = self.directory.space().map_err(|error| self.excuse(&error))?;
                let used = space.total_bytes - space.free_bytes;
                self.world.disk.set_capacity(Some(used + self.world.rng.between(0, 3_000)));
                self.world.is_full = true;
                Ok(())
            }
            Op::FreeDisk => {
                self.world.disk.set_capacity(None);
                // A directory that has failed meanwhile stays failed.
                self.world.is_full &= self.directory.is_failed();
                Ok(())
            }
            Op::FailSync => {
                self.world.disk.fail_sync_in(self.world.rng.between(1, 12));
                Ok(())
            }
            Op::CutPowerOfACopy => self.cut_power_of_a_copy(),
        }
    }

    pub(super) fn append(&mut self, nth: usize) -> Result<(), Over> {
        let now = self.world.clock.now();
        let base = self.logs[nth].log_end_offset();
        ensure!(base == self.world.ghosts[nth].end, "INV-R1", "log {nth} ends at {base}");
        let (bytes, records) = draw_batch(self.world, base, now.wall);
        let header = BatchHeader::parse(&bytes)
            .map_err(|error| Violation::new("workload", format!("not a batch: {error}")))?;
        self.world.ghosts[nth].append(header, records);
        let appended = self.logs[nth].append(&bytes, &header, now);
        if self.forgive(appended)?.is_none() {
            self.world.ghosts[nth].take_back();
        }
        Ok(())
    }

    pub(super) fn take_round(&mut self) {
        if self.round.is_empty() {
            self.round = self.logs.iter_mut().filter_map(Log::take_dirty).collect();
        }
    }

    pub(super) fn commit(&mut self) -> Result<(), Over> {
        let round = std::mem::take(&mut self.round);
        for answer in self.directory.commit(round) {
            answer.result().map_err(|error| self.excuse(&error))?;
            let is_first = answer.partition() == self.logs[0].partition();
            let nth = usize::from(!is_first);
            self.logs[nth].committed(&answer);
            self.acknowledge(nth)?;
        }
        self.directory.tidy();
        if self.directory.is_failed() { Err(self.excuse(&"tidying failed")) } else { Ok(()) }
    }

    fn acknowledge(&mut self, nth: usize) -> Result<(), Over> {
        let durable = self.logs[nth].durable_offset();
        Ok(self.world.ghosts[nth].acknowledge(durable)?)
    }

    /// The segment is rolled by its age, as an idle one is.
    pub(super) fn roll(&mut self) -> Result<(), Over> {
        self.world.clock.advance(Duration::from_secs(61));
        let rolled = self.logs[0].roll_if_due(self.world.clock.now());
        self.forgive(rolled)?;
        Ok(())
    }

    pub(super) fn begin_compaction(&mut self, takes_all: bool) -> Result<(), Over> {
        if self.running.is_some() {
            return Ok(());
        }
        let now = self.world.clock.now();
        let World { rng, ghosts, rules, .. } = &mut *self.world;
        // A high watermark lies between two batches.
        let ends = ghosts[0].durable_ends();
        let limit = match ends.len() {
            0 => return Ok(()),
            _ if takes_all => ends[ends.len() - 1],
            len => ends[rng.between(len as u64 / 2, len as u64 - 1) as usize],
        };
        let kept = ghosts[0].newest_batches();
        match self.logs[0].begin_compaction(rules, now, limit, kept) {
            Ok(None) => {}
            Ok(Some(compaction)) => {
                self.world.ghosts[0].compaction_begins(limit, now.wall);
                self.world.latest = self.world.latest.max(now.wall);
                self.world.events.note("compaction: began");
                self.running = Some(compaction);
            }
            Err(error) => return Err(self.excuse(&error)),
        }
        Ok(())
    }

    pub(super) fn step_compaction(&mut self) -> Result<(), Over> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        match running.step() {
            Ok(Step::Worked) => self.running = Some(running),
            Ok(Step::Replace(replacement)) => {
                let several = 1 < replacement.replaced();
                let replaced = self.logs[0].replace(&replacement);
                if replaced.map_err(|error| self.excuse(&error))? {
                    self.world.events.note(if several {
                        "compaction: replaced several segments"
                    } else {
                        "compaction: replaced one segment"
                    });
                    self.running = Some(running);
                } else {
                    self.world.events.note("compaction: abandoned because the log had changed");
                    running.abandon();
                }
                let found = self.read(0)?;
                self.check(0, &found)?;
            }
            Ok(Step::Finished(compacted)) => {
                self.logs[0].compacted(&compacted);
                self.world.events.note("compaction: ended");
                if self.world.rules.key_bytes_max == 0 && 300 <= self.world.keys {
                    self.world.events.note("compaction: ended before the end of its range");
                }
                let found = self.read(0)?;
                self.check(0, &found)?;
                self.world.ghosts[0].check_is_compact(&found, compacted.clean)?;
            }
            Err(CompactionError::Superseded) => {
                self.world.events.note("compaction: abandoned because the log had changed");
                running.abandon();
            }
            Err(CompactionError::Log(error)) if self.is_refused_by_full_disk(&error) => {
                self.world.events.note("compaction: interrupted by a full disk");
                running.abandon();
            }
            Err(error @ CompactionError::Damaged { .. }) => {
                return Err(Violation::new("INV-D1", format!("compaction: {error}")).into());
            }
            Err(error) => return Err(self.excuse(&error)),
        }
        Ok(())
    }

    fn move_start(&mut self) -> Result<(), Over> {
        let World { rng, ghosts, .. } = &mut *self.world;
        let (low, high) = (ghosts[0].start.0 as u64, ghosts[0].durable.0 as u64);
        let to = Offset((low + rng.below((high - low) / 4 + 1)) as i64);
        ghosts[0].start_asked = ghosts[0].start_asked.max(to);
        let moved = self.logs[0].start_moves_to(to);
        if self.forgive(moved)?.is_none() {
            return Err(Over::Ended);
        }
        let ghost = &mut self.world.ghosts[0];
        ghost.start = ghost.start.max(to);
        self.world.events.note("log: start moved");
        Ok(())
    }

    /// Cuts the power of a copy of the disk and recovers it, whatever this life does next.
    fn cut_power_of_a_copy(&mut self) -> Result<(), Over> {
        if self.directory.is_failed() {
            return Ok(());
        }
        let copy = self.world.disk.fork(self.world.rng.draw());
        copy.set_capacity(None);
        copy.lose_power();
        copy.restart();
        let broken = |detail: String| Violation::new("INV-R9", format!("a copy: {detail}"));
        let (directory, _) = self.world.open_directory(&copy).map_err(broken)?;
        for nth in 0..2 {
            let log = self.world.open_log(&directory, nth)?;
            let found =
                super::life::read_all(&log).map_err(|unread| broken(format!("{unread:?}")))?;
            let latest = self.world.latest;
            let mut ghost = self.world.ghosts[nth].clone();
            ghost.check(&found, latest)?;
            ghost.recovered(&found)?;
        }
        self.world.events.note("compaction: sound in a power loss of a copy");
        Ok(())
    }

    fn is_refused_by_full_disk(&self, error: &LogError) -> bool {
        error.is_disk_full() && self.world.is_full
    }

    /// A refusal by the full disk is an answer (`None`); anything else ends the life.
    fn forgive<T>(&self, result: Result<T, LogError>) -> Result<Option<T>, Over> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.is_refused_by_full_disk(&error) => Ok(None),
            Err(error) => Err(self.excuse(&error)),
        }
    }
}

fn draw_batch(world: &mut World, base: Offset, wall: Timestamp) -> (Vec<u8>, Vec<Given>) {
    let World { rng, sequence, keys, leader_epoch, .. } = world;
    let codec =
        rng.weighted(&[(6, Compression::None), (1, Compression::Lz4), (1, Compression::Zstd)]);
    let mut builder = BatchBuilder::new(codec, wall);
    builder.set_base_offset(base);
    builder.set_producer(ProducerId(1), ProducerEpoch(0), Sequence(*sequence));
    let mut records = Vec::new();
    for _ in 0..rng.between(1, 5) {
        // Some keys are long, so that few fit a small map.
        let key = rng.below(*keys);
        let key = format!("{key:0width$}", width = if *keys < 300 { 3 } else { 150 }).into_bytes();
        let key = rng.percent(98).then_some(key);
        let mut value = vec![0; rng.between(1, 120) as usize];
        rng.fill(&mut value);
        let value = rng.percent(80).then_some(value);
        let timestamp = Timestamp(wall.0 - rng.below(2_000) as i64);
        builder
            .append(timestamp, key.as_deref(), value.as_deref(), [])
            .expect("a few small records fit a batch");
        records.push(Given { timestamp, key, value });
    }
    *sequence = sequence.wrapping_add(records.len() as i32) & i32::MAX;
    let mut bytes = builder.build();
    set_leader_epoch(&mut bytes, *leader_epoch);
    (bytes, records)
}
