//! A partition with its log, behind one lock.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use towpath_broker::{Output, Partition};
use towpath_log::disk::Disk;
use towpath_log::{Log, LogError};
use towpath_model::properties::TopicConfig;
use towpath_model::{Offset, Time, TopicName, TopicPartition};

use crate::compact::Compactions;

/// One led partition of this process. Shared by everybody who serves it; alive until the last of
/// them lets go, even when the topic is deleted meanwhile.
pub(crate) struct Cell<D: Disk> {
    pub(crate) id: TopicPartition,
    pub(crate) topic: TopicName,
    pub(crate) counted: Counted,
    slot: Mutex<Slot<D>>,
}

/// What went through a partition since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) records_in: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

/// What the lock guards.
pub(crate) struct Slot<D: Disk> {
    pub(crate) partition: Partition,
    pub(crate) log: Log<D>,
    pub(crate) config: Arc<TopicConfig>,
    /// The partition is on the list of the next sync round.
    pub(crate) awaits_sync: bool,
    /// The deadline that the driver has noted for the partition.
    pub(crate) scheduled: Option<Time>,
    /// No longer led here: the topic was deleted or the directory failed.
    pub(crate) closed: bool,
    pub(crate) compactions: Compactions,
    /// Its state could not be written; time does not act on it before this.
    pub(crate) retry_at: Option<Time>,
}

impl<D: Disk> Slot<D> {
    /// When time is to act on the state; never on one that is no longer led here.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let deadline = self.partition.next_deadline().filter(|_| !self.closed)?;
        Some(self.retry_at.map_or(deadline, |at| at.max(deadline)))
    }

    /// Moves the log start up to `offset`. The start may have moved although something failed
    /// afterwards, the removal of a file for one: the core hears what is true.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn start_moves_to(
        &mut self,
        offset: Offset,
        out: &mut Vec<Output>,
    ) -> Result<(), LogError> {
        let moved = self.log.start_moves_to(offset);
        self.partition.log_start_moved(self.log.log_start_offset(), out);
        moved
    }
}

impl<D: Disk> Cell<D> {
    pub(crate) fn new(
        id: TopicPartition,
        topic: TopicName,
        partition: Partition,
        log: Log<D>,
        config: Arc<TopicConfig>,
    ) -> Self {
        let slot = Slot {
            partition,
            log,
            config,
            awaits_sync: false,
            scheduled: None,
            closed: false,
            compactions: Compactions::default(),
            retry_at: None,
        };
        Cell { id, topic, counted: Counted::default(), slot: Mutex::new(slot) }
    }

    /// Locks the partition. Never held over a wait; only an append is carried out under it.
    ///
    /// # Panics
    /// When a thread has panicked under this lock: the state may break its invariants, and the
    /// process must stop before it serves it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Slot<D>> {
        self.slot.lock().expect("a panic under a partition's lock is a bug that ends the process")
    }
}
