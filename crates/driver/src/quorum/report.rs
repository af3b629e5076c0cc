//! How the metadata quorum stands, for whoever shows it, and what only the controller knows of brokers.
//!
//! Only its leader knows how far the others are, so it is asked. Nobody is told when a question is
//! lost: whoever waits gives up after a while, and makes do with what this broker knows.

use std::collections::BTreeMap;

use towpath_broker::peer::{PeerMessage, QuorumReport, ReportedMember};
use towpath_log::disk::Disk;
use towpath_metadata::raft::{Role, Status};
use towpath_model::{BrokerId, Timestamp, Token};

use super::own_number;
use crate::driver::Driver;
use crate::world::{Clock, Delivery, Net};

fn report_of(status: &Status) -> QuorumReport {
    let membership = &status.membership;
    let members = membership.members().into_iter().map(|id| ReportedMember {
        id,
        is_voter: membership.voters.contains(&id) || membership.voters_outgoing.contains(&id),
        matched: match status.progress.get(&id) {
            Some(progress) => Some(progress.matched),
            None => (id == status.me).then_some(status.last_index),
        },
    });
    QuorumReport {
        leader: status.leader,
        term: status.term,
        commit: status.commit,
        last_index: status.last_index,
        members: members.collect(),
        is_membership_durable: status.is_membership_durable,
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// How the quorum stands as this broker sees it: unless it leads, it knows of no other how far it
    /// is.
    pub fn quorum_report(&self) -> QuorumReport {
        report_of(&self.quorum_status())
    }

    /// Brokers that the controller hears nothing of, and since when; `None`: this broker is not the
    /// controller.
    pub fn silent_brokers(&self) -> Option<BTreeMap<BrokerId, Timestamp>> {
        let now = self.clock.now();
        let slot = self.quorum.lock();
        slot.controller.as_ref().map(|host| host.machine().silent(now))
    }

    /// Asks the leader of the quorum how it stands; the answer is delivered to `token`, if one comes.
    pub fn ask_quorum(&self, token: Token) {
        let status = self.quorum_status();
        match status.leader {
            Some(leader) if leader != status.me => {
                self.net.send(leader.broker(), PeerMessage::AskQuorum { token });
            }
            _ => self.net.deliver(token, Delivery::Quorum(report_of(&status))),
        }
    }

    /// Asks a broker what it knows of the quorum itself; the answer is delivered to `token`, if one
    /// comes.
    pub fn ask_member(&self, member: BrokerId, token: Token) {
        if member == self.settings.broker_id {
            self.net.deliver(token, Delivery::Quorum(self.quorum_report()));
        } else {
            self.net.send(member, PeerMessage::AskMember { token });
        }
    }

    /// Another broker asks what this one knows.
    pub(crate) fn asked_as_member(&self, from: BrokerId, token: Token) {
        let report = self.quorum_report();
        self.net.send(from, PeerMessage::Quorum { token, report });
    }

    /// Another broker asks; who does not lead knows no more than it.
    pub(crate) fn asked_for_quorum(&self, from: BrokerId, token: Token) {
        let status = self.quorum_status();
        if status.role == Role::Leader {
            let report = report_of(&status);
            self.net.send(from, PeerMessage::Quorum { token, report });
        }
    }

    /// The leader's answer.
    pub(crate) fn told_quorum(&self, token: Token, report: QuorumReport) {
        if own_number(token).is_none() {
            self.net.deliver(token, Delivery::Quorum(report));
        }
    }
}
