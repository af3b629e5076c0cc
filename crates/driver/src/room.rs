//! How much room a data directory has, judged by two watermarks of its file system.
//!
//! ```text
//!  free bytes   0 ─────── high watermark ─────── low watermark ───────▶ total
//!                 refused                warned                ample
//! ```
//!
//! Only producing is refused. What frees room, and what tells where readers are, must go on: that
//! is what the rest below the high watermark is kept for.

use towpath_log::disk::Space;
use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::{BrokerConfig, DiskShare};

/// What may be done with the room that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Room {
    /// Enough.
    Ample = 0,
    /// Below the low watermark: somebody should look.
    Low = 1,
    /// Below the high watermark: producing is refused.
    Full = 2,
}

impl Room {
    pub(crate) fn from_u8(value: u8) -> Room {
        match value {
            0 => Room::Ample,
            1 => Room::Low,
            _ => Room::Full,
        }
    }
}

/// The two watermarks in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watermarks {
    low: DiskShare,
    high: DiskShare,
}

impl Watermarks {
    pub(crate) fn of(config: &BrokerConfig) -> Watermarks {
        Watermarks { low: config.disk_low_watermark, high: config.disk_high_watermark }
    }

    /// Free bytes below which producing is refused.
    pub(crate) fn high_bytes(&self, total_bytes: u64) -> u64 {
        self.high.of(total_bytes)
    }

    /// Judges `space`. Whoever is below a watermark leaves it only an eighth above it, or a disk
    /// that hovers there would refuse and accept in turn.
    pub(crate) fn judge(&self, space: Space, before: Room) -> Room {
        let is_below = |mark: u64, was_below: bool| {
            let leaves_at = if was_below { mark.saturating_add(mark / 8) } else { mark };
            space.free_bytes < leaves_at
        };
        let high = self.high_bytes(space.total_bytes);
        let low = self.low.of(space.total_bytes).max(high);
        let is_kept = before == Room::Full && mutant::is_on(Mutant::WatermarkNeverLeft);
        if is_below(high, before == Room::Full) || is_kept {
            Room::Full
        } else if is_below(low, Room::Low <= before) {
            Room::Low
        } else {
            Room::Ample
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn judge(free_bytes: u64, total_bytes: u64, before: Room) -> Room {
        let marks = Watermarks::of(&BrokerConfig::default());
        marks.judge(Space { free_bytes, total_bytes }, before)
    }

    #[test]
    fn a_laptop_with_5_of_20_gib_free_works_without_a_warning() {
        assert_eq!(judge(5 * GIB, 20 * GIB, Room::Ample), Room::Ample);
        assert_eq!(judge(GIB, 20 * GIB, Room::Ample), Room::Low);
        assert_eq!(judge(GIB / 2, 20 * GIB, Room::Ample), Room::Full);
    }

    #[test]
    fn large_disks_keep_back_bytes_and_not_a_share() {
        let total = 8 << 40;
        assert_eq!(judge(21 * GIB, total, Room::Ample), Room::Ample);
        assert_eq!(judge(19 * GIB, total, Room::Ample), Room::Low);
        assert_eq!(judge(4 * GIB, total, Room::Ample), Room::Full);
    }

    #[test]
    fn a_watermark_is_left_only_some_way_above_it() {
        let high = 100 * GIB * 3 / 100;
        assert_eq!(judge(high, 100 * GIB, Room::Ample), Room::Low);
        assert_eq!(judge(high, 100 * GIB, Room::Full), Room::Full);
        assert_eq!(judge(high + high / 8, 100 * GIB, Room::Full), Room::Low);
        assert_eq!(judge(10 * GIB, 100 * GIB, Room::Low), Room::Low);
        assert_eq!(judge(12 * GIB, 100 * GIB, Room::Low), Room::Ample);
    }

    #[test]
    fn a_low_watermark_below_the_high_one_counts_as_that() {
        let share = |bytes| DiskShare { bytes, percent: 100 };
        let marks = Watermarks { low: share(1), high: share(100) };
        let space = |free_bytes| Space { free_bytes, total_bytes: 1_000 };
        assert_eq!(marks.judge(space(99), Room::Ample), Room::Full);
        assert_eq!(marks.judge(space(100), Room::Ample), Room::Ample);
    }

    #[test]
    fn without_watermarks_nothing_is_refused() {
        let none = DiskShare { bytes: 0, percent: 100 };
        let marks = Watermarks { low: none, high: none };
        assert_eq!(marks.judge(Space { free_bytes: 0, total_bytes: 9 }, Room::Full), Room::Ample);
    }
}
