//! An operator gives up a partition's records that are on no replica which can come back.
//!
//! ```text
//! nobody leads ─▶ somebody who was in sync or eligible may come back?  ─▶ refused, unless insisted on
//!              ─▶ the named replica leads, alone in sync               ─▶ the loss is on record, for good
//! ```
//!
//! What a replica holds only its broker knows: whoever asks has looked, chosen the one that holds most,
//! and says from where on records are lost. A change of the partition since then makes that void.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use towpath_model::{BrokerId, LeaderEpoch, Now, Offset, Timestamp, TopicName, TopicPartition};

use crate::cluster::NamedPartition;
use crate::elect::{Election, Electorate};
use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;
use crate::topic::PartitionState;

/// The longest name of whoever accepts a loss, in bytes.
const BY_BYTES_MAX: usize = 200;

/// What an operator accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossAcceptance {
    /// Which partition.
    pub partition: NamedPartition,
    /// The state that the decision rests on.
    pub partition_epoch: i32,
    /// Whose replica is to lead.
    pub leader: BrokerId,
    /// Records from here on are lost: where that replica's log ends.
    pub lost_from: Offset,
    /// Where new records begin; later than `lost_from` only if that replica is empty.
    pub resume_at: Offset,
    /// Who accepts it.
    pub by: String,
    /// Although a replica that holds everything may come back.
    pub even_if_returning: bool,
}

/// A loss that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedLoss {
    /// Of which partition.
    pub partition: TopicPartition,
    /// Its topic's name then.
    pub topic: TopicName,
    /// The leadership that began with it.
    pub leader_epoch: LeaderEpoch,
    /// Who leads since.
    pub leader: BrokerId,
    /// Records from here on are lost, up to where nobody knows.
    pub lost_from: Offset,
    /// Where new records began.
    pub resume_at: Offset,
    /// When.
    pub at: Timestamp,
    /// Who accepted it.
    pub by: String,
}

/// What a replica holds of a partition that nobody leads, in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survivor {
    /// Whose replica it is.
    pub broker: BrokerId,
    /// First offset kept.
    pub log_start_offset: Offset,
    /// First offset not written.
    pub log_end_offset: Offset,
    /// Of the leader that wrote its last batch.
    pub last_leader_epoch: Option<LeaderEpoch>,
}

impl Survivor {
    /// The one that holds most: of the latest leadership, and then the longest. A longer log of an
    /// earlier leadership may end with what was never committed.
    pub fn best(survivors: impl IntoIterator<Item = Survivor>) -> Option<Survivor> {
        survivors.into_iter().max_by_key(|survivor| {
            let Survivor { last_leader_epoch, log_end_offset, broker, .. } = *survivor;
            (last_leader_epoch, log_end_offset, Reverse(broker))
        })
    }

    /// Where new records begin if this replica leads: at its end. `None`: it holds nothing, and only an
    /// operator knows how far consumers have come.
    #[must_use]
    pub fn resumes_at(&self) -> Option<Offset> {
        (self.log_start_offset < self.log_end_offset).then_some(self.log_end_offset)
    }
}

/// All losses that were accepted, in order of partition and leadership.
pub(crate) type AcceptedLosses = BTreeMap<(TopicPartition, LeaderEpoch), AcceptedLoss>;

impl Image {
    pub(crate) fn accept_loss(&self, now: Now, asked: LossAcceptance) -> Decided {
        let mut records = Vec::new();
        let accepted = self.accepted(now, asked, &mut records);
        (records, Reply::AcceptedLoss(accepted))
    }

