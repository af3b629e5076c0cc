//! Walks consecutive batches without copying, as they lie in a file or in a fetch answer.
//!
//! A cut-off last batch is normal (fetch answers end anywhere, a crash tears the tail), so it is
//! told at the end, not as an error: only the caller knows whether it may be there.

use crate::crc::{CrcMismatch, check_crc};
use crate::header::{BatchHeader, HEADER_LEN, HeaderError, LENGTH_PREFIX_LEN, MAGIC, MAGIC_AT};

/// One whole batch.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// Its bytes, header included; exactly `header.size_in_bytes()` of them.
    pub bytes: &'a [u8],
    /// Where it starts in the bytes that were walked.
    pub position: usize,
}

impl<'a> Batch<'a> {
    /// Its records as they are stored: compressed, without the header.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Checks the stored checksum.
    pub fn check_crc(&self) -> Result<(), CrcMismatch> {
        check_crc(&self.header, self.bytes)
    }
}

/// What follows the last whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing: the bytes end with a batch.
    Clean,
    /// The start of a batch, cut off. Its first byte is at `position`.
    Partial {
        /// Where it starts.
        position: usize,
        /// How many of its bytes are there.
        found: usize,
        /// How many it would have, where its length is there and makes sense.
        expected: Option<usize>,
    },
    /// Bytes that start no batch.
    Damaged {
        /// Where they start.
        position: usize,
        /// What is wrong with them.
        error: HeaderError,
    },
}

/// Iterator over whole batches; after the last one, [`Batches::tail`] tells why it ended.
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    tail: Option<Tail>,
}

/// Walks the whole batches at the start of `bytes`.
pub fn split_batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, position: 0, tail: None }
}

impl Batches<'_> {
    /// What follows the last whole batch; walks there first where the iterator has not been.
    pub fn tail(&mut self) -> Tail {
        loop {
            if let Some(tail) = self.tail {
                return tail;
            }
            self.next();
        }
    }

    /// First byte that no whole batch has covered so far.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        if self.tail.is_some() {
            return None;
        }
        match batch_at(self.bytes, self.position) {
            Ok(batch) => {
                self.position += batch.bytes.len();
                Some(batch)
            }
            Err(tail) => {
                self.tail = Some(tail);
                None
            }
        }
    }
}

impl std::iter::FusedIterator for Batches<'_> {}

fn batch_at(bytes: &[u8], position: usize) -> Result<Batch<'_>, Tail> {
    let rest = &bytes[position..];
    if rest.is_empty() {
        return Err(Tail::Clean);
    }
    let header = match BatchHeader::parse(rest) {
        Ok(header) => header,
        Err(HeaderError::Truncated { .. }) => return Err(cut_header(rest, position)),
        Err(error) => return Err(Tail::Damaged { position, error }),
    };
    match rest.get(..header.size_in_bytes()) {
        Some(bytes) => Ok(Batch { header, bytes, position }),
        None => Err(Tail::Partial {
            position,
            found: rest.len(),
            expected: Some(header.size_in_bytes()),
        }),
    }
}

/// A header that is not all there may still show that it is none.
fn cut_header(rest: &[u8], position: usize) -> Tail {
    let length = rest
        .get(8..LENGTH_PREFIX_LEN)
        .map(|bytes| i32::from_be_bytes(bytes.try_into().expect("four bytes were taken")));
    if let Some(length) = length
        && length < (HEADER_LEN - LENGTH_PREFIX_LEN) as i32
    {
        return Tail::Damaged { position, error: HeaderError::InvalidLength(length) };
    }
    if let Some(&magic) = rest.get(MAGIC_AT)
        && magic as i8 != MAGIC
    {
        return Tail::Damaged { position, error: HeaderError::UnsupportedMagic(magic as i8) };
    }
    let expected = length.map(|length| LENGTH_PREFIX_LEN + length as usize);
    Tail::Partial { position, found: rest.len(), expected }
}

#[cfg(test)]
mod tests;
