//! Message groups of one subscription: in each, messages are delivered in the order in which they were
//! sent, and none while an earlier one is held (INV-Q5).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use towpath_model::Offset;
use towpath_model::mutant::{self, Mutant};

/// A message group of this partition, by a number that its name was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u32);

/// The groups of one subscription.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<GroupNumber, Group>,
    /// Groups that may be received from, by their oldest message.
    ready: BTreeSet<(Offset, GroupNumber)>,
    /// Messages that wait in groups.
    waiting: u64,
    /// Groups of which a message is held.
    held: usize,
}

#[derive(Debug, Clone, Default)]
struct Group {
    /// Not settled and not held, in order.
    waiting: VecDeque<Offset>,
    held: u32,
    /// Under which offset it is in the list of those that are ready.
    listed: Option<Offset>,
}

impl Groups {
    /// Messages that wait, ready or behind others.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Groups that can be received from now: so many receivers can work at the same time.
    pub(crate) fn ready_groups(&self) -> usize {
        self.ready.len()
    }

    /// Groups of which a message is held.
    pub(crate) fn held_groups(&self) -> usize {
        self.held
    }

    /// A message waits from now on. `is_late`: it may not be delivered yet.
    pub(crate) fn add(
        &mut self,
        number: GroupNumber,
        offset: Offset,
        is_late: impl Fn(Offset) -> bool,
    ) {
        let group = self.groups.entry(number).or_default();
        let at = group.waiting.partition_point(|other| *other < offset);
        group.waiting.insert(at, offset);
        self.waiting += 1;
        self.refresh(number, is_late);
    }

    /// A message that waited is held from now on.
    pub(crate) fn hold(
        &mut self,
        number: GroupNumber,
        offset: Offset,
        is_late: impl Fn(Offset) -> bool,
    ) {
        self.take(number, offset);
        let group = self.groups.entry(number).or_default();
        self.held += usize::from(group.held == 0);
        group.held += 1;
        self.refresh(number, is_late);
    }

    /// A held message is held no more; it is settled, or added again.
    pub(crate) fn let_go(&mut self, number: GroupNumber, is_late: impl Fn(Offset) -> bool) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        self.held -= usize::from(group.held == 1);
        let others = group.held.saturating_sub(1);
        group.held = if mutant::is_on(Mutant::GroupUnlockedEarly) { 0 } else { others };
        self.refresh(number, is_late);
    }

    /// A message that waited is gone.
    pub(crate) fn remove(
        &mut self,
        number: GroupNumber,
        offset: Offset,
        is_late: impl Fn(Offset) -> bool,
    ) {
        self.take(number, offset);
        self.refresh(number, is_late);
    }

    fn take(&mut self, number: GroupNumber, offset: Offset) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let at = group.waiting.partition_point(|other| *other < offset);
        if group.waiting.get(at) == Some(&offset) {
            group.waiting.remove(at);
            self.waiting -= 1;
        }
    }

    /// Looks again whether a group can be received from.
    pub(crate) fn refresh(&mut self, number: GroupNumber, is_late: impl Fn(Offset) -> bool) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let first = group.waiting.front().copied();
        let listed = first.filter(|first| group.held == 0 && !is_late(*first));
        if group.listed != listed {
            if let Some(before) = group.listed {
                self.ready.remove(&(before, number));
            }
            if let Some(first) = listed {
                self.ready.insert((first, number));
            }
            group.listed = listed;
        }
        if group.waiting.is_empty() && group.held == 0 {
            self.groups.remove(&number);
        }
    }

    /// Groups that can be received from, the one with the oldest message first, each with what waits in
    /// it.
    pub(crate) fn ready(
        &self,
    ) -> impl Iterator<Item = (GroupNumber, impl Iterator<Item = Offset> + '_)> + '_ {
        self.ready.iter().map(|(_, number)| (*number, self.groups[number].waiting.iter().copied()))
    }

    /// Whether some group can be received from.
    pub(crate) fn is_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether the group can be received from: nobody holds a message of it, and the first one is not delayed.
    pub(crate) fn is_ready(&self, number: GroupNumber) -> bool {
        self.groups.get(&number).is_some_and(|group| group.listed.is_some())
    }

    /// Everything that waits, group by group.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupNumber, Offset)> + '_ {
        self.groups
            .iter()
            .flat_map(|(number, group)| group.waiting.iter().map(|offset| (*number, *offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GroupNumber = GroupNumber(1);
    const B: GroupNumber = GroupNumber(2);

    fn never(_: Offset) -> bool {
        false
    }

    fn ready(groups: &Groups) -> Vec<(GroupNumber, Vec<i64>)> {
        groups.ready().map(|(number, all)| (number, all.map(|at| at.0).collect())).collect()
    }

    #[test]
    fn a_group_is_closed_while_one_of_it_is_held() {
        let mut groups = Groups::default();
        for (group, offset) in [(A, 0), (A, 1), (B, 2), (A, 3)] {
            groups.add(group, Offset(offset), never);
        }
        assert_eq!(ready(&groups), [(A, vec![0, 1, 3]), (B, vec![2])]);
        groups.hold(A, Offset(0), never);
        groups.hold(A, Offset(1), never);
        assert_eq!(ready(&groups), [(B, vec![2])]);
        // The second one comes back first: the group stays closed, for the first one is still held.
        groups.let_go(A, never);
        groups.add(A, Offset(1), never);
        assert_eq!(ready(&groups), [(B, vec![2])]);
        groups.let_go(A, never);
        assert_eq!(ready(&groups), [(A, vec![1, 3]), (B, vec![2])]);
    }

    #[test]
    fn who_comes_back_stands_in_front() {
        let mut groups = Groups::default();
        for offset in 0..3 {
            groups.add(A, Offset(offset), never);
        }
        groups.hold(A, Offset(0), never);
        groups.let_go(A, never);
        groups.add(A, Offset(0), never);
        assert_eq!(ready(&groups), [(A, vec![0, 1, 2])]);
    }

    #[test]
    fn a_late_first_message_keeps_the_others_waiting() {
        let mut groups = Groups::default();
        let late = |offset: Offset| offset == Offset(0);
        groups.add(A, Offset(0), late);
        groups.add(A, Offset(1), late);
        assert!(!groups.is_any_ready());
        groups.refresh(A, never);
        assert_eq!(ready(&groups), [(A, vec![0, 1])]);
        groups.remove(A, Offset(0), never);
        groups.remove(A, Offset(1), never);
        assert_eq!(groups.waiting(), 0);
        assert_eq!(groups.ready_groups(), 0);
    }
}
