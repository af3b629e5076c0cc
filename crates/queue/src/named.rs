//! Receives that may be repeated by their name, for five minutes; by name, and by the leases that they gave out: whoever
//! gives one message back passes over none of the others' names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use towpath_model::Offset;

use crate::request::Receipt;
use crate::time::QueueTime;

/// How long the name of a receive is remembered.
const KEPT_MS: u64 = 300_000;

/// A receive that may be repeated by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) at: QueueTime,
    pub(crate) first_lease: u64,
    pub(crate) offsets: Vec<Offset>,
}

/// Those of one subscription.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamedReceives {
    by_name: BTreeMap<Arc<[u8]>, Named>,
    /// By the first lease of each; no lease is given out twice, so they do not overlap.
    by_lease: BTreeMap<u64, Arc<[u8]>>,
    /// The oldest first; some may have been named anew since, or be gone.
    order: VecDeque<(QueueTime, Arc<[u8]>)>,
}

impl NamedReceives {
    /// Remembers by which name messages were received; an older receive of that name is forgotten.
    pub(crate) fn insert(&mut self, name: Arc<[u8]>, named: Named) {
        self.remove(&name);
        self.order.push_back((named.at, Arc::clone(&name)));
        self.by_lease.insert(named.first_lease, Arc::clone(&name));
        self.by_name.insert(name, named);
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(named) = self.by_name.remove(name) {
            self.by_lease.remove(&named.first_lease);
        }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Named> {
        self.by_name.get(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// In the order of names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<[u8]>, &Named)> + '_ {
        self.by_name.iter()
    }

    /// Whether a message was handed out by a name that may ask for it again. Looks at one name.
    pub(crate) fn has_handed_out(&self, Receipt { offset, lease }: Receipt) -> bool {
        let before = self.by_lease.range(..=lease).next_back();
        let named = before.and_then(|(first, name)| Some((lease - first, self.get(name)?)));
        let nth = named.and_then(|(nth, named)| named.offsets.get(usize::try_from(nth).ok()?));
        nth == Some(&offset)
    }

    /// Forgets names that are too old.
    pub(crate) fn prune(&mut self, now: QueueTime) {
        let is_old = |at: QueueTime| at.0.saturating_add(KEPT_MS) <= now.0;
        while self.order.front().is_some_and(|(at, _)| is_old(*at)) {
            let Some((at, name)) = self.order.pop_front() else { break };
            if self.get(&name).is_some_and(|named| named.at == at) {
                self.remove(&name);
            }
        }
    }

    /// Messages at or after `end` were lost, and with them the receives that handed them out.
    pub(crate) fn truncate(&mut self, end: Offset) {
        let is_whole = |named: &Named| named.offsets.iter().all(|offset| *offset < end);
        self.by_name.retain(|_, named| is_whole(named));
        self.by_lease.retain(|_, name| self.by_name.contains_key(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(at: u64, first_lease: u64, offsets: &[i64]) -> Named {
        let offsets = offsets.iter().copied().map(Offset).collect();
        Named { at: QueueTime(at), first_lease, offsets }
    }

    fn has(receives: &NamedReceives, offset: i64, lease: u64) -> bool {
        receives.has_handed_out(Receipt { offset: Offset(offset), lease })
    }

    #[test]
    fn a_lease_is_found_among_those_of_its_receive_alone() {
        let mut receives = NamedReceives::default();
        let (a, b): (Arc<[u8]>, Arc<[u8]>) = ((*b"a").into(), (*b"b").into());
        receives.insert(Arc::clone(&a), named(1, 10, &[5, 3]));
        receives.insert(Arc::clone(&b), named(2, 14, &[7]));
        assert!(has(&receives, 5, 10) && has(&receives, 3, 11) && has(&receives, 7, 14));
        assert!(!has(&receives, 3, 10) && !has(&receives, 9, 12) && !has(&receives, 5, 9));
        // By the same name again: what it handed out before is nobody's.
        receives.insert(a, named(3, 20, &[5]));
        assert!(!has(&receives, 5, 10) && has(&receives, 5, 20));
        receives.prune(QueueTime(KEPT_MS + 2));
        assert!(has(&receives, 5, 20) && !has(&receives, 7, 14));
        receives.insert(b, named(4, 30, &[6]));
        receives.truncate(Offset(6));
        assert_eq!(
            (receives.len(), has(&receives, 6, 30), has(&receives, 5, 20)),
            (1, false, true)
        );
        receives.prune(QueueTime(KEPT_MS + 3));
        assert_eq!((receives.len(), receives.by_lease.len(), receives.order.len()), (0, 0, 1));
    }
}
