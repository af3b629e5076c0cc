//! Partitions with replicas on several brokers: who leads and who follows here, and what the two say
//! to each other.
//!
//! ```text
//! roles     the image says who leads ─▶ this broker's partitions lead, follow, open or go
//! pull      (follower) position ─▶ leader;  records ─▶ log, core ─▶ next position;  durable, at once
//! feed      (leader)   position ─▶ report, and: send now, or once there is more
//! early     (leader)   positions that come before it knows that it leads
//! repair    damaged replicas are copied anew
//! closest   (leader)   which follower a reader in another rack is sent to
//! throttle  (both)     how fast replicas are fed that are not in sync
//! in_sync   (leader)   who keeps up ─▶ controller ─▶ (image) ─▶ high watermark
//! ```
//!
//! Each partition has one position of each follower outstanding at its leader, so memory is bounded by
//! what a connection takes. Messages for many partitions share frames.

mod closest;
mod directories;
mod early;
mod feed;
mod in_sync;
mod moves;
mod pull;
mod readers;
mod repair;
mod report;
mod roles;
mod throttle;

use towpath_broker::peer::PeerMessage;
use towpath_log::disk::Disk;
use towpath_model::{BrokerEpoch, BrokerId, Now};

use crate::driver::Driver;
use crate::world::{Clock, Net};

pub(crate) use early::Early;
pub(crate) use feed::Feeds;
pub use feed::{Batches, NextRecords, Portion};
pub(crate) use in_sync::{Proposals, Watched};
pub use moves::ComingReplica;
pub(crate) use pull::{Positions, Rounds, collect};
pub(crate) use readers::RemoteReaders;
pub(crate) use repair::Suspects;
pub(crate) use report::InSyncChanges;
pub use report::ReplicationReport;
pub(crate) use roles::{in_sync_of, min_in_sync, resume_after_loss};
pub(crate) use throttle::Throttle;

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// A message of another broker, whose word for who it is has been checked.
    pub fn receive(&self, from: BrokerId, message: PeerMessage) {
        match message {
            PeerMessage::Raft(message) if message.from.broker() == from => {
                self.raft_message(message);
            }
            PeerMessage::Raft(message) => {
                tracing::warn!(%from, said = %message.from, "a broker speaks for another one");
            }
            PeerMessage::Ask { token, request } => self.asked_by(from, token, request),
            PeerMessage::Answer { token, index, reply } => self.answered(token, index, reply),
            PeerMessage::NotController { token } => self.not_answered(token),
            PeerMessage::Join { member, address } => self.wants_to_join(member, address),
            PeerMessage::Retired { members } => self.told_retired(&members),
            PeerMessage::Positions { broker_epoch, positions } => {
                self.replicas_ask(from, broker_epoch, &positions);
            }
            PeerMessage::AskReaders { topic } => self.asked_for_readers(from, topic),
            PeerMessage::Readers { topic, coordinator, readers } => {
                self.told_readers(topic, coordinator, readers);
            }
            PeerMessage::AskQuorum { token } => self.asked_for_quorum(from, token),
            PeerMessage::AskMember { token } => self.asked_as_member(from, token),
            PeerMessage::Quorum { token, report } => self.told_quorum(token, report),
            PeerMessage::Durable { broker_epoch, positions } => {
                self.replicas_report(from, broker_epoch, &positions);
            }
        }
    }

    /// Time goes on, for partitions with replicas elsewhere.
    pub(crate) fn tend_replicas(&self, now: Now) {
        self.tell_lines();
        self.propose_in_sync(now);
        self.go_on_feeding(now.time);
        self.repeat_positions(now.time);
        self.forget_early(now.time);
        self.repair(now.time);
        self.tell_directories(now.time);
    }

    fn my_epoch(&self) -> Option<BrokerEpoch> {
        self.broker_epoch().map(BrokerEpoch)
    }
}
