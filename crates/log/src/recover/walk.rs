//! One segment while a recovery scans it.

use std::path::PathBuf;

use towpath_model::Offset;
use towpath_records::{BatchHeader, HEADER_LEN};

use super::ZEROS_READ_MAX;
use crate::damage::DamageCause;
use crate::disk::{Disk, DiskFile};
use crate::envelope::read_full;
use crate::error::LogError;
use crate::index::{Indexed, SparseIndex};
use crate::scan::{Found, Scan};
use crate::segment::Summary;

const SECTOR: usize = 512;

/// One segment while it is scanned.
pub(super) struct Walk<D: Disk> {
    pub(super) path: PathBuf,
    pub(super) file: D::File,
    pub(super) length: u64,
    pub(super) next_base: Option<Offset>,
    pub(super) summary: Summary,
    pub(super) index: SparseIndex,
    pub(super) scan: Scan,
    pub(super) damaged: bool,
}

/// What lies at the position of a walk, and where that is.
pub(super) enum Step {
    Batch(BatchHeader, u64),
    End,
    Invalid(u64),
}

impl<D: Disk> Walk<D> {
    pub(super) fn step(&mut self) -> Result<Step, LogError> {
        let at = self.scan.position();
        let found = self.scan.next(&self.file).map_err(LogError::io("read", &self.path))?;
        Ok(match found {
            Found::Batch { header, position, .. } => Step::Batch(header, position),
            Found::End => Step::End,
            Found::Invalid => Step::Invalid(at),
        })
    }

    pub(super) fn note(&mut self, header: &BatchHeader, position: u64) {
        // Behind damage the batches no longer follow each other without a hole.
        self.summary.bytes = position;
        self.index.note(&Indexed {
            segment: self.summary.base_offset,
            base_offset: header.base_offset(),
            position,
            bytes: header.size_in_bytes() as u64,
            max_timestamp_before: self.summary.max_timestamp,
        });
        self.summary.note(header);
        // What the index said was about less.
        self.summary.last_append = None;
    }

    pub(super) fn resynchronise(
        &mut self,
        is_plausible: impl Fn(&BatchHeader) -> bool,
    ) -> Result<Option<BatchHeader>, LogError> {
        let failed = LogError::io("read", &self.path);
        self.scan.resynchronise(&self.file, is_plausible).map_err(failed)
    }

    /// Bytes from `at` to the last one that is not zero, of the first MiB; and whether a sector of
    /// them is missing, as after a torn write.
    pub(super) fn look_at_tail(&self, at: u64) -> Result<(u64, bool), LogError> {
        let size = self.length.saturating_sub(at).min(ZEROS_READ_MAX) as usize;
        let mut bytes = vec![0; size];
        let failed = LogError::io("read", &self.path);
        let read = read_full(&self.file, &mut bytes, at).map_err(failed)?;
        let used = bytes[..read].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let to_sector = SECTOR - (at % SECTOR as u64) as usize;
        let first = to_sector.min(used);
        let mut sectors = bytes[first..read].chunks(SECTOR);
        let claimed = BatchHeader::parse(&bytes[..read]).map_or(0, |h| h.size_in_bytes());
        let is_short = read < claimed;
        let within = claimed.max(used).saturating_sub(first).div_ceil(SECTOR);
        let is_torn = is_short || sectors.by_ref().take(within).any(|s| s.iter().all(|b| *b == 0));
        Ok((used as u64, is_torn))
    }

    /// What is wrong where a batch should begin: something else is there, or nothing.
    pub(super) fn cause_at(&self, at: u64) -> Result<DamageCause, LogError> {
        let mut bytes = [0; HEADER_LEN];
        let size = self.length.saturating_sub(at).min(HEADER_LEN as u64) as usize;
        let failed = LogError::io("read", &self.path);
        let read = read_full(&self.file, &mut bytes[..size], at).map_err(failed)?;
        let is_nothing = bytes[..read].iter().all(|byte| *byte == 0);
        Ok(if is_nothing { DamageCause::Missing } else { DamageCause::Changed })
    }

    pub(super) fn truncate(&mut self, at: u64) -> Result<(), LogError> {
        let cut = self.file.truncate(at).and_then(|()| self.file.sync_data());
        cut.map_err(LogError::io("cut", &self.path))?;
        self.length = at;
        Ok(())
    }
}
