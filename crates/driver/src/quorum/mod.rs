//! This broker's part in the metadata quorum: its consensus core with log and vote, and whatever
//! the broker asks of the controller.
//!
//! ```text
//! message, tick, proposal ─▶ core ─▶ entries to the log, vote ─▶ (sync round) ─▶ messages out
//!                              └──▶ committed entries ─▶ image for everybody ─▶ what follows for partitions
//! ask ─▶ controller here? decide, propose, answer once committed
//!     └▶ elsewhere? forward; answer once this broker's own image has come so far
//! ```
//!
//! A cluster of one takes the same way. Steps take turns (`publishing`), from the core's decision to
//! everything that follows from it: whoever is answered on the ground of committed metadata finds it
//! published, and partitions hear of changes in the order of the log.

mod command;
mod controller;
mod log;
mod membership;
mod open;
mod report;
mod round;
mod snapshot;
mod standing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use towpath_broker::peer::PeerMessage;
use towpath_broker::{Host, Outcome};
use towpath_log::disk::Disk;
use towpath_log::{Log, LogError, QuorumFiles};
use towpath_metadata::raft::{self, Consensus, LogIndex, MemberId, Term};
use towpath_metadata::{Image, Metadata, Record, Reply};
use towpath_model::{BrokerId, Now, Offset, Time, Token};

use crate::driver::Driver;
use crate::volume::VolumeIndex;
use crate::world::{Clock, Delivery, Net};

use controller::Asked;
pub(crate) use controller::own_number;
pub(crate) use membership::Doorkeeper;
pub use open::Formation;
pub(crate) use open::{Opened, Removed};
pub(crate) use round::QuorumRound;
pub use standing::Standing;
pub(crate) use standing::{DIRECTORIES, DOUBT, FIRST_PROPOSAL, Station};

/// How long one tick of the consensus core is.
pub const QUORUM_TICK: Duration = Duration::from_millis(50);

/// A core that has missed more ticks than this was not running: time that it has not seen does not
/// count, for nobody can have answered it meanwhile.
const TICKS_MISSED_MAX: u32 = 3;

/// The quorum as this broker takes part in it.
pub(crate) struct Quorum<D: Disk> {
    /// This broker and its first data directory.
    pub(crate) me: MemberId,
    slot: Mutex<QuorumSlot<D>>,
    /// Written by the thread that runs sync rounds, without the lock of the rest.
    pub(crate) files: Mutex<QuorumFiles<D>>,
}

/// What the quorum's lock guards.
pub(crate) struct QuorumSlot<D: Disk> {
    core: Box<dyn Consensus + Send>,
    pub(crate) log: Log<D>,
    /// Readys in order that are in the log and not yet durable.
    unpersisted: VecDeque<Unpersisted>,
    /// Readys in order whose snapshot or entries the disk has no room for.
    unwritten: VecDeque<raft::Ready>,
    /// Here as long as this broker is the controller.
    controller: Option<Host<Metadata>>,
    /// Questions of other brokers, by the token that they have here.
    remote: BTreeMap<Token, (BrokerId, Token)>,
    last_remote: u64,
    /// Questions of this broker that the controller has, or will have.
    asked: BTreeMap<Token, Asked>,
    /// Answers that are ahead of this broker's image.
    early: Vec<(LogIndex, Token, Reply)>,
    /// The newest entry that the image has, and its term.
    applied: LogIndex,
    applied_term: Term,
    /// Something waits for a sync round.
    pub(crate) awaits_sync: bool,
    /// The directory has failed: this broker takes no part any more.
    pub(crate) failed: bool,
    /// When the core's clock ticks next; it starts with the first call.
    next_tick: Option<Time>,
    /// Bytes of entries since the snapshot.
    since_snapshot: u64,
    /// A snapshot is taken once there are so many.
    snapshot_every_bytes: u64,
}

/// What becomes of a ready once it is durable.
struct Unpersisted {
    number: u64,
    vote: Option<raft::Vote>,
    messages: Vec<raft::Message>,
}

/// What is to be done after the quorum's lock, in order.
pub(crate) enum Order {
    /// These records are committed.
    Committed(Vec<Record>),
    /// The metadata begins anew from a snapshot.
    Restored(Box<Image>),
    /// An answer to somebody here.
    Deliver(Token, Delivery),
    /// A message.
    Send(BrokerId, PeerMessage),
}

