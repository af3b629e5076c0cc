//! Who counts for the high watermark: what the controller has agreed, what this leader has asked
//! for, and what it judges (KIP-497, KIP-903).
//!
//! ```text
//!  judged ─▶ proposed ─(controller)─▶ decided     agreed = the new set, nobody else counts
//!              ▲   └────────────────▶ refused     whoever was asked for goes on counting
//!              └──── judged again ◀─────┘
//! ```
//!
//! The surprise: a refusal takes nobody back. A repeated message with the same proposal may still be
//! under way, and be accepted later. Only the next change of the partition, which raises its epoch,
//! makes all of them void; so a refused expansion is followed by another proposal, if need be of the
//! set as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerEpoch, BrokerId, Now, Offset};

use super::Leader;
use crate::follower::Follower;
use crate::position::Incarnation;

/// An in-sync set that a leader asks the controller for. It is repeated as it is until the
/// controller answers: a later registration of a member was not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InSyncProposal {
    /// The state of the partition that it changes.
    pub partition_epoch: i32,
    /// The followers in it (the leader is always in it too), and which registration of each was
    /// judged: `None` for a member that stays and has not reported under this leadership.
    pub followers: BTreeMap<BrokerId, Option<BrokerEpoch>>,
}

/// What the controller has decided about a partition whose leader stays. The parts belong together:
/// replicas that left stay eligible, or do not, by the `min.insync.replicas` of that moment
/// (KIP-966), so a high watermark that moves by this in-sync set and another minimum may pass what
/// an eligible replica has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDecision<'d> {
    /// The controller's number of the partition's state.
    pub partition_epoch: i32,
    /// Who holds replicas, the leader among them.
    pub replicas: &'d [BrokerId],
    /// Who counts for the high watermark, the leader among them.
    pub in_sync: BTreeSet<BrokerId>,
    /// `min.insync.replicas`.
    pub min_insync_replicas: u32,
}

/// How one log stands with a follower.
struct Standing {
    epoch: Option<BrokerEpoch>,
    is_moving: bool,
    has_caught_up: bool,
}

impl Standing {
    /// Of two logs the worse.
    fn and(self, other: Standing) -> Standing {
        Standing {
            epoch: self.epoch.max(other.epoch),
            is_moving: self.is_moving && other.is_moving,
            // What a later registration has told of one log says nothing of the other one.
            has_caught_up: self.has_caught_up && other.has_caught_up && self.epoch == other.epoch,
        }
    }
}

impl Leader {
    /// What to ask the controller for, if this leader's judgement differs from the agreed set, or a
    /// refused expansion must be made void. `None` while a proposal waits for its answer.
    ///
    /// Whoever has not moved for longer than `stall` while this broker was ahead leaves. Whoever
    /// holds everything that is committed, has reached the beginning of this leadership and has deleted what is deleted here joins, if
    /// `is_eligible`: unfenced, not shutting down, and still of this registration.
    ///
    /// `deliveries` is the leader of the partition's delivery log, where it has one: the two logs have one
    /// in-sync set, so who is behind on either leaves, and who joins has caught up on both. `None` as long
    /// as the two leaders act on different states of the partition.
    #[must_use]
    pub fn judged_in_sync(
        &self,
        deliveries: Option<&Leader>,
        now: Now,
        stall: Duration,
        is_eligible: impl Fn(Incarnation) -> bool,
    ) -> Option<InSyncProposal> {
        let acts_on = |leader: &Leader| (leader.leader_epoch, leader.partition_epoch);
        if self.proposal.is_some() || deliveries.is_some_and(|log| acts_on(log) != acts_on(self)) {
            return None;
        }
        let deliveries = deliveries.filter(|_| !mutant::is_on(Mutant::InSyncByRecords));
        let mut followers = BTreeMap::new();
        for (broker, follower) in self.followers.iter() {
            let here = self.standing_of(follower, now, stall);
            let there = deliveries.and_then(|log| {
                log.followers.get(broker).map(|follower| log.standing_of(follower, now, stall))
            });
            let standing = match there {
                Some(there) => here.and(there),
                None => here,
            };
            let joins = || {
                let incarnation = standing.epoch.map(|epoch| Incarnation { broker, epoch });
                incarnation.is_some_and(&is_eligible) && standing.has_caught_up
            };
            if standing.is_moving && (self.in_sync.contains(&broker) || joins()) {
                followers.insert(broker, standing.epoch);
            }
        }
        let is_agreed = followers.len() + 1 == self.in_sync.len()
            && followers.keys().all(|broker| self.in_sync.contains(broker));
        if is_agreed && self.asked_for.is_empty() {
            return None;
        }
        let is_settled = self.is_settled() && deliveries.is_none_or(Leader::is_settled);
        assert!(!is_settled, "whoever is settled needs no look");
        Some(InSyncProposal { partition_epoch: self.partition_epoch, followers })
    }

