//! What a stranger may cost us before anything is known about them. Every bound has its error.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
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
    /// [`Limits::slowest_bytes_per_s`] when it is large; and no byte of it may take this long.
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

/// Of the files that the system lets us open, the part that is for data: one in so many. No
/// connection may take its last ones, or a log could not begin its next segment.
const FILES_KEPT: u64 = 8;

/// Whether a connection that was just accepted leaves enough files for data. The system gives out the
/// lowest number that is free, so the number tells how many are open.
pub fn leaves_files_for_data(socket: &impl AsRawFd) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return true };
    u64::try_from(socket.as_raw_fd()).unwrap_or(0) < limit - limit / FILES_KEPT
}

/// What the log says about a connection that does not.
pub const TOO_FEW_FILES: &str = "nearly as many files are open as the system allows; raise it \
    (ulimit -n, LimitNOFILE= of systemd)";

/// Bytes that one permit stands for.
const PERMIT_BYTES: usize = 1024;

/// What every connection may take before the part that large requests share is asked.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;

/// The memory that requests of all connections share. A quarter of it is for the first
/// [`SMALL_BYTES`] of each request, so that a few large ones that stall cannot keep small ones out.
#[derive(Debug, Clone)]
pub struct Ledger {
    small: Pool,
    large: Pool,
}

#[derive(Debug, Clone)]
struct Pool {
    permits: Arc<Semaphore>,
    total: usize,
}

/// A request's share of the ledger, given back when dropped.
#[derive(Debug, Default)]
pub struct Charge {
    permits: Vec<OwnedSemaphorePermit>,
    small_bytes: usize,
    large_bytes: usize,
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let total = (bytes / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Pool { permits: Arc::new(Semaphore::new(total)), total }
    }

    /// Waits for `bytes` more; returns how many that are in whole permits.
    async fn take(&self, permits: &mut Vec<OwnedSemaphorePermit>, bytes: usize) -> usize {
        let missing = bytes.div_ceil(PERMIT_BYTES).min(self.total);
        let Ok(missing) = u32::try_from(missing) else { return 0 };
        if 0 < missing {
            let permit = Arc::clone(&self.permits).acquire_many_owned(missing).await;
            permits.push(permit.expect("the ledger is never closed"));
        }
        missing as usize * PERMIT_BYTES
    }

    /// Takes `bytes` more if they are there, or nothing.
    fn try_take(&self, permits: &mut Vec<OwnedSemaphorePermit>, bytes: usize) -> Option<usize> {
        let missing = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).ok()?;
        permits.push(Arc::clone(&self.permits).try_acquire_many_owned(missing).ok()?);
        Some(missing as usize * PERMIT_BYTES)
    }
}

impl Ledger {
    /// A ledger over this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Ledger { small: Pool::new(bytes / 4), large: Pool::new(bytes - bytes / 4) }
    }

    /// Waits until `charge` covers `bytes`. While it waits, its socket is not read.
    ///
    /// Whoever stops waiting keeps what is covered so far.
    pub async fn cover(&self, charge: &mut Charge, bytes: usize) {
        let small = bytes.min(SMALL_BYTES).saturating_sub(charge.small_bytes);
        charge.small_bytes += self.small.take(&mut charge.permits, small).await;
        let large = bytes.saturating_sub(SMALL_BYTES).saturating_sub(charge.large_bytes);
        charge.large_bytes += self.large.take(&mut charge.permits, large).await;
    }

    /// Covers `bytes` more, all of them from the part that large requests share, if they are there now.
    pub(crate) fn try_cover(&self, charge: &mut Charge, bytes: usize) -> bool {
        let taken = self.large.try_take(&mut charge.permits, bytes);
        charge.large_bytes += taken.unwrap_or(0);
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_ledger_makes_the_next_request_wait_until_one_ends() {
        let ledger = Ledger::new(32 * 1024);
        let mut first = Charge::default();
        ledger.cover(&mut first, 8 * 1024).await;
        let mut second = Charge::default();
        let waits = tokio::time::timeout(Duration::from_millis(20), ledger.cover(&mut second, 1));
        assert!(waits.await.is_err());
        drop(first);
        ledger.cover(&mut second, 1).await;
    }

    #[tokio::test]
    async fn large_requests_that_stall_do_not_keep_small_ones_out() {
        let ledger = Ledger::new(1024 * 1024);
        let mut large = Charge::default();
        ledger.cover(&mut large, SMALL_BYTES + 768 * 1024).await;
        let mut second = Charge::default();
        let more = ledger.cover(&mut second, SMALL_BYTES + 1024);
        assert!(tokio::time::timeout(Duration::from_millis(20), more).await.is_err());
        ledger.cover(&mut Charge::default(), SMALL_BYTES).await;
    }

    #[test]
    fn large_requests_have_time_to_arrive_at_the_slowest_rate() {
        let limits = Limits::default();
        assert_eq!(limits.arrival_max(10), Duration::from_secs(30));
        assert_eq!(limits.arrival_max(64 * 1024 * 100), Duration::from_secs(100));
    }
}
