//! Who takes part in the quorum: nodes that join follow it first, and vote once they have what it
//! has and there is a place among the voters.
//!
//! Three voters as soon as three brokers are there. A voter that is gone for a minute is replaced by a
//! broker that follows: a broker whose disk was replaced comes back as another member, and the member
//! that it was is let go once nobody hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_broker::peer::PeerMessage;
use towpath_log::disk::Disk;
use towpath_metadata::raft::{MemberId, MembershipChange, Role, Status};
use towpath_model::{BrokerId, Now, Time};

use super::{Order, QuorumSlot};
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// How many voters there are where there are brokers enough.
const VOTERS: usize = 3;
/// How far behind a member may be that is to vote.
const CAUGHT_UP_WITHIN: u64 = 1_000;
/// How long a voter is missed before another member votes in its place: a restart is no reason.
const MISSED_MAX: Duration = Duration::from_secs(60);
/// How often a node that no quorum knows asks to be let in, and a leader looks at who votes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is to be done about who takes part, and when that is looked at next.
#[derive(Debug, Default)]
pub(crate) struct Doorkeeper {
    look_at: Option<Time>,
    /// Brokers that there is a connection to.
    connected: BTreeSet<BrokerId>,
    /// Since when the leader has not heard of voters, or they are far behind.
    missed: BTreeMap<MemberId, Time>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// There is a connection to this broker.
    pub fn peer_connected(&self, peer: BrokerId) {
        self.doorkeeper.lock().expect("no panic holds the door").connected.insert(peer);
        self.peer_is_back(peer);
    }

    /// Whether there are other brokers, or somebody who may be one.
    pub fn has_peers(&self) -> bool {
        let is_alone = self.is_alone();
        let door = self.doorkeeper.lock().expect("no panic holds the door");
        !is_alone || !door.connected.is_empty()
    }

    /// There is no connection to this broker any more; what was sent last may not have arrived.
    /// `refused`: nobody listens there, its process is gone.
    pub fn peer_disconnected(&self, peer: BrokerId, refused: bool) {
        self.doorkeeper.lock().expect("no panic holds the door").connected.remove(&peer);
        self.forget_feed(peer);
        self.quorum_step(|slot, _, _| {
            let members = slot.core.status().membership.members();
            members
                .into_iter()
                .filter(|member| member.broker() == peer)
                .for_each(|member| slot.core.unreachable(member));
        });
        if refused && self.is_controller() {
            self.ask_for_myself(
                super::standing::SILENT,
                towpath_metadata::Request::BrokerSilent(peer),
            );
        }
    }

    /// Asks to be let in, or lets in.
    pub(super) fn keep_door(&self, now: Now) {
        let peers = {
            let mut door = self.doorkeeper.lock().expect("no panic holds the door");
            if door.look_at.is_some_and(|at| now.time < at) {
                return;
            }
            door.look_at = Some(now.time + LOOK_EVERY);
            door.connected.clone()
        };
        let me = self.quorum.me;
        let status = self.quorum_status();
        if !status.membership.contains(me) {
            for peer in peers {
                self.net.send(peer, PeerMessage::Join { member: me });
            }
        } else if status.role == Role::Leader && 1 < status.membership.members().len() {
            self.look_at_voters(now.time, &status);
        }
    }

