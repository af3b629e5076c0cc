//! What is known about one segment without reading it.

use towpath_model::{Offset, Timestamp};
use towpath_records::BatchHeader;

/// Summary of a segment's batches, or of a prefix of them.
///
/// Invariant: `base_offset <= next_offset`, and they are equal when there are no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Log end offset at which the segment was begun; its name.
    pub(crate) base_offset: Offset,
    /// Bytes of its batches.
    pub(crate) bytes: u64,
    /// First offset after its last batch.
    pub(crate) next_offset: Offset,
    /// Maximum timestamp of the first batch; −1 for none.
    pub(crate) first_timestamp: Timestamp,
    /// Maximum timestamp of all; −1 for none.
    pub(crate) max_timestamp: Timestamp,
    /// Base offset of the first batch that has the maximum.
    pub(crate) max_timestamp_batch: Offset,
    /// Broker's wall clock at the first append, where it is known.
    pub(crate) first_append: Option<Timestamp>,
    /// Broker's wall clock at the last append, where it is known.
    pub(crate) last_append: Option<Timestamp>,
    /// No more appends: the next segment has begun.
    pub(crate) is_sealed: bool,
    /// A compaction has left batches without records, which readers do not get.
    pub(crate) has_empty_batches: bool,
}

/// No timestamp, as record batches spell it.
pub(crate) const NO_TIMESTAMP: Timestamp = Timestamp(-1);

impl Summary {
    /// A segment without batches.
    pub(crate) fn empty(base_offset: Offset) -> Summary {
        Summary {
            base_offset,
            bytes: 0,
            next_offset: base_offset,
            first_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_batch: base_offset,
            first_append: None,
            last_append: None,
            is_sealed: false,
            has_empty_batches: false,
        }
    }

    /// Its bytes from `offset` on, in proportion to offsets.
    pub(crate) fn bytes_from(&self, offset: Offset) -> u64 {
        if offset <= self.base_offset {
            return self.bytes;
        }
        if self.next_offset <= offset {
            return 0;
        }
        let left = u128::from((self.next_offset - offset).unsigned_abs());
        let all = u128::from((self.next_offset - self.base_offset).unsigned_abs());
        u64::try_from(u128::from(self.bytes) * left / all).expect("a part of a u64")
    }

    /// Takes note of the batch that follows.
    pub(crate) fn note(&mut self, header: &BatchHeader) {
        assert!(self.next_offset <= header.base_offset());
        if self.bytes == 0 {
            self.first_timestamp = header.max_timestamp();
        }
        self.has_empty_batches |= header.record_count() == 0;
        if self.max_timestamp < header.max_timestamp() && 0 < header.record_count() {
            self.max_timestamp = header.max_timestamp();
            self.max_timestamp_batch = header.base_offset();
        }
        self.bytes += header.size_in_bytes() as u64;
        self.next_offset = header.next_offset();
    }

    /// The time by which retention judges the segment: its newest record, but never later than the
    /// broker saw its last append (a producer's clock in the future must not keep data for ever),
    /// and the broker's own time where records have none. `None` while neither is known.
    pub(crate) fn age_from(&self) -> Option<Timestamp> {
        if self.max_timestamp < Timestamp(0) {
            return self.last_append;
        }
        Some(self.last_append.map_or(self.max_timestamp, |at| at.min(self.max_timestamp)))
    }
}
