//! Who keeps up: what this broker, as a leader, asks of the controller.
//!
//! The controller's word comes back as committed metadata; its answer only says which proposals it
//! refuses. One that gets no answer is asked again as it is, for it may have been accepted.
//!
//! Time alone changes nothing where all replicas are in sync and hold everything, so only the other
//! partitions are looked at: a broker may lead a hundred thousand that are at rest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_log::disk::Disk;
use towpath_metadata::{AlterPartitions, ProposedInSync, Reply, Request};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerEpoch, BrokerId, LeaderEpoch, Now, Time, TopicPartition};
use towpath_replication::{InSyncProposal, Incarnation};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::pair::{Pair, logs_of};
use crate::quorum::FIRST_PROPOSAL;
use crate::world::{Clock, Delivery, Net};

/// How often this is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// When a proposal without an answer is made again.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Most partitions in one request.
const PROPOSALS_MAX: usize = 5_000;

/// Partitions led here of which a replica is behind or not in sync.
pub(crate) struct Watched<D: Disk>(Mutex<Vec<Arc<Cell<D>>>>);

impl<D: Disk> Default for Watched<D> {
    fn default() -> Self {
        Watched(Mutex::default())
    }
}

impl<D: Disk> Watched<D> {
    fn add(&self, cell: Arc<Cell<D>>) {
        self.0.lock().expect("no panic holds the list").push(cell);
    }

    fn take(&self) -> Vec<Arc<Cell<D>>> {
        std::mem::take(&mut *self.0.lock().expect("no panic holds the list"))
    }

    /// Those that stay on the list, beside those that came meanwhile.
    fn put_back(&self, cells: Vec<Arc<Cell<D>>>) {
        self.0.lock().expect("no panic holds the list").extend(cells);
    }
}

impl<D: Disk> Slot<D> {
    fn has_followers_to_watch(&self) -> bool {
        !self.failed && self.leader().is_ok_and(|leader| !leader.is_settled())
    }
}

/// What was asked of the controller, and when this is looked at next.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    look_at: Option<Time>,
    last_number: u64,
    /// Partitions of requests that have no answer yet, each with the state that it is about.
    asked: BTreeMap<u64, Vec<(TopicPartition, LeaderEpoch, i32)>>,
}

