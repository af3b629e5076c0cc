//! What a worker does, as its owner wants it.

use std::time::Duration;

use crate::config::Backoff;
use crate::error::{Error, Result};

use super::breaker::BreakerConfig;

/// Settings of a [`super::QueueWorker`].
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Most messages that are worked at once.
    pub parallel: usize,
    /// How long messages are hidden while nobody extends; nothing: as the queue has it when the worker begins.
    pub visibility: Option<Duration>,
    /// How long one receive waits for messages, at most 20 s.
    pub wait: Duration,
    /// For which subscription; nothing: the queue's own.
    pub subscription: Option<String>,
    /// Who works, for people who look at the queue.
    pub holder: Option<String>,
    /// Stops after so many messages; nothing: when it is told to.
    pub messages_max: Option<u64>,
    /// Stops when a receive finds nothing and nothing runs.
    pub stops_when_empty: bool,
    /// Pause after a receive that failed.
    pub backoff: Backoff,
    /// When it stops receiving because its work fails.
    pub breaker: BreakerConfig,
}

impl Default for WorkerConfig {
    /// One message at a time, for as long as nobody stops it.
    fn default() -> WorkerConfig {
        WorkerConfig {
            parallel: 1,
            visibility: None,
            wait: Duration::from_secs(20),
            subscription: None,
            holder: None,
            messages_max: None,
            stops_when_empty: false,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)),
            breaker: BreakerConfig::default(),
        }
    }
}

/// The shortest time that can be extended in time.
const VISIBILITY_MIN: Duration = Duration::from_millis(500);

impl WorkerConfig {
    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<()> {
        if self.parallel == 0 {
            return Err(Error::InvalidArgument("parallel is at least 1".to_owned()));
        }
        match self.visibility {
            Some(visibility) => check_visibility(visibility),
            None => Ok(()),
        }
    }
}

pub(super) fn check_visibility(visibility: Duration) -> Result<()> {
    if VISIBILITY_MIN <= visibility {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "a visibility of {visibility:?} is too short to be extended in time: {VISIBILITY_MIN:?} is the least"
    )))
}
