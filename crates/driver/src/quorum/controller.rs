//! Asking the controller, and being it.
//!
//! The leader of the quorum decides on metadata. It takes office once an entry of its own term is
//! committed: then its image has everything that any controller before it was ever told is done.
//! What it decides lies in its log before the consensus core hears of it, so that a full disk
//! refuses a request and changes nothing.
//!
//! A question that was forwarded is asked once: whether it took effect is open when its controller
//! goes, and whoever asked is told so.

use std::time::Duration;

use towpath_broker::peer::PeerMessage;
use towpath_broker::{Host, Outcome};
use towpath_log::disk::Disk;
use towpath_metadata::raft::{self, Entry, LogIndex, MemberId, Payload};
use towpath_metadata::{self as metadata, Metadata, Reply, Request};
use towpath_model::{BrokerId, KeyValue, Now, Time, Token};

use super::{Order, QuorumSlot, command};
use crate::coordinate::NotCoordinator;
use crate::driver::Driver;
use crate::volume::VolumeIndex;
use crate::world::{Clock, Delivery, Net};

/// How long a question waits for a controller, and for its answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Tokens of questions that the driver itself asks; no waiter has one.
const OWN_TOKENS: u64 = 1 << 62;
/// Tokens of questions that other brokers ask here.
const REMOTE_TOKENS: u64 = 1 << 63;

/// A token of the driver's own, by its number.
pub(crate) const fn own_token(number: u64) -> Token {
    Token(OWN_TOKENS | number)
}

/// The number of a token of the driver's own.
pub(crate) fn own_number(token: Token) -> Option<u64> {
    (token.0 & (OWN_TOKENS | REMOTE_TOKENS) == OWN_TOKENS).then_some(token.0 & !OWN_TOKENS)
}

/// A question of this broker that has no answer yet.
#[derive(Debug)]
pub(super) struct Asked {
    /// As long as nobody could be asked.
    request: Option<Request>,
    /// Who was asked.
    of: Option<MemberId>,
    /// When it is given up.
    until: Time,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Asks the metadata; the answer is delivered to `token`, whichever broker gives it.
    ///
    /// # Errors
    /// [`NotCoordinator::NotLeader`] when this broker takes no part in the metadata any more.
    pub fn ask_metadata(&self, token: Token, request: Request) -> Result<(), NotCoordinator> {
        let asked = self.quorum_step(|slot, now, orders| {
            if slot.failed {
                return false;
            }
            if slot.controller.is_some() {
                self.decide(slot, now, token, request, orders);
            } else {
                let until = now.time + ASK_TIMEOUT;
                slot.asked.insert(token, Asked { request: Some(request), of: None, until });
                slot.forward(orders);
            }
            true
        });
        asked.then_some(()).ok_or(NotCoordinator::NotLeader)
    }

    /// Another broker asks.
    pub(crate) fn asked_by(&self, from: BrokerId, token: Token, request: Request) {
        self.quorum_step(|slot, now, orders| {
            if slot.controller.is_none() || slot.failed {
                orders.push(Order::Send(from, PeerMessage::NotController { token }));
                return;
            }
            slot.last_remote += 1;
            let here = Token(REMOTE_TOKENS | slot.last_remote);
            slot.remote.insert(here, (from, token));
            self.decide(slot, now, here, request, orders);
        });
    }

    fn decide(
        &self,
        slot: &mut QuorumSlot<D>,
        now: Now,
        token: Token,
        request: Request,
        orders: &mut Vec<Order>,
    ) {
        if self.cannot_decide() {
            return slot.answer_all([token], Outcome::NotLeader, orders);
        }
        let end = QuorumSlot::<D>::position(slot.last_index());
        let Some(host) = &mut slot.controller else { return };
        let records = host.request(now, token, request, end);
        self.propose(slot, now, &records, orders);
    }

    /// Whether the disk under the metadata's log does not answer: nothing that is decided would count, and
    /// all of it would wait in memory.
    fn cannot_decide(&self) -> bool {
        self.is_stalled(self.volume(VolumeIndex::FIRST))
    }

    /// A controller that cannot decide lets another one do it.
    pub(super) fn give_way_if_stalled(&self) {
        if self.cannot_decide() && self.is_controller() {
            self.hand_over_office();
        }
    }