/// How long a follower may stand still before its leader asks to go on without it, so that it has
/// left within `replica.lag.time.max.ms`: the last quarter is for looking, asking and deciding.
fn judged_after(stall_max: Duration) -> Duration {
    stall_max / 4 * 3
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Judges who keeps up, and asks the controller for what differs.
    pub(super) fn propose_in_sync(&self, now: Now) {
        {
            let mut proposals = self.proposals.lock().expect("no panic holds the proposals");
            if proposals.look_at.is_some_and(|at| now.time < at) {
                return;
            }
            proposals.look_at = Some(now.time + LOOK_EVERY);
        }
        let Some(broker_epoch) = self.broker_epoch() else { return };
        let (active, stall): (BTreeMap<BrokerId, (i64, bool)>, Duration) = {
            let image = self.image();
            let brokers = image.brokers();
            let active = brokers.map(|broker| (broker.id, (broker.epoch, broker.is_active())));
            (active.collect(), judged_after(image.broker_config().replica_stall_max))
        };
        // Alone, this broker has nobody to judge; whoever is led no more is let go all the same, for it
        // keeps its files open.
        let has_others = 2 <= active.len();
        let mut watched = self.watched.take();
        let mut changes = Vec::new();
        watched.retain(|cell| {
            if changes.len() == PROPOSALS_MAX {
                return true;
            }
            let looked_at = self.with_pair(cell, |mut pair| {
                if has_others {
                    changes.extend(self.proposal_of(&mut pair, now, stall, &active));
                }
                let slot = pair.slot(cell.id);
                slot.watched = slot.has_followers_to_watch();
                slot.watched
            });
            looked_at.unwrap_or_else(|| self.cell(cell.id.records()).is_some())
        });
        self.watched.put_back(watched);
        if changes.is_empty() {
            return;
        }
        let number = {
            let mut proposals = self.proposals.lock().expect("no panic holds the proposals");
            proposals.last_number += 1;
            let number = FIRST_PROPOSAL + proposals.last_number;
            let about = changes.iter().map(|c| (c.partition, c.leader_epoch, c.partition_epoch));
            proposals.asked.insert(number, about.collect());
            number
        };
        let broker = self.settings.broker_id;
        let request = AlterPartitions { broker, broker_epoch, changes };
        self.ask_for_myself(number, Request::AlterPartitions(request));
    }

    /// What is asked for of one partition, by what both of its logs say; both of them count those who are
    /// asked for before anybody hears of it.
    fn proposal_of(
        &self,
        pair: &mut Pair<'_, D>,
        now: Now,
        stall: Duration,
        active: &BTreeMap<BrokerId, (i64, bool)>,
    ) -> Option<ProposedInSync> {
        let is_eligible = |inc: Incarnation| {
            active
                .get(&inc.broker)
                .is_some_and(|(epoch, is_active)| BrokerEpoch(*epoch) == inc.epoch && *is_active)
        };
        if pair.lacks_deliveries() {
            return None;
        }
        let id = pair.id;
        let deliveries = match &pair.deliveries {
            Some(slot) => Some(slot.leader().ok()?),
            None => None,
        };
        let slot = &mut *pair.records;
        let leader = slot.leader().ok()?;
        if leader.followers().next().is_none() || slot.failed {
            return None;
        }
        let proposal = match leader.proposal() {
            Some(proposal) => {
                if slot.proposed_at.is_some_and(|at| now.time < at + ASK_AGAIN_AFTER) {
                    return None;
                }
                proposal.clone()
            }
            None => {
                let proposal = leader.judged_in_sync(deliveries, now, stall, is_eligible)?;
                slot.partition.propose_in_sync(proposal.clone());
                if let Some(deliveries) = pair.deliveries.as_deref_mut()
                    && !mutant::is_on(Mutant::AskedForInOneLog)
                {
                    deliveries.partition.propose_in_sync(proposal.clone());
                }
                proposal
            }
        };
        slot.proposed_at = Some(now.time);
        let InSyncProposal { partition_epoch, followers } = proposal;
        let me = self.settings.broker_id;
        let epoch_of = |broker: BrokerId| active.get(&broker).map_or(-1, |(epoch, _)| *epoch);
        let followers = followers
            .into_iter()
            .map(|(broker, epoch)| (broker, epoch.map_or_else(|| epoch_of(broker), |e| e.0)));
        Some(ProposedInSync {
            partition: id,
            leader_epoch: slot.partition.leader_epoch(),
            partition_epoch,
            in_sync: std::iter::once((me, epoch_of(me))).chain(followers).collect(),
        })
    }

    /// From now on this partition's followers are looked at, if time alone may change who keeps up.
    pub(crate) fn watch_followers(&self, cell: &Arc<Cell<D>>, slot: &mut Slot<D>) {
        if !slot.watched && slot.has_followers_to_watch() {
            slot.watched = true;
            self.watched.add(Arc::clone(cell));
        }
    }

    /// A request that nobody will answer.
    pub(crate) fn forget_proposal(&self, number: u64) {
        self.proposals.lock().expect("no panic holds the proposals").asked.remove(&number);
    }

    /// The controller has answered, or cannot.
    pub(crate) fn proposal_answered(&self, number: u64, delivery: Delivery) {
        let about = {
            let mut proposals = self.proposals.lock().expect("no panic holds the proposals");
            proposals.asked.remove(&number)
        };
        let Some(about) = about else { return };
        let Delivery::Metadata(Reply::AlteredPartitions(Ok(answers))) = delivery else {
            // Nobody can say what became of them: they are made again.
            return;
        };
        let refused = answers.into_iter().filter_map(|(id, answer)| Some((id, answer.err()?)));
        for (id, refusal) in refused {
            let Some((_, leader_epoch, partition_epoch)) =
                about.iter().find(|(asked, ..)| *asked == id).copied()
            else {
                continue;
            };
            for cell in logs_of(id, true).into_iter().filter_map(|log| self.cell(log)) {
                let mut slot = cell.lock();
                let is_still_asked = slot.leader().is_ok_and(|leader| {
                    leader.leader_epoch() == leader_epoch
                        && leader.proposal().is_some_and(|p| p.partition_epoch == partition_epoch)
                });
                if is_still_asked {
                    tracing::debug!(topic = %cell.topic, partition = %cell.id.partition, %refusal,
                        "the controller does not agree on who is in sync");
                    slot.partition.proposal_refused();
                }
            }
        }
    }
}
