//! One consumer group as its members see it: who owned what, what was committed, what was
//! delivered (INV-C1, C2, C3).

use std::collections::BTreeMap;

use towpath_model::{Generation, Offset, TopicPartition};

use crate::profile::{Violation, ensure};

/// A member's id, as the coordinator gave it out.
pub type Member = String;

/// Everything members of one group were told and did.
#[derive(Debug, Clone, Default)]
pub struct GroupHistory {
    owners: BTreeMap<(Generation, TopicPartition), Member>,
    generation: Generation,
    partitions: BTreeMap<TopicPartition, Progress>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    /// The commit that was acknowledged last, in the order of the acknowledgements.
    acknowledged: Option<Offset>,
    /// Commits since then that got no answer: each may count or not.
    maybe: Vec<Offset>,
    /// Records before this were delivered to some member, without a gap from where the group began.
    delivered: Option<Offset>,
}

impl GroupHistory {
    /// A group nobody has joined.
    #[must_use]
    pub fn new() -> GroupHistory {
        GroupHistory::default()
    }

    /// A member learns what it owns in a generation.
    ///
    /// # Errors
    /// When another member owns one of the partitions in that generation (INV-C1).
    pub fn assigned(
        &mut self,
        generation: Generation,
        member: &str,
        partitions: &[TopicPartition],
    ) -> Result<(), Violation> {
        for partition in partitions {
            let owner =
                self.owners.entry((generation, *partition)).or_insert_with(|| member.to_owned());
            ensure!(
                owner == member,
                "INV-C1",
                "{partition} belongs to {owner} and {member} in generation {generation}"
            );
        }
        self.generation = self.generation.max(generation);
        Ok(())
    }

    /// A commit of a member was accepted.
    ///
    /// # Errors
    /// When it did not own the partition in that generation (INV-C1), or commits more than was
    /// delivered (INV-C3: a fault of the workload, or of what the group was told).
    pub fn committed(
        &mut self,
        generation: Generation,
        member: &str,
        partition: TopicPartition,
        offset: Offset,
    ) -> Result<(), Violation> {
        let owner = self.owners.get(&(generation, partition));
        ensure!(
            owner.is_some_and(|owner| owner == member),
            "INV-C1",
            "{member} committed {partition} in generation {generation}, owner {owner:?}"
        );
        let progress = self.partitions.entry(partition).or_default();
        ensure!(
            progress.delivered.is_some_and(|delivered| offset <= delivered),
            "INV-C3",
            "{partition} committed up to {offset}, delivered up to {:?}",
            progress.delivered
        );
        progress.acknowledged = Some(offset);
        progress.maybe.clear();
        Ok(())
    }

    /// A commit was sent and got no answer.
    pub fn maybe_committed(&mut self, partition: TopicPartition, offset: Offset) {
        self.partitions.entry(partition).or_default().maybe.push(offset);
    }

    /// Somebody asked for the committed offset and was answered.
    ///
    /// # Errors
    /// When the answer is none of the commits that may count (INV-C2).
    pub fn fetched(
        &mut self,
        partition: TopicPartition,
        offset: Option<Offset>,
    ) -> Result<(), Violation> {
        let progress = self.partitions.entry(partition).or_default();
        let may_be = offset == progress.acknowledged
            || offset.is_some_and(|offset| progress.maybe.contains(&offset));
        ensure!(
            may_be,
            "INV-C2",
            "{partition} is committed at {offset:?}; acknowledged {:?}, perhaps {:?}",
            progress.acknowledged,
            progress.maybe
        );
        Ok(())
    }

    /// Whether this offset is committed only if a commit without an answer counts.
    #[must_use]
    pub fn is_perhaps(&self, partition: TopicPartition, offset: Option<Offset>) -> bool {
        let Some(progress) = self.partitions.get(&partition) else { return false };
        offset != progress.acknowledged
            && offset.is_some_and(|offset| progress.maybe.contains(&offset))
    }