    fn look_at_voters(&self, now: Time, status: &Status) {
        let live = |member: &MemberId| {
            *member == status.me
                || status.progress.get(member).is_some_and(|member| {
                    member.is_recently_active
                        && status.commit.0 <= member.matched.0 + CAUGHT_UP_WITHIN
                })
        };
        let given_up: BTreeSet<MemberId> = {
            let mut door = self.doorkeeper.lock().expect("no panic holds the door");
            let missing: BTreeSet<MemberId> =
                status.membership.voters.iter().filter(|member| !live(member)).copied().collect();
            door.missed.retain(|member, _| missing.contains(member));
            for member in missing {
                door.missed.entry(member).or_insert(now);
            }
            let missed = door.missed.iter();
            missed.filter(|(_, since)| **since + MISSED_MAX <= now).map(|(id, _)| *id).collect()
        };
        let image = self.image();
        let is_placed = |member: &&MemberId| {
            image.broker(member.broker()).is_some_and(|broker| {
                !broker.fenced && broker.role == towpath_metadata::Role::Broker
            })
        };
        let membership = &status.membership;
        let mut voters = membership.voters.clone();
        let ready: Vec<MemberId> = membership
            .learners
            .iter()
            .filter(|member| live(member))
            .filter(is_placed)
            .copied()
            .collect();
        drop(image);
        let alive = voters.difference(&given_up).count() + ready.len();
        for learner in ready {
            let dead = voters.intersection(&given_up).next().copied();
            if VOTERS <= voters.len()
                && let Some(dead) = dead
            {
                voters.remove(&dead);
            }
            if voters.len() < VOTERS.min(alive) && (VOTERS <= alive || dead.is_some()) {
                voters.insert(learner);
            }
        }
        if voters == membership.voters || membership.is_joint() || voters.len().is_multiple_of(2) {
            return;
        }
        let learners: BTreeSet<MemberId> =
            membership.members().difference(&voters).copied().collect();
        tracing::info!(?voters, "the voters of the metadata quorum change");
        self.change_membership(membership.change_to(&voters, &learners));
    }

    /// A node that no quorum knows wants to follow this one.
    pub(crate) fn wants_to_join(&self, member: MemberId) {
        let status = self.quorum_status();
        if status.role != Role::Leader {
            if let Some(leader) = status.leader.filter(|leader| *leader != status.me) {
                self.net.send(leader.broker(), PeerMessage::Join { member });
            }
            return;
        }
        let membership = &status.membership;
        if membership.contains(member) || membership.is_joint() {
            return;
        }
        // The same broker with another disk: the member that it was is gone.
        let is_gone = |other: &MemberId| {
            other.broker() == member.broker()
                && !status.progress.get(other).is_some_and(|other| other.is_recently_active)
        };
        let mut learners = membership.learners.clone();
        learners.retain(|other| !is_gone(other));
        learners.insert(member);
        let mut voters = membership.voters.clone();
        voters.retain(|other| !is_gone(other));
        tracing::info!(%member, "a node joins the metadata quorum as one that follows");
        self.change_membership(membership.change_to(&voters, &learners));
    }

    /// Gives the office of the controller to the voter that is best prepared for it, if this broker has
    /// it: it is about to stop, and others would miss it for the time that an election takes.
    pub fn hand_over_office(&self) {
        self.quorum_step(|slot, _, _| {
            let status = slot.core.status();
            let others = status.membership.voters.iter().filter(|voter| **voter != status.me);
            let active = others.filter_map(|voter| {
                let progress = status.progress.get(voter)?;
                progress.is_recently_active.then_some((progress.matched, *voter))
            });
            if status.role == Role::Leader
                && let Some((_, next)) = active.max()
                && let Err(refusal) = slot.core.transfer_leadership(next)
            {
                tracing::debug!(%refusal, "the controller's office is not handed over");
            }
        });
    }

    fn change_membership(&self, change: MembershipChange) {
        self.quorum_step(|slot, _, _| {
            if let Err(refusal) = slot.core.change_membership(change) {
                tracing::debug!(%refusal, "the members of the metadata quorum do not change now");
            }
        });
    }

    /// Messages of the quorum's members.
    pub(crate) fn raft_message(&self, message: towpath_metadata::raft::Message) {
        self.quorum_step(|slot: &mut QuorumSlot<D>, _, _: &mut Vec<Order>| {
            if let Err(refusal) = slot.core.receive(message) {
                tracing::warn!(%refusal, "a message of the metadata quorum is refused");
            }
        });
    }
}
