//! What one seed exercises: which operations, how often, at which sizes.

use std::time::Duration;

use towpath_log::WriteAheadLimits;

use crate::rng::Rng;
use crate::workload::BatchShape;

/// One operation of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Append,
    TakeRound,
    Commit,
    Read,
    FindTimestamp,
    MoveStart,
    Expire,
    Truncate,
    RollIfDue,
    Checkpoint,
    SaveProducers,
    LoadProducers,
    Delete,
    CutPowerOfACopy,
    FillDisk,
    FreeDisk,
    LetTimePass,
    JumpClock,
    Reconfigure,
    Tidy,
}

impl Op {
    /// Whether it writes several files, in an order that matters.
    pub(super) fn is_delicate(self) -> bool {
        matches!(
            self,
            Op::Commit
                | Op::MoveStart
                | Op::Expire
                | Op::Truncate
                | Op::Checkpoint
                | Op::SaveProducers
                | Op::Delete
                | Op::Tidy
        )
    }

    /// Its name in the trace.
    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Append => "append",
            Op::TakeRound => "take round",
            Op::Commit => "commit",
            Op::Read => "read",
            Op::FindTimestamp => "find timestamp",
            Op::MoveStart => "move start",
            Op::Expire => "expire",
            Op::Truncate => "truncate",
            Op::RollIfDue => "roll if due",
            Op::Checkpoint => "checkpoint",
            Op::SaveProducers => "save producers",
            Op::LoadProducers => "load producers",
            Op::Delete => "delete",
            Op::CutPowerOfACopy => "cut power of a copy",
            Op::FillDisk => "fill disk",
            Op::FreeDisk => "free disk",
            Op::LetTimePass => "let time pass",
            Op::JumpClock => "jump clock",
            Op::Reconfigure => "reconfigure",
            Op::Tidy => "tidy",
        }
    }
}

/// The mix of one seed.
#[derive(Debug, Clone)]
pub(super) struct Swarm {
    pub(super) ops: Vec<(u64, Op)>,
    pub(super) shape: BatchShape,
    pub(super) limits: WriteAheadLimits,
    pub(super) segment_bytes: u32,
    pub(super) index_interval_bytes: u32,
    pub(super) steps_max: u64,
    pub(super) crashes_percent: u64,
    pub(super) calls_before_crash_max: u64,
    pub(super) sync_failures_percent: u64,
    /// How often the machine stops during one of the operations that write several files in order.
    pub(super) aims_percent: u64,
    pub(super) partitions: usize,
}

impl Swarm {
    pub(super) fn draw(rng: &mut Rng) -> Swarm {
        let value_bytes_max = rng.weighted(&[(3, 40), (3, 400), (1, 3000)]);
        Swarm {
            ops: draw_ops(rng),
            shape: BatchShape {
                records_max: rng.between(1, 8),
                value_bytes_max,
                large_per_10_000: rng.weighted(&[(3, 0), (1, 100)]),
                large_value_bytes: rng.between(4_000, 40_000),
                tombstones_percent: 3,
            },
            limits: WriteAheadLimits {
                file_bytes_max: rng.between(4, 64) << 10,
                direct_bytes_min: rng.weighted(&[(1, 600), (2, 4 << 10), (2, 16 << 10)]),
            },
            segment_bytes: draw_segment_bytes(rng),
            index_interval_bytes: rng.weighted(&[(1, 1), (2, 400), (1, 4096)]),
            steps_max: rng.between(10, 90),
            crashes_percent: rng.weighted(&[(1, 0), (4, 70), (1, 95)]),
            calls_before_crash_max: rng.weighted(&[(1, 20), (2, 80), (2, 300)]),
            sync_failures_percent: rng.weighted(&[(3, 0), (1, 20), (1, 60)]),
            aims_percent: rng.weighted(&[(2, 0), (1, 3), (1, 15)]),
            partitions: rng.between(1, 4) as usize,
        }
    }
}

/// Appends and commits always happen; each of the others is off in every other seed.
fn draw_ops(rng: &mut Rng) -> Vec<(u64, Op)> {
    const SOMETIMES: [(u64, Op); 17] = [
        (10, Op::Read),
        (4, Op::FindTimestamp),
        (3, Op::MoveStart),
        (3, Op::Expire),
        (4, Op::Truncate),
        (3, Op::RollIfDue),
        (3, Op::Checkpoint),
        (2, Op::SaveProducers),
        (2, Op::LoadProducers),
        (1, Op::Delete),
        (2, Op::CutPowerOfACopy),
        (1, Op::FillDisk),
        (3, Op::FreeDisk),
        (4, Op::LetTimePass),
        (1, Op::JumpClock),
        (1, Op::Reconfigure),
        (2, Op::Tidy),
    ];
    let mut ops = vec![(rng.between(15, 50), Op::Append)];
    ops.push((rng.between(3, 20), Op::TakeRound));
    ops.push((rng.between(5, 25), Op::Commit));
    ops.extend(SOMETIMES.iter().filter(|_| rng.percent(50)));
    ops
}

/// How long nothing happens between two steps, now and then.
pub(super) fn draw_pause(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.weighted(&[(4, 20), (3, 2_000), (2, 60_000), (1, 1_000_000)]))
}

/// Small, so that a few appends roll.
pub(super) fn draw_segment_bytes(rng: &mut Rng) -> u32 {
    rng.between(1_000, 12_000) as u32
}
