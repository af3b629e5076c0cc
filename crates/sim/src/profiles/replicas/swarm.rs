//! What one seed is like: sizes, delays, and which faults there are at all.

use std::time::Duration;

use towpath_model::Durability;

use crate::rng::Rng;

/// Something that goes wrong, or happens to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    CutPower,
    CutPowerOfAll,
    Pause,
    BlockOneWay,
    Isolate,
    SlowDisk,
    DeleteRecords,
}

const FAULTS: [(u64, Fault); 8] = [
    (4, Fault::Kill),
    (4, Fault::CutPower),
    (1, Fault::CutPowerOfAll),
    (3, Fault::Pause),
    (3, Fault::BlockOneWay),
    (3, Fault::Isolate),
    (2, Fault::SlowDisk),
    (1, Fault::DeleteRecords),
];

#[derive(Debug, Clone)]
pub(super) struct Swarm {
    pub(super) replicas: i32,
    pub(super) min_in_sync: u32,
    /// Relaxed topics lose what they promise with the power, so those seeds do without that.
    pub(super) durability: Durability,
    /// Whether leaders look who is fenced before they ask for somebody.
    pub(super) looks_who_is_fenced: bool,
    /// Batches in one answer.
    pub(super) batches_max: usize,
    pub(super) stall: Duration,
    pub(super) session: Duration,
    pub(super) lost_percent: u64,
    pub(super) repeated_percent: u64,
    pub(super) late_percent: u64,
    pub(super) late_to_controller_percent: u64,
    pub(super) slow_disk_percent: u64,
    pub(super) produce_every: Duration,
    pub(super) fault_every: Duration,
    /// Of faults, how many go to whom the controller takes for the leader.
    pub(super) at_leader_percent: u64,
    pub(super) faults: Vec<(u64, Fault)>,
    /// How long faults go on.
    pub(super) runs_for: Duration,
}

impl Swarm {
    pub(super) fn draw(rng: &mut Rng) -> Swarm {
        let replicas = rng.weighted(&[(1, 2), (8, 3), (1, 4)]);
        let mut on = |percent| rng.percent(percent);
        let is_biased = on(50);
        let durability = if on(80) { Durability::Synced } else { Durability::Relaxed };
        let looks_who_is_fenced = on(50);
        let mut faults: Vec<(u64, Fault)> = FAULTS.iter().copied().filter(|_| on(70)).collect();
        if durability == Durability::Relaxed {
            faults.retain(|(_, fault)| !matches!(fault, Fault::CutPower | Fault::CutPowerOfAll));
        }
        let rate = |rng: &mut Rng, most: u64| if rng.percent(70) { rng.below(most + 1) } else { 0 };
        Swarm {
            replicas,
            durability,
            looks_who_is_fenced,
            min_in_sync: rng.weighted(&[(2, 1), (6, 2), (1, 3)]).min(replicas as u32),
            batches_max: rng.weighted(&[(2, 1), (1, 2), (1, 4), (1, 32)]),
            stall: Duration::from_millis(rng.between(30, 250)),
            session: Duration::from_millis(rng.between(60, 250)),
            lost_percent: rate(rng, 6),
            repeated_percent: rate(rng, 6),
            late_percent: rate(rng, 8),
            late_to_controller_percent: if is_biased { 15 } else { rate(rng, 6) },
            slow_disk_percent: rate(rng, if is_biased { 20 } else { 5 }),
            produce_every: Duration::from_micros(rng.between(500, 8000)),
            fault_every: Duration::from_millis(if is_biased {
                rng.between(3, 40)
            } else {
                rng.between(20, 150)
            }),
            at_leader_percent: if is_biased { 50 } else { 20 },
            faults,
            runs_for: Duration::from_millis(rng.between(300, 2000)),
        }
    }
}
