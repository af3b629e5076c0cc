//! Tokens that requests wait on, and the tasks behind them.
//!
//! ```text
//!  token = 0 (2 bits) │ use of the slot (30 bits) │ slot (28 bits) │ shard (4 bits)
//! ```
//!
//! A wait takes a slot that an earlier one has left, so that it costs no allocation. A token that
//! comes too late names a use that is over, and is told nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

use towpath_driver::{Delivery, Net, PeerMessage};
use towpath_model::{BrokerId, Token};

use crate::peer::{Class, Peers};

const SHARD_BITS: u32 = 4;
const SHARDS: usize = 1 << SHARD_BITS;
const SLOT_BITS: u32 = 32 - SHARD_BITS;

/// Who waits for which token. Cheap to clone.
#[derive(Clone, Default)]
pub struct Waiters(Arc<Shared>);

impl std::fmt::Debug for Waiters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waiters").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    next: AtomicUsize,
    /// The way to other brokers, where there is one.
    peers: OnceLock<Arc<Peers>>,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// Counts from 1, so that no token is 0, the driver's "nobody".
    use_number: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting(Option<Waker>),
    Told(Delivery),
    /// What was told has been taken.
    Taken,
}

/// Uses of a slot before their numbers begin anew: the upper bits of tokens tell apart who asks.
const USES_MAX: u32 = (1 << 30) - 1;

/// Where a token's wait is kept.
#[derive(Debug, Clone, Copy)]
struct Place {
    shard: usize,
    slot: u32,
    use_number: u32,
}

impl Place {
    fn of(token: Token) -> Place {
        let low = token.0 as u32;
        Place {
            shard: low as usize % SHARDS,
            slot: low >> SHARD_BITS,
            use_number: (token.0 >> 32) as u32,
        }
    }

    fn token(self) -> Token {
        let low = u64::from(self.slot) << SHARD_BITS | self.shard as u64;
        Token(u64::from(self.use_number) << 32 | low)
    }
}

impl Shard {
    fn take_slot(&mut self) -> (u32, u32) {
        if let Some(slot) = self.free.pop() {
            let kept = &mut self.slots[slot as usize];
            kept.use_number = ((kept.use_number + 1) & USES_MAX).max(1);
            kept.state = State::Waiting(None);
            return (slot, kept.use_number);
        }
        let slot = self.slots.len() as u32;
        // Each wait is a request in memory: there cannot be so many.
        assert!(slot < 1 << SLOT_BITS);
        self.slots.push(Slot { use_number: 1, state: State::Waiting(None) });
        (slot, 1)
    }

    /// The state behind a token, unless its wait is over.
    fn state(&mut self, place: Place) -> Option<&mut State> {
        let slot = self.slots.get_mut(place.slot as usize)?;
        let is_open = slot.use_number == place.use_number && !matches!(slot.state, State::Free);
        is_open.then_some(&mut slot.state)
    }
}

impl Waiters {
    /// From now on messages to other brokers go this way; the first one counts.
    pub fn set_peers(&self, peers: Arc<Peers>) {
        let _ = self.0.peers.set(peers);
    }

    /// The way to other brokers, where there is one.
    pub(crate) fn peers(&self) -> Option<&Arc<Peers>> {
        self.0.peers.get()
    }

    fn shard(&self, place: Place) -> MutexGuard<'_, Shard> {
        self.0.shards[place.shard].lock().expect("no panic holds the waiters")
    }

    /// A new token. It must be known before the driver is asked: the answer may be faster than
    /// the asker.
    fn begin(&self) -> Place {
        let shard = self.0.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut place = Place { shard, slot: 0, use_number: 0 };
        (place.slot, place.use_number) = self.shard(place).take_slot();
        place
    }
}

impl Net for Waiters {
    fn deliver(&self, token: Token, delivery: Delivery) {
        let place = Place::of(token);
        let mut shard = self.shard(place);
        let Some(state @ State::Waiting(_)) = shard.state(place) else { return };
        let before = std::mem::replace(state, State::Told(delivery));
        drop(shard);
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }

