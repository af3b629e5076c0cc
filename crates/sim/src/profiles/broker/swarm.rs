//! What one seed exercises: which operations, how often, at which sizes.

use std::time::Duration;

use towpath_log::WriteAheadLimits;

use super::network::Weather;
use crate::rng::Rng;
use crate::workload::BatchShape;

/// One step of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Produce,
    Consume,
    Rewind,
    Publish,
    Administer,
    DeleteRecords,
    BumpEpoch,
    SyncRound,
    Carry,
    Pause,
    Tick,
    Upkeep,
    Compact,
    Scrub,
    LetTimePass,
    JumpClock,
    FillDisk,
    FreeDisk,
    FailSync,
    CutPowerOfACopy,
    CheckEverything,
}

impl Op {
    /// Its name in the trace.
    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Produce => "op produce",
            Op::Consume => "op consume",
            Op::Rewind => "op rewind",
            Op::Publish => "op publish",
            Op::Administer => "op administer",
            Op::DeleteRecords => "op delete records",
            Op::BumpEpoch => "op bump epoch",
            Op::SyncRound => "op sync round",
            Op::Carry => "op carry",
            Op::Pause => "op pause",
            Op::Tick => "op tick",
            Op::Upkeep => "op upkeep",
            Op::Compact => "op compact",
            Op::Scrub => "op scrub",
            Op::LetTimePass => "op let time pass",
            Op::JumpClock => "op jump clock",
            Op::FillDisk => "op fill disk",
            Op::FreeDisk => "op free disk",
            Op::FailSync => "op fail sync",
            Op::CutPowerOfACopy => "op cut power of a copy",
            Op::CheckEverything => "op check everything",
        }
    }
}

/// The mix of one seed.
#[derive(Debug, Clone)]
pub(super) struct Swarm {
    pub(super) ops: Vec<(u64, Op)>,
    /// The compacted topic is there from the beginning, and it is what the run is about.
    pub(super) has_ledger: bool,
    pub(super) shape: BatchShape,
    pub(super) limits: WriteAheadLimits,
    pub(super) segment_bytes: u32,
    pub(super) steps_max: u64,
    pub(super) crashes_percent: u64,
    pub(super) calls_before_crash_max: u64,
    pub(super) producers: u64,
    pub(super) consumers: u64,
    pub(super) callers: u64,
    pub(super) weather: Weather,
    /// Whether other things happen in the middle of a sync round.
    pub(super) splits_rounds: bool,
}

impl Swarm {
    pub(super) fn draw(rng: &mut Rng) -> Swarm {
        let has_ledger = rng.percent(30);
        Swarm {
            ops: draw_ops(rng, has_ledger),
            has_ledger,
            shape: BatchShape {
                records_max: rng.between(1, 5),
                value_bytes_max: rng.weighted(&[(3, 40), (2, 300), (1, 1500)]),
                large_per_10_000: rng.weighted(&[(3, 0), (1, 100)]),
                large_value_bytes: rng.between(2_000, 10_000),
                tombstones_percent: if has_ledger { 25 } else { 3 },
            },
            limits: WriteAheadLimits {
                file_bytes_max: rng.between(4, 64) << 10,
                direct_bytes_min: rng.weighted(&[(1, 600), (2, 4 << 10), (2, 16 << 10)]),
            },
            segment_bytes: rng.between(2_000, 20_000) as u32,
            steps_max: rng.between(30, 150),
            crashes_percent: rng.weighted(&[(1, 0), (4, 60), (1, 90)]),
            calls_before_crash_max: rng.weighted(&[(1, 20), (2, 100), (2, 300)]),
            producers: rng.between(1, 4),
            consumers: rng.between(1, 3),
            callers: rng.between(0, 2),
            weather: Weather::draw(rng),
            splits_rounds: rng.percent(60),
        }
    }
}

/// Clients and the broker's threads always run; each of the others is off in every other seed.
fn draw_ops(rng: &mut Rng, has_ledger: bool) -> Vec<(u64, Op)> {
    const SOMETIMES: [(u64, Op); 14] = [
        (1, Op::Pause),
        (1, Op::Rewind),
        (3, Op::DeleteRecords),
        (3, Op::BumpEpoch),
        (4, Op::Upkeep),
        (8, Op::Compact),
        (4, Op::Scrub),
        (5, Op::LetTimePass),
        (3, Op::JumpClock),
        (1, Op::FillDisk),
        (1, Op::FailSync),
        (1, Op::CutPowerOfACopy),
        (2, Op::CheckEverything),
        (4, Op::FreeDisk),
    ];
    let mut ops = vec![
        (rng.between(15, 40), Op::Produce),
        (rng.between(3, 12), Op::Consume),
        (rng.between(5, 35), Op::Publish),
        (rng.between(2, 6), Op::Administer),
        (rng.between(4, 30), Op::SyncRound),
        (rng.between(5, 30), Op::Carry),
        (4, Op::Tick),
        (2, Op::Upkeep),
        (2, Op::FreeDisk),
    ];
    ops.extend(SOMETIMES.iter().filter(|_| rng.percent(50)));
    if has_ledger {
        ops.extend([(15, Op::Compact), (5, Op::LetTimePass)]);
    }
    ops
}

/// How long nothing happens between two steps, now and then. All pauses of a run together stay far
/// below the day after which a partition forgets a producer.
pub(super) fn draw_pause(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.weighted(&[(4, 20), (3, 1_500), (1, 10_000), (2, 40_000)]))
}
