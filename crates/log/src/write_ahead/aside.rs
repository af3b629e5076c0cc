//! Frames that a replay cannot write, because their segment cannot be read: in a file of their own
//! among the write-ahead files, until a later start can. They may be all that keeps what was
//! acknowledged.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;

use towpath_model::{TopicPartition, Uuid};

use super::frame::{FIRST_FRAME_AT, Frame, Use};
use super::{file_path, head};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;

/// The frames that were set aside, and why.
pub(super) struct Aside<'d, D: Disk> {
    disk: &'d D,
    directory: &'d Path,
    directory_id: Uuid,
    number: u64,
    file: Option<D::File>,
    end: u64,
    pub(super) reasons: BTreeMap<TopicPartition, String>,
}

impl<'d, D: Disk> Aside<'d, D> {
    /// They go to the file of this number, which does not exist.
    pub(super) fn new(disk: &'d D, directory: &'d Path, directory_id: Uuid, number: u64) -> Self {
        let reasons = BTreeMap::new();
        let end = FIRST_FRAME_AT;
        Aside { disk, directory, directory_id, number, file: None, end, reasons }
    }

    pub(super) fn holds(&self, partition: TopicPartition) -> bool {
        self.reasons.contains_key(&partition)
    }

    pub(super) fn keep(&mut self, frame: &Frame, payload: &[u8]) -> Result<(), LogError> {
        let path = file_path(self.directory, self.number);
        let mut write = || {
            let file = match self.file.take() {
                Some(file) => file,
                None => {
                    let file = self.disk.create(&path)?;
                    file.write_at(&[IoSlice::new(&head(self.number, self.directory_id))], 0)?;
                    file
                }
            };
            let file_use = Use::new(self.directory_id, self.number);
            let mut bytes = Vec::new();
            let put = |to: &mut [u8]| {
                to.copy_from_slice(payload);
                Ok::<(), io::Error>(())
            };
            frame.encode(file_use, FIRST_FRAME_AT, payload.len(), &mut bytes, put)?;
            file.write_at(&[IoSlice::new(&bytes)], self.end)?;
            self.end += bytes.len() as u64;
            self.file = Some(file);
            Ok(())
        };
        write().map_err(LogError::io("write", &path))
    }

    /// Makes them durable; their number, if there are any.
    pub(super) fn finish(&self) -> Result<Option<u64>, LogError> {
        let Some(file) = &self.file else { return Ok(None) };
        let sync = || {
            file.sync_data()?;
            self.disk.sync_dir(self.directory)
        };
        let path = file_path(self.directory, self.number);
        sync().map_err(LogError::io("sync", &path))?;
        Ok(Some(self.number))
    }
}