    /// An answer that rests on everything that was asked before it says what is committed: earlier
    /// commits without an answer count no more, or they are this one.
    pub fn settled(&mut self, partition: TopicPartition, offset: Option<Offset>) {
        let progress = self.partitions.entry(partition).or_default();
        progress.acknowledged = offset;
        progress.maybe.clear();
    }

    /// A member starts to read a partition here; the group skips nothing it has not delivered.
    ///
    /// # Errors
    /// When the position lies beyond what was delivered so far (INV-C3).
    pub fn resumed(&mut self, partition: TopicPartition, at: Offset) -> Result<(), Violation> {
        let progress = self.partitions.entry(partition).or_default();
        let delivered = *progress.delivered.get_or_insert(at);
        ensure!(at <= delivered, "INV-C3", "{partition} resumes at {at}, after {delivered}");
        Ok(())
    }

    /// Records `[from, to)` reached a member.
    ///
    /// # Errors
    /// When they leave a gap (INV-C3).
    pub fn delivered(
        &mut self,
        partition: TopicPartition,
        from: Offset,
        to: Offset,
    ) -> Result<(), Violation> {
        let progress = self.partitions.entry(partition).or_default();
        let delivered = progress.delivered.get_or_insert(from);
        ensure!(from <= *delivered, "INV-C3", "{partition} delivers {from} after {delivered}");
        *delivered = (*delivered).max(to);
        Ok(())
    }

    /// The latest generation that a member heard of.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use towpath_model::{PartitionIndex, Uuid};

    use super::*;

    const P0: TopicPartition =
        TopicPartition { topic: Uuid([1; 16]), partition: PartitionIndex(0) };

    fn invariant(result: Result<(), Violation>) -> &'static str {
        result.unwrap_err().invariant
    }

    fn group() -> GroupHistory {
        let mut group = GroupHistory::new();
        group.assigned(Generation(1), "a", &[P0]).unwrap();
        group.resumed(P0, Offset(0)).unwrap();
        group.delivered(P0, Offset(0), Offset(10)).unwrap();
        group
    }

    #[test]
    fn a_partition_has_one_owner_in_a_generation() {
        let mut group = group();
        assert_eq!(invariant(group.assigned(Generation(1), "b", &[P0])), "INV-C1");
        group.assigned(Generation(2), "b", &[P0]).unwrap();
        assert_eq!(invariant(group.committed(Generation(2), "a", P0, Offset(3))), "INV-C1");
        group.committed(Generation(2), "b", P0, Offset(3)).unwrap();
    }

    #[test]
    fn committed_offsets_are_what_somebody_committed_last() {
        let mut group = group();
        group.fetched(P0, None).unwrap();
        group.committed(Generation(1), "a", P0, Offset(5)).unwrap();
        group.maybe_committed(P0, Offset(7));
        group.fetched(P0, Some(Offset(5))).unwrap();
        group.fetched(P0, Some(Offset(7))).unwrap();
        assert_eq!(invariant(group.fetched(P0, None)), "INV-C2");
        group.committed(Generation(1), "a", P0, Offset(8)).unwrap();
        assert_eq!(invariant(group.fetched(P0, Some(Offset(7)))), "INV-C2");
    }

    #[test]
    fn what_an_answer_has_settled_does_not_change_by_itself() {
        let mut group = group();
        group.committed(Generation(1), "a", P0, Offset(5)).unwrap();
        group.maybe_committed(P0, Offset(7));
        group.fetched(P0, Some(Offset(7))).unwrap();
        group.settled(P0, Some(Offset(7)));
        assert_eq!(invariant(group.fetched(P0, Some(Offset(5)))), "INV-C2");
    }

    #[test]
    fn nothing_is_skipped() {
        let mut group = group();
        assert_eq!(invariant(group.committed(Generation(1), "a", P0, Offset(11))), "INV-C3");
        assert_eq!(invariant(group.delivered(P0, Offset(12), Offset(14))), "INV-C3");
        assert_eq!(invariant(group.resumed(P0, Offset(11))), "INV-C3");
        group.resumed(P0, Offset(4)).unwrap();
    }
}
