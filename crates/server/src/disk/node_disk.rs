//! The disk that a node works on: the system's own, off the workers' way, and open to hindrances.
//!
//! Calls that may wait for the device (anything about names, reserving, syncing) are made known to the
//! runtime when they come from one of its workers, so that another thread takes over the worker's
//! connections meanwhile. Reads and writes are not: they move bytes from and to memory, thousands of times a
//! second, and [`Guard`](crate::guard::Guard) watches over them.
//!
//! A [`Hindrance`] is what a disk can do to its users. Tests put one in; a node has none.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use towpath_log::disk::{Disk, DiskFile, Space};

use super::SystemDisk;

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskCall {
    /// Bytes are read.
    Read,
    /// Bytes are read if they are in memory; `WouldBlock` says that they are not.
    ReadResident,
    /// Bytes are written.
    Write,
    /// Space is reserved, or given back.
    Resize,
    /// Something is made durable.
    Sync,
    /// A name is created, changed, removed or looked for, or a file opened.
    Name,
    /// The room that is left is asked for.
    Space,
}

/// What can stand in the way of a call: it returns late, or with an error.
pub trait Hindrance: Send + Sync + 'static {
    /// Called before each call, with the file or directory that it is about.
    ///
    /// # Errors
    /// What the caller is told instead.
    fn before(&self, call: DiskCall, path: &Path) -> io::Result<()>;

    /// Changes the answer to how much room there is.
    fn space(&self, _path: &Path, space: Space) -> Space {
        space
    }
}

type SystemFile = <SystemDisk as Disk>::File;

/// The system's disk. Cheap to clone.
#[derive(Clone, Default)]
pub struct NodeDisk {
    system: SystemDisk,
    hindrance: Option<Arc<dyn Hindrance>>,
}

impl std::fmt::Debug for NodeDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeDisk").field("is_hindered", &self.hindrance.is_some()).finish()
    }
}

/// An open file.
pub struct NodeFile {
    file: SystemFile,
    hindrance: Option<Box<(Arc<dyn Hindrance>, PathBuf)>>,
}

impl std::fmt::Debug for NodeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeFile").finish_non_exhaustive()
    }
}

impl NodeDisk {
    /// A disk that something stands in the way of.
    #[must_use]
    pub fn hindered(hindrance: Arc<dyn Hindrance>) -> NodeDisk {
        NodeDisk { system: SystemDisk::default(), hindrance: Some(hindrance) }
    }

    fn do_call<R>(
        &self,
        call: DiskCall,
        path: &Path,
        act: impl FnOnce(&SystemDisk) -> io::Result<R>,
    ) -> io::Result<R> {
        off_worker(|| {
            if let Some(hindrance) = &self.hindrance {
                hindrance.before(call, path)?;
            }
            act(&self.system)
        })
    }

    fn file(&self, file: SystemFile, path: &Path) -> NodeFile {
        let hindrance = self.hindrance.as_ref();
        NodeFile { file, hindrance: hindrance.map(|h| Box::new((Arc::clone(h), path.to_owned()))) }
    }
}

impl NodeFile {
    fn before(&self, call: DiskCall) -> io::Result<()> {
        match &self.hindrance {
            None => Ok(()),
            Some(hindrance) => hindrance.0.before(call, &hindrance.1),
        }
    }
}

/// Does what may wait for a device. On a runtime's worker, others take over its work meanwhile.
pub(crate) fn off_worker<R>(act: impl FnOnce() -> R) -> R {
    let runs_many = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(runs_many) {
        tokio::task::block_in_place(act)
    } else {
        act()
    }
}

impl Disk for NodeDisk {
    type File = NodeFile;

    fn open(&self, path: &Path) -> io::Result<NodeFile> {
        self.do_call(DiskCall::Name, path, |disk| disk.open(path)).map(|file| self.file(file, path))
    }

    fn create(&self, path: &Path) -> io::Result<NodeFile> {
        self.do_call(DiskCall::Name, path, |disk| disk.create(path))
            .map(|file| self.file(file, path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.do_call(DiskCall::Name, directory, |disk| disk.list(directory))
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        self.do_call(DiskCall::Name, directory, |disk| disk.create_dir_all(directory))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.do_call(DiskCall::Name, from, |disk| disk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.do_call(DiskCall::Name, path, |disk| disk.remove_file(path))
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        self.do_call(DiskCall::Name, directory, |disk| disk.remove_dir(directory))
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.do_call(DiskCall::Sync, directory, |disk| disk.sync_dir(directory))
    }

    fn sync_all(&self, directory: &Path) -> io::Result<()> {
        self.do_call(DiskCall::Sync, directory, |disk| disk.sync_all(directory))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.do_call(DiskCall::Name, path, |disk| disk.exists(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.system.lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let space = self.do_call(DiskCall::Space, path, |disk| disk.space(path))?;
        Ok(self.hindrance.as_ref().map_or(space, |hindrance| hindrance.space(path, space)))
    }
}

impl DiskFile for NodeFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.before(DiskCall::Read)?;
        self.file.read_at(buffer, position)
    }

    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if let Some(hindrance) = &self.hindrance {
            hindrance.0.before(DiskCall::ReadResident, &hindrance.1)?;
        }
        self.file.read_resident_at(buffer, position)
    }

    fn will_need(&self, position: u64, len: u64) {
        self.file.will_need(position, len);
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.before(DiskCall::Write)?;
        self.file.write_at(buffers, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        off_worker(|| {
            self.before(DiskCall::Sync)?;
            self.file.sync_data()
        })
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        off_worker(|| {
            self.before(DiskCall::Resize)?;
            self.file.allocate(length)
        })
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        off_worker(|| {
            self.before(DiskCall::Resize)?;
            self.file.truncate(length)
        })
    }

    fn drop_cached(&self, from: u64, length: u64) -> io::Result<()> {
        self.file.drop_cached(from, length)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        self.file.next_data(position)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn as_std(&self) -> Option<&File> {
        self.file.as_std()
    }
}
