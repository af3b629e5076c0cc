//! How a producer batches, waits, retries, and what it does when its buffer is full.

use std::time::Duration;

use towpath_records::Compression;

use crate::error::{Error, Result};

/// When the broker answers a produce request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Never; nothing is known about the record's fate.
    None,
    /// When the leader has it.
    Leader,
    /// When all in-sync replicas have it.
    All,
}

impl Acks {
    pub(super) fn on_the_wire(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

/// What `send` does when the buffer is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// Wait for room, at most this long.
    Block(Duration),
    /// Refuse at once with [`Error::BufferFull`].
    Shed,
}

/// Settings of a [`super::Producer`].
#[derive(Debug, Clone)]
pub struct ProducerConfig {
    /// When a record counts as delivered.
    pub acks: Acks,
    /// Whether the broker drops repeats (KIP-98); needs [`Acks::All`].
    pub is_idempotent: bool,
    /// The codec of batches.
    pub compression: Compression,
    /// Bytes at which a batch is full, before compression.
    pub batch_bytes: usize,
    /// How long a batch that is not full waits for more records.
    pub linger: Duration,
    /// Bytes of records that may be on their way at a time, with what holding them costs; see
    /// [`OnFull`] for what follows.
    pub buffer_bytes: usize,
    /// What `send` does at that bound.
    pub on_full: OnFull,
    /// The largest record and the largest request, in bytes before compression.
    pub request_bytes_max: usize,
    /// Produce requests that one broker may have at a time.
    pub in_flight_max: usize,
    /// How long one attempt may take.
    pub request_timeout: Duration,
    /// How long a record may wait and be retried. An attempt that is on its way at that moment is
    /// still awaited, so its fate is known up to `request_timeout` later.
    pub delivery_timeout: Duration,
    /// How long `send` may wait for a topic's metadata.
    pub metadata_timeout: Duration,
    /// Whether sending to an unknown topic lets the broker create it, where the broker allows that.
    pub may_create_topics: bool,
}

impl Default for ProducerConfig {
    fn default() -> ProducerConfig {
        ProducerConfig {
            acks: Acks::All,
            is_idempotent: true,
            compression: Compression::None,
            batch_bytes: 64 << 10,
            linger: Duration::from_millis(5),
            buffer_bytes: 32 << 20,
            on_full: OnFull::Block(Duration::from_secs(60)),
            request_bytes_max: 1 << 20,
            in_flight_max: 5,
            request_timeout: Duration::from_secs(30),
            delivery_timeout: Duration::from_secs(120),
            metadata_timeout: Duration::from_secs(60),
            may_create_topics: true,
        }
    }
}

impl ProducerConfig {
    pub(super) fn check(&self) -> Result<()> {
        let problem = if self.is_idempotent && self.acks != Acks::All {
            "an idempotent producer needs Acks::All"
        } else if self.in_flight_max == 0 || self.batch_bytes == 0 {
            "in_flight_max and batch_bytes must be above zero"
        } else if self.buffer_bytes < self.batch_bytes {
            "buffer_bytes must hold at least one batch"
        } else if self.delivery_timeout < self.request_timeout + self.linger {
            "delivery_timeout must be at least linger and request_timeout together"
        } else {
            return Ok(());
        };
        Err(Error::InvalidArgument(problem.to_owned()))
    }
}
