//! Whose data a directory holds: the `format` file; and how the last process ended: the mark of a
//! clean stop, and the mark of the boot in which the directory was last opened.

use std::io::IoSlice;
use std::path::Path;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerId, Uuid};

use crate::disk::{Disk, DiskFile};
use crate::envelope::{self, Kind, Payload, Unreadable, put_text};
use crate::error::{LogError, OpenError, is_full};

const FORMAT: Kind = *b"TPfm";
const CLEAN: Kind = *b"TPcl";
const BOOT: Kind = *b"TPbo";
const BYTES_MAX: u64 = 4096;

/// Who owns a data directory. A directory of another cluster or node is refused by whoever
/// compares this with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id.
    pub cluster_id: String,
    /// The broker's id in it.
    pub node_id: BrokerId,
    /// The directory's own id: a new one after a disk was replaced.
    pub directory_id: Uuid,
}

impl Identity {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.cluster_id);
        out.extend_from_slice(&self.node_id.0.to_be_bytes());
        out.extend_from_slice(&self.directory_id.0);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Identity> {
        let mut payload = Payload(bytes);
        Some(Identity {
            cluster_id: payload.text()?.to_owned(),
            node_id: BrokerId(payload.i32()?),
            directory_id: Uuid(payload.array()?),
        })
    }

    /// Writes the `format` file; durable when this returns.
    pub(crate) fn save<D: Disk>(&self, disk: &D, path: &Path) -> Result<(), LogError> {
        envelope::replace_file(disk, path, &envelope::seal(FORMAT, &self.encode()))
    }

    /// Reads the `format` file; `None` when it does not exist.
    pub(crate) fn load<D: Disk>(disk: &D, path: &Path) -> Result<Option<Identity>, OpenError> {
        let Some(bytes) = envelope::read_file(disk, path, BYTES_MAX)? else { return Ok(None) };
        let damaged = || OpenError::NoFormat(path.to_owned());
        match envelope::open(FORMAT, &bytes) {
            Ok(payload) => Identity::decode(payload).map(Some).ok_or_else(damaged),
            Err(Unreadable::Damaged) => Err(damaged()),
            Err(Unreadable::Version { what, found, known }) => {
                Err(OpenError::Version { path: path.to_owned(), what, found, known })
            }
        }
    }
}

/// How the process that last had a directory open came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LastStop {
    /// There was none: the directory is new.
    #[default]
    Never,
    /// It closed the directory.
    Clean,
    /// It ended without a word, while the operating system went on, or that is not known: the page
    /// cache may show what the disk lacks.
    ProcessEnded,
    /// The operating system ended with it: what can be read is what the disk has.
    SystemEnded,
}

/// Leaves the mark of a clean stop.
pub(crate) fn save_clean_mark<D: Disk>(
    disk: &D,
    path: &Path,
    boot_id: &str,
    directory_id: Uuid,
) -> Result<(), LogError> {
    envelope::replace_file(disk, path, &envelope::seal(CLEAN, &boot_payload(boot_id, directory_id)))
}

fn boot_payload(boot_id: &str, directory_id: Uuid) -> Vec<u8> {
    let mut payload = Vec::new();
    put_text(&mut payload, boot_id);
    payload.extend_from_slice(&directory_id.0);
    payload
}

/// Whether the directory was last opened in another boot of the system than `boot_id`; from now on
/// it was opened in this one. The mark is not synced: where a power loss takes it, there is another
/// boot, and where it stays, the page cache does. An empty `boot_id` is one that nobody knows.
pub(crate) fn enter_boot<D: Disk>(
    disk: &D,
    path: &Path,
    boot_id: &str,
    directory_id: Uuid,
) -> Result<bool, LogError> {
    let found = envelope::read_file(disk, path, BYTES_MAX)?;
    let last = found.as_deref().and_then(|bytes| {
        let mut payload = Payload(envelope::open(BOOT, bytes).ok()?);
        let boot = payload.text()?;
        (payload.array() == Some(directory_id.0)).then_some(boot)
    });
    if last == Some(boot_id) {
        return Ok(false);
    }
    let is_other = !boot_id.is_empty() && last.is_some_and(|last| !last.is_empty());
    let write = || {
        let file = if found.is_some() { disk.open(path)? } else { disk.create(path)? };
        let mark = envelope::seal(BOOT, &boot_payload(boot_id, directory_id));
        file.write_at(&[IoSlice::new(&mark)], 0)
    };
    match write() {
        // Without a mark the next start trusts the page cache as little as it can.
        Err(error)
            if is_full(&error) && disk.exists(path).map_err(LogError::io("read", path))? =>
        {
            disk.remove_file(path).map_err(LogError::io("remove", path))?;
        }
        Err(error) if is_full(&error) => {}
        written => written.map_err(LogError::io("write", path))?,
    }
    Ok(is_other)
}

/// Whether the mark at `path` was left in this boot of the system.
pub(crate) fn is_of_boot<D: Disk>(
    disk: &D,
    path: &Path,
    boot_id: &str,
    directory_id: Uuid,
) -> Result<bool, LogError> {
    let found = envelope::read_file(disk, path, BYTES_MAX)?;
    let mark = found.as_deref().and_then(|bytes| {
        let mut payload = Payload(envelope::open(BOOT, bytes).ok()?);
        Some((payload.text()?, payload.array()?))
    });
    Ok(!boot_id.is_empty() && mark == Some((boot_id, directory_id.0)))
}

/// Whether the last stop was clean; the mark is gone, durably, when this returns.
pub(crate) fn take_clean_mark<D: Disk>(
    disk: &D,
    path: &Path,
    directory_id: Uuid,
) -> Result<bool, LogError> {
    let Some(bytes) = envelope::read_file(disk, path, BYTES_MAX)? else { return Ok(false) };
    let failed = LogError::io("remove", path);
    let root = path.parent().expect("the mark lies in the data directory");
    if !mutant::is_on(Mutant::CleanMarkKept) {
        disk.remove_file(path).and_then(|()| disk.sync_dir(root)).map_err(failed)?;
    }
    let is_ours = |payload: &[u8]| {
        let mut payload = Payload(payload);
        payload.text().is_some() && payload.array() == Some(directory_id.0)
    };
    Ok(envelope::open(CLEAN, &bytes).is_ok_and(is_ours))
}
