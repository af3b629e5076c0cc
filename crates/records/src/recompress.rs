//! The same batch under another codec, for topics whose `compression.type` names one: their
//! broker re-encodes what producers sent otherwise, as Kafka does.
//!
//! Records are not touched, only their wrapping; so offsets, timestamps, producer and sequences
//! stay what they were. Rare and dear: the default, `producer`, stores batches as they come.

use thiserror::Error;

use crate::builder::encode_batch;
use crate::compression::{Compression, CompressionError};
use crate::header::{BatchHeader, HEADER_LEN};
use crate::record::{RecordsError, plain_body};
use crate::scratch::Scratch;

/// Why a batch cannot be re-encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the batch cannot be re-encoded: {0}")]
pub struct RecompressError(#[from] pub RecordsError);

/// A new batch with the records and header fields of `batch` and the codec `target`. The records
/// in the clear have at most `plain_bytes_max` bytes. The old checksum is not looked at.
pub fn recompress(
    batch: &[u8],
    target: Compression,
    plain_bytes_max: usize,
    scratch: &mut Scratch,
) -> Result<Vec<u8>, RecompressError> {
    let header = BatchHeader::parse(batch).map_err(RecordsError::Header)?;
    let declared = header.size_in_bytes();
    if declared != batch.len() {
        return Err(RecordsError::Size { declared, found: batch.len() }.into());
    }
    scratch.shrink();
    let cap = plain_bytes_max.min(crate::builder::PLAIN_BYTES_MAX);
    let plain = plain_body(&header, &batch[HEADER_LEN..], cap, scratch)?;
    if cap < plain.len() {
        return Err(RecordsError::Compression(CompressionError::TooLarge { cap }).into());
    }
    Ok(encode_batch(header.fields(), target, plain))
}
