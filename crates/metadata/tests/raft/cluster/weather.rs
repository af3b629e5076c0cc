//! How much of what happens.

use crate::rng::Rng;

/// How much of what happens in one run; drawn per seed, so that some runs know no crashes and others
/// little else.
pub(crate) struct Weather {
    pub(super) drop_percent: u64,
    pub(super) repeat_percent: u64,
    pub(super) delay_ticks: u64,
    pub(super) crash_one_in: u64,
    pub(super) pause_one_in: u64,
    pub(super) cut_one_in: u64,
    pub(super) stall_one_in: u64,
    pub(super) compact_one_in: u64,
    pub(super) change_one_in: u64,
    pub(super) transfer_one_in: u64,
    pub(super) unreachable_one_in: u64,
    pub(super) propose_percent: u64,
    pub(super) starts: bool,
}

impl Weather {
    pub(super) fn draw(rng: &mut Rng) -> Weather {
        let rate = |rng: &mut Rng, often: u64| match rng.below(4) {
            0 => 0,
            1 => often * 4,
            _ => often,
        };
        Weather {
            drop_percent: [0, 2, 10, 25][rng.below(4) as usize],
            repeat_percent: [0, 2, 10][rng.below(3) as usize],
            delay_ticks: [1, 3, 8, 40][rng.below(4) as usize],
            crash_one_in: rate(rng, 60),
            pause_one_in: rate(rng, 80),
            cut_one_in: rate(rng, 60),
            stall_one_in: rate(rng, 50),
            compact_one_in: rate(rng, 25),
            change_one_in: rate(rng, 20),
            transfer_one_in: rate(rng, 60),
            unreachable_one_in: rate(rng, 30),
            propose_percent: [5, 30, 80][rng.below(3) as usize],
            starts: true,
        }
    }

    pub(super) fn calm() -> Weather {
        Weather {
            drop_percent: 0,
            repeat_percent: 0,
            delay_ticks: 1,
            crash_one_in: 0,
            pause_one_in: 0,
            cut_one_in: 0,
            stall_one_in: 0,
            compact_one_in: 0,
            change_one_in: 0,
            transfer_one_in: 0,
            unreachable_one_in: 0,
            propose_percent: 0,
            starts: false,
        }
    }
}
