//! Who takes part in the quorum: nodes that join follow it first, and vote once they have what it
//! has and there is a place among the voters.
//!
//! Three voters as soon as three brokers are there. A voter that is gone for a minute is replaced by a
//! broker that follows: a broker whose disk was replaced comes back as another member, and the member
//! that it was gives up its vote to whoever is ready first. A voter that is drained does so too.
//!
//! One change follows the other once this leader would come back with it after a crash. Who is taken out
//! for good has to go on until all that are left would: they may need its vote to learn of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_broker::peer::{PeerMessage, PeerPlace};
use towpath_log::disk::Disk;
use towpath_metadata::raft::{BadMessage, MemberId, MembershipChange, Role, Status};
use towpath_model::{BrokerId, Now, Time};

use super::{Order, QuorumSlot};
use crate::driver::Driver;
use crate::open::OpenError;
use crate::world::{Clock, Net};

/// How many voters there are where there are brokers enough.
const VOTERS: usize = 3;
/// How far behind a member may be that is to vote.
const CAUGHT_UP_WITHIN: u64 = 1_000;
/// The name of the listener for other brokers in a registration.
const PEER_LISTENER: &str = "PEER";
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
    /// This broker was removed from the cluster: it asks for nothing any more.
    is_retired: bool,
}

/// Whether the leader hears a member, and it is not far behind.
fn is_live(status: &Status, member: &MemberId) -> bool {
    *member == status.me
        || status.progress.get(member).is_some_and(|known| {
            known.is_recently_active && status.commit.0 <= known.matched.0 + CAUGHT_UP_WITHIN
        })
}

fn is_active(status: &Status, member: &MemberId) -> bool {
    status.progress.get(member).is_some_and(|known| known.is_recently_active)
}

/// Whether the same broker follows as another member: its disk was replaced, and the member that it was
/// does not come back.
fn is_superseded(status: &Status, member: &MemberId) -> bool {
    let is_other = |other: &MemberId| other != member && other.broker() == member.broker();
    !is_live(status, member) && status.membership.members().iter().any(is_other)
}

/// Who is to vote: as many as there should be, and in the place of those that are given up or leave
/// whoever is ready.
fn next_voters(
    status: &Status,
    given_up: &BTreeSet<MemberId>,
    leaving: &BTreeSet<MemberId>,
    ready: &[MemberId],
) -> BTreeSet<MemberId> {
    let mut voters = status.membership.voters.clone();
    let alive = voters.difference(given_up).count() + ready.len();
    for learner in ready {
        let goes =
            voters.intersection(given_up).chain(voters.intersection(leaving)).next().copied();
        let goes = goes.filter(|member| *member != status.me);
        if VOTERS <= voters.len()
            && let Some(goes) = goes
        {
            voters.remove(&goes);
        }
        if voters.len() < VOTERS.min(alive) && (VOTERS <= alive || goes.is_some()) {
            voters.insert(*learner);
        }
    }
    voters
}

