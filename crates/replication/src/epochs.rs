//! Which leadership wrote which offsets: what a reader or follower that was elsewhere asks to find
//! the place up to which its log and this one agree (KIP-101, KIP-279, KIP-320).
//!
//!   epoch   2        5              6
//!           ├────────┼──────────────┼───────────▶ log end
//!           0        40             97
//!
//! The end of an epoch is the start of the next one that wrote anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use towpath_model::{LeaderEpoch, Offset};

/// Where a leadership began to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// The leadership.
    pub epoch: LeaderEpoch,
    /// The first offset it wrote, or would have.
    pub start: Offset,
}

/// Why a request that names a leader epoch is refused (KIP-320).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EpochRefusal {
    /// The client has older metadata. Kafka: FENCED_LEADER_EPOCH (74).
    #[error("leader epoch is older than the current one, {current}")]
    Fenced {
        /// The leadership here.
        current: LeaderEpoch,
    },
    /// The client has newer metadata than this broker. Kafka: UNKNOWN_LEADER_EPOCH (75), retriable.
    #[error("leader epoch is newer than the one known here, {current}")]
    Unknown {
        /// The leadership here.
        current: LeaderEpoch,
    },
}

/// The leaderships of one partition's log, oldest first.
///
/// Invariant: both epochs and starts rise strictly from entry to entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EpochHistory {
    entries: Vec<EpochStart>,
}

impl EpochHistory {
    /// No leadership yet.
    #[must_use]
    pub fn new() -> EpochHistory {
        EpochHistory::default()
    }

