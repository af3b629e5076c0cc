//! Walks the batches of one segment file, with a buffer that is reused.
//!
//! Two ways: with bodies (checksums are verified), or headers only, where the bodies of large
//! batches are never read. Zeros end a segment: a batch header is never all zeros.

use towpath_model::mutant::{self, Mutant};
use towpath_records::crc::check_crc;
use towpath_records::{BatchHeader, HEADER_LEN};

use std::io;

use crate::disk::DiskFile;
use crate::envelope::{read_full, read_resident};

/// Buffer of a scan of much.
pub(crate) const LARGE_BUFFER: usize = 1 << 20;
/// Buffer of a walk from an index entry: an index interval and a header.
pub(crate) const SMALL_BUFFER: usize = 8 << 10;

/// The first read of a walk of headers.
const FIRST_READ: usize = 512;
/// Bodies from this size on cost more to read than another call to pass them over.
const PASSED_OVER: u64 = 16 << 10;
/// By how much each read may be larger than the one before.
const READ_GROWTH: usize = 8;

/// What lies at a position.
#[derive(Debug)]
pub(crate) enum Found<'b> {
    /// A batch. `bytes` is the header only when bodies are not read.
    Batch { header: BatchHeader, bytes: &'b [u8], position: u64 },
    /// The end: the limit, or zeros.
    End,
    /// Neither a batch nor the end.
    Invalid,
}

/// A walk over `[position, limit)` of a file.
#[derive(Debug)]
pub(crate) struct Scan {
    position: u64,
    limit: u64,
    with_bodies: bool,
    buffer: Vec<u8>,
    buffer_bytes: usize,
    /// Bytes that are read next. A walk of headers begins small, and stays so while batches are
    /// larger than the buffer: most walks end at their first batch.
    read_bytes: usize,
    buffer_at: u64,
    bytes_read: u64,
    /// Positions before this are read only if they are in memory.
    resident_only_before: u64,
}

impl Scan {
    /// Whole batches, their checksums verified.
    pub(crate) fn bodies(position: u64, limit: u64, buffer_bytes: usize) -> Scan {
        Scan::new(position, limit, true, buffer_bytes)
    }

    /// Headers only.
    pub(crate) fn headers(position: u64, limit: u64, buffer_bytes: usize) -> Scan {
        Scan::new(position, limit, false, buffer_bytes)
    }

    fn new(position: u64, limit: u64, with_bodies: bool, buffer_bytes: usize) -> Scan {
        assert!(HEADER_LEN <= buffer_bytes);
        Scan {
            position,
            limit,
            with_bodies,
            buffer: Vec::new(),
            buffer_bytes,
            read_bytes: if with_bodies { buffer_bytes } else { buffer_bytes.min(FIRST_READ) },
            buffer_at: position,
            bytes_read: 0,
            resident_only_before: 0,
        }
    }

    /// The same walk, from another position on.
    pub(crate) fn again_from(&self, position: u64) -> Scan {
        let scan = Scan::new(position, self.limit, self.with_bodies, self.buffer_bytes);
        let resident_only_before = self.resident_only_before;
        Scan { bytes_read: self.bytes_read, resident_only_before, ..scan }
    }

    /// From now on fails with `WouldBlock` before it waits for the device for what lies before
    /// `position`.
    pub(crate) fn read_only_resident_before(&mut self, position: u64) {
        self.resident_only_before = position;
    }

