//! What a record means for those who hold logs: which to open, close, delete or configure anew.

use towpath_model::{BrokerId, TopicId, TopicPartition};

use crate::broker::Broker;
use crate::record::{ConfiguredResource, Record};
use crate::task::TaskKind;

/// What there is to do once a record is applied; the image then says with which values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A topic is there; its partitions follow.
    TopicCreated(TopicId),
    /// A partition is there, or who leads or holds it has changed.
    PartitionChanged(TopicPartition),
    /// A partition is gone, and its log with it; its topic follows.
    PartitionRemoved(TopicPartition),
    /// A topic is gone.
    TopicDeleted(TopicId),
    /// A topic is configured otherwise.
    TopicConfigChanged(TopicId),
    /// A broker is configured otherwise (`None`: all of them), and topics that inherit from it.
    BrokerConfigChanged(Option<BrokerId>),
    /// A broker has come or gone, is fenced or not any more, listens elsewhere, or leaves.
    BrokerChanged(BrokerId),
    /// The cluster has its name.
    ClusterNamed,
    /// Nothing.
    None,
}

/// What `record` means for those who hold logs.
#[must_use]
pub fn effect(record: &Record) -> Effect {
    match record {
        Record::Topic { id, .. } => Effect::TopicCreated(*id),
        Record::TopicRemoved { id } => Effect::TopicDeleted(*id),
        Record::Partition { partition, .. } => Effect::PartitionChanged(*partition),
        Record::PartitionRemoved { partition } => Effect::PartitionRemoved(*partition),
        Record::Config { resource: ConfiguredResource::Topic(id), .. } => {
            Effect::TopicConfigChanged(*id)
        }
        // A queue that is given up takes no more, and does so again when its task ends otherwise.
        Record::Task(task) if task.kind == TaskKind::Retire => {
            Effect::TopicConfigChanged(task.source.id)
        }
        Record::Config { resource: ConfiguredResource::Broker(broker), .. } => {
            Effect::BrokerConfigChanged(*broker)
        }
        Record::Broker(Broker { id, .. }) | Record::BrokerRemoved { id } => {
            Effect::BrokerChanged(*id)
        }
        Record::ClusterId(_) => Effect::ClusterNamed,
        Record::FormatLevel(_)
        | Record::BrokerEpoch(_)
        | Record::Retired { .. }
        | Record::AcceptedLoss(_)
        | Record::Task(_)
        | Record::TaskRemoved { .. }
        | Record::Soft(_)
        | Record::ProducerIdBlock { .. }
        | Record::ProducerIdTaken(_) => Effect::None,
    }
}