    /// Whether all replicas are in sync and hold everything: [`Leader::judged_in_sync`] says nothing
    /// then, however much time goes by, until something happens to this leader.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_settled = |(broker, follower): (BrokerId, &Follower)| {
            follower.behind_since.is_none() && self.in_sync.contains(&broker)
        };
        self.proposal.is_none()
            && self.asked_for.is_empty()
            && self.followers.iter().all(is_settled)
            && self.in_sync.len() == self.followers.len() + 1
    }

    fn standing_of(&self, follower: &Follower, now: Now, stall: Duration) -> Standing {
        Standing {
            epoch: follower.reported.map(|report| report.broker_epoch),
            is_moving: follower.behind_since.is_none_or(|since| now.time - since <= stall),
            has_caught_up: self.has_caught_up(follower),
        }
    }

    /// These brokers may be in sync for the controller by now: another log of the partition has asked for
    /// them before this one was there. They count until the partition changes.
    ///
    /// # Panics
    /// When one of them holds no replica.
    pub fn count_also(&mut self, brokers: &BTreeSet<BrokerId>) {
        self.asked_for.extend(brokers.difference(&self.in_sync));
        self.advance_high_watermark();
        self.assert_invariants();
    }

    fn has_caught_up(&self, follower: &Follower) -> bool {
        let goal = if mutant::is_on(Mutant::ExpandEarly) {
            self.log_start_offset
        } else {
            self.high_watermark.max(self.epoch_start_offset)
        };
        // A log that starts earlier would bring deleted records back, if it led next.
        let follows = |start: Offset| self.log_start_offset <= start;
        follower.counted(self.durability).is_some_and(|counted| goal <= counted)
            && follower.reported.is_some_and(|report| follows(report.log_start_offset))
    }

    /// This proposal goes to the controller. From now on the high watermark waits for its members
    /// too, until the controller has decided something (KIP-497).
    ///
    /// # Panics
    /// When another one waits for its answer, it is about another state of the partition, or a
    /// member holds no replica.
    pub fn propose_in_sync(&mut self, proposal: InSyncProposal) {
        assert!(self.proposal.is_none(), "one proposal at a time");
        assert_eq!(proposal.partition_epoch, self.partition_epoch, "it changes what is known");
        let members = proposal.followers.keys();
        self.asked_for.extend(members.filter(|broker| !self.in_sync.contains(broker)));
        if mutant::is_on(Mutant::LocalShrink) {
            self.in_sync
                .retain(|broker| *broker == self.me || proposal.followers.contains_key(broker));
        }
        self.proposal = Some(proposal);
        self.advance_high_watermark();
        self.assert_invariants();
    }

    /// The proposal that waits for its answer; to be sent again, as it is, when none comes.
    #[must_use]
    pub fn proposal(&self) -> Option<&InSyncProposal> {
        self.proposal.as_ref()
    }

    /// The controller has refused the proposal for good: a member is fenced, shutting down, or of
    /// another registration by now; or the partition has changed, of which this broker will hear.
    /// Whoever was asked for goes on counting until the partition changes.
    pub fn proposal_refused(&mut self) {
        self.proposal = None;
        if mutant::is_on(Mutant::RefusedForgotten) {
            self.asked_for.clear();
        }
        self.assert_invariants();
    }

    /// The controller has decided about this partition, whether or not this leader asked. Whatever
    /// was asked for is void. Returns `false`, and changes nothing, when a later state is known.
    ///
    /// # Panics
    /// When this broker is not in sync, or a member holds no replica.
    pub fn partition_decided(&mut self, now: Now, decision: PartitionDecision<'_>) -> bool {
        let PartitionDecision { partition_epoch, replicas, in_sync, min_insync_replicas } =
            decision;
        if partition_epoch <= self.partition_epoch {
            return false;
        }
        self.partition_epoch = partition_epoch;
        self.followers.become_those_of(self.me, replicas, now.time);
        self.in_sync = in_sync;
        self.min_insync_replicas = min_insync_replicas;
        self.asked_for.clear();
        self.proposal = None;

        self.advance_high_watermark();
        self.assert_invariants();
        true
    }

    /// The controller's number of the state of the partition that this leader acts on.
    #[must_use]
    pub fn partition_epoch(&self) -> i32 {
        self.partition_epoch
    }

    /// The agreed in-sync set.
    #[must_use]
    pub fn in_sync(&self) -> &BTreeSet<BrokerId> {
        &self.in_sync
    }

    /// Everybody whose offsets the high watermark waits for: the agreed set, and whoever was asked
    /// for since it was agreed.
    #[must_use]
    pub fn maximal_in_sync(&self) -> BTreeSet<BrokerId> {
        self.in_sync.union(&self.asked_for).copied().collect()
    }
}
