//! Open segment files of one log: few, and reopened when they are needed again.
//!
//! A reader that holds a file keeps it readable after it was closed here or removed from disk.

use std::sync::{Arc, Mutex};

use towpath_model::Offset;

use crate::index::SparseIndex;

/// Sealed segments of one log that stay open.
const OPEN_MAX: usize = 4;

/// A sealed segment that is open.
#[derive(Debug)]
pub(crate) struct OpenSegment<F> {
    pub(crate) file: Arc<F>,
    pub(crate) index: Arc<SparseIndex>,
}

impl<F> Clone for OpenSegment<F> {
    fn clone(&self) -> Self {
        OpenSegment { file: Arc::clone(&self.file), index: Arc::clone(&self.index) }
    }
}

/// The most recently used ones, newest last. Behind a lock so that reads take `&self`; it is held
/// for no IO.
#[derive(Debug)]
pub(crate) struct OpenSegments<F> {
    entries: Mutex<Vec<(Offset, OpenSegment<F>)>>,
}

impl<F> OpenSegments<F> {
    pub(crate) fn new() -> Self {
        OpenSegments { entries: Mutex::new(Vec::new()) }
    }

    pub(crate) fn get(&self, base: Offset) -> Option<OpenSegment<F>> {
        let mut entries = self.lock();
        let at = entries.iter().position(|(held, _)| *held == base)?;
        let entry = entries.remove(at);
        let found = entry.1.clone();
        entries.push(entry);
        Some(found)
    }

    pub(crate) fn put(&self, base: Offset, open: OpenSegment<F>) {
        let mut entries = self.lock();
        entries.retain(|(held, _)| *held != base);
        if entries.len() == OPEN_MAX {
            entries.remove(0);
        }
        entries.push((base, open));
    }

    pub(crate) fn forget(&self, base: Offset) {
        self.lock().retain(|(held, _)| *held != base);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Offset, OpenSegment<F>)>> {
        self.entries.lock().expect("nothing panics while it holds the list")
    }
}
