//! Creating topics: names, numbers, assignments, configuration and limits, in the order in which
//! Kafka refuses them.

use std::collections::{BTreeMap, BTreeSet};

use towpath_model::properties::{self, BrokerConfig};
use towpath_model::{BrokerId, PartitionIndex, TopicName, TopicPartition, is_internal_topic};

use crate::image::{Image, fold};
use crate::metadata::Decided;
use crate::place::{Placeable, Placement};
use crate::queue;
use crate::record::{ConfiguredResource, Overrides, Record};
use crate::refusal::Refusal;
use crate::request::{CreatedTopic, NewTopic, Reply};
use crate::topic::{PartitionState, Topic};

/// The name of Kafka's own metadata log, which tools know.
const METADATA_TOPIC: &str = "__cluster_metadata";
/// How many replicas a topic gets where nobody chose and there are brokers enough.
const REPLICATION_FACTOR: i16 = 3;

impl Image {
    pub(crate) fn create_topics(&self, asked: &[NewTopic], validate_only: bool) -> Decided {
        let config = self.broker_config();
        let mut times = BTreeMap::<&str, usize>::new();
        for topic in asked {
            *times.entry(&topic.name).or_default() += 1;
        }
        let total: usize = asked.iter().map(|topic| partitions_asked(topic, &config)).sum();
        let is_excessive = config.request_partitions_max < total;

        let mut accepted = Accepted::new(self.placeable());
        let mut results = Vec::new();
        let mut repeated = Vec::new();
        for topic in asked {
            let Some(count) = times.remove(topic.name.as_str()) else { continue };
            if 1 < count {
                repeated.push((topic.name.clone(), Err(Refusal::DuplicateTopicName)));
                continue;
            }
            let result = if is_excessive {
                Err(Refusal::TooManyPartitionsPerRequest)
            } else {
                self.create_topic(topic, &config, &mut accepted)
            };
            let result = result.map(|created| {
                let reply = self.created(&created);
                accepted.add(created);
                reply
            });
            results.push((topic.name.clone(), result));
        }
        results.extend(repeated);
        let records = if validate_only { Vec::new() } else { accepted.into_records() };
        (records, Reply::CreatedTopics(results))
    }

    fn create_topic(
        &self,
        asked: &NewTopic,
        config: &BrokerConfig,
        accepted: &mut Accepted,
    ) -> Result<Topic, Refusal> {
        let name = self.new_name(asked, accepted)?;
        let mut overrides = new_overrides(asked)?;
        queue::check_new(asked.internal, &overrides)?;
        queue::complete_new(&mut overrides);
        let partitions = self.new_partitions(asked, config, accepted)?;
        self.check_limits(asked, partitions.len(), config, accepted)?;
        if self.topic_by_id(asked.candidate_id).is_some() || asked.candidate_id.is_zero() {
            return Err(Refusal::TopicIdTaken(asked.name.clone()));
        }
        let placed_by_hand = !asked.assignments.is_empty();
        let new_partition = |ids| PartitionState { placed_by_hand, ..self.new_partition(ids) };
        Ok(Topic {
            name,
            id: asked.candidate_id,
            internal: asked.internal,
            grows: asked.replication_factor == -1 && !placed_by_hand,
            partitions: partitions.into_iter().map(new_partition).collect(),
            overrides,
        })
    }

    fn new_name(&self, asked: &NewTopic, accepted: &Accepted) -> Result<TopicName, Refusal> {
        let name = TopicName::new(&asked.name).map_err(Refusal::InvalidTopicName)?;
        let folded = fold(&asked.name);
        let existing = self.collision(&asked.name);
        if let Some(existing) = existing.or_else(|| accepted.folded_names.get(&folded)) {
            return Err(Refusal::Collision {
                name: asked.name.clone(),
                existing: existing.to_string(),
            });
        }
        if self.topic(&asked.name).is_some() {
            return Err(Refusal::TopicExists(asked.name.clone()));
        }
        let is_internal = is_internal_topic(&asked.name) || asked.name == METADATA_TOPIC;
        if is_internal != asked.internal {
            return Err(Refusal::InternalTopicCreation(asked.name.clone()));
        }
        Ok(name)
    }