    /// Lets time act on what the controller knows.
    pub(super) fn expire_metadata(
        &self,
        slot: &mut QuorumSlot<D>,
        now: Now,
        orders: &mut Vec<Order>,
    ) {
        let end = QuorumSlot::<D>::position(slot.last_index());
        let Some(host) = &mut slot.controller else { return };
        if host.next_deadline().is_none_or(|at| now.time < at) || self.cannot_decide() {
            return;
        }
        let records = host.expire(now, end);
        self.propose(slot, now, &records, orders);
    }

    /// Writes a decision to the log, then proposes it.
    fn propose(
        &self,
        slot: &mut QuorumSlot<D>,
        now: Now,
        records: &[KeyValue],
        orders: &mut Vec<Order>,
    ) {
        if records.is_empty() {
            return;
        }
        let status = slot.core.status();
        let index = status.last_index.next();
        let payload = Payload::Command(command::encode(records));
        let entry = Entry { index, term: status.term, payload };
        // Only once everything before it lies there.
        let is_next = slot.log.log_end_offset() == super::log::offset_of(index);
        let is_written = is_next
            && match self.write_entry(slot, now, &entry) {
                Ok(()) => true,
                Err(error) if error.is_disk_full() => false,
                Err(error) => {
                    self.quorum_disk_failed(slot, &error, orders);
                    return;
                }
            };
        let Payload::Command(bytes) = entry.payload else { unreachable!("made above") };
        if is_written && slot.core.propose(bytes).is_ok() {
            let host = slot.controller.as_mut().expect("a controller has decided");
            host.appended_as_one(QuorumSlot::<D>::position(index));
            return;
        }
        if is_written && let Err(error) = slot.log.truncate_to(super::log::offset_of(index)) {
            // The core does not know of this entry and would take it for another one, also when the disk
            // is merely full: only a start tells them apart.
            self.quorum_disk_failed(slot, &error, orders);
            return;
        }
        let host = slot.controller.as_mut().expect("a controller has decided");
        let tokens = host.append_failed();
        let outcome = if is_written { Outcome::NotLeader } else { Outcome::StorageFailed };
        slot.answer_all(tokens, outcome, orders);
    }

    /// Takes office, if this broker leads the quorum, an entry of its term is committed, and the image
    /// has it. Says whether it did.
    pub(super) fn take_office_if_due(
        &self,
        slot: &mut QuorumSlot<D>,
        now: Now,
        orders: &mut Vec<Order>,
    ) -> bool {
        let status = slot.core.status();
        let is_due = status.role == raft::Role::Leader
            && slot.controller.is_none()
            && !slot.failed
            && slot.applied == status.last_index
            && slot.applied_term == status.term;
        if !is_due {
            return false;
        }
        let machine = Metadata::begin(self.image().clone());
        tracing::info!(broker = %self.settings.broker_id, term = %status.term,
            "this broker is the controller now");
        let host = slot.controller.insert(Host::new(machine));
        let records = host.resume(now, QuorumSlot::<D>::position(status.last_index));
        self.propose(slot, now, &records, orders);
        slot.answer_unsent(orders);
        let unsent = slot.take_unsent();
        for (token, request) in unsent {
            self.decide(slot, now, token, request, orders);
        }
        true
    }

    /// An answer of the controller.
    pub(crate) fn answered(&self, token: Token, index: LogIndex, reply: Reply) {
        self.quorum_step(|slot, _, _| {
            if slot.asked.remove(&token).is_some() {
                slot.early.push((index, token, reply));
            }
        });
    }

    /// The broker that was asked is not the controller.
    pub(crate) fn not_answered(&self, token: Token) {
        self.quorum_step(|slot, _, orders| {
            if slot.asked.remove(&token).is_some() {
                slot.answer_all([token], Outcome::NotLeader, orders);
            }
        });
    }
}

impl<D: Disk> QuorumSlot<D> {
    /// Whether this broker is the controller.
    pub(super) fn is_controller(&self) -> bool {
        self.controller.is_some()
    }

