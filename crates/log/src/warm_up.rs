//! Brings records into memory that nobody has read for a while, so that whoever serves them, and
//! whoever holds the partition's lock, need not wait for the device.

use std::path::Path;
use std::sync::Arc;

use towpath_model::Offset;

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::files::OpenSegment;
use crate::place::FileKind;
use crate::read::open_sealed;
use crate::segment::Summary;

/// A walk from an index entry begins this much before the records, and may look so far behind them.
const MARGIN_BYTES: u64 = 64 << 10;
/// One byte of each stretch is waited for; the system fetches the rest along with it.
const STRIDE_BYTES: u64 = 128 << 10;

/// What is to be brought into memory. It holds no lock.
pub struct WarmUp<D: Disk> {
    pub(crate) disk: D,
    pub(crate) path: Arc<Path>,
    pub(crate) interval: u32,
    pub(crate) summary: Summary,
    /// The segment, when it is a sealed one and open.
    pub(crate) sealed: Option<OpenSegment<D::File>>,
    /// The active segment's file, and where the records begin.
    pub(crate) active: Option<(Arc<D::File>, u64)>,
    pub(crate) from: Offset,
    pub(crate) bytes: u64,
}

/// A segment that is open now.
pub struct Warmed<D: Disk> {
    pub(crate) summary: Summary,
    pub(crate) open: OpenSegment<D::File>,
}

impl<D: Disk> WarmUp<D> {
    /// Waits for the device. Returns the segment, if it had to be opened for that.
    ///
    /// # Errors
    /// When the disk fails, or retention has removed the segment meanwhile.
    pub fn run(self) -> Result<Option<Warmed<D>>, LogError> {
        let base = self.summary.base_offset;
        if let Some((file, position)) = &self.active {
            self.touch(&**file, *position)?;
            return Ok(None);
        }
        let (open, is_new) = match &self.sealed {
            Some(open) => (open.clone(), false),
            None => (open_sealed(&self.disk, &self.path, &self.summary, self.interval)?, true),
        };
        let (_, position) = open.index.at_or_before(base, self.from);
        self.touch(&*open.file, position)?;
        Ok(is_new.then_some(Warmed { summary: self.summary, open }))
    }

    fn touch(&self, file: &D::File, position: u64) -> Result<(), LogError> {
        let end = position.saturating_add(self.bytes).saturating_add(MARGIN_BYTES);
        let end = end.min(self.summary.bytes);
        if end <= position {
            return Ok(());
        }
        file.will_need(position, end - position);
        let path = FileKind::Segment.path(&self.path, self.summary.base_offset);
        let strides = (position..end).step_by(STRIDE_BYTES as usize);
        for at in strides.chain([end - 1]) {
            file.read_at(&mut [0], at).map_err(LogError::io("read", &path))?;
        }
        Ok(())
    }
}
