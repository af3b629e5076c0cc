//! The metadata as everybody reads it: a fold over records, with the questions that readers ask.
//!
//! `apply` cannot refuse: what it is given has been decided by this code, here or elsewhere. A
//! record that names a topic which is not there changes nothing; it can only come from a log that
//! lost an append which was one with it.

use std::collections::BTreeMap;

use towpath_model::properties::{BrokerConfig, TopicConfig};
use towpath_model::{BrokerId, PartitionIndex, TopicId, TopicName, TopicPartition};

use crate::broker::Broker;
use crate::place::Placeable;
use crate::record::{ConfiguredResource, Overrides, Record};
use crate::topic::{PartitionState, Topic};

/// What the cluster has decided so far.
///
/// Invariant: names, folded_names and topics hold the same topics; partition_count is the sum of
/// their partitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    pub(crate) me: BrokerId,
    pub(crate) statics: Overrides,
    format_level: u16,
    topics: BTreeMap<TopicId, Topic>,
    names: BTreeMap<TopicName, TopicId>,
    /// Names with `.` written as `_`: two that are equal here may not be there together.
    folded_names: BTreeMap<String, TopicName>,
    partition_count: usize,
    /// Partitions whose predecessors have not come yet: a compaction moves a partition that was
    /// changed later behind its successors. Empty once the whole log has been read.
    early_partitions: BTreeMap<TopicPartition, PartitionState>,
    brokers: BTreeMap<BrokerId, Broker>,
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
            Record::Topic { id, name, internal } => self.add_topic(*id, name, *internal),
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
            Record::ProducerIdBlock { end } => {
                self.producer_id_block_end = self.producer_id_block_end.max(*end);
                self.next_producer_id = self.producer_id_block_end;
            }
            Record::ProducerIdTaken(id) => self.next_producer_id = id.0 + 1,
        }
    }

    fn add_topic(&mut self, id: TopicId, name: &TopicName, internal: bool) {
        self.remove_topic(id);
        let topic = Topic {
            name: name.clone(),
            id,
            internal,
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
        self.names.remove(&topic.name);
        self.folded_names.remove(&fold(topic.name.as_str()));
        self.own_configs.remove(&id);
    }

    fn set_partition(&mut self, partition: TopicPartition, state: &PartitionState) {
        let Some(topic) = self.topics.get_mut(&partition.topic) else { return };
        let before = topic.partitions.len();
        match topic.partitions.get_mut(index_of(partition)) {
            Some(known) => known.clone_from(state),
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
            topic.partitions.push(state);
        }
        self.partition_count += topic.partitions.len() - before;
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
            topic.partitions.pop();
            self.partition_count -= 1;
        }
    }

    /// The broker that reads this image.
    #[must_use]
    pub fn me(&self) -> BrokerId {
        self.me
    }

    /// The level of formats in force; 0 before the first start.
    #[must_use]
    pub fn format_level(&self) -> u16 {
        self.format_level
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

    /// Who can hold new partitions.
    #[must_use]
    pub fn placeable(&self) -> Vec<Placeable> {
        self.brokers
            .values()
            .map(|broker| Placeable { rack: broker.rack.clone(), id: broker.id })
            .collect()
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
