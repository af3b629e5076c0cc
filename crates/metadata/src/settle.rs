//! The rules of elections, applied to partitions of the image.

use towpath_model::{BrokerId, TopicPartition, Uuid};

use crate::elect::{Election, Electorate, Rules};
use crate::image::Image;
use crate::record::{Overrides, Record};
use crate::topic::{PartitionState, Topic};

/// What the minimum is where nobody chose one; never more than there are replicas.
const MIN_IN_SYNC: u32 = 2;

pub(crate) const MIN_PROPERTY: &str = "min.insync.replicas";

impl Image {
    /// `min.insync.replicas` of a topic, before the number of replicas bounds it. What one broker's
    /// operator wrote does not count: leaders and the controller must agree.
    pub(crate) fn configured_min(&self, topic: &Topic) -> u32 {
        configured_min(&topic.overrides, self.broker_overrides.get(&None))
    }

    /// Which election a topic's configuration asks for where a leader is missing.
    pub(crate) fn election(&self, topic: &Topic) -> Election {
        match self.effective_config(topic).unclean_leader_election {
            true => Election::Unclean,
            false => Election::Needed,
        }
    }

    /// The record that follows from a wanted state, if anything changes.
    pub(crate) fn settled(
        &self,
        electorate: &Electorate,
        topic: &Topic,
        partition: TopicPartition,
        wanted: PartitionState,
    ) -> Option<Record> {
        let election = self.election(topic);
        self.settled_by(electorate, topic, partition, wanted, election, &[])
    }

    pub(crate) fn settled_by(
        &self,
        electorate: &Electorate,
        topic: &Topic,
        partition: TopicPartition,
        wanted: PartitionState,
        election: Election,
        disqualified: &[BrokerId],
    ) -> Option<Record> {
        let before = self.partition(partition)?;
        let rules = Rules { min: self.configured_min(topic), election, disqualified };
        let state = electorate.settle(before, wanted, rules)?;
        Some(Record::Partition { partition, state })
    }

    /// What there is to change for partitions to be in line with these brokers.
    pub(crate) fn unsettled(&self, electorate: &Electorate) -> impl Iterator<Item = Record> {
        self.partitions().filter_map(move |(topic, partition, state)| {
            let all_well = state.leader.is_some()
                && state.in_sync.iter().all(|id| electorate.is_usable(*id, state))
                && !electorate.gives_way(state);
            if all_well {
                return None;
            }
            let mut wanted = state.clone();
            electorate.without_unusable(&mut wanted);
            self.settled(electorate, topic, partition, wanted)
        })
    }

    /// Where these brokers' replicas will lie, as far as there is no choice.
    pub(crate) fn only_directories(&self, replicas: &[BrokerId]) -> Vec<Uuid> {
        let directory = |id: &BrokerId| self.broker(*id).map(crate::broker::Broker::only_directory);
        replicas.iter().map(|id| directory(id).unwrap_or(Uuid::ZERO)).collect()
    }

    /// A new partition on these brokers: those that are there are in sync, and the first of them
    /// leads that is not to be emptied.
    pub(crate) fn new_partition(&self, replicas: Vec<BrokerId>) -> PartitionState {
        let electorate = self.electorate();
        let directories = self.only_directories(&replicas);
        let mut state = PartitionState { directories, ..PartitionState::new(replicas) };
        electorate.without_unusable(&mut state);
        state.leader = electorate.first_leader(&state);
        state
    }
}

pub(crate) fn configured_min(topic: &Overrides, all_brokers: Option<&Overrides>) -> u32 {
    let set = topic.get(MIN_PROPERTY).or_else(|| all_brokers?.get(MIN_PROPERTY));
    set.and_then(|value| value.trim().parse().ok()).unwrap_or(MIN_IN_SYNC).max(1)
}
