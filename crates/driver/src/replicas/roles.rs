//! From who leads, as the image says, to what this broker's partitions do.
//!
//! A partition that is new is opened before anybody can see that it is there. Every other change is
//! carried out after it is published: who asks in between is told that this broker does not lead,
//! which is true soon or was until now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_broker::{Host, State};
use towpath_log::disk::Disk;
use towpath_log::{Log, LogError};
use towpath_metadata::{Image, PartitionState, Topic};
use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::BrokerConfig;
use towpath_model::{BrokerId, Now, Offset, TopicName, TopicPartition};
use towpath_replication::{Lead, PartitionDecision, Producers};

use super::pull::Positions;
use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::recover::{RecoverError, state_of_deliveries, state_of_topic};
use crate::world::{Clock, Net};

/// What the image says of one partition.
struct Wanted {
    topic: TopicName,
    state: PartitionState,
    broker: BrokerConfig,
    /// Where an empty log begins that leads: records before it were lost, and an operator knows.
    resumes_at: Option<Offset>,
    /// How many must be in sync; the controller reckons with the same number.
    min_in_sync: u32,
}

impl Wanted {
    fn of(image: &Image, id: TopicPartition) -> Option<Wanted> {
        let topic = image.topic_by_id(id.topic)?;
        let at = usize::try_from(id.partition.0).ok()?;
        let state = topic.partitions.get(at)?.clone();
        Some(Wanted {
            topic: topic.name.clone(),
            min_in_sync: min_in_sync(image, topic, &state),
            resumes_at: image.resumes_at(id),
            state,
            broker: image.broker_config(),
        })
    }

    fn decision(&self, log: TopicPartition) -> PartitionDecision<'_> {
        PartitionDecision {
            partition_epoch: self.state.partition_epoch,
            replicas: &self.state.replicas,
            in_sync: in_sync_of(log, &self.state),
            min_insync_replicas: self.min_in_sync,
        }
    }

    fn lead(&self, log: TopicPartition, now: Now) -> Lead {
        Lead {
            leader_epoch: self.state.leader_epoch,
            partition_epoch: self.state.partition_epoch,
            begun_at: now.time,
            replicas: self.state.replicas.clone(),
            in_sync: in_sync_of(log, &self.state),
            min_insync_replicas: self.min_in_sync,
        }
    }
}

/// Who counts for the high watermark of a log: the same for both logs of a partition.
pub(crate) fn in_sync_of(log: TopicPartition, state: &PartitionState) -> BTreeSet<BrokerId> {
    let mut in_sync: BTreeSet<BrokerId> = state.in_sync.iter().copied().collect();
    if mutant::is_on(Mutant::DeliveriesCommittedAlone)
        && log.is_delivery_log()
        && let Some(ignored) = state.in_sync.iter().rev().find(|id| state.leader != Some(**id))
    {
        in_sync.remove(ignored);
    }
    in_sync
}

/// How many replicas must be in sync for a record to count as committed.
pub(crate) fn min_in_sync(image: &Image, topic: &Topic, state: &PartitionState) -> u32 {
    u32::try_from(image.min_in_sync(topic, state)).unwrap_or(u32::MAX)
}