    fn send(&self, to: BrokerId, message: PeerMessage) {
        if let Some(peers) = self.0.peers.get() {
            peers.send(to, Class::Control, message.encode());
        }
    }

    fn records_ready(&self, to: BrokerId) {
        if let Some(peers) = self.0.peers.get() {
            peers.ready_to_send_records(to);
        }
    }
}

/// One wait; giving it up forgets the token.
#[derive(Debug)]
pub struct Wait {
    waiters: Waiters,
    place: Place,
}

impl Wait {
    /// Begins to wait on a new token.
    pub fn begin(waiters: &Waiters) -> Wait {
        Wait { waiters: waiters.clone(), place: waiters.begin() }
    }

    /// What the driver is to call.
    pub fn token(&self) -> Token {
        self.place.token()
    }

    /// The answer. `None` when it has been taken before.
    pub async fn answer(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Delivery>> {
        let mut shard = self.waiters.shard(self.place);
        let state = shard.state(self.place).expect("a slot is kept until its wait is dropped");
        match state {
            State::Waiting(Some(waker)) => waker.clone_from(context.waker()),
            State::Waiting(none) => *none = Some(context.waker().clone()),
            State::Told(_) => {
                let State::Told(delivery) = std::mem::replace(state, State::Taken) else {
                    unreachable!("just matched");
                };
                return Poll::Ready(Some(delivery));
            }
            State::Taken | State::Free => return Poll::Ready(None),
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut shard = self.waiters.shard(self.place);
        let Some(state) = shard.state(self.place) else { return };
        let before = std::mem::replace(state, State::Free);
        shard.free.push(self.place.slot);
        drop(shard);
        // A waker or an answer may run code of its own when it goes.
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use towpath_driver::Outcome;

    use super::*;

    fn poll(wait: &mut Wait) -> Poll<Option<Delivery>> {
        wait.poll(&Context::from_waker(Waker::noop()))
    }

    fn is_reached(polled: &Poll<Option<Delivery>>) -> bool {
        matches!(polled, Poll::Ready(Some(Delivery::Wait(Outcome::Reached))))
    }

    #[test]
    fn an_answer_that_is_faster_than_the_asker_is_kept_and_given_once() {
        let waiters = Waiters::default();
        let mut wait = Wait::begin(&waiters);
        assert_ne!(wait.token(), Token(0));
        assert!(poll(&mut wait).is_pending());
        waiters.deliver(wait.token(), Delivery::Wait(Outcome::Reached));
        waiters.deliver(wait.token(), Delivery::Wait(Outcome::NotLeader));
        assert!(is_reached(&poll(&mut wait)));
        assert!(matches!(poll(&mut wait), Poll::Ready(None)));
    }

    #[test]
    fn a_token_that_comes_too_late_tells_nobody() {
        let waiters = Waiters::default();
        let late: Vec<Token> =
            (0..SHARDS).map(|_| Wait::begin(&waiters)).map(|wait| wait.token()).collect();
        let mut waits: Vec<Wait> = (0..SHARDS).map(|_| Wait::begin(&waiters)).collect();
        for token in late {
            assert!(waits.iter().all(|wait| wait.token() != token));
            waiters.deliver(token, Delivery::Wait(Outcome::Reached));
        }
        assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
        let slots: usize = waiters.0.shards.iter().map(|s| s.lock().unwrap().slots.len()).sum();
        assert_eq!(slots, SHARDS);
    }

    #[tokio::test]
    async fn a_waiting_task_is_woken() {
        let waiters = Waiters::default();
        let mut wait = Wait::begin(&waiters);
        let token = wait.token();
        let mut answer = pin!(wait.answer());
        let told = async {
            tokio::task::yield_now().await;
            waiters.deliver(token, Delivery::Wait(Outcome::Reached));
        };
        let (answer, ()) = tokio::join!(&mut answer, told);
        assert!(matches!(answer, Some(Delivery::Wait(Outcome::Reached))));
    }
}
