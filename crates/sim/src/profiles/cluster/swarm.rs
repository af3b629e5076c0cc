//! What one seed exercises: how large, which faults, how often.

use std::time::Duration;

use towpath_log::WriteAheadLimits;

use super::faults::Fault;
use super::network::Weather;
use super::work::Mix;
use crate::rng::Rng;
use crate::workload::BatchShape;

/// What a client does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Produce,
    BumpEpoch,
    Consume,
    Commit,
    Administer,
    DeleteRecords,
    CompareReplica,
    CheckDisk,
    Deliver,
    Work,
}

impl Op {
    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Produce => "op produce",
            Op::BumpEpoch => "op bump epoch",
            Op::Consume => "op consume",
            Op::Commit => "op commit",
            Op::Administer => "op administer",
            Op::DeleteRecords => "op delete records",
            Op::CompareReplica => "op compare replica",
            Op::CheckDisk => "op check disk",
            Op::Deliver => "op deliver",
            Op::Work => "op work",
        }
    }
}

/// The mix of one seed.
#[derive(Debug, Clone)]
pub(super) struct Swarm {
    pub(super) brokers: i32,
    pub(super) ops: Vec<(u64, Op)>,
    pub(super) faults: Vec<(u64, Fault)>,
    /// Between two client operations, at most.
    pub(super) op_every: Duration,
    /// Between two faults, at most; in a burst, 3 to 40 ms.
    pub(super) fault_every: Duration,
    /// How long faults go on.
    pub(super) lasts: Duration,
    /// Faults come in bursts, and half of them meet the leader or the controller.
    pub(super) is_biased: bool,
    pub(super) weather: Weather,
    pub(super) shape: BatchShape,
    pub(super) limits: WriteAheadLimits,
    pub(super) segment_bytes: u32,
    pub(super) producers: u64,
    pub(super) loses_answers: u64,
    /// Leaders are moved back to the first replica so often.
    pub(super) rebalance_seconds: u64,
    pub(super) lag_ms: u64,
    /// Bytes of metadata between two snapshots.
    pub(super) snapshot_bytes: u64,
    /// Some topics are queues, or become some.
    pub(super) has_queues: bool,
    /// Queues are worked, and nothing else is done: the profile `queue`.
    pub(super) work: Option<Mix>,
}

/// Of a hundred seeds, how many have queues.
const QUEUES_PERCENT: u64 = 40;

impl Swarm {
    /// The mix of a seed. Whether there are queues is drawn apart: seeds without any are what they were
    /// before there were queues at all.
    pub(super) fn of(seed: u64, rng: &mut Rng) -> Swarm {
        let mut swarm = Swarm::draw(rng);
        swarm.has_queues = Rng::new(!seed).percent(QUEUES_PERCENT);
        if swarm.has_queues {
            swarm.ops.push((15, Op::Deliver));
        }
        swarm
    }

    pub(super) fn draw(rng: &mut Rng) -> Swarm {
        let is_biased = rng.percent(50);
        let secs = |rng: &mut Rng, low, high| Duration::from_millis(rng.between(low, high));
        Swarm {
            brokers: rng.weighted(&[(7, 3), (2, 4), (1, 5)]),
            ops: draw_ops(rng),
            faults: draw_faults(rng),
            op_every: Duration::from_millis(rng.weighted(&[(1, 10), (2, 25), (1, 60)])),
            fault_every: secs(rng, 300, 2_000),
            lasts: secs(rng, 2_000, 7_000),
            is_biased,
            weather: Weather {
                late_percent: rng.weighted(&[(2, 0), (2, 2), (1, 10)]),
                late_max: Duration::from_millis(rng.weighted(&[(1, 20), (1, 300)])),
                controller_late_percent: if is_biased { 15 } else { 0 },
                records_bytes: rng.weighted(&[(1, 1), (1, 600), (2, 1 << 20)]),
                patience: Duration::from_millis(rng.weighted(&[(1, 500), (1, 5_000)])),
                encodes: rng.percent(20),
            },
            shape: BatchShape {
                records_max: rng.between(1, 4),
                value_bytes_max: rng.weighted(&[(3, 40), (1, 400)]),
                large_per_10_000: rng.weighted(&[(3, 0), (1, 100)]),
                large_value_bytes: rng.between(2_000, 10_000),
                tombstones_percent: 3,
            },
            limits: WriteAheadLimits {
                file_bytes_max: rng.between(8, 64) << 10,
                direct_bytes_min: rng.weighted(&[(1, 600), (2, 4 << 10), (2, 16 << 10)]),
            },
            segment_bytes: rng.between(2_000, 20_000) as u32,
            producers: rng.between(1, 4),
            loses_answers: rng.weighted(&[(1, 0), (2, 3), (1, 15)]),
            rebalance_seconds: rng.weighted(&[(1, 1), (1, 300)]),
            lag_ms: rng.weighted(&[(1, 300), (2, 2_000)]),
            snapshot_bytes: rng.weighted(&[(2, 16 << 20), (1, 4_000), (1, 500)]),
            has_queues: false,
            work: None,
        }
    }
}

/// Producers and readers always run; each of the others is off in every other seed.
fn draw_ops(rng: &mut Rng) -> Vec<(u64, Op)> {
    let mut ops =
        vec![(40, Op::Produce), (12, Op::Consume), (2, Op::CompareReplica), (1, Op::CheckDisk)];
    for op in [(2, Op::BumpEpoch), (8, Op::Commit), (5, Op::Administer), (2, Op::DeleteRecords)] {
        if rng.percent(60) {
            ops.push(op);
        }
    }
    ops
}

fn draw_faults(rng: &mut Rng) -> Vec<(u64, Fault)> {
    let all = [
        (6, Fault::Kill),
        (6, Fault::StopAtCall),
        (5, Fault::LosePower),
        (1, Fault::LoseAllPower),
        (5, Fault::Pause),
        (4, Fault::SlowDisk),
        (2, Fault::FillDisk),
        (2, Fault::FailSync),
        (2, Fault::JumpWall),
        (4, Fault::StopOrderly),
        (2, Fault::ReplaceDisk),
        (5, Fault::Isolate),
        (5, Fault::BlockOneWay),
        (4, Fault::BlockController),
        (4, Fault::CutConnection),
    ];
    let mut faults: Vec<_> = all.into_iter().filter(|_| rng.percent(50)).collect();
    if faults.is_empty() {
        faults.push((1, Fault::CutConnection));
    }
    faults
}