    fn new_partitions(
        &self,
        asked: &NewTopic,
        config: &BrokerConfig,
        accepted: &mut Accepted,
    ) -> Result<Vec<Vec<BrokerId>>, Refusal> {
        if !asked.assignments.is_empty() {
            return self.assigned_partitions(asked);
        }
        if asked.partitions == 0 || asked.partitions < -1 {
            return Err(Refusal::NoPartitions);
        }
        if asked.replication_factor == 0 || asked.replication_factor < -1 {
            return Err(Refusal::NoReplicas);
        }
        let factor = match asked.replication_factor {
            -1 => self.default_replication_factor(config),
            factor => factor,
        };
        let brokers = accepted.placeable.len();
        if brokers < usize::from(factor.unsigned_abs()) {
            return Err(Refusal::TooFewBrokers { asked: factor, brokers });
        }
        let count = i32::try_from(partitions_asked(asked, config)).unwrap_or(i32::MAX);
        let factor = usize::from(factor.unsigned_abs());
        let start = self.first_broker_of(asked.candidate_id);
        let mut placement = Placement::new(accepted.placeable.clone(), start);
        let replicas = (0..count).map(|_| placement.place(factor)).collect();
        accepted.placeable = placement.into_placeable();
        Ok(replicas)
    }

    fn assigned_partitions(&self, asked: &NewTopic) -> Result<Vec<Vec<BrokerId>>, Refusal> {
        if asked.partitions != -1 {
            return Err(Refusal::AssignmentsAndPartitions);
        }
        if asked.replication_factor != -1 {
            return Err(Refusal::AssignmentsAndReplication);
        }
        let mut by_index = BTreeMap::new();
        for (index, replicas) in &asked.assignments {
            if by_index.insert(index.0, replicas).is_some() {
                return Err(Refusal::AssignmentRepeated(index.0));
            }
        }
        if !(0..).zip(by_index.keys()).all(|(expected, index)| expected == *index) {
            return Err(Refusal::AssignmentsNotConsecutive);
        }
        let assigned: Vec<_> = by_index.into_values().cloned().collect();
        self.check_assignments(&assigned, None)?;
        Ok(assigned)
    }

    /// `factor` is the number of replicas that each has to have, where there is one already.
    pub(crate) fn check_assignments(
        &self,
        assigned: &[Vec<BrokerId>],
        factor: Option<usize>,
    ) -> Result<(), Refusal> {
        let expected = factor.or_else(|| assigned.first().map(Vec::len)).unwrap_or_default();
        for replicas in assigned {
            if replicas.is_empty() {
                return Err(Refusal::AssignmentEmpty);
            }
            let mut seen = BTreeSet::new();
            for broker in replicas {
                if !seen.insert(*broker) {
                    return Err(Refusal::AssignmentRepeatsBroker(*broker));
                }
                if !self.can_hold(*broker) {
                    return Err(Refusal::AssignmentToUnknownBroker(*broker));
                }
            }
            if replicas.len() != expected {
                return Err(Refusal::AssignmentsUneven { found: replicas.len(), expected });
            }
        }
        Ok(())
    }

    fn check_limits(
        &self,
        asked: &NewTopic,
        partitions: usize,
        config: &BrokerConfig,
        accepted: &Accepted,
    ) -> Result<(), Refusal> {
        let topics = self.topic_count() + accepted.topics.len();
        if config.topics_max <= topics {
            return Err(Refusal::TooManyTopics(topics));
        }
        let before = self.partition_count() + accepted.partition_count;
        check_partition_limits(&asked.name, before, partitions, partitions, config)
    }

    /// How many replicas a topic gets whose creator leaves it open.
    pub(crate) fn default_replication_factor(&self, config: &BrokerConfig) -> i16 {
        let brokers = i16::try_from(self.placeable().len()).unwrap_or(i16::MAX);
        config.default_replication_factor.unwrap_or(REPLICATION_FACTOR.min(brokers)).max(1)
    }

