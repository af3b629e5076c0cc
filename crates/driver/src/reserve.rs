//! A file that only takes room, so that there is some to give back when nothing else is free.
//!
//! A disk that somebody else has filled refuses everything, also the few bytes by which offsets are committed
//! and topics are deleted. What the reserve gives back lasts for many of those. It is taken again
//! once there is room beyond the watermark.

use std::io;
use std::path::Path;

use towpath_log::disk::{Disk, DiskFile};

const NAME: &str = "reserve";
/// The reserve takes no larger part of a file system.
const PARTS_OF_TOTAL: u64 = 100;

/// What is known of a directory's reserve.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// Its length; `None`: not looked at since the start.
    held_bytes: Option<u64>,
}

impl Reserve {
    /// What the reserve should take of a file system with `total_bytes`.
    pub(crate) fn wanted(reserve_bytes: u64, total_bytes: u64) -> u64 {
        reserve_bytes.min(total_bytes / PARTS_OF_TOTAL)
    }

    /// Takes `bytes`, or gives back what is too much.
    pub(crate) fn hold(&mut self, disk: &impl Disk, root: &Path, bytes: u64) -> io::Result<()> {
        if self.held_bytes == Some(bytes) {
            return Ok(());
        }
        let path = root.join(NAME);
        let exists = disk.exists(&path)?;
        if !exists && bytes == 0 {
            self.held_bytes = Some(0);
            return Ok(());
        }
        let file = if exists { disk.open(&path)? } else { disk.create(&path)? };
        let held = file.len()?;
        if bytes < held {
            file.truncate(bytes)?;
        } else if let Err(error) = file.allocate(bytes) {
            // What was reserved before the room ran out is as good as free.
            self.held_bytes = Some(0);
            file.truncate(0)?;
            return Err(error);
        }
        self.held_bytes = Some(bytes);
        Ok(())
    }

    /// Gives everything back; says how many bytes that were.
    pub(crate) fn release(&mut self, disk: &impl Disk, root: &Path) -> io::Result<u64> {
        if self.held_bytes == Some(0) {
            return Ok(0);
        }
        let path = root.join(NAME);
        let held = if disk.exists(&path)? {
            let file = disk.open(&path)?;
            let held = file.len()?;
            file.truncate(0)?;
            held
        } else {
            0
        };
        self.held_bytes = Some(0);
        Ok(held)
    }
}