/// Lets an empty log that is to lead begin where records go on after a loss, so that no offset is given
/// out twice. Says where, if it had to.
pub(crate) fn resume_after_loss<D: Disk>(
    log: &mut Log<D>,
    resumes_at: Option<Offset>,
) -> Result<Option<Offset>, LogError> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    match resumes_at.filter(|resumes_at| start == end && end < *resumes_at) {
        Some(resumes_at) => log.begin_at(resumes_at, None).map(|()| Some(resumes_at)),
        None => Ok(None),
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Brings a partition that is open in line with the image, both of its logs: first the deliveries,
    /// for whoever finds that this broker leads the records may count on it that it leads both.
    pub(crate) fn follow_image(&self, id: TopicPartition) {
        let wanted = Wanted::of(&self.image(), id);
        let (Some(wanted), Some(cell)) = (wanted, self.cell(id)) else { return };
        let me = self.settings.broker_id;
        if !wanted.state.replicas.contains(&me) {
            tracing::info!(topic = %wanted.topic, partition = %id.partition,
                "this broker holds the partition no more: its records here are deleted");
            self.forget_partition(id);
            return;
        }
        if self.copied_anew(&cell, &wanted.state) {
            return;
        }
        if let Some(deliveries) = self.cell(id.delivery_log()) {
            self.take_role(&deliveries, &wanted);
            let led =
                deliveries.lock().leader().ok().map(towpath_replication::Leader::leader_epoch);
            if wanted.state.leader == Some(me) && led != Some(wanted.state.leader_epoch) {
                return;
            }
        }
        self.take_role(&cell, &wanted);
        self.resume_deliveries(id);
    }

    /// Brings one log in line with what the image says of its partition.
    fn take_role(&self, cell: &Arc<Cell<D>>, wanted: &Wanted) {
        let (id, me) = (cell.id, self.settings.broker_id);
        let led = self.step(cell, |slot, now, out| {
            if slot.closed {
                return Ok(false);
            }
            let goes_on = mutant::is_on(Mutant::OldLeaderGoesOn) && slot.partition.is_led();
            if wanted.state.leader != Some(me) && goes_on {
                return Ok(false);
            }
            if wanted.state.leader != Some(me) {
                slot.follow(&wanted.state, out);
                return Ok(false);
            }
            let led = slot.partition.leader().map(towpath_replication::Leader::leader_epoch);
            if led == Some(wanted.state.leader_epoch) {
                slot.partition.decided(now, wanted.decision(id), out);
                // It follows from the number of replicas too.
                slot.partition.configured(wanted.min_in_sync, slot.config.durability, out);
                return Ok(false);
            }
            if slot.failed || slot.partition.leader_epoch() > wanted.state.leader_epoch {
                return Ok(false);
            }
            let producers_max = wanted.broker.producers_per_partition_max;
            // A delivery log that is lost begins anew, and empty.
            let is_resumed = slot.partition.replica().is_some() && !id.is_delivery_log();
            let resumes_at = wanted.resumes_at.filter(|_| is_resumed);
            if let Some(resumed_at) = resume_after_loss(&mut slot.log, resumes_at)? {
                slot.partition.started_at(resumed_at, Producers::new(producers_max));
            }
            let state = if let Some(deliveries) = slot.take_followed() {
                State::Deliveries(Box::new(Host::new(deliveries)))
            } else if id.is_delivery_log() {
                state_of_deliveries(&slot.config, &slot.log)?
            } else {
                state_of_topic(&wanted.topic, &wanted.broker, &slot.log)?
            };
            slot.armed.clear();
            slot.partition.lead(wanted.lead(id, now), state, out);
            Ok::<bool, RecoverError>(true)
        });
        cell.led.store(cell.lock().leads(), Ordering::Relaxed);
        match led {
            Ok(true) => {
                tracing::debug!(topic = %wanted.topic, partition = %id.partition,
                    leader_epoch = %wanted.state.leader_epoch, "this broker leads the partition now");
                self.resume(cell);
                self.hear_early(id);
            }
            Ok(false) => self.ask_leader_of(cell, wanted.state.leader),
            Err(error) => {
                tracing::error!(topic = %wanted.topic, partition = %id.partition, %error,
                    "this broker cannot lead the partition: its state cannot be read");
                if matches!(error, RecoverError::Log(LogError::Corrupt { .. })) {
                    // Somebody else who has the records may lead.
                    self.suspect(id);
                }
            }
        }
    }

    /// Tells a new leader where this replica's log ends.
    pub(crate) fn ask_leader_of(&self, cell: &Arc<Cell<D>>, leader: Option<BrokerId>) {
        let Some(leader) = leader.filter(|leader| *leader != self.settings.broker_id) else {
            return;
        };
        let position = cell.lock().partition.replica().map(towpath_replication::Replica::position);
        if let Some(position) = position {
            self.tell_positions(Positions::from([(leader, vec![(cell.id, position)])]));
        }
    }
}

impl<D: Disk> Slot<D> {
    /// Follows whom the controller has chosen.
    fn follow(&mut self, state: &PartitionState, out: &mut Vec<towpath_broker::Output>) {
        let is_news = self.partition.leader_epoch() < state.leader_epoch;
        self.armed.clear();
        self.proposed_at = None;
        self.partition.follow(state.leader, state.leader_epoch, out);
        if is_news && state.unclean && !self.partition.is_led() {
            self.partition.give_up_committed();
            self.followed = None;
        }
    }
}
