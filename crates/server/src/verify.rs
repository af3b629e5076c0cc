//! Checks the files of a node that does not run: [`towpath_log::verify`] on this machine's disks.

use std::path::Path;

pub use towpath_log::{LastStop, OpenError as VerifyError, Verified, VerifiedLog, WrongFile};

use crate::disk::SystemDisk;

/// Checks the data directory at `root` and changes nothing in it; `progress` hears of each log
/// before it is read.
///
/// # Errors
/// When a broker has it open, when it is no data directory, or when it cannot be read at all.
pub fn verify_directory(root: &Path, progress: impl FnMut(&Path)) -> Result<Verified, VerifyError> {
    towpath_log::verify(&SystemDisk::default(), root, progress)
}