    /// How many replicas partitions get whose number of replicas is left to the cluster, as far as
    /// there are brokers.
    pub(crate) fn full_replication(&self) -> usize {
        let config = self.broker_config();
        let factor = config.default_replication_factor.unwrap_or(REPLICATION_FACTOR);
        usize::from(factor.unsigned_abs()).min(self.placeable().len())
    }

    /// A number that belongs to a topic and differs between topics.
    pub(crate) fn first_broker_of(&self, topic: towpath_model::TopicId) -> u64 {
        let [first, second, ..] = topic.0;
        u64::from(u16::from_be_bytes([first, second]))
    }

    fn created(&self, topic: &Topic) -> CreatedTopic {
        CreatedTopic {
            id: topic.id,
            partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
            replication_factor: i16::try_from(topic.replication_factor()).unwrap_or(i16::MAX),
            configs: self.describe_topic(topic),
        }
    }
}

/// Refuses what would pass `topic.partitions.max` (`in_topic` is what the topic would have) or
/// `partitions.max` (`added` come to what the cluster has `before`).
pub(crate) fn check_partition_limits(
    topic: &str,
    before: usize,
    in_topic: usize,
    added: usize,
    config: &BrokerConfig,
) -> Result<(), Refusal> {
    if config.topic_partitions_max < in_topic {
        return Err(Refusal::TooManyPartitionsPerTopic {
            topic: topic.to_owned(),
            asked: in_topic,
            most: config.topic_partitions_max,
        });
    }
    let asked = before + added;
    if config.partitions_max < asked {
        return Err(Refusal::TooManyPartitions { asked, most: config.partitions_max });
    }
    Ok(())
}

/// How many partitions a request costs, before anything else of it is looked at.
fn partitions_asked(topic: &NewTopic, config: &BrokerConfig) -> usize {
    match topic.partitions {
        _ if !topic.assignments.is_empty() => topic.assignments.len(),
        -1 => config.num_partitions.unsigned_abs() as usize,
        count => usize::try_from(count).unwrap_or(0),
    }
}

fn new_overrides(asked: &NewTopic) -> Result<Overrides, Refusal> {
    let mut overrides = Overrides::new();
    for (name, value) in &asked.configs {
        let value = value.as_ref().ok_or_else(|| Refusal::NullTopicValue(name.clone()))?;
        overrides.insert(name.clone(), value.trim().to_owned());
    }
    for (name, value) in &overrides {
        let property =
            properties::topic(name).ok_or_else(|| Refusal::UnknownTopicConfig(name.clone()))?;
        property.check(value).map_err(Refusal::InvalidValue)?;
    }
    Ok(overrides)
}

/// Topics that this request creates, so far.
struct Accepted {
    placeable: Vec<Placeable>,
    topics: Vec<Topic>,
    folded_names: BTreeMap<String, TopicName>,
    partition_count: usize,
}

impl Accepted {
    fn new(placeable: Vec<Placeable>) -> Accepted {
        Accepted {
            placeable,
            topics: Vec::new(),
            folded_names: BTreeMap::new(),
            partition_count: 0,
        }
    }

    fn add(&mut self, topic: Topic) {
        self.folded_names.insert(fold(topic.name.as_str()), topic.name.clone());
        self.partition_count += topic.partitions.len();
        self.topics.push(topic);
    }

    fn into_records(self) -> Vec<Record> {
        let mut records = Vec::with_capacity(self.partition_count + 2 * self.topics.len());
        for topic in self.topics {
            let Topic { name, id, internal, grows, partitions, overrides } = topic;
            records.push(Record::Topic { id, name, internal, grows });
            if !overrides.is_empty() {
                let resource = ConfiguredResource::Topic(id);
                records.push(Record::Config { resource, overrides });
            }
            records.extend((0..).zip(partitions).map(|(index, state)| Record::Partition {
                partition: TopicPartition { topic: id, partition: PartitionIndex(index) },
                state,
            }));
        }
        records
    }
}
