//! Walks a log from an offset on, for the folds that are rebuilt from it.

use bytes::Bytes;
use towpath_model::Offset;
use towpath_records::BatchHeader;

use crate::disk::Disk;
use crate::error::LogError;
use crate::log::Log;
use crate::read::Opened;
use crate::scan::{Found, LARGE_BUFFER, Scan};

impl<D: Disk> Log<D> {
    /// Headers of all batches from the one that contains `from` on. Damaged ranges are passed
    /// over: who needs every record uses [`Log::batches`].
    pub fn headers(&self, from: Offset) -> Headers<'_, D> {
        Headers { walk: Walk::new(self, from, self.log_end, false) }
    }

    /// Headers and bytes of all batches that begin before `end`, from the one that contains
    /// `from` on, their checksums verified. Damage is an error, and the last item.
    pub fn batches(&self, from: Offset, end: Offset) -> Batches<'_, D> {
        Batches { walk: Walk::new(self, from, end.min(self.log_end), true) }
    }
}

/// Iterator of [`Log::headers`].
pub struct Headers<'l, D: Disk> {
    walk: Walk<'l, D>,
}

impl<D: Disk> Iterator for Headers<'_, D> {
    type Item = Result<BatchHeader, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.walk.next_batch().map(|found| found.map(|(header, _)| header))
    }
}

/// Iterator of [`Log::batches`].
pub struct Batches<'l, D: Disk> {
    walk: Walk<'l, D>,
}

impl<D: Disk> Iterator for Batches<'_, D> {
    type Item = Result<(BatchHeader, Bytes), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.walk.next_batch()
    }
}

/// Invariant: every batch before `next` has been returned or passed over.
struct Walk<'l, D: Disk> {
    log: &'l Log<D>,
    next: Offset,
    end: Offset,
    with_bodies: bool,
    at: Option<(usize, Opened<'l, D>, Scan)>,
}

impl<'l, D: Disk> Walk<'l, D> {
    fn new(log: &'l Log<D>, from: Offset, end: Offset, with_bodies: bool) -> Self {
        let next = from.max(log.log_start);
        Walk { log, next, end, with_bodies, at: None }
    }

    fn next_batch(&mut self) -> Option<Result<(BatchHeader, Bytes), LogError>> {
        let found = self.advance();
        if !matches!(found, Ok(Some(_))) {
            // Also after an error: what follows a hole is not the log.
            self.next = self.end;
        }
        found.transpose()
    }

    fn advance(&mut self) -> Result<Option<(BatchHeader, Bytes)>, LogError> {
        while self.next < self.end {
            self.pass_damage()?;
            let Some((at, opened, scan)) = &mut self.at else {
                if !self.open()? {
                    return Ok(None);
                }
                continue;
            };
            match self.log.step(scan, opened)? {
                Found::Batch { header, .. } if header.next_offset() <= self.next => {}
                Found::Batch { header, .. } if self.end <= header.base_offset() => {
                    return Ok(None);
                }
                Found::Batch { header, bytes, .. } => {
                    self.next = header.next_offset();
                    let bytes =
                        if self.with_bodies { Bytes::copy_from_slice(bytes) } else { Bytes::new() };
                    return Ok(Some((header, bytes)));
                }
                Found::End => {
                    let next_segment = self.log.segments.get(*at + 1);
                    let Some(next_segment) = next_segment else { return Ok(None) };
                    self.next = self.next.max(next_segment.base_offset);
                    self.at = None;
                }
                Found::Invalid => {
                    let to = opened.summary.next_offset;
                    return Err(self.corrupt(self.next, to));
                }
            }
        }
        Ok(None)
    }

    fn pass_damage(&mut self) -> Result<(), LogError> {
        let next = self.next;
        let Some(damage) = self.log.damage.at(next) else {
            return Ok(());
        };
        if self.with_bodies {
            return Err(self.corrupt(damage.from, damage.to));
        }
        self.next = damage.to;
        self.at = None;
        Ok(())
    }

    /// Opens the segment that holds `next`; false when there is none.
    fn open(&mut self) -> Result<bool, LogError> {
        let segments = &self.log.segments;
        let at = segments.partition_point(|segment| segment.next_offset <= self.next);
        if segments.len() <= at {
            return Ok(false);
        }
        let opened = self.log.open_segment(at)?;
        let position = self.log.walk_from(&opened, self.next);
        let limit = opened.summary.bytes;
        let scan = if self.with_bodies {
            Scan::bodies(position, limit, LARGE_BUFFER)
        } else {
            Scan::headers(position, limit, LARGE_BUFFER)
        };
        self.at = Some((at, opened, scan));
        Ok(true)
    }

    fn corrupt(&self, from: Offset, to: Offset) -> LogError {
        LogError::Corrupt { partition: self.log.partition, from, to }
    }
}
