//! The image as records: what a snapshot of the metadata holds.

use crate::image::Image;
use crate::record::{ConfiguredResource, Record};

impl Image {
    /// Records that make an empty image equal to this one, except for what is each process's own:
    /// `me`, `statics`, and producer ids of the current block that are not given out yet.
    pub fn to_records(&self) -> impl Iterator<Item = Record> {
        let level = Some(self.format_level).filter(|level| 0 < *level).map(Record::FormatLevel);
        let cluster = self.cluster_id().map(|id| Record::ClusterId(id.to_owned()));
        let epoch = Some(self.past_broker_epoch).filter(|epoch| 0 < *epoch);
        let ids = Some(self.producer_id_block_end).filter(|end| 0 < *end);
        let retired =
            self.retired().map(|(broker, directory)| Record::Retired { broker, directory });
        let losses = self.accepted_losses().cloned().map(Record::AcceptedLoss);
        let tasks = self.tasks().map(|task| Record::Task(Box::new(task.clone())));
        let brokers = self.brokers().map(|broker| Record::Broker(broker.clone()));
        let configs = self.broker_overrides.iter().map(|(broker, overrides)| Record::Config {
            resource: ConfiguredResource::Broker(*broker),
            overrides: overrides.clone(),
        });
        let topics = self.topics().flat_map(|topic| {
            let head = Record::Topic {
                id: topic.id,
                name: topic.name.clone(),
                internal: topic.internal,
                grows: topic.grows,
            };
            let config = (!topic.overrides.is_empty()).then(|| Record::Config {
                resource: ConfiguredResource::Topic(topic.id),
                overrides: topic.overrides.clone(),
            });
            let partitions = topic
                .numbered()
                .map(|(partition, state)| Record::Partition { partition, state: state.clone() });
            [head].into_iter().chain(config).chain(partitions)
        });
        level
            .into_iter()
            .chain(cluster)
            .chain(epoch.map(Record::BrokerEpoch))
            .chain(ids.map(|end| Record::ProducerIdBlock { end }))
            .chain(retired)
            .chain(losses)
            .chain(brokers)
            .chain(configs)
            .chain(topics)
            .chain(tasks)
    }
}
