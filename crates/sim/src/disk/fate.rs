//! What a power loss leaves of the changes that nobody had synced.

use crate::rng::Rng;

/// Bytes that a real disk writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// How one file, or the names of the whole disk, fare when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing had reached the disk.
    LoseAll,
    /// The cache had just been written back.
    KeepAll,
    /// It was being written back in order, and the power went in the middle of a write.
    KeepPrefix,
    /// It was being written back in any order.
    KeepSome {
        /// Chance of each sector or change, in percent.
        percent: u64,
    },
}

impl Fate {
    pub(super) fn draw(rng: &mut Rng) -> Fate {
        rng.weighted(&[
            (25, Fate::LoseAll),
            (10, Fate::KeepAll),
            (30, Fate::KeepPrefix),
            (15, Fate::KeepSome { percent: 50 }),
            (10, Fate::KeepSome { percent: 90 }),
            (10, Fate::KeepSome { percent: 10 }),
        ])
    }

    /// Decides about `changes` changes, one after the other.
    pub(super) fn keeps(self, rng: &mut Rng, changes: usize) -> Vec<bool> {
        match self {
            Fate::LoseAll => vec![false; changes],
            Fate::KeepAll => vec![true; changes],
            Fate::KeepPrefix => {
                let kept = rng.index(changes + 1);
                (0..changes).map(|at| at < kept).collect()
            }
            Fate::KeepSome { percent } => (0..changes).map(|_| rng.percent(percent)).collect(),
        }
    }
}
