//! What can go wrong with a log: the disk, or the bytes on it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use towpath_model::{Offset, TopicPartition};

/// Why an operation on a log failed.
#[derive(Debug, Error)]
pub enum LogError {
    /// The disk refused.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A write or sync failed before, and what is on the disk is no longer certain. Only a restart
    /// opens the directory again.
    #[error("data directory {path} has failed ({reason}); it takes no writes until a restart",
        path = path.display())]
    DirectoryFailed {
        /// The directory.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// A start could not read the log, and has set aside what it should have written into it.
    #[error(
        "{reason}; its newest records wait in the write-ahead file for a start that can read it"
    )]
    Unreplayed {
        /// What that start met.
        reason: String,
    },
    /// A file that was written and that nothing else can replace.
    #[error("{path} is damaged, and this broker cannot take part in the cluster without it: give the \
        node an empty data directory, and it will be filled from the others", path = path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
    },
    /// A file was written by a newer or older Towpath.
    #[error("{path} has {what} {found}, this version of Towpath reads {known}",
        path = path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Which number does not fit.
        what: &'static str,
        /// The number there.
        found: u16,
        /// The number this version knows.
        known: u16,
    },
    /// Records that were durable are not readable any more.
    #[error("records [{from}, {to}) of partition {partition} are damaged")]
    Corrupt {
        /// Whose.
        partition: TopicPartition,
        /// First damaged offset.
        from: Offset,
        /// First offset after the damage.
        to: Offset,
    },
}

impl LogError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
        move |source| LogError::Io { doing, path: path.to_owned(), source }
    }

    /// Whether it concerns this log alone: what was asked of the disk was to read, or there is no
    /// room. Anything else that the disk refuses says that nothing written to it is certain.
    #[must_use]
    pub fn is_of_one_log(&self) -> bool {
        match self {
            LogError::Io { doing, .. } => {
                ["read", "open", "list", "look for"].contains(doing) || self.is_disk_full()
            }
            LogError::DirectoryFailed { .. }
            | LogError::Unreadable { .. }
            | LogError::Version { .. } => false,
            LogError::Unreplayed { .. } | LogError::Corrupt { .. } => true,
        }
    }

    /// Whether the disk has no room, so that it may work again later.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if is_full(source))
    }
}

/// Whether an error says "no room", not "broken".
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Why records cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The offset is not in the log.
    #[error("the log holds [{start}, {end})")]
    OutOfRange {
        /// First offset kept.
        start: Offset,
        /// First offset not yet written.
        end: Offset,
    },
    /// The records were durable and are not readable any more.
    #[error("records [{from}, {to}) are damaged")]
    CorruptBatch {
        /// First damaged offset.
        from: Offset,
        /// First offset after the damage.
        to: Offset,
    },
    /// They are not in memory, and the caller would not wait for the device.
    #[error("the records are not in memory")]
    NotResident,
    /// The disk refused.
    #[error(transparent)]
    Log(LogError),
}

impl From<LogError> for ReadError {
    fn from(error: LogError) -> ReadError {
        match error {
            LogError::Io { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
                ReadError::NotResident
            }
            error => ReadError::Log(error),
        }
    }
}

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("data directory {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// A file in it was written by a newer or older Towpath.
    #[error("{path} has {what} {found}, this version of Towpath reads {known}",
        path = path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Which number does not fit.
        what: &'static str,
        /// The number there.
        found: u16,
        /// The number this version knows.
        known: u16,
    },
    /// There is data, but nothing that says whose.
    #[error("{} holds data but no readable `format` file: it is damaged, or no data directory", .0.display())]
    NoFormat(PathBuf),
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] LogError),
}
