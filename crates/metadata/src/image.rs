//! The metadata as everybody reads it: a fold over records, with the questions that readers ask.
//!
//! `apply` cannot refuse: what it is given has been decided by this code, here or elsewhere. A
//! record that names a topic which is not there changes nothing; it can only come from a log that
//! lost an append which was one with it.

use std::collections::{BTreeMap, BTreeSet};

use towpath_model::properties::{BrokerConfig, TopicConfig};
use towpath_model::{BrokerId, PartitionIndex, TopicId, TopicName, TopicPartition, Uuid};

use crate::accept_loss::AcceptedLosses;
use crate::broker::Broker;
use crate::elect::Electorate;
use crate::format_level::FIRST_FORMAT_LEVEL;
use crate::place::{Load, Placeable};
use crate::record::{ConfiguredResource, Overrides, Record};
use crate::refusal::Refusal;
use crate::task::Task;
use crate::topic::{PartitionState, Topic};

/// What the cluster has decided so far.
///
/// Invariant: names, folded_names and topics hold the same topics; partition_count is the sum of
/// their partitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    pub(crate) me: BrokerId,
    pub(crate) statics: Overrides,
    /// 0 as long as no record says.
    pub(crate) format_level: u16,
    topics: BTreeMap<TopicId, Topic>,
    names: BTreeMap<TopicName, TopicId>,
    /// Names with `.` written as `_`: two that are equal here may not be there together.
    folded_names: BTreeMap<String, TopicName>,
    partition_count: usize,
    /// Partitions whose predecessors have not come yet: a compaction moves a partition that was
    /// changed later behind its successors. Empty once the whole log has been read.
    early_partitions: BTreeMap<TopicPartition, PartitionState>,
    brokers: BTreeMap<BrokerId, Broker>,
    /// What each broker leads and holds; those that hold nothing are missing.
    loads: BTreeMap<BrokerId, Load>,
    /// Partitions whose replicas come or go.
    reassigning: BTreeSet<TopicPartition>,
    /// The largest epoch of a broker that is not registered any more.
    pub(crate) past_broker_epoch: i64,
    /// What operators have given up. Outlives topics: it is there to be looked up.
    pub(crate) accepted_losses: AcceptedLosses,
    /// Those that are over too, as long as they are kept.
    pub(crate) tasks: BTreeMap<Uuid, Task>,
    cluster_id: Option<String>,
    /// Data directories of brokers that were removed.
    retired: BTreeSet<(BrokerId, Uuid)>,
    pub(crate) broker_overrides: BTreeMap<Option<BrokerId>, Overrides>,
    /// What follows from statics and broker_overrides.
    broker_config: BrokerConfig,
    /// The configuration of topics without values of their own, for one replica and for more.
    pub(crate) inherited_configs: [TopicConfig; 2],
    /// The configuration of topics with values of their own: every request to a partition asks for
    /// it, and working it out costs more than the rest of a small one.
    pub(crate) own_configs: BTreeMap<TopicId, TopicConfig>,
    /// First producer id that belongs to nobody.
    pub(crate) producer_id_block_end: i64,
    /// The next producer id of this process's block; the block's end where it has none.
    pub(crate) next_producer_id: i64,
}

impl Image {
    /// An image without topics. `me` is the broker that reads it and `statics` what its operator
    /// configured there; both are this broker's own, so they are not in the records.
    #[must_use]
    pub fn new(me: BrokerId, statics: Overrides) -> Image {
        let mut image = Image {
            me,
            statics,
            format_level: 0,
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            folded_names: BTreeMap::new(),
            partition_count: 0,
            early_partitions: BTreeMap::new(),
            brokers: BTreeMap::new(),
            loads: BTreeMap::new(),
            reassigning: BTreeSet::new(),
            past_broker_epoch: 0,
            accepted_losses: AcceptedLosses::new(),
            tasks: BTreeMap::new(),
            cluster_id: None,
            retired: BTreeSet::new(),
            broker_overrides: BTreeMap::new(),
            broker_config: BrokerConfig::default(),
            inherited_configs: [TopicConfig::default(), TopicConfig::default()],
            own_configs: BTreeMap::new(),
            producer_id_block_end: 0,
            next_producer_id: 0,
        };
        image.broker_values_changed();
        image
    }

