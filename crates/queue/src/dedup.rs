//! Which sends were seen lately, so that a repeated one makes no second message (INV-Q7).
//!
//! An id is kept for the window from the first send on, whatever became of the message. What has run
//! out leaves with the next record that says what time it is, everywhere alike.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use towpath_model::{Offset, PartitionIndex, TopicId};

use crate::time::QueueTime;

/// What two sends of the same message have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DedupKey {
    /// What the sender calls it, or the hash of its content; with the group where the scope is the group.
    Id {
        /// The message group, if ids are told apart by it.
        group: Option<Arc<[u8]>>,
        /// The id.
        id: Arc<[u8]>,
    },
    /// A message that another partition hands over.
    Moved(Identity),
}

/// A message on its way from one partition to another. The destination takes it once, however often it is tried:
/// a move that seemed to fail may have come through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Where it comes from.
    pub topic: TopicId,
    /// Which partition of it.
    pub partition: PartitionIndex,
    /// Which message.
    pub offset: Offset,
    /// Which subscription gives it up.
    pub subscription: u32,
}

/// The ids of one partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct DedupWindow {
    seen: BTreeMap<DedupKey, Seen>,
    /// By when they run out, as far as they were added in that order; each is looked at again then.
    order: VecDeque<(QueueTime, DedupKey)>,
    /// How many of them are ids of senders.
    ids: usize,
}

/// Where the first one lies, and until when that is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) offset: Offset,
    pub(crate) until: QueueTime,
}

impl DedupWindow {
    /// Where the first send with this key lies, if that was within its window.
    pub(crate) fn first(&self, key: &DedupKey, now: QueueTime) -> Option<Offset> {
        self.seen.get(key).filter(|seen| now < seen.until).map(|seen| seen.offset)
    }

    pub(crate) fn insert(&mut self, key: DedupKey, seen: Seen) {
        self.order.push_back((seen.until, key.clone()));
        let is_id = matches!(key, DedupKey::Id { .. });
        let is_new = self.seen.insert(key, seen).is_none();
        self.ids += usize::from(is_id && is_new);
    }

    /// How many ids of senders are remembered.
    pub(crate) fn ids(&self) -> usize {
        self.ids
    }

    /// Some are gone before their time.
    fn settle(&mut self) {
        // One that comes again in the same moment must not be there twice.
        let seen = &self.seen;
        self.order.retain(|(until, key)| seen.get(key).is_some_and(|seen| seen.until == *until));
        self.ids = self.seen.keys().filter(|key| matches!(key, DedupKey::Id { .. })).count();
    }

    /// Forgets what has run out by `now`. Windows of different length make it late, never early.
    pub(crate) fn prune(&mut self, now: QueueTime) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = self.order.pop_front() else { break };
            if self.seen.get(&key).is_some_and(|seen| seen.until <= now) {
                self.seen.remove(&key);
                self.ids -= usize::from(matches!(key, DedupKey::Id { .. }));
            }
        }
    }

    /// Forgets messages at or after `end`: they were lost.
    pub(crate) fn truncate(&mut self, end: Offset) {
        self.seen.retain(|_, seen| seen.offset < end);
        self.settle();
    }

    /// Forgets everything that senders have named: the queue was purged.
    pub(crate) fn clear_ids(&mut self) {
        self.seen.retain(|key, _| matches!(key, DedupKey::Moved(_)));
        self.settle();
    }

    pub(crate) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Everything, in the order in which it runs out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DedupKey, Seen)> + '_ {
        let current = |(until, key): &&(QueueTime, DedupKey)| {
            self.seen.get(key).is_some_and(|seen| seen.until == *until)
        };
        self.order.iter().filter(current).map(|(_, key)| (key, self.seen[key]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> DedupKey {
        DedupKey::Id { group: None, id: id.as_bytes().into() }
    }

    #[test]
    fn a_repeat_is_known_until_the_window_ends() {
        let mut window = DedupWindow::default();
        let until = QueueTime(300);
        window.insert(key("a"), Seen { offset: Offset(5), until });
        assert_eq!(window.first(&key("a"), QueueTime(299)), Some(Offset(5)));
        assert_eq!(window.first(&key("a"), QueueTime(300)), None);
        assert_eq!(window.first(&key("b"), QueueTime(0)), None);
        window.prune(QueueTime(300));
        assert_eq!(window.len(), 0);
    }

    #[test]
    fn the_same_id_may_come_again_after_its_window() {
        let mut window = DedupWindow::default();
        window.insert(key("a"), Seen { offset: Offset(5), until: QueueTime(300) });
        window.insert(key("a"), Seen { offset: Offset(9), until: QueueTime(700) });
        window.prune(QueueTime(400));
        assert_eq!(window.first(&key("a"), QueueTime(400)), Some(Offset(9)));
        assert_eq!(window.iter().count(), 1);
    }

    #[test]
    fn a_message_that_was_lost_is_no_first_one() {
        let mut window = DedupWindow::default();
        window.insert(key("a"), Seen { offset: Offset(5), until: QueueTime(300) });
        window.truncate(Offset(5));
        assert_eq!(window.first(&key("a"), QueueTime(0)), None);
        // Its sender sends it again, in the same moment.
        window.insert(key("a"), Seen { offset: Offset(5), until: QueueTime(300) });
        assert_eq!(window.iter().count(), 1);
        assert_eq!(window.ids(), 1);
    }
}
