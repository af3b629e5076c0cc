//! What is produced: batches of equal records, built once and sent as often as wanted.
//!
//! Without an idempotent producer a batch may be sent again byte for byte: its place in the log
//! lies outside of what its checksum covers.

use anyhow::Result;
use towpath_process::kafka::now;
use towpath_records::{BatchBuilder, Compression};

/// Bytes of a record's value, unless a row says otherwise.
pub(crate) const RECORD_BYTES: usize = 1_000;

/// A batch's bytes.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: usize,
}

impl Batch {
    /// As many records as fit into `bytes_max`, at least one.
    pub(crate) fn filled(bytes_max: usize) -> Result<Batch> {
        let value = text(RECORD_BYTES);
        let mut builder = BatchBuilder::new(Compression::None, now());
        while builder.is_empty() || builder.size_in_bytes() + value.len() + 16 <= bytes_max {
            builder.append(now(), None, Some(&value), [])?;
        }
        let records = usize::try_from(builder.record_count())?;
        Ok(Batch { bytes: builder.build(), records })
    }

    /// One record.
    pub(crate) fn single() -> Result<Batch> {
        Batch::filled(0)
    }
}

/// Letters, the same every time.
fn text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + u8::try_from(at * 7 % 26).unwrap_or(0)).collect()
}
