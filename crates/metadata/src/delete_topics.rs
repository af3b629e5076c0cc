//! Deleting topics, by name or by id.

use std::collections::{BTreeMap, BTreeSet};

use towpath_model::{PartitionIndex, TopicPartition};

use crate::image::Image;
use crate::metadata::Decided;
use crate::record::{ConfiguredResource, Overrides, Record};
use crate::refusal::Refusal;
use crate::request::{DeletedTopic, Reply, TopicRef};
use crate::topic::Topic;

impl Image {
    pub(crate) fn delete_topics(&self, asked: Vec<TopicRef>) -> Decided {
        let mut times = BTreeMap::<&TopicRef, usize>::new();
        for topic in &asked {
            *times.entry(topic).or_default() += 1;
        }

        let mut records = Vec::new();
        let mut results = Vec::new();
        let mut repeated = Vec::new();
        let mut answered = BTreeSet::new();
        for topic in asked.iter().filter(|topic| answered.insert(*topic)) {
            let found = self.find(topic);
            if 1 < times[topic] && names_one_way(topic) {
                repeated.push((topic.clone(), Err(repetition(topic))));
            } else if let Some(both) =
                found.as_ref().ok().and_then(|found| both_ways(found, &times))
            {
                // One refusal for the two entries.
                if topic.name.is_some() {
                    repeated.push((both, Err(Refusal::DuplicateTopicNameAndId)));
                }
            } else {
                let result = found.and_then(|found| self.delete(found, &mut records));
                results.push((topic.clone(), result));
            }
        }
        results.extend(repeated);
        (records, Reply::DeletedTopics(results))
    }

    fn find(&self, topic: &TopicRef) -> Result<&Topic, Refusal> {
        match (&topic.name, topic.id) {
            (Some(_), Some(_)) => Err(Refusal::BothNameAndId),
            (None, None) => Err(Refusal::NeitherNameNorId),
            (Some(name), None) => self.topic(name).ok_or(Refusal::UnknownTopic),
            (None, Some(id)) => self.topic_by_id(id).ok_or(Refusal::UnknownTopicId),
        }
    }

    pub(crate) fn delete(
        &self,
        topic: &Topic,
        records: &mut Vec<Record>,
    ) -> Result<DeletedTopic, Refusal> {
        if topic.internal {
            return Err(Refusal::InternalTopicDeletion(topic.name.to_string()));
        }
        if !self.broker_config().delete_topics {
            return Err(Refusal::TopicDeletionDisabled);
        }
        if !topic.overrides.is_empty() {
            records.push(Record::Config {
                resource: ConfiguredResource::Topic(topic.id),
                overrides: Overrides::new(),
            });
        }
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        records.extend((0..count).rev().map(|index| Record::PartitionRemoved {
            partition: TopicPartition { topic: topic.id, partition: PartitionIndex(index) },
        }));
        records.push(Record::TopicRemoved { id: topic.id });
        Ok(DeletedTopic { name: topic.name.clone(), id: topic.id })
    }
}

fn names_one_way(topic: &TopicRef) -> bool {
    topic.name.is_some() != topic.id.is_some()
}

/// The topic's name and id, if a request names it once with the one and once with the other.
fn both_ways(topic: &Topic, asked: &BTreeMap<&TopicRef, usize>) -> Option<TopicRef> {
    let name = Some(topic.name.to_string());
    let by_name = TopicRef { name: name.clone(), id: None };
    let by_id = TopicRef { name: None, id: Some(topic.id) };
    let is_both = asked.contains_key(&by_name) && asked.contains_key(&by_id);
    is_both.then_some(TopicRef { name, id: Some(topic.id) })
}

fn repetition(topic: &TopicRef) -> Refusal {
    if topic.name.is_some() { Refusal::DuplicateTopicName } else { Refusal::DuplicateTopicId }
}
