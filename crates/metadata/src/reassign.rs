//! Moving replicas (KIP-455).
//!
//! ```text
//! [1 2 3] ─▶ target [1 4 5] ─▶ replicas [1 4 5 2 3], adding [4 5], removing [2 3]
//!                              leaders let 4 and 5 in as they catch up
//!            1, 4 and 5 in sync ─▶ [1 4 5]
//! ```
//!
//! A reassignment is complete when every replica that is to stay is in sync, so that it never
//! leaves fewer copies than were asked for. Taking it back leaves out those that were only coming.

use std::collections::BTreeMap;

use towpath_model::{BrokerId, TopicPartition, Uuid};

use crate::broker::Role;
use crate::cluster::{NamedPartition, PartitionOutcomes, Reassignment};
use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;
use crate::topic::{PartitionState, Topic};

impl Image {
    pub(crate) fn alter_reassignments(
        &self,
        asked: Vec<Reassignment>,
        factor_may_change: bool,
        by_hand: bool,
    ) -> Decided {
        let mut times = BTreeMap::<NamedPartition, usize>::new();
        for reassignment in &asked {
            *times.entry(reassignment.partition.clone()).or_default() += 1;
        }
        let mut records = Vec::new();
        let mut outcomes: PartitionOutcomes = Vec::with_capacity(asked.len());
        for Reassignment { partition, target } in asked {
            let result = match times[&partition] {
                1 => self.reassign(&partition, target.as_deref(), factor_may_change, by_hand),
                _ => Err(Refusal::RepeatedPartition),
            };
            outcomes.push((partition, result.map(|record| records.extend(record))));
        }
        (records, Reply::AlteredReassignments(outcomes))
    }

    pub(crate) fn named(
        &self,
        partition: &NamedPartition,
    ) -> Result<(&Topic, TopicPartition, &PartitionState), Refusal> {
        let topic = self.topic(&partition.0).ok_or(Refusal::UnknownTopic)?;
        let id = TopicPartition { topic: topic.id, partition: partition.1 };
        let state = self.partition(id).ok_or(Refusal::UnknownTopic)?;
        Ok((topic, id, state))
    }

    fn reassign(
        &self,
        partition: &NamedPartition,
        target: Option<&[BrokerId]>,
        factor_may_change: bool,
        by_hand: bool,
    ) -> Result<Option<Record>, Refusal> {
        let (topic, id, state) = self.named(partition)?;
        let wanted = match target {
            None => taken_back(state, self.min_in_sync(topic, state))?,
            Some(target) => {
                self.check_assignments(&[target.to_vec()], None)?;
                let factor = state.settled_replicas();
                if !factor_may_change && target.len() != factor {
                    return Err(Refusal::FactorChange { asked: target.len(), current: factor });
                }
                PartitionState { placed_by_hand: by_hand, ..self.reassigned(state, target) }
            }
        };
        Ok(self.settled(&self.electorate(), topic, id, wanted))
    }

    /// The state in which replicas move to `target`.
    pub(crate) fn reassigned(&self, state: &PartitionState, target: &[BrokerId]) -> PartitionState {
        let stays = |id: &BrokerId| state.replicas.contains(id) && !state.adding.contains(id);
        let adding: Vec<_> = target.iter().copied().filter(|id| !stays(id)).collect();
        let removing: Vec<_> =
            state.replicas.iter().copied().filter(|id| !target.contains(id)).collect();
        let replicas: Vec<_> = target.iter().chain(&removing).copied().collect();
        let directory = |id: &BrokerId| match state.replicas.contains(id) {
            true => state.directory_of(*id),
            false => self.broker(*id).map_or(Uuid::ZERO, crate::broker::Broker::only_directory),
        };
        PartitionState {
            directories: replicas.iter().map(directory).collect(),
            replicas,
            adding,
            removing,
            ..state.clone()
        }
    }

    /// Whether a node can hold replicas at all.
    pub(crate) fn can_hold(&self, id: BrokerId) -> bool {
        self.broker(id).is_some_and(|broker| broker.role == Role::Broker)
    }
}

/// `min` must stay in sync, if replicas that were to come are: what was committed may be on no others.
fn taken_back(state: &PartitionState, min: usize) -> Result<PartitionState, Refusal> {
    if !state.is_reassigning() {
        return Err(Refusal::NoReassignment);
    }
    let stays = |id: &BrokerId| !state.adding.contains(id);
    let replicas: Vec<_> = state.replicas.iter().copied().filter(stays).collect();
    let in_sync: Vec<_> = state.in_sync.iter().copied().filter(stays).collect();
    if in_sync.len() < min && in_sync.len() < state.in_sync.len() {
        return Err(Refusal::OnlyComingInSync);
    }
    Ok(PartitionState {
        directories: replicas.iter().map(|id| state.directory_of(*id)).collect(),
        replicas,
        in_sync,
        adding: Vec::new(),
        removing: Vec::new(),
        ..state.clone()
    })
}