impl<D: Disk> Quorum<D> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, QuorumSlot<D>> {
        self.slot.lock().expect("a panic under the quorum's lock is a bug that ends the process")
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// One step of the quorum, and all that follows from it.
    pub(crate) fn quorum_step<R>(
        &self,
        act: impl FnOnce(&mut QuorumSlot<D>, Now, &mut Vec<Order>) -> R,
    ) -> R {
        let _publishing = self.publishing.lock().expect("no panic holds the turn");
        let now = self.clock.now();
        let mut orders = Vec::new();
        let mut slot = self.quorum.lock();
        let result = act(&mut slot, now, &mut orders);
        self.pump(&mut slot, now, &mut orders);
        drop(slot);
        loop {
            self.carry_out_orders(std::mem::take(&mut orders));
            let mut slot = self.quorum.lock();
            if !self.take_office_if_due(&mut slot, now, &mut orders) {
                break;
            }
            self.pump(&mut slot, now, &mut orders);
        }
        result
    }

    /// Time goes on: for the quorum, for what this broker says about itself, and for what it asks of
    /// others. To be called every [`QUORUM_TICK`]; a broker that is alone needs it less often.
    pub fn tick(&self) {
        let now = self.clock.now();
        self.quorum_step(|slot, now, orders| {
            slot.tick(now.time);
            slot.forward(orders);
            slot.give_up_asked(now.time, orders);
        });
        if self.is_alone() {
            return;
        }
        self.give_way_if_stalled();
        self.keep_station(now);
        self.quorum_step(|slot, now, orders| self.expire_metadata(slot, now, orders));
        self.keep_door(now);
        self.tend_replicas(now);
    }

    fn carry_out_orders(&self, orders: Vec<Order>) {
        let mut orders = orders.into_iter().peekable();
        while let Some(order) = orders.next() {
            match order {
                Order::Committed(mut records) => {
                    let is_more = |next: &Order| matches!(next, Order::Committed(_));
                    while let Some(Order::Committed(more)) = orders.next_if(is_more) {
                        records.extend(more);
                    }
                    self.metadata_committed(&records);
                }
                Order::Restored(image) => self.metadata_restored(*image),
                Order::Deliver(token, delivery) => self.deliver(token, delivery),
                Order::Send(to, message) => self.net.send(to, message),
            }
        }
    }

    /// Takes whatever the core has ready: into the log, to the image, to others.
    fn pump(&self, slot: &mut QuorumSlot<D>, now: Now, orders: &mut Vec<Order>) {
        if slot.failed {
            return;
        }
        self.write_unwritten(slot, now, orders);
        while slot.unwritten.is_empty() && !slot.failed {
            let Some(ready) = slot.core.take_ready() else { break };
            self.take_in(slot, now, ready, orders);
        }
        slot.answer_what_is_committed(orders);
        if slot.core.status().role != raft::Role::Leader {
            slot.leave_office(orders);
        }
    }

    /// Carries out one ready of the core, as far as the disk lets it.
    fn take_in(
        &self,
        slot: &mut QuorumSlot<D>,
        now: Now,
        mut ready: raft::Ready,
        orders: &mut Vec<Order>,
    ) {
        for message in ready.messages.drain(..) {
            slot.send(message, orders);
        }
        if let Some(snapshot) = ready.snapshot.take()
            && let Err(error) = self.install(slot, &snapshot, orders)
        {
            if !error.is_disk_full() {
                return self.quorum_disk_failed(slot, &error, orders);
            }
            // Nothing behind it counts before it does.
            ready.snapshot = Some(snapshot);
            return slot.unwritten.push_front(ready);
        }
        let committed = std::mem::take(&mut ready.committed);
        match self.write_entries(slot, now, &ready) {
            Ok(()) => self.written(slot, ready, orders),
            Err(error) if error.is_disk_full() => slot.unwritten.push_front(ready),
            Err(error) => self.quorum_disk_failed(slot, &error, orders),
        }
        slot.apply(committed, orders);
    }

    /// Tries again what the disk had no room for.
    fn write_unwritten(&self, slot: &mut QuorumSlot<D>, now: Now, orders: &mut Vec<Order>) {
        for ready in std::mem::take(&mut slot.unwritten) {
            if slot.unwritten.is_empty() && !slot.failed {
                self.take_in(slot, now, ready, orders);
            } else {
                slot.unwritten.push_back(ready);
            }
        }
    }

