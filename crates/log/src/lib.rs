//! One partition's segments on a [`disk::Disk`], and the group commit of a data directory.
//!
//! ```text
//!  append ─▶ page cache of the segment          (under the partition's lock, no sync)
//!  take_dirty ─▶ DataDirectory::commit ─▶ committed      (one round over many partitions)
//!  durable_offset ≤ log_end_offset;   log_start_offset ≤ log_end_offset
//! ```
//!
//! It decides nothing about leadership or watermarks: it keeps bytes, finds them again, and tells
//! what is certain to survive. It has no clock and no threads; what it needs to know comes in as
//! arguments. The surprise: a small append becomes durable in the write-ahead file, not in its
//! segment (ADR 0001), so nothing may read a segment after a crash before
//! [`DataDirectory::open`] has replayed that file. Formats: `docs/file-formats.md`.

mod checkpoint;
mod commit;
mod compact;
mod damage;
mod directory;
pub mod disk;
mod envelope;
mod error;
mod examine;
mod files;
mod identity;
mod index;
mod iterate;
mod log;
mod outlook;
mod place;
mod producers;
mod quorum_files;
mod read;
mod recover;
mod retention;
mod run;
mod scan;
mod scrub;
mod segment;
mod start_move;
mod timestamps;
mod truncate;
mod verify;
mod warm_up;
mod write_ahead;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use commit::{CommitError, Committed, Dirty};
pub use compact::{
    Compacted, Compaction, CompactionError, CompactionRules, CompactionState, Replacement,
    SealedSegment, Step,
};
pub use damage::{DamageCause, DamagedRange};
pub use directory::{DataDirectory, OpenReport, WriteAheadLimits};
pub use error::{LogError, OpenError, ReadError};
pub use identity::{Identity, LastStop};
pub use iterate::{Batches, Headers};
pub use log::{Appended, Log, LogConfig};
pub use outlook::Outlook;
pub use place::{FoundLog, LogPlace};
pub use producers::Snapshots;
pub use quorum_files::{QuorumFiles, QuorumState};
pub use read::Slice;
pub use recover::{Cut, Recovery};
pub use retention::{Expired, ExpiredBy, Retention};
pub use run::{Run, RunRefusal};
pub use scrub::{ScrubJob, ScrubReport, ScrubStep, Scrubbed};
pub use start_move::{Removal, StartMove};
pub use timestamps::{AtRecord, LOOKUP_PLAIN_BYTES_MAX, Patience, TimeLookup, TimeQuery, TimeStep};
pub use verify::{Verified, VerifiedLog, WrongFile, verify};
pub use warm_up::{WarmUp, Warmed};