    fn accepted(
        &self,
        now: Now,
        asked: LossAcceptance,
        records: &mut Vec<Record>,
    ) -> Result<AcceptedLoss, Refusal> {
        let (topic, partition, before) = self.named(&asked.partition)?;
        let electorate = self.electorate();
        self.check_loss(&electorate, before, &asked)?;
        let others = before.replicas.iter().copied().filter(|id| *id != asked.leader);
        let others: Vec<BrokerId> = others.collect();
        let wanted =
            PartitionState { in_sync: vec![asked.leader], eligible: Vec::new(), ..before.clone() };
        let settled =
            self.settled_by(&electorate, topic, partition, wanted, Election::Needed, &others);
        let Some(Record::Partition { partition, state }) = settled else {
            return Err(Refusal::EligibleLeadersNotAvailable);
        };
        let loss = AcceptedLoss {
            partition,
            topic: topic.name.clone(),
            leader_epoch: state.leader_epoch,
            leader: asked.leader,
            lost_from: asked.lost_from,
            resume_at: asked.resume_at,
            at: now.wall,
            by: asked.by,
        };
        // First the loss: who begins to lead looks where.
        records.push(Record::AcceptedLoss(loss.clone()));
        records.push(Record::Partition {
            partition,
            state: PartitionState { unclean: true, ..state },
        });
        Ok(loss)
    }

    fn check_loss(
        &self,
        electorate: &Electorate,
        before: &PartitionState,
        asked: &LossAcceptance,
    ) -> Result<(), Refusal> {
        if let Some(leader) = before.leader {
            return Err(Refusal::NothingLost { leader });
        }
        if asked.partition_epoch != before.partition_epoch {
            let (asked, current) = (asked.partition_epoch, before.partition_epoch);
            return Err(Refusal::InvalidUpdateVersion { asked, current });
        }
        let is_named = !asked.by.trim().is_empty() && asked.by.len() <= BY_BYTES_MAX;
        if !is_named || asked.lost_from.0 < 0 || asked.resume_at < asked.lost_from {
            return Err(Refusal::InvalidLoss);
        }
        let holds = before.replicas.contains(&asked.leader);
        if !holds || !electorate.is_usable(asked.leader, before) {
            return Err(Refusal::EligibleLeadersNotAvailable);
        }
        let returning = self.may_return(before).next();
        match returning.filter(|_| !asked.even_if_returning) {
            Some(broker) => Err(Refusal::MayReturn(broker)),
            None => Ok(()),
        }
    }

    /// Who holds everything that is committed and is away: registered, with the directory that the
    /// replica lies in.
    pub fn may_return<'s>(
        &'s self,
        state: &'s PartitionState,
    ) -> impl Iterator<Item = BrokerId> + 's {
        let complete = state.in_sync.iter().chain(&state.eligible).copied();
        complete.filter(|id| {
            let directory = state.directory_of(*id);
            self.broker(*id).is_some_and(|broker| {
                directory.is_zero() || broker.directories.contains(&directory)
            })
        })
    }

    /// Losses that were accepted, in order of partition and leadership.
    pub fn accepted_losses(&self) -> impl Iterator<Item = &AcceptedLoss> {
        self.accepted_losses.values()
    }

    /// Where an empty log of a partition begins that leads after a loss; `None`: nothing was lost.
    #[must_use]
    pub fn resumes_at(&self, partition: TopicPartition) -> Option<Offset> {
        let first = (partition, LeaderEpoch(i32::MIN));
        let last = (partition, LeaderEpoch(i32::MAX));
        let newest = self.accepted_losses.range(first..=last).next_back();
        newest.map(|(_, loss)| loss.resume_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(broker: i32, epoch: Option<i32>, end: i64) -> Survivor {
        Survivor {
            broker: BrokerId(broker),
            log_start_offset: Offset(0),
            log_end_offset: Offset(end),
            last_leader_epoch: epoch.map(LeaderEpoch),
        }
    }

    #[test]
    fn a_later_leadership_counts_for_more_than_a_longer_log() {
        let all = [survivor(1, Some(3), 90), survivor(2, Some(4), 50), survivor(3, Some(4), 60)];
        assert_eq!(Survivor::best(all), Some(all[2]));
        assert_eq!(Survivor::best([]), None);
    }

    #[test]
    fn an_empty_replica_does_not_say_where_records_go_on() {
        assert_eq!(survivor(1, Some(3), 40).resumes_at(), Some(Offset(40)));
        assert_eq!(survivor(1, None, 0).resumes_at(), None);
    }
}
