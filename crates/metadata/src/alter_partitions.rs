//! A leader proposes who is in sync (KIP-497), behind the fences that keep proposals apart which
//! rest on something that has changed since:
//!
//! ```text
//! registration of the leader   another process of it has started     STALE_BROKER_EPOCH
//! leader, leader epoch         somebody leads since                   FENCED_LEADER_EPOCH
//! partition epoch              the state has changed since            INVALID_UPDATE_VERSION
//! registration of each member  it was judged under another process,   INELIGIBLE_REPLICA
//!                              is gone, or about to stop (KIP-903)
//! ```
//!
//! A refusal is final. The last fence may open again (a member that was fenced is not any more), and
//! proposals may come late and twice; so a refusal there raises the partition epoch, and the leader
//! that has given the proposal up can be sure that nobody takes it up.

use std::collections::BTreeSet;

use towpath_model::BrokerId;
use towpath_model::mutant::{self, Mutant};

use crate::cluster::{AlterPartitions, AlteredPartitions, ProposedInSync};
use crate::elect::Electorate;
use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;
use crate::topic::PartitionState;

impl Image {
    pub(crate) fn alter_partitions(&self, asked: &AlterPartitions) -> Decided {
        let mut records = Vec::new();
        let altered = self.alter_in_sync(asked, &mut records);
        (records, Reply::AlteredPartitions(altered))
    }

    fn alter_in_sync(
        &self,
        asked: &AlterPartitions,
        records: &mut Vec<Record>,
    ) -> Result<AlteredPartitions, Refusal> {
        self.registered(asked.broker, asked.broker_epoch)?;
        let electorate = self.electorate();
        let mut seen = BTreeSet::new();
        let mut altered = Vec::with_capacity(asked.changes.len());
        for change in &asked.changes {
            let result = match seen.insert(change.partition) {
                true => self.propose(&electorate, asked.broker, change, records),
                false => Err(Refusal::RepeatedPartition),
            };
            altered.push((change.partition, result));
        }
        Ok(altered)
    }

    fn propose(
        &self,
        electorate: &Electorate,
        leader: BrokerId,
        change: &ProposedInSync,
        records: &mut Vec<Record>,
    ) -> Result<PartitionState, Refusal> {
        let partition = change.partition;
        let topic = self.topic_by_id(partition.topic).ok_or(Refusal::UnknownTopicId)?;
        let state = self.partition(partition).ok_or(Refusal::UnknownTopic)?;
        let fences = check_fences(electorate, leader, state, change);
        if let Err(Refusal::IneligibleReplica(_)) = fences {
            let partition_epoch = state.partition_epoch + 1;
            let state = PartitionState { partition_epoch, ..state.clone() };
            records.push(Record::Partition { partition, state });
        }
        fences?;
        let members = change.in_sync.iter().map(|(id, _)| *id);
        let wanted = PartitionState { in_sync: members.collect(), ..state.clone() };
        match self.settled(electorate, topic, partition, wanted) {
            Some(Record::Partition { partition, state }) => {
                records.push(Record::Partition { partition, state: state.clone() });
                Ok(state)
            }
            _ => {
                // The set as it is: a leader asks for it so that what it asked for before, of which a
                // copy may still be under way, is void.
                let partition_epoch = state.partition_epoch + 1;
                let state = PartitionState { partition_epoch, ..state.clone() };
                records.push(Record::Partition { partition, state: state.clone() });
                Ok(state)
            }
        }
    }
}

fn check_fences(
    electorate: &Electorate,
    leader: BrokerId,
    state: &PartitionState,
    change: &ProposedInSync,
) -> Result<(), Refusal> {
    let (asked, current) = (change.leader_epoch, state.leader_epoch);
    if current < asked {
        return Err(Refusal::UnknownLeaderEpoch { asked, current });
    }
    if asked < current || state.leader != Some(leader) {
        return Err(Refusal::FencedLeaderEpoch { asked, current });
    }
    if change.partition_epoch != state.partition_epoch
        && !mutant::is_on(Mutant::NoPartitionEpochFence)
    {
        let (asked, current) = (change.partition_epoch, state.partition_epoch);
        return Err(Refusal::InvalidUpdateVersion { asked, current });
    }
    let mut members = BTreeSet::new();
    for (id, epoch) in &change.in_sync {
        if !state.replicas.contains(id) || !members.insert(*id) {
            return Err(Refusal::InvalidInSyncSet(*id));
        }
        let broker = electorate.brokers.get(id);
        let is_judged = broker.is_some_and(|broker| broker.epoch == *epoch);
        if !electorate.is_usable(*id, state)
            || !(is_judged || mutant::is_on(Mutant::NoBrokerEpochFence))
        {
            return Err(Refusal::IneligibleReplica(*id));
        }
    }
    if !members.contains(&leader) {
        return Err(Refusal::InvalidInSyncSet(leader));
    }
    Ok(())
}
