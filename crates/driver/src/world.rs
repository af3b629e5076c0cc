//! The world as the driver sees it, next to the disk: a clock, and somebody to tell.

use towpath_broker::Outcome;
use towpath_broker::peer::{PeerMessage, QuorumReport};
use towpath_coordinator::{groups, publishers};
use towpath_metadata as metadata;
use towpath_model::{BrokerId, Now, Time, Token};

use crate::volume::VolumeIndex;

/// Time, and when to be called again.
pub trait Clock: Send + Sync + 'static {
    /// Both clocks, read now.
    fn now(&self) -> Now;

    /// Something waits for [`crate::Driver::sync_round_in`] in this data directory. May be called
    /// often; one round serves all calls before it.
    fn sync_wanted(&self, volume: VolumeIndex);

    /// [`crate::Driver::expire_due`] has work at `deadline`. Only the earliest matters.
    fn wake_at(&self, deadline: Time);

    /// Calls `act` with every number below `count` and returns when all calls have returned. A start
    /// recovers its partitions with it: where there are threads, they may share the numbers.
    fn for_each(&self, count: usize, act: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(act);
    }
}

/// Where answers go.
pub trait Net: Send + Sync + 'static {
    /// The answer that `token` waits for. A token nobody knows any more is dropped in silence:
    /// its client went away.
    fn deliver(&self, token: Token, delivery: Delivery);

    /// Sends a message to another broker, if there is a way to it. Whatever is lost is repeated by
    /// whoever needs it. A broker without others has nobody to send to.
    fn send(&self, _to: BrokerId, _message: PeerMessage) {}

    /// [`crate::Driver::next_records`] has something for this broker.
    fn records_ready(&self, _to: BrokerId) {}
}

/// An answer.
#[derive(Debug)]
pub enum Delivery {
    /// A wait for an offset ended; also tells the asker of a state machine that no answer will
    /// come, and why.
    Wait(Outcome),
    /// From the metadata.
    Metadata(metadata::Reply),
    /// From a group.
    Groups(groups::Reply),
    /// From the publishers' state.
    Publishers(publishers::Reply),
    /// From a queue's deliveries.
    Deliveries(towpath_queue::Reply),
    /// How the metadata quorum stands.
    Quorum(QuorumReport),
}