    /// Sends questions that nobody could be asked before, and gives up those whose controller is gone
    /// or whose time is.
    pub(super) fn forward(&mut self, orders: &mut Vec<Order>) {
        let status = self.core.status();
        let leader = status.leader.filter(|leader| *leader != status.me);
        let mut given_up = Vec::new();
        for (token, asked) in &mut self.asked {
            if asked.of.is_some() && asked.of != leader {
                given_up.push(*token);
            } else if let Some(leader) = leader
                && let Some(request) = asked.request.take()
            {
                asked.of = Some(leader);
                orders.push(Order::Send(
                    leader.broker(),
                    PeerMessage::Ask { token: *token, request },
                ));
            }
        }
        given_up.iter().for_each(|token| drop(self.asked.remove(token)));
        self.answer_all(given_up, Outcome::NotLeader, orders);
    }

    /// Gives up questions whose time is over.
    pub(super) fn give_up_asked(&mut self, now: Time, orders: &mut Vec<Order>) {
        let over: Vec<Token> =
            self.asked.iter().filter(|(_, asked)| asked.until <= now).map(|(t, _)| *t).collect();
        over.iter().for_each(|token| drop(self.asked.remove(token)));
        self.answer_all(over, Outcome::NotLeader, orders);
    }

    /// A controller that takes office has been asked elsewhere before: those questions are given up.
    fn answer_unsent(&mut self, orders: &mut Vec<Order>) {
        let sent: Vec<Token> =
            self.asked.iter().filter(|(_, asked)| asked.of.is_some()).map(|(t, _)| *t).collect();
        sent.iter().for_each(|token| drop(self.asked.remove(token)));
        self.answer_all(sent, Outcome::NotLeader, orders);
    }

    fn take_unsent(&mut self) -> Vec<(Token, Request)> {
        let asked = std::mem::take(&mut self.asked);
        asked.into_iter().filter_map(|(token, asked)| Some((token, asked.request?))).collect()
    }

    /// Gives up the office, if this broker had it: what was decided and is not committed may be or
    /// not.
    pub(super) fn leave_office(&mut self, orders: &mut Vec<Order>) {
        let Some(mut host) = self.controller.take() else { return };
        tracing::info!("this broker is not the controller any more");
        let tokens = host.drop_parked();
        self.answer_all(tokens, Outcome::NotLeader, orders);
    }

    /// Sets free the answers that rest on what is committed, after that has been published.
    pub(super) fn answer_what_is_committed(&mut self, orders: &mut Vec<Order>) {
        let applied = self.applied;
        if let Some(host) = &mut self.controller {
            let freed = host.advance(Self::position(applied)).replies;
            for (token, reply) in freed {
                self.answer(token, applied, reply, orders);
            }
        }
        let (due, early): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.early).into_iter().partition(|(index, ..)| *index <= applied);
        self.early = early;
        for (_, token, reply) in due {
            orders.push(Order::Deliver(token, Delivery::Metadata(reply)));
        }
    }

    fn answer(&mut self, token: Token, index: LogIndex, reply: Reply, orders: &mut Vec<Order>) {
        let order = match self.remote.remove(&token) {
            Some((to, token)) => Order::Send(to, PeerMessage::Answer { token, index, reply }),
            None => Order::Deliver(token, Delivery::Metadata(reply)),
        };
        orders.push(order);
    }

    /// Tells whoever waits for these that there will be no answer.
    pub(super) fn answer_all(
        &mut self,
        tokens: impl IntoIterator<Item = Token>,
        outcome: Outcome,
        orders: &mut Vec<Order>,
    ) {
        for token in tokens {
            let order = match self.remote.remove(&token) {
                Some((to, token)) => Order::Send(to, PeerMessage::NotController { token }),
                None => Order::Deliver(token, Delivery::Wait(outcome)),
            };
            orders.push(order);
        }
    }
}

/// The controller, for whoever reports it.
impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Which broker is the controller, as far as this one knows.
    pub fn controller(&self) -> Option<BrokerId> {
        self.quorum.lock().core.status().leader.map(MemberId::broker)
    }

    /// Whether this broker is the controller.
    pub fn is_controller(&self) -> bool {
        self.quorum.lock().is_controller()
    }

    /// How the quorum stands, as this broker sees it.
    pub fn quorum_status(&self) -> raft::Status {
        self.quorum.lock().core.status()
    }

    /// Metadata that the broker acts on by itself: nothing waits for the answer.
    pub(crate) fn ask_for_myself(&self, number: u64, request: metadata::Request) {
        // Without an answer it is asked again.
        if self.ask_metadata(own_token(number), request).is_err() {
            self.forget_proposal(number);
        }
    }
}
