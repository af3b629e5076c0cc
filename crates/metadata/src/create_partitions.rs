//! Giving a topic more partitions. Records with the same key may go to another partition from then
//! on; whoever offers this to people says so before.

use std::collections::BTreeMap;

use towpath_model::properties::BrokerConfig;
use towpath_model::{PartitionIndex, TopicPartition};

use crate::create_topics::check_partition_limits;
use crate::image::Image;
use crate::metadata::Decided;
use crate::place::Placement;
use crate::queue;
use crate::record::{ConfiguredResource, Record};
use crate::refusal::Refusal;
use crate::request::{MorePartitions, Reply};
use crate::topic::{PartitionState, Topic};

impl Image {
    pub(crate) fn create_partitions(
        &self,
        asked: &[MorePartitions],
        validate_only: bool,
    ) -> Decided {
        let config = self.broker_config();
        let mut times = BTreeMap::<&str, usize>::new();
        for topic in asked {
            *times.entry(&topic.name).or_default() += 1;
        }

        let (mut records, mut accepted) = (Vec::new(), 0);
        let mut results = Vec::new();
        let mut repeated = Vec::new();
        for topic in asked {
            let Some(count) = times.remove(topic.name.as_str()) else { continue };
            if 1 < count {
                repeated.push((topic.name.clone(), Err(Refusal::DuplicateTopicName)));
                continue;
            }
            let added = self.more_partitions(topic, &config, accepted);
            let result = added.map(|added| {
                let is_partition = |record: &&Record| matches!(record, Record::Partition { .. });
                accepted += added.iter().filter(is_partition).count();
                records.extend(added);
                topic.count
            });
            results.push((topic.name.clone(), result));
        }
        results.extend(repeated);
        if validate_only {
            records.clear();
        }
        (records, Reply::CreatedPartitions(results))
    }

    /// `accepted` partitions are added by earlier entries of the same request.
    fn more_partitions(
        &self,
        asked: &MorePartitions,
        config: &BrokerConfig,
        accepted: usize,
    ) -> Result<Vec<Record>, Refusal> {
        let topic = self.topic(&asked.name).ok_or(Refusal::UnknownTopic)?;
        let current = topic.partitions.len();
        let count = usize::try_from(asked.count).unwrap_or(0);
        if count == current {
            return Err(Refusal::SamePartitions(current));
        }
        if count < current {
            let topic = asked.name.clone();
            return Err(Refusal::FewerPartitions { topic, current, asked: asked.count });
        }
        if topic.internal {
            return Err(Refusal::InternalTopicGrowth(asked.name.clone()));
        }
        let added = count - current;
        if config.request_partitions_max < accepted + added {
            return Err(Refusal::TooManyMorePartitionsPerRequest);
        }
        let before = self.partition_count() + accepted;
        check_partition_limits(&asked.name, before, count, added, config)?;
        let partitions = self.placed(topic, asked, current, added)?;
        let first = i32::try_from(current).unwrap_or(i32::MAX);
        let record = |(index, state)| Record::Partition {
            partition: TopicPartition { topic: topic.id, partition: PartitionIndex(index) },
            state,
        };
        let is_fifo = self.effective_config(topic).queue.fifo;
        let resource = ConfiguredResource::Topic(topic.id);
        let kept = queue::keep_ids(topic, is_fifo, current);
        let kept = kept.map(|overrides| Record::Config { resource, overrides });
        Ok(kept.into_iter().chain((first..).zip(partitions).map(record)).collect())
    }

    fn placed(
        &self,
        topic: &Topic,
        asked: &MorePartitions,
        current: usize,
        added: usize,
    ) -> Result<Vec<PartitionState>, Refusal> {
        let factor = topic.replication_factor();
        if let Some(assigned) = &asked.assignments {
            if assigned.len() != added {
                return Err(Refusal::AssignmentsMiscounted { added, assigned: assigned.len() });
            }
            self.check_assignments(assigned, Some(factor))?;
            let placed = |ids: &Vec<_>| PartitionState {
                placed_by_hand: true,
                ..self.new_partition(ids.clone())
            };
            return Ok(assigned.iter().map(placed).collect());
        }
        let brokers = self.placeable();
        if brokers.len() < factor {
            let asked = i16::try_from(factor).unwrap_or(i16::MAX);
            return Err(Refusal::TooFewBrokers { asked, brokers: brokers.len() });
        }
        let start = self.first_broker_of(topic.id) + current as u64;
        let mut placement = Placement::new(brokers, start);
        Ok((0..added).map(|_| self.new_partition(placement.place(factor))).collect())
    }
}
