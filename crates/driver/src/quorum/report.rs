//! How the metadata quorum stands, for whoever shows it.
//!
//! Only its leader knows how far the others are, so it is asked. Nobody is told when a question is
//! lost: whoever waits gives up after a while, and makes do with what this broker knows.

use towpath_broker::peer::{PeerMessage, QuorumReport, ReportedMember};
use towpath_log::disk::Disk;
use towpath_metadata::raft::{Role, Status};
use towpath_model::{BrokerId, Token};

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
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// How the quorum stands as this broker sees it: unless it leads, it knows of no other how far it
    /// is.
    pub fn quorum_report(&self) -> QuorumReport {
        report_of(&self.quorum_status())
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