/// Who follows beside these voters: whoever does already, and voters that give up their place to another
/// broker. Who follows already may not have been heard yet, because it has just been let in: it is not
/// superseded by the member that it comes back for.
fn next_learners(status: &Status, voters: &BTreeSet<MemberId>) -> BTreeSet<MemberId> {
    let membership = &status.membership;
    let stays =
        |member: &MemberId| membership.learners.contains(member) || !is_superseded(status, member);
    membership.members().difference(voters).copied().filter(stays).collect()
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
            if door.is_retired || door.look_at.is_some_and(|at| now.time < at) {
                return;
            }
            door.look_at = Some(now.time + LOOK_EVERY);
            door.connected.clone()
        };
        let me = self.quorum.me;
        let status = self.quorum_status();
        if !status.membership.contains(me) {
            for peer in peers {
                let address = self.own_place();
                self.net.send(peer, PeerMessage::Join { member: me, address });
            }
            return;
        }
        self.tell_retired(&peers, &status);
        if status.role == Role::Leader && 1 < status.membership.members().len() {
            self.look_at_voters(now.time, &status);
        }
    }

    fn own_place(&self) -> Option<PeerPlace> {
        let mut own = self.settings.addresses.iter();
        let at = own.find(|address| address.listener == PEER_LISTENER)?;
        Some(PeerPlace { host: at.host.clone(), port: at.port })
    }

    fn look_at_voters(&self, now: Time, status: &Status) {
        let membership = &status.membership;
        if membership.is_joint() || !status.is_membership_durable {
            return;
        }
        let retired = self.retired();
        if self.take_out_retired(status, &retired) {
            return;
        }
        let given_up = self.given_up(now, status);
        let image = self.image();
        let is_leaving = |member: &MemberId| {
            let broker = image.broker(member.broker());
            broker.is_some_and(|broker| broker.drained) || retired.contains(member)
        };
        let leaving: BTreeSet<MemberId> =
            membership.voters.iter().copied().filter(is_leaving).collect();
        let is_placed = |member: &&MemberId| {
            image.broker(member.broker()).is_some_and(|broker| {
                !broker.fenced && !broker.drained && broker.role == towpath_metadata::Role::Broker
            })
        };
        let ready = membership.learners.iter().filter(|member| is_live(status, member));
        let ready: Vec<MemberId> = ready.filter(is_placed).copied().collect();
        drop(image);
        let mut successors = membership.voters.difference(&leaving);
        if leaving.contains(&status.me) && successors.any(|voter| is_live(status, voter)) {
            return self.hand_over_office();
        }
        let voters = next_voters(status, &given_up, &leaving, &ready);
        if voters == membership.voters || voters.len().is_multiple_of(2) {
            return;
        }
        let learners = next_learners(status, &voters);
        tracing::info!(?voters, "the voters of the metadata quorum change");
        self.change_membership(membership.change_to(&voters, &learners));
    }

    /// Voters that are missed for too long, or come back as another member: their disk was replaced.
    fn given_up(&self, now: Time, status: &Status) -> BTreeSet<MemberId> {
        let voters = &status.membership.voters;
        let mut door = self.doorkeeper.lock().expect("no panic holds the door");
        let missing: BTreeSet<MemberId> =
            voters.iter().filter(|member| !is_live(status, member)).copied().collect();
        door.missed.retain(|member, _| missing.contains(member));
        for member in missing {
            door.missed.entry(member).or_insert(now);
        }
        let missed = door.missed.iter();
        missed
            .filter(|(id, since)| **since + MISSED_MAX <= now || is_superseded(status, id))
            .map(|(id, _)| *id)
            .collect()
    }

    /// A node that no quorum knows wants to follow this one.
    pub(crate) fn wants_to_join(&self, member: MemberId, address: Option<PeerPlace>) {
        let status = self.quorum_status();
        if status.role != Role::Leader {
            if let Some(leader) = status.leader.filter(|leader| *leader != status.me) {
                self.net.send(leader.broker(), PeerMessage::Join { member, address });
            }
            return;
        }
        let membership = &status.membership;
        let is_busy = membership.is_joint() || !status.is_membership_durable;
        if membership.contains(member) || is_busy || self.retired().contains(&member) {
            return;
        }
        let mut learners = membership.learners.clone();
        // The same broker with another disk. Where it voted, it counts as a voter until another one
        // is ready to take its place: to take it out now would take nobody in.
        learners.retain(|other| other.broker() != member.broker() || is_active(&status, other));
        learners.insert(member);
        tracing::info!(%member, "a node joins the metadata quorum as one that follows");
        self.change_membership(membership.change_to(&membership.voters, &learners));
    }

    /// Takes out who was removed for good. Says whether there was somebody.
    fn take_out_retired(&self, status: &Status, retired: &BTreeSet<MemberId>) -> bool {
        let membership = &status.membership;
        let is_over = |member: &&MemberId| !retired.contains(member) || **member == status.me;
        if membership.members().iter().all(|member| is_over(&member)) {
            return false;
        }
        let voters = membership.voters.iter().filter(is_over).copied().collect();
        let learners = membership.learners.iter().filter(is_over).copied().collect();
        tracing::info!(?voters, "who was removed leaves the metadata quorum");
        self.change_membership(membership.change_to(&voters, &learners));
        true
    }

    /// Members that were removed for good.
    fn retired(&self) -> BTreeSet<MemberId> {
        self.image().retired().map(|(broker, directory)| MemberId::new(broker, directory)).collect()
    }

    /// Whoever was removed may not have heard of it.
    fn tell_retired(&self, peers: &BTreeSet<BrokerId>, status: &Status) {
        let retired = self.retired();
        let members = status.membership.members();
        for peer in peers {
            let is_member = members.iter().any(|member| member.broker() == *peer);
            let mine = retired.iter().filter(|member| member.broker() == *peer);
            let members: Vec<MemberId> = mine.copied().collect();
            if !is_member && !members.is_empty() {
                self.net.send(*peer, PeerMessage::Retired { members });
            }
        }
    }

    /// Somebody says who was removed.
    pub(crate) fn told_retired(&self, members: &[MemberId]) {
        let mut door = self.doorkeeper.lock().expect("no panic holds the door");
        if members.contains(&self.quorum.me) && !std::mem::replace(&mut door.is_retired, true) {
            tracing::error!(
                broker = %self.settings.broker_id,
                "this broker was removed from the cluster: stop it; to add it again, start it with \
                 an empty data directory"
            );
        }
    }

    /// Whether this broker was removed from its cluster.
    pub fn is_retired(&self) -> bool {
        self.doorkeeper.lock().expect("no panic holds the door").is_retired
    }

    /// Gives the office of the controller to the voter that is best prepared for it, if this broker has
    /// it: it is about to stop, or cannot decide, and others would miss it for the time that an election
    /// takes. A voter
    /// that is to be emptied gets it only where there is no other.
    pub fn hand_over_office(&self) {
        let image = self.image();
        let drained: BTreeSet<BrokerId> =
            image.brokers().filter(|broker| broker.drained).map(|broker| broker.id).collect();
        drop(image);
        self.quorum_step(|slot, _, _| {
            let status = slot.core.status();
            if status.transferring_to.is_some() {
                return;
            }
            let others = status.membership.voters.iter().filter(|voter| **voter != status.me);
            let active = others.filter_map(|voter| {
                let progress = status.progress.get(voter)?;
                let stays = !drained.contains(&voter.broker());
                progress.is_recently_active.then_some((stays, progress.matched, *voter))
            });
            if status.role == Role::Leader
                && let Some((.., next)) = active.max()
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
        if message.to != self.quorum.me {
            // It is for the member that this broker was before its disk was replaced.
            return;
        }
        self.quorum_step(|slot: &mut QuorumSlot<D>, _, _: &mut Vec<Order>| {
            let Err(refusal) = slot.core.receive(message) else { return };
            if let BadMessage::BeyondMyLog { known, last } = refusal {
                self.note_unserved(OpenError::MetadataLost { known, last });
            }
            tracing::warn!(%refusal, "a message of the metadata quorum is refused");
        });
    }
}

#[cfg(test)]
mod tests {
    use towpath_metadata::raft::{LogIndex, MemberProgress, Membership, Term};
    use towpath_model::Uuid;

    use super::*;

    fn member(broker: i32, disk: u8) -> MemberId {
        MemberId::new(BrokerId(broker), Uuid([disk; 16]))
    }

    fn members(of: &[MemberId]) -> BTreeSet<MemberId> {
        of.iter().copied().collect()
    }

    /// As the first of the voters sees it, which leads; it hears these.
    fn status(voters: &[MemberId], learners: &[MemberId], heard: &[MemberId]) -> Status {
        let progress = |id: &MemberId| MemberProgress {
            matched: LogIndex(10),
            is_recently_active: heard.contains(id),
            is_receiving_snapshot: false,
        };
        let all = voters.iter().chain(learners);
        Status {
            me: voters[0],
            role: Role::Leader,
            term: Term(1),
            leader: Some(voters[0]),
            commit: LogIndex(10),
            applied: LogIndex(10),
            last_index: LogIndex(10),
            snapshot_index: LogIndex(0),
            membership: Membership {
                voters: members(voters),
                learners: members(learners),
                ..Membership::default()
            },
            is_membership_durable: true,
            transferring_to: None,
            progress: all.map(|id| (*id, progress(id))).collect(),
        }
    }

    #[test]
    fn a_voter_keeps_its_place_until_somebody_is_ready_for_it() {
        let [one, two, three, four] = [1, 2, 3, 4].map(|broker| member(broker, 1));
        let leaving = members(&[two]);
        let alone = status(&[one, two, three], &[], &[two, three]);
        let next = next_voters(&alone, &BTreeSet::new(), &leaving, &[]);
        assert_eq!(next, members(&[one, two, three]), "nobody could vote instead");
        let more = status(&[one, two, three], &[four], &[two, three, four]);
        let next = next_voters(&more, &BTreeSet::new(), &leaving, &[four]);
        assert_eq!(next, members(&[one, three, four]));
        // Who is gone goes before who only leaves, and whoever leads stays until it has handed over.
        let next = next_voters(&more, &members(&[three]), &leaving, &[four]);
        assert_eq!(next, members(&[one, two, four]));
        let next = next_voters(&more, &BTreeSet::new(), &members(&[one]), &[four]);
        assert_eq!(next, members(&[one, two, three]));
    }

    #[test]
    fn a_broker_with_another_disk_is_another_member() {
        let [one, two, old, new] = [member(1, 1), member(2, 1), member(3, 1), member(3, 2)];
        let status = status(&[one, two, old], &[new], &[two, new]);
        let superseded = |member| is_superseded(&status, &member);
        assert_eq!([one, two, old, new].map(superseded), [false, false, true, false]);
        let next = next_voters(&status, &members(&[old]), &BTreeSet::new(), &[new]);
        assert_eq!(next, members(&[one, two, new]));
    }

    #[test]
    fn a_broker_with_another_disk_that_was_not_heard_yet_goes_on_following() {
        let [one, two, four] = [1, 2, 4].map(|broker| member(broker, 1));
        let [old, new] = [1, 2].map(|disk| member(3, disk));
        let status = status(&[one, two, old], &[new, four], &[two, four]);
        let next = next_voters(&status, &members(&[old]), &BTreeSet::new(), &[four]);
        assert_eq!(next, members(&[one, two, four]));
        assert_eq!(next_learners(&status, &next), members(&[new]));
    }
}
