//! What a worker has done so far.

use super::breaker::BreakerState;

/// What a worker has done since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerStats {
    /// Messages that were received and begun.
    pub begun: u64,
    /// Messages that were worked.
    pub done: u64,
    /// Messages that are to be tried again.
    pub retried: u64,
    /// Messages that can never be worked.
    pub rejected: u64,
    /// Messages that were received and not begun.
    pub given_back: u64,
    /// Messages whose lease was lost before their work had ended.
    pub leases_lost: u64,
    /// Receives that failed.
    pub receive_errors: u64,
    /// Messages that were worked, and could not be deleted, given back or rejected: they come back.
    pub settle_errors: u64,
    /// Messages that are being worked.
    pub running: usize,
    /// Whether it receives.
    pub breaker: BreakerState,
    /// How often it has stopped receiving because work failed.
    pub breaker_opened: u64,
}

impl Default for WorkerStats {
    fn default() -> WorkerStats {
        WorkerStats {
            begun: 0,
            done: 0,
            retried: 0,
            rejected: 0,
            given_back: 0,
            leases_lost: 0,
            receive_errors: 0,
            settle_errors: 0,
            running: 0,
            breaker: BreakerState::Closed,
            breaker_opened: 0,
        }
    }
}