    /// Carries out one record.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::FormatLevel(level) => self.format_level = self.format_level.max(*level),
            Record::Topic { id, name, internal, grows } => {
                self.add_topic(*id, name, *internal, *grows);
            }
            Record::TopicRemoved { id } => self.remove_topic(*id),
            Record::Partition { partition, state } => self.set_partition(*partition, state),
            Record::PartitionRemoved { partition } => self.remove_partition(*partition),
            Record::Config { resource: ConfiguredResource::Topic(id), overrides } => {
                if let Some(topic) = self.topics.get_mut(id) {
                    topic.overrides.clone_from(overrides);
                    self.resolve_own_config(*id);
                }
            }
            Record::Config { resource: ConfiguredResource::Broker(broker), overrides } => {
                if overrides.is_empty() {
                    self.broker_overrides.remove(broker);
                } else {
                    self.broker_overrides.insert(*broker, overrides.clone());
                }
                self.broker_values_changed();
            }
            Record::Broker(broker) => {
                self.brokers.insert(broker.id, broker.clone());
            }
            Record::BrokerRemoved { id } => {
                self.brokers.remove(id);
            }
            Record::Retired { broker, directory } => {
                self.retired.insert((*broker, *directory));
            }
            Record::AcceptedLoss(loss) => {
                self.accepted_losses.insert((loss.partition, loss.leader_epoch), loss.clone());
            }
            Record::Task(task) => {
                self.tasks.insert(task.id, Task::clone(task));
                self.resolve_own_config(task.source.id);
            }
            Record::TaskRemoved { id } => {
                self.tasks.remove(id);
            }
            Record::BrokerEpoch(epoch) => {
                self.past_broker_epoch = self.past_broker_epoch.max(*epoch);
            }
            Record::ClusterId(id) => {
                self.cluster_id.get_or_insert_with(|| id.clone());
            }
            Record::Soft(_) => {}
            Record::ProducerIdBlock { end } => {
                self.producer_id_block_end = self.producer_id_block_end.max(*end);
                self.next_producer_id = self.producer_id_block_end;
            }
            Record::ProducerIdTaken(id) => self.next_producer_id = id.0 + 1,
        }
    }

    fn add_topic(&mut self, id: TopicId, name: &TopicName, internal: bool, grows: bool) {
        self.remove_topic(id);
        let topic = Topic {
            name: name.clone(),
            id,
            internal,
            grows,
            partitions: Vec::new(),
            overrides: Overrides::new(),
        };
        self.topics.insert(id, topic);
        self.names.insert(name.clone(), id);
        self.folded_names.insert(fold(name.as_str()), name.clone());
    }

    fn remove_topic(&mut self, id: TopicId) {
        self.early_partitions.retain(|partition, _| partition.topic != id);
        let Some(topic) = self.topics.remove(&id) else { return };
        self.partition_count -= topic.partitions.len();
        for (partition, state) in topic.numbered() {
            self.count(partition, Some(state), None);
        }
        self.names.remove(&topic.name);
        self.folded_names.remove(&fold(topic.name.as_str()));
        self.own_configs.remove(&id);
    }

    fn set_partition(&mut self, partition: TopicPartition, state: &PartitionState) {
        let Some(topic) = self.topics.get_mut(&partition.topic) else { return };
        let before = topic.partitions.len();
        let mut counted = Vec::new();
        match topic.partitions.get_mut(index_of(partition)) {
            Some(known) => {
                let before = std::mem::replace(known, state.clone());
                counted.push((partition, Some(before), state.clone()));
            }
            None => {
                self.early_partitions.insert(partition, state.clone());
            }
        }
        // Those whose turn has come.
        let next = |count: usize| TopicPartition {
            topic: partition.topic,
            partition: PartitionIndex(i32::try_from(count).unwrap_or(i32::MAX)),
        };
        while let Some(state) = self.early_partitions.remove(&next(topic.partitions.len())) {
            counted.push((next(topic.partitions.len()), None, state.clone()));
            topic.partitions.push(state);
        }
        self.partition_count += topic.partitions.len() - before;
        for (partition, before, after) in counted {
            self.count(partition, before.as_ref(), Some(&after));
        }
        if partition.partition == PartitionIndex(0) {
            // The number of replicas may be another one, and a default follows from it.
            self.resolve_own_config(partition.topic);
        }
    }

    /// Partitions go from the last one on, so that those that are left keep their numbers.
    fn remove_partition(&mut self, partition: TopicPartition) {
        self.early_partitions.remove(&partition);
        let Some(topic) = self.topics.get_mut(&partition.topic) else { return };
        if index_of(partition) + 1 == topic.partitions.len() {
            let state = topic.partitions.pop();
            self.partition_count -= 1;
            self.count(partition, state.as_ref(), None);
        }
    }

    /// Keeps loads and reassigning in step with a partition's state.
    fn count(
        &mut self,
        partition: TopicPartition,
        before: Option<&PartitionState>,
        after: Option<&PartitionState>,
    ) {
        if let Some(state) = after {
            for replica in &state.replicas {
                self.loads.entry(*replica).or_default().replicas += 1;
            }
            if let Some(leader) = state.leader {
                self.loads.entry(leader).or_default().leaders += 1;
            }
            if let Some(first) = state.replicas.first() {
                self.loads.entry(*first).or_default().preferred += 1;
            }
        }
        if let Some(state) = before {
            if let Some(leader) = state.leader {
                self.loads.entry(leader).or_default().leaders -= 1;
            }
            if let Some(first) = state.replicas.first() {
                self.loads.entry(*first).or_default().preferred -= 1;
            }
            for replica in &state.replicas {
                self.loads.entry(*replica).or_default().replicas -= 1;
            }
            for broker in state.replicas.iter().chain(&state.leader) {
                if self.load(*broker) == Load::default() {
                    self.loads.remove(broker);
                }
            }
        }
        match after.is_some_and(PartitionState::is_reassigning) {
            true => self.reassigning.insert(partition),
            false => self.reassigning.remove(&partition),
        };
    }

    /// The broker that reads this image.
    #[must_use]
    pub fn me(&self) -> BrokerId {
        self.me
    }

    /// The level of formats in force.
    #[must_use]
    pub fn format_level(&self) -> u16 {
        self.format_level.max(FIRST_FORMAT_LEVEL)
    }

    /// The topic of this name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.names.get(name).and_then(|id| self.topics.get(id))
    }

    /// The topic of this id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(&id)
    }

    /// All topics, by name in ascending order.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.names.values().filter_map(|id| self.topics.get(id))
    }

    /// All topics whose names are not before `first`, in ascending order: where a paged answer goes
    /// on.
    pub fn topics_from(&self, first: &str) -> impl Iterator<Item = &Topic> {
        let range = (std::ops::Bound::Included(first), std::ops::Bound::Unbounded);
        self.names.range::<str, _>(range).filter_map(|(_, id)| self.topics.get(id))
    }

    /// How many topics there are.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// How many partitions all topics have together.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// The topic that shares metric names with `name`, and is not it.
    #[must_use]
    pub fn collision(&self, name: &str) -> Option<&TopicName> {
        self.folded_names.get(&fold(name)).filter(|existing| existing.as_str() != name)
    }

    /// A registered broker.
    #[must_use]
    pub fn broker(&self, id: BrokerId) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// All registered brokers, by number.
    pub fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.brokers.values()
    }

    /// How many brokers are registered.
    #[must_use]
    pub fn broker_count(&self) -> usize {
        self.brokers.len()
    }

    /// Who can hold new partitions: brokers that are there and are not drained.
    #[must_use]
    pub fn placeable(&self) -> Vec<Placeable> {
        let placeable = self.brokers.values().filter(|broker| broker.is_placeable());
        let slot = |broker: &Broker| Placeable {
            rack: broker.rack.clone(),
            id: broker.id,
            load: self.load(broker.id),
        };
        placeable.map(slot).collect()
    }

    /// What a broker leads and holds.
    #[must_use]
    pub fn load(&self, broker: BrokerId) -> Load {
        self.loads.get(&broker).copied().unwrap_or_default()
    }

    /// Who holds replicas.
    pub(crate) fn holders(&self) -> impl Iterator<Item = BrokerId> {
        self.loads.iter().filter(|(_, load)| 0 < load.replicas).map(|(id, _)| *id)
    }

    /// Data directories of brokers that were removed, by broker: whoever has one of them stays outside.
    pub fn retired(&self) -> impl Iterator<Item = (BrokerId, Uuid)> {
        self.retired.iter().copied()
    }

    /// Whether a broker was removed while it had this data directory.
    #[must_use]
    pub fn is_retired(&self, broker: BrokerId, directory: Uuid) -> bool {
        self.retired.contains(&(broker, directory))
    }

    /// The cluster's name, once it has one.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// A partition's state.
    #[must_use]
    pub fn partition(&self, partition: TopicPartition) -> Option<&PartitionState> {
        let index = usize::try_from(partition.partition.0).ok()?;
        self.topics.get(&partition.topic)?.partitions.get(index)
    }

    /// Partitions whose replicas come or go, each with its topic and state.
    pub fn reassignments(&self) -> impl Iterator<Item = (&Topic, TopicPartition, &PartitionState)> {
        self.reassigning.iter().filter_map(|partition| {
            let topic = self.topics.get(&partition.topic)?;
            Some((topic, *partition, self.partition(*partition)?))
        })
    }

    /// How many partitions' replicas come or go.
    #[must_use]
    pub fn reassignment_count(&self) -> usize {
        self.reassigning.len()
    }

    /// All partitions, each with its topic.
    pub fn partitions(&self) -> impl Iterator<Item = (&Topic, TopicPartition, &PartitionState)> {
        self.topics().flat_map(|topic| {
            topic.numbered().map(move |(partition, state)| (topic, partition, state))
        })
    }

    /// How many replicas must be in sync for the partition's high watermark to move and for
    /// `acks=all`. Leaders and the controller both take it from here: eligible replicas are safe
    /// only as long as they agree.
    #[must_use]
    pub fn min_in_sync(&self, topic: &Topic, state: &PartitionState) -> usize {
        state.min_in_sync(self.configured_min(topic))
    }

    /// The brokers as they are.
    pub(crate) fn electorate(&self) -> Electorate {
        Electorate { brokers: self.brokers.clone() }
    }

    /// A broker under the epoch that it names.
    pub(crate) fn registered(&self, id: BrokerId, epoch: i64) -> Result<&Broker, Refusal> {
        let broker = self.broker(id).ok_or(Refusal::BrokerNotRegistered(id))?;
        if broker.epoch != epoch {
            return Err(Refusal::StaleBrokerEpoch {
                broker: id,
                asked: epoch,
                current: broker.epoch,
            });
        }
        Ok(broker)
    }

    /// The limits in force on this broker.
    #[must_use]
    pub fn broker_config(&self) -> BrokerConfig {
        self.broker_config.clone()
    }

    fn broker_values_changed(&mut self) {
        self.broker_config = BrokerConfig::resolve(|property| {
            self.broker_value(property.name).map(|(value, _)| value)
        });
        self.inherited_configs = [1, 2].map(|replicas| self.inherited_config(replicas));
        for id in self.topics.keys().copied().collect::<Vec<_>>() {
            self.resolve_own_config(id);
        }
    }

    fn resolve_own_config(&mut self, id: TopicId) {
        let topic = self.topics.get(&id).filter(|topic| !topic.overrides.is_empty());
        match topic.map(|topic| self.resolve_config(topic)) {
            Some(config) => self.own_configs.insert(id, config),
            None => self.own_configs.remove(&id),
        };
    }
}

fn index_of(partition: TopicPartition) -> usize {
    usize::try_from(partition.partition.0).expect("what is decided or decoded is not negative")
}

/// How a topic's name appears in names of metrics.
pub(crate) fn fold(name: &str) -> String {
    name.replace('.', "_")
}