    /// Where the next batch is looked for.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes that were read from the file so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// What lies at the position; moves behind it when it is a batch.
    pub(crate) fn next<'b>(&'b mut self, file: &impl DiskFile) -> io::Result<Found<'b>> {
        let left = self.limit.saturating_sub(self.position);
        let wanted = left.min(HEADER_LEN as u64) as usize;
        let start = self.fill(file, wanted)?;
        let available = &self.buffer[start..];
        if available.len() < HEADER_LEN {
            let is_end = available.iter().all(|byte| *byte == 0);
            return Ok(if is_end { Found::End } else { Found::Invalid });
        }
        let Ok(header) = BatchHeader::parse(available) else {
            let is_end = available[..HEADER_LEN].iter().all(|byte| *byte == 0);
            return Ok(if is_end { Found::End } else { Found::Invalid });
        };
        let size = header.size_in_bytes();
        if left < size as u64 {
            return Ok(Found::Invalid);
        }
        let position = self.position;
        let taken = if self.with_bodies { size } else { HEADER_LEN };
        let start = self.fill(file, taken)?;
        let Some(bytes) = self.buffer.get(start..start + taken) else { return Ok(Found::Invalid) };
        let is_checked = self.with_bodies && !mutant::is_on(Mutant::ChecksumNotChecked);
        if is_checked && check_crc(&header, bytes).is_err() {
            return Ok(Found::Invalid);
        }
        self.position += size as u64;
        Ok(Found::Batch { header, bytes, position })
    }

    /// Has at least `wanted` bytes from the position on in the buffer, unless the file or the
    /// limit ends before; returns where in the buffer they begin.
    fn fill(&mut self, file: &impl DiskFile, wanted: usize) -> io::Result<usize> {
        let skipped = self.position - self.buffer_at;
        let held = (self.buffer.len() as u64).saturating_sub(skipped) as usize;
        if wanted <= held {
            // Behind the last batch the buffer may end before the position.
            return Ok((skipped as usize).min(self.buffer.len()));
        }
        let start = self.buffer.len() - held;
        self.buffer.copy_within(start.., 0);
        let left = self.limit.saturating_sub(self.position);
        if 0 < skipped && skipped < PASSED_OVER.min(self.buffer_bytes as u64) {
            // More would have been of use.
            self.read_bytes = (self.read_bytes * READ_GROWTH).min(self.buffer_bytes);
        }
        let target = (wanted.max(self.read_bytes) as u64).min(left) as usize;
        self.buffer.resize(target.max(held), 0);
        let at = self.position + held as u64;
        let read = if at < self.resident_only_before {
            read_resident(file, &mut self.buffer[held..], at)?
        } else {
            read_full(file, &mut self.buffer[held..], at)?
        };
        self.buffer.truncate(held + read);
        self.buffer_at = self.position;
        self.bytes_read += read as u64;
        Ok(0)
    }

    /// Whether the file has to be read to see what lies at the position.
    fn is_out_of_buffer(&self) -> bool {
        let skipped = self.position - self.buffer_at;
        (self.buffer.len() as u64) < skipped.saturating_add(HEADER_LEN as u64)
    }

    /// After [`Found::Invalid`]: moves to the next place where a whole valid batch lies whose base
    /// offset passes `is_plausible`, and returns its header; `None` when there is none.
    pub(crate) fn resynchronise(
        &mut self,
        file: &impl DiskFile,
        is_plausible: impl Fn(&BatchHeader) -> bool,
    ) -> io::Result<Option<BatchHeader>> {
        while self.position + (HEADER_LEN as u64) < self.limit {
            self.position += 1;
            if self.is_out_of_buffer() {
                let Some(data) = file.next_data(self.position)? else { return Ok(None) };
                // A header may begin with zeros that lie in space that was never written.
                let from = data.saturating_sub(HEADER_LEN as u64);
                self.position = self.position.max(from);
            }
            let start = self.fill(file, HEADER_LEN)?;
            let Some(candidate) = self.buffer.get(start..start + HEADER_LEN) else {
                return Ok(None);
            };
            let Ok(header) = BatchHeader::parse(candidate) else { continue };
            let left = self.limit - self.position;
            if left < header.size_in_bytes() as u64 || !is_plausible(&header) {
                continue;
            }
            let found = self.position;
            if let Found::Batch { header, .. } = self.next(file)? {
                self.position = found;
                return Ok(Some(header));
            }
        }
        Ok(None)
    }
}
