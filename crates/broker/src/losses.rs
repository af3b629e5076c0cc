//! What groups have lost: a bounded list of ranges by name, newest last.

use std::collections::VecDeque;
use std::sync::Arc;

use towpath_model::{Offset, PartitionIndex, Timestamp, TopicName};

use crate::guard::{Cause, Unheld};

/// Most ranges that are remembered; beyond, the oldest is forgotten.
pub const LOSSES_MAX: usize = 1_000;

/// Records that a group had not read when they were deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The group.
    pub group: Arc<str>,
    /// The topic.
    pub topic: TopicName,
    /// Which partition.
    pub partition: PartitionIndex,
    /// The first lost offset.
    pub from: Offset,
    /// The first offset after the lost ones.
    pub to: Offset,
    /// When the first of them was deleted.
    pub since: Timestamp,
    /// When the last of them was deleted.
    pub at: Timestamp,
    /// Why.
    pub cause: Cause,
}

impl Loss {
    /// How many offsets.
    #[must_use]
    pub fn records(&self) -> i64 {
        self.to - self.from
    }
}

/// The newest losses.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    list: VecDeque<Loss>,
}

impl Losses {
    /// Takes note of a loss. One that goes on where the same group lost before, for the same
    /// reason, is one with it.
    pub fn add(
        &mut self,
        topic: &TopicName,
        partition: PartitionIndex,
        lost: Unheld,
        at: Timestamp,
    ) {
        let Unheld { group, from, to, cause } = lost;
        let goes_on = |loss: &&mut Loss| {
            loss.group == group
                && loss.topic == *topic
                && loss.partition == partition
                && loss.to == from
                && loss.cause == cause
        };
        if let Some(loss) = self.list.iter_mut().rev().find(goes_on) {
            (loss.to, loss.at) = (to, at);
            return;
        }
        if LOSSES_MAX <= self.list.len() {
            self.list.pop_front();
        }
        let topic = topic.clone();
        self.list.push_back(Loss { group, topic, partition, from, to, since: at, at, cause });
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Loss> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unheld(group: &str, from: i64, to: i64, cause: Cause) -> Unheld {
        Unheld { group: group.into(), from: Offset(from), to: Offset(to), cause }
    }

    #[test]
    fn a_loss_that_goes_on_is_one() {
        let topic = TopicName::new("orders").unwrap();
        let mut losses = Losses::default();
        let mut add = |lost, at| losses.add(&topic, PartitionIndex(0), lost, Timestamp(at));
        add(unheld("a", 0, 10, Cause::RetentionTime), 1);
        add(unheld("b", 5, 10, Cause::RetentionTime), 1);
        add(unheld("a", 10, 20, Cause::RetentionTime), 2);
        add(unheld("a", 20, 30, Cause::DeleteRecords), 3);
        let seen: Vec<_> =
            losses.iter().map(|l| (&*l.group, l.from.0, l.to.0, l.since.0, l.at.0)).collect();
        assert_eq!(seen, [("a", 0, 20, 1, 2), ("b", 5, 10, 1, 1), ("a", 20, 30, 3, 3)]);
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let topic = TopicName::new("orders").unwrap();
        let mut losses = Losses::default();
        for n in 0..LOSSES_MAX as i64 + 5 {
            let lost = unheld("a", n * 10, n * 10 + 1, Cause::GuardCap);
            losses.add(&topic, PartitionIndex(0), lost, Timestamp(n));
        }
        assert_eq!(losses.iter().count(), LOSSES_MAX);
        assert_eq!(losses.iter().next().unwrap().from, Offset(50));
    }
}
