//! Messages that are on their way to another queue, by where they are and by where they go: whoever carries them to one
//! queue passes over none that go to another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_model::Offset;

use crate::record::DeadReason;
use crate::subscription::Move;

/// Those of one subscription.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moving {
    ways: BTreeMap<Offset, Move>,
    by_destination: BTreeMap<Arc<str>, BTreeSet<Offset>>,
    /// How many go why; none is 0.
    by_reason: BTreeMap<DeadReason, u64>,
}

impl Moving {
    pub(crate) fn insert(&mut self, offset: Offset, way: Move) {
        self.remove(offset);
        *self.by_reason.entry(way.reason).or_default() += 1;
        self.by_destination.entry(Arc::clone(&way.to)).or_default().insert(offset);
        self.ways.insert(offset, way);
    }

    pub(crate) fn remove(&mut self, offset: Offset) -> Option<Move> {
        let way = self.ways.remove(&offset)?;
        if let Some(count) = self.by_reason.get_mut(&way.reason) {
            *count -= 1;
            if *count == 0 {
                self.by_reason.remove(&way.reason);
            }
        }
        if let Some(offsets) = self.by_destination.get_mut(&way.to) {
            offsets.remove(&offset);
            if offsets.is_empty() {
                self.by_destination.remove(&way.to);
            }
        }
        Some(way)
    }

    /// What lies there or after it was never there.
    pub(crate) fn truncate(&mut self, end: Offset) {
        let gone: Vec<Offset> = self.ways.range(end..).map(|(offset, _)| *offset).collect();
        gone.into_iter().for_each(|offset| drop(self.remove(offset)));
    }

    pub(crate) fn get(&self, offset: Offset) -> Option<&Move> {
        self.ways.get(&offset)
    }

    pub(crate) fn contains(&self, offset: Offset) -> bool {
        self.ways.contains_key(&offset)
    }

    pub(crate) fn len(&self) -> usize {
        self.ways.len()
    }

    /// How many go for a reason.
    pub(crate) fn because(&self, reason: DeadReason) -> u64 {
        self.by_reason.get(&reason).copied().unwrap_or(0)
    }

    /// In the order of offsets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Offset, &Move)> + '_ {
        self.ways.iter().map(|(offset, way)| (*offset, way))
    }

    /// Where any go.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = &Arc<str>> + '_ {
        self.by_destination.keys()
    }

    /// Those that go to one queue, in the order of offsets.
    pub(crate) fn to(&self, destination: &str) -> impl Iterator<Item = (Offset, &Move)> + '_ {
        let offsets = self.by_destination.get(destination).into_iter().flatten();
        offsets.filter_map(|offset| Some((*offset, self.ways.get(offset)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_one_queue_is_found_without_the_others() {
        let mut moving = Moving::default();
        let way = |to: &str| Move { to: to.into(), reason: DeadReason::Rejected, note: None };
        for (offset, to) in [(1, "a"), (2, "b"), (3, "a"), (9, "a")] {
            moving.insert(Offset(offset), way(to));
        }
        moving.insert(Offset(3), way("b"));
        moving.truncate(Offset(9));
        let to = |moving: &Moving, to: &str| moving.to(to).map(|(at, _)| at.0).collect::<Vec<_>>();
        assert_eq!((to(&moving, "a"), to(&moving, "b")), (vec![1], vec![2, 3]));
        assert!(moving.remove(Offset(1)).is_some() && moving.remove(Offset(1)).is_none());
        assert_eq!(moving.destinations().map(|to| &**to).collect::<Vec<_>>(), ["b"]);
        assert_eq!((moving.len(), moving.get(Offset(9))), (2, None));
        let because = |reason| moving.because(reason);
        assert_eq!((because(DeadReason::Rejected), because(DeadReason::Redriven)), (2, 0));
        assert_eq!(moving.by_reason.len(), 1);
    }
}
