//! Load for brokers that die under it: writers and members of a group, and what all of them share:
//! where the brokers are, what was promised, when to stop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use towpath_client::{Backoff, ClientConfig, Error};

use crate::history::{Fate, GroupHistory, Place, Stamp, WriterHistory};

mod members;
mod queue;
mod readers;
mod steady;
mod writers;

pub(crate) use members::run as read_as_member;
pub(crate) use queue::{JOBS, LINES, QueueLoad, Users};
pub(crate) use readers::run as read;
pub(crate) use steady::run as write_steadily;
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
    /// Records that were sent and whose writers were told nothing yet, and writers that send.
    unanswered: AtomicU64,
    given_up: Mutex<GivenUp>,
    acks: Mutex<Acks>,
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

/// How long partitions take to acknowledge.
#[derive(Debug, Default)]
struct Acks {
    /// Partitions that have not yet acknowledged again, and since when.
    awaited: BTreeMap<Place, Instant>,
    /// Times from that moment to the acknowledgement of a record that was sent after it.
    took: Vec<Duration>,
    /// The longest time that a record waited, of partitions that are watched.
    longest: BTreeMap<Place, Duration>,
    /// Of partitions that are watched: the last acknowledgement, and the longest time between two.
    gaps: BTreeMap<Place, (Instant, Duration)>,
}

impl Acks {
    fn acked(&mut self, place: &Place, sent: Instant) {
        if let Some(since) = self.awaited.get(place).copied().filter(|since| *since <= sent) {
            self.awaited.remove(place);
            self.took.push(since.elapsed());
        }
        if let Some(longest) = self.longest.get_mut(place) {
            *longest = (*longest).max(sent.elapsed());
        }
        if let Some((last, longest)) = self.gaps.get_mut(place) {
            *longest = (*longest).max(last.elapsed());
            *last = Instant::now();
        }
    }
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
            acks: Mutex::default(),
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

    /// Waits until a writer may send. While what it is given lives, no pause has begun.
    async fn may_send(self: &Arc<Load>) -> Unanswered {
        loop {
            // Counted first: whoever pauses either sees this or is seen below.
            let counted = Unanswered::count(self);
            if !self.is_pausing() {
                return counted;
            }
            drop(counted);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A writer is about to send its next record to a partition.
    fn sending(&self, topic: &str, writer: u32, partition: i32) -> Stamp {
        self.writers().sending(topic, writer, Some(partition))
    }

    /// A writer was told what became of a record that it sent at `sent`.
    fn told(&self, topic: &str, stamp: Stamp, fate: Fate, sent: Instant) {
        self.writers().told(topic, stamp, fate);
        let Fate::Acked { partition, .. } = fate else { return };
        self.acks().acked(&Place::new(topic, partition), sent);
    }

    /// A client that is not among these has an acknowledgement.
    pub(crate) fn acked_elsewhere(&self, place: &Place) {
        self.acks().acked(place, Instant::now());
    }

    fn acks(&self) -> MutexGuard<'_, Acks> {
        self.acks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, takes the time until each of these partitions acknowledges something that is
    /// sent from now on.
    pub(crate) fn await_acks_of(&self, places: impl IntoIterator<Item = Place>) {
        let now = Instant::now();
        self.acks().awaited.extend(places.into_iter().map(|place| (place, now)));
    }

    /// The times that were taken since the last call. Partitions that still wait are forgotten.
    pub(crate) fn take_first_acks(&self) -> Vec<Duration> {
        let mut acks = self.acks();
        acks.awaited.clear();
        std::mem::take(&mut acks.took)
    }

    /// From now on, looks how long records of these partitions wait to be acknowledged.
    pub(crate) fn watch_acks_of(&self, places: impl IntoIterator<Item = Place>) {
        self.acks().longest = places.into_iter().map(|place| (place, Duration::ZERO)).collect();
    }

    /// The longest wait in each partition that was watched and acknowledged something.
    pub(crate) fn take_longest_waits(&self) -> Vec<Duration> {
        let longest = std::mem::take(&mut self.acks().longest);
        longest.into_values().filter(|wait| !wait.is_zero()).collect()
    }

    /// From now on, looks how long these partitions acknowledge nothing.
    pub(crate) fn watch_gaps_of(&self, places: impl Iterator<Item = Place>) {
        let begin = (Instant::now(), Duration::ZERO);
        self.acks().gaps = places.map(|place| (place, begin)).collect();
    }

    /// The longest time between two acknowledgements of each partition that was watched.
    pub(crate) fn take_longest_gaps(&self) -> BTreeMap<Place, Duration> {
        let gaps = std::mem::take(&mut self.acks().gaps).into_iter();
        gaps.map(|(place, (last, longest))| (place, longest.max(last.elapsed()))).collect()
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
        self.pausing.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + patience;
        loop {
            let unanswered = self.unanswered.load(Ordering::SeqCst);
            if unanswered == 0 {
                return Ok(());
            }
            if let Some(failure) = self.failures().first() {
                bail!("{failure}");
            }
            if deadline <= Instant::now() {
                bail!("{unanswered} records have no answer after {patience:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets writers go on.
    pub(crate) fn resume(&self) {
        self.pausing.store(false, Ordering::SeqCst);
    }

    fn is_pausing(&self) -> bool {
        self.pausing.load(Ordering::SeqCst) && self.is_writing()
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

/// Something that a pause waits for.
struct Unanswered {
    load: Arc<Load>,
}

impl Unanswered {
    fn count(load: &Arc<Load>) -> Unanswered {
        load.unanswered.fetch_add(1, Ordering::SeqCst);
        Unanswered { load: load.clone() }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.load.unanswered.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether somebody who waits a little need not be told.
fn is_passing(error: &Error) -> bool {
    error.is_retriable() || matches!(error, Error::TimedOut { .. })
}