    /// What a checkpoint held. Entries that do not rise are dropped in favour of the later one, as
    /// if they had been entered in this order.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = EpochStart>) -> EpochHistory {
        let mut history = EpochHistory::new();
        for entry in entries {
            history.enter(entry.epoch, entry.start);
        }
        history
    }

    /// Both together. Where they differ the earlier start is right: a compaction may have removed the
    /// batches that one of them was read from.
    #[must_use]
    pub fn merged(&self, others: impl IntoIterator<Item = EpochStart>) -> EpochHistory {
        let mut starts = BTreeMap::new();
        for entry in self.entries.iter().copied().chain(others) {
            let start = starts.entry(entry.epoch).or_insert(entry.start);
            *start = entry.start.min(*start);
        }
        let entries = starts.into_iter().map(|(epoch, start)| EpochStart { epoch, start });
        EpochHistory::from_entries(entries)
    }

    /// Notes that `epoch` writes from `start` on. An epoch that is known already changes nothing;
    /// one that wrote nothing before this one is forgotten.
    pub fn enter(&mut self, epoch: LeaderEpoch, start: Offset) {
        if self.entries.last().is_some_and(|last| epoch <= last.epoch) {
            return;
        }
        while self.entries.last().is_some_and(|last| start <= last.start) {
            self.entries.pop();
        }
        self.entries.push(EpochStart { epoch, start });
    }

    /// Oldest first; what a checkpoint keeps.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The newest leadership that is known.
    #[must_use]
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|last| last.epoch)
    }

    /// The newest leadership that is known, and where it begins.
    #[must_use]
    pub fn latest_entry(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// The leadership that wrote `offset`.
    #[must_use]
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let later = self.entries.partition_point(|entry| entry.start <= offset);
        later.checked_sub(1).map(|at| self.entries[at].epoch)
    }

    /// The newest leadership not after `asked`, and where it ended. Where all known ones are later
    /// than `asked`, `asked` itself and the place where they begin. `None` where `asked` is later
    /// than all of them: the answer would be a guess.
    #[must_use]
    pub fn end_offset_of(
        &self,
        asked: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        let later = self.entries.partition_point(|entry| entry.epoch <= asked);
        match (later.checked_sub(1).map(|at| self.entries[at]), self.entries.get(later)) {
            (Some(floor), None) if floor.epoch == asked => Some((asked, log_end_offset)),
            (_, None) => None,
            (None, Some(next)) => Some((asked, next.start)),
            (Some(floor), Some(next)) => Some((floor.epoch, next.start)),
        }
    }

    /// Whether everything from `log_start_offset` on was written by later leaderships than `asked`.
    /// Where it is not known who wrote the first records (damage), it was not.
    #[must_use]
    pub fn begins_after(&self, asked: LeaderEpoch, log_start_offset: Offset) -> bool {
        let first = self.entries.first();
        first.is_some_and(|first| asked < first.epoch && first.start <= log_start_offset)
    }

    /// Forgets what lies before `log_start_offset`; the leadership that wrote the record there now
    /// begins there. Where it truly does, the one before is remembered too: who holds exactly the
    /// records before the start ends with it, and agrees.
    pub fn truncate_from_start(&mut self, log_start_offset: Offset) {
        let later = self.entries.partition_point(|entry| entry.start <= log_start_offset);
        let Some(first) = later.checked_sub(1) else { return };
        if self.entries[first].start == log_start_offset && 0 < first {
            self.entries.drain(..first - 1);
            self.entries[0].start = Offset(log_start_offset.0 - 1);
        } else {
            self.entries.drain(..first);
            self.entries[0].start = log_start_offset;
        }
    }

    /// Forgets leaderships that began at or after `end`: what they wrote has been cut off.
    pub fn truncate_from_end(&mut self, end: Offset) {
        let kept = self.entries.partition_point(|entry| entry.start < end);
        self.entries.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(i32, i64)]) -> EpochHistory {
        EpochHistory::from_entries(
            entries.iter().map(|(epoch, start)| EpochStart {
                epoch: LeaderEpoch(*epoch),
                start: Offset(*start),
            }),
        )
    }

    fn ends(history: &EpochHistory, asked: i32) -> Option<(i32, i64)> {
        history.end_offset_of(LeaderEpoch(asked), Offset(120)).map(|(epoch, end)| (epoch.0, end.0))
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_begins() {
        let history = history(&[(2, 0), (5, 40), (6, 97)]);
        assert_eq!(ends(&history, 6), Some((6, 120)));
        assert_eq!(ends(&history, 5), Some((5, 97)));
        assert_eq!(ends(&history, 4), Some((2, 40)), "the largest epoch not after the asked one");
        assert_eq!(ends(&history, 2), Some((2, 40)));
        assert_eq!(ends(&history, 1), Some((1, 0)), "older than all: where they begin");
        assert_eq!(ends(&history, 7), None, "newer than all: unknown");
        assert_eq!(ends(&EpochHistory::new(), 0), None);
    }

    #[test]
    fn of_two_histories_the_earlier_start_counts() {
        let read = history(&[(1, 0), (3, 25), (4, 40)]);
        let remembered = history(&[(1, 0), (2, 13), (3, 20)]);
        let both = history(&[(1, 0), (2, 13), (3, 20), (4, 40)]);
        assert_eq!(read.merged(remembered.entries().iter().copied()), both);
    }

    #[test]
    fn a_leadership_that_wrote_nothing_is_forgotten() {
        let history = history(&[(1, 0), (2, 10), (3, 10), (4, 10)]);
        assert_eq!(history.entries().len(), 2);
        assert_eq!(history.latest(), Some(LeaderEpoch(4)));
        assert_eq!(ends(&history, 3), Some((1, 10)));
    }

    #[test]
    fn a_start_where_a_leadership_began_remembers_the_one_before() {
        let mut history = history(&[(2, 0), (5, 40), (6, 97)]);
        for _ in 0..2 {
            history.truncate_from_start(Offset(97));
            assert_eq!(ends(&history, 5), Some((5, 97)), "exactly as before");
            let begins_after = |epoch| history.begins_after(LeaderEpoch(epoch), Offset(97));
            assert!(begins_after(4) && !begins_after(5));
            assert_eq!(history.entries().len(), 2);
        }
        history.truncate_from_start(Offset(98));
        assert!(history.begins_after(LeaderEpoch(5), Offset(98)));
    }

    #[test]
    fn truncation_keeps_what_is_left_of_the_log() {
        let mut history = history(&[(2, 0), (5, 40), (6, 97)]);
        history.truncate_from_start(Offset(50));
        assert_eq!(history.entries()[0], EpochStart { epoch: LeaderEpoch(5), start: Offset(50) });
        history.truncate_from_end(Offset(97));
        assert_eq!(history.entries().len(), 1);
        assert_eq!(history.epoch_of(Offset(60)), Some(LeaderEpoch(5)));
        assert_eq!(history.epoch_of(Offset(10)), None);
        let begins_after = |epoch, start| history.begins_after(LeaderEpoch(epoch), Offset(start));
        assert!(begins_after(4, 50) && !begins_after(5, 50) && !begins_after(4, 49));
        history.truncate_from_end(Offset(50));
        assert_eq!(history.latest(), None);
    }
}
