//! What a stranger may cost us before anything is known about them. Every bound has its error.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds of the Kafka listener.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Largest request frame, in bytes (`socket.request.max.bytes`).
    pub frame_bytes_max: usize,
    /// Most connections at once (`max.connections`).
    pub connections_max: usize,
    /// A connection without a request for this long is closed (`connections.max.idle.ms`).
    pub idle_max: Duration,
    /// A request must be complete this long after its first byte, or at
    /// [`Limits::slowest_bytes_per_s`] when it is large.
    pub request_wait_max: Duration,
    /// The slowest rate at which a large request may arrive, in bytes per second.
    pub slowest_bytes_per_s: usize,
    /// A client that takes none of its answer for this long is gone.
    pub write_stall_max: Duration,
    /// Requests of one connection under way at once; beyond it the socket is not read.
    pub in_flight_max: usize,
    /// Bytes of requests in memory at once, over all connections; beyond it sockets are not read.
    pub request_memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame_bytes_max: 100 * 1024 * 1024,
            connections_max: 10_000,
            idle_max: Duration::from_secs(600),
            request_wait_max: Duration::from_secs(30),
            slowest_bytes_per_s: 64 * 1024,
            write_stall_max: Duration::from_secs(30),
            in_flight_max: 100,
            request_memory_bytes: 512 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// How long a request of `bytes` may take to arrive.
    #[must_use]
    pub fn arrival_max(&self, bytes: usize) -> Duration {
        let by_rate = Duration::from_secs((bytes / self.slowest_bytes_per_s.max(1)) as u64);
        by_rate.max(self.request_wait_max)
    }
}

/// Bytes that one permit stands for.
const PERMIT_BYTES: usize = 1024;

/// The memory that requests of all connections share.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    permits: Arc<Semaphore>,
    total: usize,
}

/// A request's share of the ledger, given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    permits: Vec<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Ledger {
    /// A ledger over this many bytes.
    #[must_use]
    pub(crate) fn new(bytes: usize) -> Self {
        let total = (bytes / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Ledger { permits: Arc::new(Semaphore::new(total)), total }
    }

    /// Waits until `charge` covers `bytes`. While it waits, its socket is not read.
    pub(crate) async fn cover(&self, charge: &mut Charge, bytes: usize) {
        let missing = bytes.saturating_sub(charge.bytes).div_ceil(PERMIT_BYTES);
        let missing = u32::try_from(missing.min(self.total)).unwrap_or(u32::MAX);
        if missing == 0 {
            return;
        }
        let permit = Arc::clone(&self.permits).acquire_many_owned(missing).await;
        charge.permits.push(permit.expect("the ledger is never closed"));
        charge.bytes += missing as usize * PERMIT_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_ledger_makes_the_next_request_wait_until_one_ends() {
        let ledger = Ledger::new(8 * 1024);
        let mut first = Charge::default();
        ledger.cover(&mut first, 8 * 1024).await;
        let mut second = Charge::default();
        let waits = tokio::time::timeout(Duration::from_millis(20), ledger.cover(&mut second, 1));
        assert!(waits.await.is_err());
        drop(first);
        ledger.cover(&mut second, 1).await;
    }

    #[test]
    fn large_requests_have_time_to_arrive_at_the_slowest_rate() {
        let limits = Limits::default();
        assert_eq!(limits.arrival_max(10), Duration::from_secs(30));
        assert_eq!(limits.arrival_max(64 * 1024 * 100), Duration::from_secs(100));
    }
}
