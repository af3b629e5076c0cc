//! Load for brokers that die under it: writers and members of a group, and what all of them share:
//! where the brokers are, what was promised, when to stop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use towpath_client::{Backoff, ClientConfig, Error};

use crate::history::{Fate, GroupHistory, Place, Stamp, WriterHistory};

mod members;
mod readers;
mod writers;

pub(crate) use members::run as read_as_member;
pub(crate) use readers::run as read;
pub(crate) use writers::run as write;

/// The topic of the writers and the group.
pub(crate) const ORDERS: &str = "orders";
pub(crate) const ORDERS_PARTITIONS: i32 = 4;
/// A second topic of the writers, so that requests and rounds span topics.
pub(crate) const EVENTS: &str = "events";
pub(crate) const EVENTS_PARTITIONS: i32 = 2;
/// The topic of the publishers.
pub(crate) const POSTS: &str = "posts";
pub(crate) const POSTS_PARTITIONS: i32 = 2;
/// The group that reads [`ORDERS`].
pub(crate) const GROUP: &str = "workers";

/// Every topic whose content is checked, with its partitions.
pub(crate) const CHECKED: [(&str, i32); 3] =
    [(ORDERS, ORDERS_PARTITIONS), (EVENTS, EVENTS_PARTITIONS), (POSTS, POSTS_PARTITIONS)];

/// How patient clients are with brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// Quick to come back, so that more happens between two faults.
    Quick,
    /// What a program has that sets nothing.
    Default,
}

/// Shared by all who make load.
#[derive(Debug)]
pub(crate) struct Load {
    /// Kafka listeners, separated by commas.
    servers: String,
    manners: Manners,
    /// The longest pause of a writer between two bursts.
    pause_max: Duration,
    writers: Mutex<WriterHistory>,
    group: Mutex<GroupHistory>,
    failures: Mutex<Vec<String>>,
    /// Records that were sent and whose writers were told nothing yet.
    unanswered: AtomicU64,
    given_up: Mutex<GivenUp>,
    first_acks: Mutex<FirstAcks>,
    pausing: AtomicBool,
    writing_ends: AtomicBool,
    reading_ends: AtomicBool,
}

/// What clients gave up.
#[derive(Debug, Default)]
struct GivenUp {
    times: u64,
    first: Option<String>,
}

/// How long partitions take until they acknowledge again.
#[derive(Debug, Default)]
struct FirstAcks {
    /// Partitions that have not yet, and since when.
    awaited: BTreeMap<Place, Instant>,
    /// Times from that moment to the acknowledgement of a record that was sent after it.
    took: Vec<Duration>,
}

impl Load {
    pub(crate) fn new(servers: String, manners: Manners, pause_max: Duration) -> Load {
        Load {
            servers,
            manners,
            pause_max,
            writers: Mutex::default(),
            group: Mutex::default(),
            failures: Mutex::default(),
            unanswered: AtomicU64::new(0),
            given_up: Mutex::default(),
            first_acks: Mutex::default(),
            pausing: AtomicBool::new(false),
            writing_ends: AtomicBool::new(false),
            reading_ends: AtomicBool::new(false),
        }
    }

    pub(crate) fn writers(&self) -> MutexGuard<'_, WriterHistory> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn group(&self) -> MutexGuard<'_, GroupHistory> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A writer is about to send its next record to a partition.
    fn sending(&self, topic: &str, writer: u32, partition: i32) -> Stamp {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.writers().sending(topic, writer, Some(partition))
    }

    /// Nobody waits any more for the answer to one of [`Load::sending`].
    fn is_not_awaited_any_more(&self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }

    /// A writer was told what became of a record that it sent at `sent`.
    fn told(&self, topic: &str, stamp: Stamp, fate: Fate, sent: Instant) {
        self.writers().told(topic, stamp, fate);
        let Fate::Acked { partition, .. } = fate else { return };
        let mut acks = self.first_acks.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Place::new(topic, partition);
        if let Some(since) = acks.awaited.get(&place).copied().filter(|since| *since <= sent) {
            acks.awaited.remove(&place);
            acks.took.push(since.elapsed());
        }
    }

    /// From now on, takes the time until each of these partitions acknowledges something that is
    /// sent from now on.
    pub(crate) fn await_acks_of(&self, places: impl IntoIterator<Item = Place>) {
        let now = Instant::now();
        let mut acks = self.first_acks.lock().unwrap_or_else(PoisonError::into_inner);
        acks.awaited.extend(places.into_iter().map(|place| (place, now)));
    }

    /// The times that were taken since the last call. Partitions that still wait are forgotten.
    pub(crate) fn take_first_acks(&self) -> Vec<Duration> {
        let mut acks = self.first_acks.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *acks).took
    }

    /// Notes that a client gave something up, which some faults may cause.
    fn gave_up(&self, what: impl FnOnce() -> String) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.times += 1;
        given_up.first.get_or_insert_with(what);
    }

    /// How often clients gave something up, and what it was the first time.
    pub(crate) fn given_up(&self) -> (u64, Option<String>) {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        (given_up.times, given_up.first.clone())
    }

    /// Makes writers pause, and waits until everything that was sent has its answer.
    pub(crate) async fn pause(&self, patience: Duration) -> Result<()> {
        self.pausing.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + patience;
        loop {
            // A writer may be between its look at the flag and its next record.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let unanswered = self.unanswered.load(Ordering::Relaxed);
            if unanswered == 0 {
                return Ok(());
            }
            if let Some(failure) = self.failures().first() {
                bail!("{failure}");
            }
            if deadline <= Instant::now() {
                bail!("{unanswered} records have no answer after {patience:?}");
            }
        }
    }

    /// Lets writers go on.
    pub(crate) fn resume(&self) {
        self.pausing.store(false, Ordering::Relaxed);
    }

    fn is_pausing(&self) -> bool {
        self.pausing.load(Ordering::Relaxed) && self.is_writing()
    }

    /// Notes something that must not happen and that no invariant names.
    pub(crate) fn fail(&self, what: String) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < 20 {
            failures.push(what);
        }
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nobody starts a new record any more.
    pub(crate) fn end_writing(&self) {
        self.writing_ends.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_writing(&self) -> bool {
        !self.writing_ends.load(Ordering::Relaxed)
    }

    /// Members leave.
    pub(crate) fn end_reading(&self) {
        self.reading_ends.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.reading_ends.load(Ordering::Relaxed)
    }

    fn client_config(&self) -> Result<ClientConfig> {
        let mut config = ClientConfig::new(&self.servers)?;
        config.client_id = "towpath-kill".to_owned();
        if self.manners == Manners::Quick {
            config.connect_timeout = Duration::from_secs(2);
            config.request_timeout = Duration::from_secs(10);
            let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100));
            config.reconnect_backoff = backoff;
            config.retry_backoff = backoff;
        }
        Ok(config)
    }
}

/// Whether somebody who waits a little need not be told.
fn is_passing(error: &Error) -> bool {
    error.is_retriable() || matches!(error, Error::TimedOut { .. })
}
