//! A broker has started.
//!
//! Every registration has an epoch of its own, so that what an earlier process of the same broker
//! said can be told apart (KIP-903). A start that was not preceded by an orderly stop may have lost
//! what was not synced: records at offsets that readers of a relaxed topic, or followers, have
//! seen, and other records will be written there now. So such a start raises the leader epoch of
//! every partition the broker leads, even if nobody else could have led meanwhile (KIP-966), and
//! whoever has the old records finds out by asking where the old epoch ended (KIP-320). An orderly
//! stop has synced everything: the same process might as well have gone on, and nothing is raised.

use towpath_model::mutant::{self, Mutant};
use towpath_model::{LeaderEpoch, PartitionIndex, TopicPartition};

use crate::broker::Broker;
use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::request::{Registration, Reply};
use crate::topic::PartitionState;

impl Image {
    pub(crate) fn register_broker(&self, registration: Registration) -> Decided {
        let known_epoch = self.broker(registration.id).map(|broker| broker.epoch);
        let is_clean =
            registration.clean_since.is_some() && registration.clean_since == known_epoch;
        let epoch = 1 + self.brokers().map(|broker| broker.epoch).max().unwrap_or(0);
        let id = registration.id;
        let mut records = vec![Record::Broker(Broker {
            id,
            epoch,
            incarnation: registration.incarnation,
            rack: registration.rack,
            addresses: registration.addresses,
            directories: registration.directories,
        })];
        if !is_clean && !mutant::is_on(Mutant::LeaderEpochKept) {
            let led = self.partitions().filter(|(_, state)| state.leader == Some(id));
            records.extend(
                led.map(|(partition, state)| Record::Partition {
                    partition,
                    state: led_anew(state),
                }),
            );
        }
        (records, Reply::RegisteredBroker(epoch))
    }

    fn partitions(&self) -> impl Iterator<Item = (TopicPartition, &PartitionState)> {
        self.topics().flat_map(|topic| {
            (0..).zip(&topic.partitions).map(|(index, state)| {
                let partition = PartitionIndex(index);
                (TopicPartition { topic: topic.id, partition }, state)
            })
        })
    }
}

fn led_anew(state: &PartitionState) -> PartitionState {
    PartitionState {
        leader_epoch: LeaderEpoch(state.leader_epoch.0 + 1),
        partition_epoch: state.partition_epoch + 1,
        ..state.clone()
    }
}
