//! How far a start is, for those who wait for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use towpath_model::BrokerId;

/// Partitions that are to be opened, and those that have been; before that, brokers that have not been
/// heard. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    opened: AtomicUsize,
    all: AtomicUsize,
    missing: Mutex<Option<BTreeSet<BrokerId>>>,
}

impl Progress {
    /// Partitions that have been opened, and how many there are; none of either until the write-ahead
    /// file and the metadata have been read.
    #[must_use]
    pub fn partitions(&self) -> (usize, usize) {
        let opened = self.0.opened.load(Ordering::Relaxed);
        (opened, self.0.all.load(Ordering::Relaxed))
    }

    /// Whom the start waits for, in words.
    #[must_use]
    pub fn waiting(&self) -> Option<String> {
        let missing = self.0.missing.lock().expect("nothing panics over the set");
        let ids: Vec<String> = missing.as_ref()?.iter().map(ToString::to_string).collect();
        Some(match &ids[..] {
            [] => "waiting for a broker of the cluster to join".to_owned(),
            [one] => format!("waiting for broker {one}"),
            _ => format!("waiting for brokers {}", ids.join(", ")),
        })
    }

    /// These brokers have not been heard; nobody in particular if it is empty.
    pub(crate) fn wait_for(&self, missing: &BTreeSet<BrokerId>) {
        *self.0.missing.lock().expect("nothing panics over the set") = Some(missing.clone());
    }

    pub(crate) fn wait_for_nobody(&self) {
        *self.0.missing.lock().expect("nothing panics over the set") = None;
    }

    pub(crate) fn begin(&self, all: usize) {
        self.0.opened.store(0, Ordering::Relaxed);
        self.0.all.store(all, Ordering::Relaxed);
    }

    pub(crate) fn one_opened(&self) {
        self.0.opened.fetch_add(1, Ordering::Relaxed);
    }
}
