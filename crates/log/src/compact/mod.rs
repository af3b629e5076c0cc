//! Compaction: of the records of each key only the newest stays, at its offset (KIP-58, KIP-354,
//! KIP-534).
//!
//! ```text
//!  log start        clean           end of the pass        durable, below the limit
//!   │ compacted once │ dirty: goes into the key map │ too young, or active: untouched │
//!   └──────── written anew, a group of segments at a time ───────┘
//!
//!  begin (lock) ─▶ step, step, … (no lock) ─▶ replace (lock), once per group ─▶ compacted (lock)
//! ```
//!
//! A record goes when the map knows a newer one of its key. A tombstone goes when, besides, the
//! batch's delete horizon has passed, which its first compaction has set. Everything else stays
//! byte for byte: control and transactional batches, records behind the end of the pass, and
//! whatever the map has no room for. Keys are compared as they are, never by a hash alone, so no
//! collision can cost a record.
//!
//! Two things are kept although all their records are gone, as batches without records: those by
//! which a live producer's sequences are known, and the last of every new segment, so that a segment
//! that ends early is still known to be damaged. The surprise: readers never get them
//! ([`crate::Log::read`]), because several Kafka clients stop at them for ever. For that the last
//! record of a pass always stays.
//!
//! Where a caller says itself which records go ([`crate::Log::begin_removal`]), there is no map, and the pass may
//! begin anywhere; all else is the same.

mod key_map;
mod names;
mod output;
mod pass;
mod plan;
mod swap;

use std::ops::Range;
use std::time::Duration;

use thiserror::Error;
use towpath_model::{Offset, Timestamp};
use towpath_records::RetainError;

use crate::error::LogError;

pub use output::Replacement;
pub use pass::{Compaction, Step};
pub(crate) use swap::finish;

/// When a log is compacted, and what of it; from the topic's and the broker's configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactionRules {
    /// How old a record must be (`min.compaction.lag.ms`); judged by its segment's newest.
    pub min_lag: Duration,
    /// How old a record may become before it is compacted in any case (`max.compaction.lag.ms`).
    pub max_lag: Option<Duration>,
    /// Part of the log that must be dirty (`min.cleanable.dirty.ratio`), 0 to 1.
    pub min_dirty_ratio: f64,
    /// How long a tombstone stays after its first compaction (`delete.retention.ms`).
    pub tombstones_kept: Duration,
    /// Most bytes of the key map (`log.cleaner.dedupe.buffer.size`).
    pub key_bytes_max: usize,
}

/// How much of a log could be compacted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactionState {
    /// Up to where it was compacted.
    pub clean: Offset,
    /// Bytes of the segments before that.
    pub clean_bytes: u64,
    /// Bytes of the segments behind it that may be compacted now.
    pub dirty_bytes: u64,
    /// Whether the rules want a compaction now.
    pub is_due: bool,
}

impl CompactionState {
    /// The part that is dirty, 0 to 1; 0 where nothing may be compacted.
    #[must_use]
    pub fn dirty_ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        if all == 0 { 0.0 } else { self.dirty_bytes as f64 / all as f64 }
    }
}

/// A segment that takes no more records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSegment {
    /// Its offsets, whether there are records at them or not.
    pub offsets: Range<Offset>,
    /// Bytes of its batches.
    pub bytes: u64,
    /// The time of its newest record, as retention sees it; `None` while that is not known.
    pub newest: Option<Timestamp>,
}

/// A compaction that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    pub(crate) generation: u64,
    /// Up to where the log is compacted now.
    pub clean: Offset,
    /// When the last of the tombstones that it left may go.
    pub horizon: Option<Timestamp>,
    /// Bytes of the segments that it looked at.
    pub bytes_before: u64,
    /// Bytes of what it left of them.
    pub bytes_after: u64,
    /// Records that it removed.
    pub records_removed: u64,
    /// Keys that it has seen.
    pub keys: u64,
    /// Records without a key that it removed: none can be the newest of its key.
    pub keyless_removed: u64,
}

/// Why a compaction ended early. The log is as it was before the group that was being written.
#[derive(Debug, Error)]
pub enum CompactionError {
    /// Batches are not what was once written. Nothing is removed around damage.
    #[error("records [{from}, {to}) are damaged{}", because(.reason.as_ref()))]
    Damaged {
        /// First offset that is or may be damaged.
        from: Offset,
        /// First offset behind it.
        to: Offset,
        /// What is wrong inside of a batch whose checksum is right.
        reason: Option<RetainError>,
    },
    /// What is left does not fit into a segment.
    #[error("what is left of the segment at {base} is larger than a segment can be")]
    TooLarge {
        /// Base offset of the segment.
        base: Offset,
    },
    /// The log was cut or closed meanwhile.
    #[error("the log has changed meanwhile")]
    Superseded,
    /// The disk refuses.
    #[error(transparent)]
    Log(#[from] LogError),
}

fn because(reason: Option<&RetainError>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}
