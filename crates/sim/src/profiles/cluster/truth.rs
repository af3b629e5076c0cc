//! The metadata as any broker has shown it: one history, whoever tells it (INV-M1, R6, R11).
//!
//! Brokers apply the same decisions in the same order, each at its own time. So whatever two of them say
//! of the same number of a partition's state must be the same; and what the one says that has come
//! furthest is the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_metadata::raft::{LogIndex, MemberId, Term};
use towpath_metadata::{Image, PartitionState, Record};
use towpath_model::{BrokerId, LeaderEpoch, TopicId, TopicPartition};

use crate::events::Events;
use crate::profile::{Violation, ensure};

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Every state that a partition had.
    states: BTreeMap<TopicPartition, BTreeMap<i32, PartitionState>>,
    leaders: BTreeMap<(TopicPartition, LeaderEpoch), Option<BrokerId>>,
    /// What the metadata as a whole says as of an entry, and who has shown it first.
    images: BTreeMap<LogIndex, (BrokerId, Vec<Record>)>,
    /// How far the broker had come that has come furthest.
    pub(super) applied: LogIndex,
    /// The topics that there were then.
    pub(super) topics: BTreeSet<TopicId>,
    /// Those of them that are queues.
    queues: BTreeSet<TopicId>,
    /// Every log that there is: the partitions, and the delivery logs of queues.
    logs: Arc<[TopicPartition]>,
    /// Registrations by then.
    epochs: BTreeMap<BrokerId, i64>,
    /// Who leads the quorum in which term.
    terms: BTreeMap<Term, MemberId>,
    /// The newest term of the quorum that any member has shown.
    pub(super) newest_term: Term,
}

impl Truth {
    /// A broker's metadata has changed.
    pub(super) fn seen(
        &mut self,
        by: BrokerId,
        applied: LogIndex,
        image: &Image,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.whole(by, applied, image)?;
        for (_, id, state) in image.partitions() {
            self.state(by, id, state, events)?;
        }
        if self.applied < applied {
            self.applied = applied;
            self.topics = image.topics().map(|topic| topic.id).collect();
            let queues = image.topics().filter(|topic| topic.is_queue());
            self.queues = queues.map(|topic| topic.id).collect();
            for broker in image.brokers() {
                let before = self.epochs.insert(broker.id, broker.epoch);
                ensure!(
                    before.is_none_or(|before| before <= broker.epoch),
                    "INV-R11",
                    "the registration of broker {} goes back to {}",
                    broker.id,
                    broker.epoch
                );
                if before.is_some_and(|before| before < broker.epoch) {
                    events.note("cluster: broker registered again");
                }
            }
        }
        self.logs = self.all_logs().into();
        Ok(())
    }

    /// Whoever has come as far has the very same metadata.
    fn whole(&mut self, by: BrokerId, applied: LogIndex, image: &Image) -> Result<(), Violation> {
        let here: Vec<Record> = image.to_records().collect();
        let Some((first, there)) = self.images.get(&applied) else {
            self.images.insert(applied, (by, here));
            return Ok(());
        };
        let equal = here.iter().zip(there).take_while(|(a, b)| a == b).count();
        ensure!(
            here == *there,
            "INV-M1",
            "as of entry {applied} broker {by} has {:?}, broker {first} had {:?}",
            here.get(equal),
            there.get(equal)
        );
        Ok(())
    }

    fn state(
        &mut self,
        by: BrokerId,
        id: TopicPartition,
        state: &PartitionState,
        events: &mut Events,
    ) -> Result<(), Violation> {
        let states = self.states.entry(id).or_default();
        if let Some(known) = states.get(&state.partition_epoch) {
            ensure!(
                known == state,
                "INV-M1",
                "{id}: broker {by} has {state:?}, another had {known:?}"
            );
            return Ok(());
        }
        let leader = *self.leaders.entry((id, state.leader_epoch)).or_insert(state.leader);
        ensure!(
            leader == state.leader,
            "INV-R6",
            "{id}: {leader:?} and {:?} are to lead in epoch {}",
            state.leader,
            state.leader_epoch
        );
        if let Some((_, before)) = states.range(..state.partition_epoch).next_back() {
            ensure!(
                before.leader_epoch <= state.leader_epoch,
                "INV-R7",
                "{id}: the leader epoch goes back: {before:?}, then {state:?}"
            );
            note_change(before, state, events);
        }
        for member in state.in_sync.iter().chain(&state.eligible) {
            ensure!(
                state.replicas.contains(member),
                "INV-R11",
                "{id}: broker {member} counts and holds no replica: {state:?}"
            );
        }
        ensure!(!state.unclean, "INV-R5", "{id}: a leader was elected that may lack records");
        states.insert(state.partition_epoch, state.clone());
        Ok(())
    }

    /// The newest state of a partition, for either of its logs.
    pub(super) fn newest(&self, id: TopicPartition) -> Option<&PartitionState> {
        self.states.get(&id.records())?.last_key_value().map(|(_, state)| state)
    }

    /// Every partition of the topics that there are.
    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        let there = |id: &&TopicPartition| self.topics.contains(&id.topic);
        self.states.keys().filter(there).copied().collect()
    }

    /// Every log that there is: the partitions, and the delivery logs of queues.
    pub(super) fn logs(&self) -> Arc<[TopicPartition]> {
        Arc::clone(&self.logs)
    }

    fn all_logs(&self) -> Vec<TopicPartition> {
        let mut logs = self.partitions();
        let queues = logs.iter().filter(|id| self.is_queue(id.topic));
        let deliveries: Vec<_> = queues.map(|id| id.delivery_log()).collect();
        logs.extend(deliveries);
        logs
    }

    /// Whether a topic is worked as a queue.
    pub(super) fn is_queue(&self, topic: TopicId) -> bool {
        self.queues.contains(&topic)
    }

    /// Somebody leads the quorum.
    pub(super) fn leads_quorum(&mut self, term: Term, member: MemberId) -> Result<bool, Violation> {
        let is_new = !self.terms.contains_key(&term);
        let known = *self.terms.entry(term).or_insert(member);
        ensure!(known == member, "INV-M1", "{known} and {member} lead the quorum in term {term}");
        Ok(is_new)
    }
}

fn note_change(before: &PartitionState, after: &PartitionState, events: &mut Events) {
    if after.leader != before.leader
        && let Some(leader) = after.leader
    {
        events.note("cluster: leader elected");
        if !before.in_sync.contains(&leader) && before.eligible.contains(&leader) {
            events.note("cluster: eligible replica elected");
        }
    }
    if after.leader.is_none() && before.leader.is_some() {
        events.note("cluster: partition without a leader");
    }
    let grows = after.in_sync.iter().any(|id| !before.in_sync.contains(id));
    let shrinks = before.in_sync.iter().any(|id| !after.in_sync.contains(id));
    if grows {
        events.note("cluster: in-sync set grew");
    }
    if shrinks {
        events.note("cluster: in-sync set shrank");
    }
    if !after.eligible.is_empty() && before.eligible.is_empty() {
        events.note("cluster: replica became eligible");
    }
}
