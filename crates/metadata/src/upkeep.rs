//! What the controller does by itself, a few steps at a time.
//!
//! ```text
//! every second, with at most eight partitions on the move:
//!   a replica on a broker that is drained, unregistered or gone for too long ─▶ another broker
//!   a topic whose replication was left to the cluster, and more brokers      ─▶ one replica more
//!   a broker that holds far less than another                               ─▶ a replica of that one
//! every leader.imbalance.check.interval.seconds:
//!   a partition whose first replica is in sync and does not lead             ─▶ it leads
//! ```
//!
//! Each step is a reassignment like an operator's: it copies first, and takes away when the copy is
//! in sync. Where somebody chose the brokers, replicas move only off a broker that must be left: tools
//! that spread load themselves would have their work undone.

use std::time::Duration;

use towpath_model::{BrokerId, Now};

use crate::elect::Election;
use crate::metadata::Metadata;
use crate::place::Placement;
use crate::record::Record;
use crate::session::Soft;
use crate::topic::{PartitionState, Topic};

/// How often the cluster is looked over.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);
/// Most partitions on the move at once before the controller moves no more by itself.
const MOVES_MAX: usize = 8;
/// Most leaders moved back at once.
const PREFERRED_MAX: usize = 500;
/// How many replicas more than another a broker holds, at least, before one moves.
const IMBALANCE_MIN: usize = 2;

impl Metadata {
    pub(crate) fn keep_up(&self, now: Now, records: &mut Vec<Record>) {
        if self.is_alone() {
            return;
        }
        if self.upkeep_at.is_some_and(|at| at <= now.time) {
            self.move_replicas(now, records);
            records.push(Record::Soft(Soft::UpkeepAt(now.time + UPKEEP_EVERY)));
        }
        if self.preferred_at.is_some_and(|at| at <= now.time) {
            self.prefer_leaders(now, records);
        }
    }

    fn move_replicas(&self, now: Now, records: &mut Vec<Record>) {
        let image = self.image();
        let mut budget = MOVES_MAX.saturating_sub(image.reassignment_count());
        let mut placement = Placement::new(image.placeable(), 0);
        if budget == 0 || placement.brokers() == 0 {
            return;
        }
        let must_move = self.must_leave(now);
        let full = image.full_replication();
        let is_uneven = is_uneven(&placement);
        let grows = image.topics().any(|topic| is_small(topic, full));
        if must_move.is_empty() && !grows && !is_uneven {
            return;
        }
        let electorate = image.electorate();
        for (topic, partition, state) in image.partitions() {
            if budget == 0 {
                break;
            }
            if state.is_reassigning() || state.leader.is_none() {
                continue;
            }
            let target = relocated(state, &must_move, &mut placement)
                .or_else(|| grown(topic, state, full, &mut placement))
                .or_else(|| balanced(state, &mut placement));
            let Some(target) = target else { continue };
            let wanted = image.reassigned(state, &target);
            let moved = image.settled(&electorate, topic, partition, wanted);
            budget -= usize::from(moved.is_some());
            records.extend(moved);
        }
    }

    /// Brokers whose replicas are to be elsewhere.
    fn must_leave(&self, now: Now) -> Vec<BrokerId> {
        let image = self.image();
        let delay = image.broker_config().broker_replacement_delay;
        let is_gone = |id: BrokerId| match image.broker(id) {
            None => true,
            Some(broker) if broker.drained => true,
            Some(broker) => {
                let session = self.sessions.get(&id).filter(|_| broker.fenced);
                session.is_some_and(|session| session.ends_at + delay <= now.time)
            }
        };
        image.holders().filter(|id| is_gone(*id)).collect()
    }

    fn prefer_leaders(&self, now: Now, records: &mut Vec<Record>) {
        let image = self.image();
        let config = image.broker_config();
        let mut next = config.leader_imbalance_check;
        if config.leader_rebalance {
            let electorate = image.electorate();
            let mut moved = 0;
            for (topic, partition, state) in image.partitions() {
                let first = state.replicas.first().copied();
                let is_drained =
                    first.and_then(|id| image.broker(id)).is_none_or(|broker| broker.drained);
                let stays =
                    state.leader.is_none() || state.leader == first || state.is_reassigning();
                if stays || is_drained {
                    continue;
                }
                if moved == PREFERRED_MAX {
                    next = UPKEEP_EVERY;
                    break;
                }
                let election = Election::Preferred;
                let record =
                    image.settled_by(&electorate, topic, partition, state.clone(), election, &[]);
                moved += usize::from(record.is_some());
                records.extend(record);
            }
        }
        records.push(Record::Soft(Soft::PreferredAt(now.time + next)));
    }
}

/// A replica that must leave goes where there is most room.
fn relocated(
    state: &PartitionState,
    must_move: &[BrokerId],
    placement: &mut Placement,
) -> Option<Vec<BrokerId>> {
    let at = state.replicas.iter().position(|id| must_move.contains(id))?;
    replaced(state, at, placement)
}

fn replaced(state: &PartitionState, at: usize, placement: &mut Placement) -> Option<Vec<BrokerId>> {
    let from = state.replicas[at];
    let others: Vec<_> = state.replicas.iter().copied().filter(|id| *id != from).collect();
    // Racks of those that stay count, not the rack of the one that goes.
    let to = placement.one_more(&others, &state.replicas)?;
    let mut target = state.replicas.clone();
    target[at] = to;
    placement.moved(&state.replicas, &mut target);
    Some(target)
}

fn is_small(topic: &Topic, full: usize) -> bool {
    let is_small = |state: &PartitionState| !state.placed_by_hand && state.replicas.len() < full;
    topic.grows && topic.partitions.iter().any(is_small)
}

fn grown(
    topic: &Topic,
    state: &PartitionState,
    full: usize,
    placement: &mut Placement,
) -> Option<Vec<BrokerId>> {
    if !topic.grows || state.placed_by_hand || full <= state.replicas.len() {
        return None;
    }
    let mut target = state.replicas.clone();
    while target.len() < full {
        let Some(more) = placement.one_more(&target, &target) else { break };
        target.push(more);
    }
    if target.len() == state.replicas.len() {
        return None;
    }
    placement.moved(&state.replicas, &mut target);
    Some(target)
}

fn is_uneven(placement: &Placement) -> bool {
    placement.extremes().is_some_and(|(most, least)| {
        let difference = most.load.replicas - least.load.replicas;
        IMBALANCE_MIN <= difference && most.load.replicas < 5 * difference
    })
}

/// One replica from the broker with the most to the one with the least, where they are far apart
/// and no rack is lost.
fn balanced(state: &PartitionState, placement: &mut Placement) -> Option<Vec<BrokerId>> {
    if state.placed_by_hand || !is_uneven(placement) {
        return None;
    }
    let (most, least) = placement.extremes()?;
    let (from, to) = (most.id, least.id);
    let at = state.replicas.iter().position(|id| *id == from)?;
    if state.replicas.contains(&to) {
        return None;
    }
    let mut target = state.replicas.clone();
    target[at] = to;
    if placement.racks(&target) < placement.racks(&state.replicas) {
        return None;
    }
    placement.moved(&state.replicas, &mut target);
    Some(target)
}
