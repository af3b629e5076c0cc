//! How far a start is, for those who wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Partitions that are to be opened, and those that have been. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    opened: AtomicUsize,
    all: AtomicUsize,
}

impl Progress {
    /// Partitions that have been opened, and how many there are; none of either until the write-ahead
    /// file and the metadata have been read.
    #[must_use]
    pub fn partitions(&self) -> (usize, usize) {
        let opened = self.0.opened.load(Ordering::Relaxed);
        (opened, self.0.all.load(Ordering::Relaxed))
    }

    pub(crate) fn begin(&self, all: usize) {
        self.0.opened.store(0, Ordering::Relaxed);
        self.0.all.store(all, Ordering::Relaxed);
    }

    pub(crate) fn one_opened(&self) {
        self.0.opened.fetch_add(1, Ordering::Relaxed);
    }
}
