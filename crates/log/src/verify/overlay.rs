//! A disk that is read and never written: what is changed stays in memory, over the real one.
//!
//! With it the same code that a start runs tells what a start would find, and no byte of the
//! directory moves.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile, Space};

const PAGE_BYTES: u64 = 4096;

/// A disk over another one.
pub(crate) struct Overlay<D: Disk> {
    below: D,
    nodes: Arc<Mutex<BTreeMap<PathBuf, Node<D>>>>,
}

impl<D: Disk> Clone for Overlay<D> {
    fn clone(&self) -> Self {
        Overlay { below: self.below.clone(), nodes: Arc::clone(&self.nodes) }
    }
}

/// What has another state here than below.
enum Node<D: Disk> {
    Gone,
    Directory,
    File(OverlayFile<D>),
}

/// A file; clones share it.
pub(crate) struct OverlayFile<D: Disk>(Arc<Inner<D>>);

impl<D: Disk> Clone for OverlayFile<D> {
    fn clone(&self) -> Self {
        OverlayFile(Arc::clone(&self.0))
    }
}

struct Inner<D: Disk> {
    below: Option<D::File>,
    state: Mutex<State>,
}

struct State {
    length: u64,
    /// Bytes of the file below that are still this file's.
    below_length: u64,
    /// Changed pages.
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES as usize]>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds the overlay")
}

impl<D: Disk> Overlay<D> {
    pub(crate) fn new(below: D) -> Self {
        Overlay { below, nodes: Arc::default() }
    }

    fn exists_here(&self, path: &Path) -> io::Result<bool> {
        match locked(&self.nodes).get(path) {
            Some(Node::Gone) => Ok(false),
            Some(_) => Ok(true),
            None => self.below.exists(path),
        }
    }

    fn is_directory_here(&self, path: &Path) -> bool {
        matches!(locked(&self.nodes).get(path), Some(Node::Directory))
    }
}

impl<D: Disk> Disk for Overlay<D> {
    type File = OverlayFile<D>;

    fn open(&self, path: &Path) -> io::Result<OverlayFile<D>> {
        match locked(&self.nodes).get(path) {
            Some(Node::Gone) => return Err(io::ErrorKind::NotFound.into()),
            Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(file)) => return Ok(file.clone()),
            None => {}
        }
        let below = self.below.open(path)?;
        let length = below.len()?;
        let state = State { length, below_length: length, pages: BTreeMap::new() };
        let file = OverlayFile(Arc::new(Inner { below: Some(below), state: Mutex::new(state) }));
        Ok(file.remembered(self, path))
    }

    fn create(&self, path: &Path) -> io::Result<OverlayFile<D>> {
        if self.exists_here(path)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let state = State { length: 0, below_length: 0, pages: BTreeMap::new() };
        let file = OverlayFile(Arc::new(Inner { below: None, state: Mutex::new(state) }));
        locked(&self.nodes).insert(path.to_owned(), Node::File(file.clone()));
        Ok(file)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = match self.below.list(directory) {
            Err(_) if self.is_directory_here(directory) => Vec::new(),
            listed => listed?,
        };
        for (path, node) in &*locked(&self.nodes) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if path.parent() != Some(directory) {
                continue;
            }
            names.retain(|known| known != name);
            if !matches!(node, Node::Gone) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        for path in directory.ancestors() {
            if path.as_os_str().is_empty() || self.exists_here(path)? {
                break;
            }
            locked(&self.nodes).insert(path.to_owned(), Node::Directory);
        }
        Ok(())
    }

    /// Of files only: a start renames no directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.open(from)?;
        let mut nodes = locked(&self.nodes);
        nodes.insert(to.to_owned(), Node::File(file));
        nodes.insert(from.to_owned(), Node::Gone);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if !self.exists_here(path)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        locked(&self.nodes).insert(path.to_owned(), Node::Gone);
        Ok(())
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        locked(&self.nodes).insert(directory.to_owned(), Node::Gone);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.exists_here(path)
    }

    /// The real lock: no broker may run.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.below.space(path)
    }
}

impl<D: Disk> OverlayFile<D> {
    /// Two who open a file share what either of them changes.
    fn remembered(self, overlay: &Overlay<D>, path: &Path) -> Self {
        locked(&overlay.nodes).insert(path.to_owned(), Node::File(self.clone()));
        self
    }

    fn read_below(&self, buffer: &mut [u8], position: u64, below_length: u64) -> io::Result<()> {
        buffer.fill(0);
        let left = usize::try_from(below_length.saturating_sub(position)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let Some(below) = self.0.below.as_ref().filter(|_| 0 < wanted) else { return Ok(()) };
        let mut at = 0;
        while at < wanted {
            match below.read_at(&mut buffer[at..wanted], position + at as u64)? {
                0 => break,
                read => at += read,
            }
        }
        Ok(())
    }
}

impl<D: Disk> DiskFile for OverlayFile<D> {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = locked(&self.0.state);
        let left = usize::try_from(state.length.saturating_sub(position)).unwrap_or(usize::MAX);
        let read = buffer.len().min(left);
        self.read_below(&mut buffer[..read], position, state.below_length)?;
        let (first, end) = (position / PAGE_BYTES, (position + read as u64).div_ceil(PAGE_BYTES));
        for (page, bytes) in state.pages.range(first..end) {
            let start = page * PAGE_BYTES;
            let from = start.max(position);
            let to = (start + PAGE_BYTES).min(position + read as u64);
            let source = &bytes[(from - start) as usize..(to - start) as usize];
            buffer[(from - position) as usize..(to - position) as usize].copy_from_slice(source);
        }
        Ok(read)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut state = locked(&self.0.state);
        let mut at = position;
        for mut bytes in buffers.iter().map(|buffer| &buffer[..]) {
            while !bytes.is_empty() {
                let (page, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
                let taken = bytes.len().min(PAGE_BYTES as usize - within);
                if !state.pages.contains_key(&page) {
                    let mut content = Box::new([0; PAGE_BYTES as usize]);
                    self.read_below(&mut content[..], page * PAGE_BYTES, state.below_length)?;
                    state.pages.insert(page, content);
                }
                let content = state.pages.get_mut(&page).expect("just inserted");
                content[within..within + taken].copy_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                at += taken as u64;
            }
        }
        state.length = state.length.max(at);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut state = locked(&self.0.state);
        state.length = state.length.max(length);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = locked(&self.0.state);
        let page = length / PAGE_BYTES;
        state.pages.split_off(&length.div_ceil(PAGE_BYTES));
        if let Some(content) = state.pages.get_mut(&page) {
            content[(length % PAGE_BYTES) as usize..].fill(0);
        }
        state.below_length = state.below_length.min(length);
        state.length = length;
        Ok(())
    }

    fn drop_cached(&self, from: u64, length: u64) -> io::Result<()> {
        self.0.below.as_ref().map_or(Ok(()), |below| below.drop_cached(from, length))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(locked(&self.0.state).length)
    }
}
