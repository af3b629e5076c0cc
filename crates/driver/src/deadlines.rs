//! Who wants to be called when.

use std::collections::{BTreeMap, BTreeSet};

use towpath_model::{Time, TopicPartition};

/// One deadline per partition.
///
/// Invariant: both sides hold the same pairs.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    of: BTreeMap<TopicPartition, Time>,
    order: BTreeSet<(Time, TopicPartition)>,
}

impl Deadlines {
    /// Sets or takes back a deadline; says whether it is earlier than all others were.
    pub(crate) fn set(&mut self, id: TopicPartition, deadline: Option<Time>) -> bool {
        let earliest = self.earliest();
        let before = match deadline {
            Some(at) => self.of.insert(id, at),
            None => self.of.remove(&id),
        };
        if let Some(before) = before {
            self.order.remove(&(before, id));
        }
        if let Some(at) = deadline {
            self.order.insert((at, id));
        }
        deadline.is_some_and(|at| earliest.is_none_or(|earliest| at < earliest))
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Whose deadline has come.
    pub(crate) fn due(&self, now: Time) -> Vec<TopicPartition> {
        self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use towpath_model::{PartitionIndex, Uuid};

    use super::*;

    #[test]
    fn only_an_earlier_deadline_is_news() {
        let id =
            |partition| TopicPartition { topic: Uuid::ZERO, partition: PartitionIndex(partition) };
        let mut deadlines = Deadlines::default();
        assert!(deadlines.set(id(0), Some(Time(10))));
        assert!(!deadlines.set(id(1), Some(Time(20))));
        assert!(deadlines.set(id(1), Some(Time(5))));
        assert_eq!(deadlines.due(Time(9)), vec![id(1)]);
        assert!(!deadlines.set(id(1), None));
        assert_eq!(deadlines.earliest(), Some(Time(10)));
        assert_eq!(deadlines.due(Time(10)), vec![id(0)]);
    }
}
