//! What everybody who makes load shares: where the broker is, what was promised, when to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use towpath_client::{Backoff, ClientConfig};

use crate::Addresses;
use crate::history::{GroupHistory, WriterHistory};

/// The topic of the writers and the group.
pub(super) const ORDERS: &str = "orders";
pub(super) const ORDERS_PARTITIONS: i32 = 4;
/// A second topic of the writers, so that requests and rounds span topics.
pub(super) const EVENTS: &str = "events";
pub(super) const EVENTS_PARTITIONS: i32 = 2;
/// The topic of the publishers.
pub(super) const POSTS: &str = "posts";
pub(super) const POSTS_PARTITIONS: i32 = 2;
/// The group that reads [`ORDERS`].
pub(super) const GROUP: &str = "workers";

/// Every topic whose content is checked, with its partitions.
pub(super) const CHECKED: [(&str, i32); 3] =
    [(ORDERS, ORDERS_PARTITIONS), (EVENTS, EVENTS_PARTITIONS), (POSTS, POSTS_PARTITIONS)];

/// Shared by all who make load.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) addresses: Addresses,
    writers: Mutex<WriterHistory>,
    group: Mutex<GroupHistory>,
    failures: Mutex<Vec<String>>,
    writing_ends: AtomicBool,
    reading_ends: AtomicBool,
}

impl Load {
    pub(super) fn new(addresses: Addresses) -> Load {
        Load {
            addresses,
            writers: Mutex::default(),
            group: Mutex::default(),
            failures: Mutex::default(),
            writing_ends: AtomicBool::new(false),
            reading_ends: AtomicBool::new(false),
        }
    }

    pub(super) fn writers(&self) -> MutexGuard<'_, WriterHistory> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn group(&self) -> MutexGuard<'_, GroupHistory> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something that must not happen and that no invariant names.
    pub(super) fn fail(&self, what: String) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < 20 {
            failures.push(what);
        }
    }

    pub(super) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nobody starts a new record any more.
    pub(super) fn end_writing(&self) {
        self.writing_ends.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_writing(&self) -> bool {
        !self.writing_ends.load(Ordering::Relaxed)
    }

    /// Members leave.
    pub(super) fn end_reading(&self) {
        self.reading_ends.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_reading(&self) -> bool {
        !self.reading_ends.load(Ordering::Relaxed)
    }

    /// A client that is quick to come back.
    pub(super) fn client_config(&self) -> Result<ClientConfig> {
        let mut config = ClientConfig::new(&self.addresses.kafka.to_string())?;
        config.client_id = "towpath-kill".to_owned();
        config.connect_timeout = Duration::from_secs(2);
        config.request_timeout = Duration::from_secs(10);
        config.reconnect_backoff =
            Backoff::new(Duration::from_millis(5), Duration::from_millis(100));
        config.retry_backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100));
        Ok(config)
    }
}
