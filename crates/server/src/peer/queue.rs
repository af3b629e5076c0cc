//! What waits to be sent to a peer, over one class of connection.
//!
//! Bounded by bytes and by number; at the bound the oldest is dropped, because what is newer mostly
//! replaces it. Nothing waits while the peer cannot be reached: who has something to say says it again.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

use super::frame::FRAME_BYTES_MAX;

/// Messages that may wait.
const COUNT_MAX: usize = 16 * 1024;

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Somebody said that there are records to be fetched from the handler.
    has_records: AtomicBool,
    wake: Notify,
    bytes_max: usize,
    message_bytes_max: usize,
}

/// Invariant: `bytes` is the sum over `small`.
#[derive(Debug, Default)]
struct Waiting {
    is_open: bool,
    small: VecDeque<Bytes>,
    bytes: usize,
    /// At most one that is too large for a frame, and the newest of them.
    large: Option<Bytes>,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize, message_bytes_max: usize) -> Queue {
        Queue {
            waiting: Mutex::default(),
            has_records: AtomicBool::new(false),
            wake: Notify::new(),
            bytes_max: bytes_max.max(FRAME_BYTES_MAX),
            message_bytes_max,
        }
    }

    /// Puts a message. The results: whether it waits now, and how many others do not any more.
    pub(crate) fn push(&self, message: Bytes) -> (bool, u64) {
        let mut waiting = self.waiting();
        if !waiting.is_open || self.message_bytes_max < message.len() {
            return (false, 0);
        }
        let mut dropped = 0;
        if FRAME_BYTES_MAX < message.len() {
            dropped += u64::from(waiting.large.replace(message).is_some());
        } else {
            waiting.bytes += message.len();
            waiting.small.push_back(message);
            while self.bytes_max < waiting.bytes || COUNT_MAX < waiting.small.len() {
                let Some(oldest) = waiting.small.pop_front() else { break };
                waiting.bytes -= oldest.len();
                dropped += 1;
            }
        }
        drop(waiting);
        self.wake.notify_one();
        (true, dropped)
    }

    /// Says that there are records to be fetched from the handler.
    pub(crate) fn records_are_ready(&self) {
        self.has_records.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether there may be records, which is asked once.
    pub(crate) fn take_readiness(&self) -> bool {
        self.has_records.swap(false, Ordering::AcqRel)
    }

    /// The oldest small message.
    pub(crate) fn pop(&self) -> Option<Bytes> {
        let mut waiting = self.waiting();
        let oldest = waiting.small.pop_front()?;
        waiting.bytes -= oldest.len();
        Some(oldest)
    }

    /// The large message.
    pub(crate) fn pop_large(&self) -> Option<Bytes> {
        self.waiting().large.take()
    }

    /// Until something may have come.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// From now on messages may wait.
    pub(crate) fn open(&self) {
        self.waiting().is_open = true;
    }

    /// From now on none do. The result: how many did.
    pub(crate) fn close(&self) -> u64 {
        let mut waiting = self.waiting();
        let dropped = waiting.small.len() + usize::from(waiting.large.is_some());
        *waiting = Waiting::default();
        dropped as u64
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics over a queue")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        let queue = Queue::new(FRAME_BYTES_MAX, 2 * FRAME_BYTES_MAX);
        queue.open();
        queue
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let queue = queue();
        for number in 0..COUNT_MAX {
            assert_eq!(queue.push(number.to_be_bytes().to_vec().into()), (true, 0));
        }
        assert_eq!(queue.push(Bytes::from_static(b"newest")), (true, 1));
        assert_eq!(queue.pop(), Some(1_usize.to_be_bytes().to_vec().into()));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_bytes() {
        let queue = queue();
        assert_eq!(queue.push(vec![1; 100].into()), (true, 0));
        assert_eq!(queue.push(vec![2; 100].into()), (true, 0));
        assert_eq!(queue.push(vec![3; FRAME_BYTES_MAX - 50].into()), (true, 2));
        assert_eq!(queue.pop().map(|message| message[0]), Some(3));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn a_large_message_gives_way_to_a_newer_one_and_none_is_larger_than_the_bound() {
        let queue = queue();
        assert_eq!(queue.push(vec![1; FRAME_BYTES_MAX + 1].into()), (true, 0));
        assert_eq!(queue.push(vec![2; FRAME_BYTES_MAX + 1].into()), (true, 1));
        assert_eq!(queue.push(vec![3; 2 * FRAME_BYTES_MAX + 1].into()), (false, 0));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.pop_large().map(|message| message[0]), Some(2));
    }

    #[test]
    fn nothing_waits_for_a_peer_that_cannot_be_reached() {
        let queue = queue();
        queue.push(Bytes::from_static(b"one"));
        assert_eq!(queue.close(), 1);
        assert_eq!(queue.push(Bytes::from_static(b"two")), (false, 0));
        queue.open();
        assert_eq!(queue.pop(), None);
    }
}
