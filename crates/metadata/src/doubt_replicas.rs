//! A broker no longer trusts replicas that it holds: committed records in them cannot be read.
//!
//! They leave the in-sync set and are not eligible, and a new leadership begins, under which they have
//! reported nothing; only then does the broker drop them and copy them anew. (Under one leadership a
//! leader takes what a replica has once reported for certain.) Where nobody else holds all that is committed the
//! replica stays as it is: what can be read of it is all there is.

use towpath_model::{BrokerId, TopicPartition};

use crate::elect::{Election, Electorate};
use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;
use crate::topic::PartitionState;

impl Image {
    pub(crate) fn doubt_replicas(
        &self,
        broker: BrokerId,
        epoch: i64,
        partitions: &[TopicPartition],
    ) -> Decided {
        let mut records = Vec::new();
        let doubted = self.registered(broker, epoch).map(|_| {
            let electorate = self.electorate();
            let doubt =
                |id: &TopicPartition| (*id, self.doubt(&electorate, broker, *id, &mut records));
            partitions.iter().map(doubt).collect()
        });
        (records, Reply::DoubtedReplicas(doubted))
    }

    fn doubt(
        &self,
        electorate: &Electorate,
        broker: BrokerId,
        partition: TopicPartition,
        records: &mut Vec<Record>,
    ) -> Result<(), Refusal> {
        let topic = self.topic_by_id(partition.topic).ok_or(Refusal::UnknownTopicId)?;
        let state = self.partition(partition).ok_or(Refusal::UnknownTopic)?;
        let mut wanted: PartitionState = state.clone();
        wanted.in_sync.retain(|id| *id != broker);
        let can_serve = |id: &BrokerId| *id != broker && electorate.is_usable(*id, state);
        if !wanted.in_sync.iter().chain(&state.eligible).any(can_serve) {
            return Err(Refusal::LastReplica(broker));
        }
        let settled =
            self.settled_by(electorate, topic, partition, wanted, Election::Anew, &[broker]);
        records.extend(settled);
        Ok(())
    }
}