    /// A ready is in the log. Where there is nothing to sync, it counts as durable at once.
    fn written(&self, slot: &mut QuorumSlot<D>, ready: raft::Ready, orders: &mut Vec<Order>) {
        let is_durable = !ready.must_sync;
        let raft::Ready { number, vote, messages_after_persist: messages, .. } = ready;
        slot.unpersisted.push_back(Unpersisted { number, vote, messages });
        if is_durable && slot.unpersisted.len() == 1 && !slot.awaits_sync {
            slot.persisted(number, orders);
        } else if !std::mem::replace(&mut slot.awaits_sync, true) {
            self.clock.sync_wanted(VolumeIndex::FIRST);
        }
    }

    /// The disk fails under the quorum's log or snapshot. The directory has failed with it, so that
    /// whoever watches this broker sees it and starts it anew.
    fn quorum_disk_failed(
        &self,
        slot: &mut QuorumSlot<D>,
        error: &LogError,
        orders: &mut Vec<Order>,
    ) {
        self.volume(VolumeIndex::FIRST).directory.fail(error);
        self.quorum_failed(slot, &error.to_string(), orders);
    }

    /// The quorum's log or vote cannot be written: what this broker would say may be forgotten.
    pub(crate) fn quorum_failed(
        &self,
        slot: &mut QuorumSlot<D>,
        reason: &str,
        orders: &mut Vec<Order>,
    ) {
        if std::mem::replace(&mut slot.failed, true) {
            return;
        }
        tracing::error!(
            reason,
            "the metadata log takes no writes: this broker takes no part in the \
            metadata any more; check its first data directory, then restart it"
        );
        let mut tokens: Vec<Token> = std::mem::take(&mut slot.asked).into_keys().collect();
        if let Some(mut host) = slot.controller.take() {
            tokens.extend(host.drop_parked());
        }
        slot.answer_all(tokens, Outcome::StorageFailed, orders);
    }
}

impl<D: Disk> QuorumSlot<D> {
    /// Hands committed entries to the image, in order.
    fn apply(&mut self, committed: Vec<raft::Entry>, orders: &mut Vec<Order>) {
        // All together: a leadership that has passed already begins nowhere.
        let mut records = Vec::new();
        for entry in committed {
            self.applied = entry.index;
            self.applied_term = entry.term;
            if let raft::Payload::Command(command) = &entry.payload {
                self.since_snapshot += command.len() as u64;
                match command::decode(command) {
                    Ok(decision) => records.extend(decision),
                    // Only a newer version writes what this one cannot read, after its format level
                    // was raised, which this one refuses before.
                    Err(error) => panic!("metadata entry {}: {error}", entry.index),
                }
            }
        }
        if !records.is_empty() {
            orders.push(Order::Committed(records));
        }
        self.core.applied(self.applied);
    }

    /// Every ready up to this one is durable.
    fn persisted(&mut self, up_to: u64, orders: &mut Vec<Order>) {
        while self.unpersisted.front().is_some_and(|ready| ready.number <= up_to) {
            let ready = self.unpersisted.pop_front().expect("just looked at");
            self.core.persisted(ready.number);
            for message in ready.messages {
                self.send(message, orders);
            }
        }
    }

    fn send(&self, message: raft::Message, orders: &mut Vec<Order>) {
        orders.push(Order::Send(message.to.broker(), PeerMessage::Raft(message)));
    }

    /// The newest entry that the image has.
    pub(crate) fn applied(&self) -> LogIndex {
        self.applied
    }

    fn last_index(&self) -> LogIndex {
        self.core.status().last_index
    }

    /// An index as the offset that hosts of state machines count in.
    fn position(index: LogIndex) -> Offset {
        Offset(i64::try_from(index.0).expect("indexes are far below the largest offset"))
    }

    /// Takes no further part: the broker stops.
    pub(crate) fn leave(&mut self, orders: &mut Vec<Order>) {
        self.leave_office(orders);
        let tokens: Vec<Token> = std::mem::take(&mut self.asked).into_keys().collect();
        self.answer_all(tokens, Outcome::NotLeader, orders);
        self.failed = true;
    }

    /// Lets the core's clock tick, whatever time it is.
    pub(crate) fn tick_once(&mut self) {
        self.core.tick();
    }

    /// Lets the core's clock tick as often as is due.
    fn tick(&mut self, now: Time) {
        let due = *self.next_tick.get_or_insert(now + QUORUM_TICK);
        let mut next = due;
        if due + QUORUM_TICK * TICKS_MISSED_MAX < now {
            next = now;
        }
        while next <= now {
            self.core.tick();
            next = next + QUORUM_TICK;
        }
        self.next_tick = Some(next);
    }
}
