//! A worker: receives as it has capacity, runs a handler for each message, keeps leases alive meanwhile, and
//! settles what has ended.
//!
//! ```text
//! receive ─▶ handler ──Ok──────▶ delete
//!    ▲          │  └──Reject──▶ reject     leases are extended until one of these is answered
//!    │          └─────Retry───▶ release
//!    └── capacity, breaker, pause
//! ```
//!
//! One loop decides, everything that waits is a task of it: they end with the loop. Settling batches by
//! itself: what ends while a request is under way goes with the next one.

mod breaker;
mod config;
mod leases;
mod settling;
mod stats;

use std::collections::HashMap;
use std::future::Future;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Duration, Instant, sleep_until};

use crate::error::{Error, Result};

use super::client::{BATCH_MAX, Queue, ReceiveOptions, Settled};
use super::message::QueueMessage;

pub use breaker::{BreakerConfig, BreakerState};
pub use config::WorkerConfig;
pub use stats::WorkerStats;

use breaker::Breaker;
use config::check_visibility;
use leases::{Delivery, Leases};
use settling::{Settling, Verb};

/// Messages that have ended and are not settled; beyond, nothing is received.
const UNSETTLED_MAX: usize = 2 * BATCH_MAX;

/// Why a message was not worked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerError {
    /// It may work another time.
    Retry {
        /// When it comes back; nothing: when the queue's retry policy says.
        delay: Option<Duration>,
        /// What went wrong, for people. Without one the message counts as given back, not as failed.
        note: Option<String>,
    },
    /// It never will.
    Reject {
        /// Why, for people: it goes to the dead-letter queue with it.
        reason: String,
    },
}

impl HandlerError {
    /// It failed, and may work when the queue's policy tries it again.
    pub fn retry(note: impl Into<String>) -> HandlerError {
        HandlerError::Retry { delay: None, note: Some(note.into()) }
    }

    /// It can never be worked.
    pub fn reject(reason: impl Into<String>) -> HandlerError {
        HandlerError::Reject { reason: reason.into() }
    }
}

/// A message that is to be worked.
#[derive(Debug)]
pub struct Work {
    /// The message.
    pub message: QueueMessage,
    lost: watch::Receiver<bool>,
}

impl Work {
    /// Whether others may have the message by now: what is done with it from here on may be done twice.
    #[must_use]
    pub fn lease_is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until the lease is lost; for a `select!` beside the work itself.
    pub async fn lease_lost(&mut self) {
        if self.lost.wait_for(|is_lost| *is_lost).await.is_err() {
            // The message is settled: its lease cannot be lost any more.
            std::future::pending::<()>().await;
        }
    }
}

/// Works the messages of a queue, each by a handler.
#[derive(Debug)]
pub struct QueueWorker {
    queue: Queue,
    config: WorkerConfig,
    stop: watch::Sender<bool>,
    stats: watch::Sender<WorkerStats>,
}

/// Stops a worker, and tells how it does.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    stop: watch::Sender<bool>,
    stats: watch::Receiver<WorkerStats>,
}

impl WorkerHandle {
    /// Receives no more, lets what runs finish, and gives back what was not begun.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until there is news in [`WorkerHandle::stats`]; false once the worker has ended.
    pub async fn changed(&mut self) -> bool {
        self.stats.changed().await.is_ok()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        *self.stats.borrow()
    }
}

impl QueueWorker {
    /// A worker that has not begun.
    ///
    /// # Errors
    /// When the settings cannot work.
    pub fn new(queue: Queue, config: WorkerConfig) -> Result<QueueWorker> {
        config.check()?;
        let (stop, _) = watch::channel(false);
        let (stats, _) = watch::channel(WorkerStats::default());
        Ok(QueueWorker { queue, config, stop, stats })
    }

    /// For whoever stops it or looks at it.
    #[must_use]
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle { stop: self.stop.clone(), stats: self.stats.subscribe() }
    }

    /// Works until it is stopped, or has worked as many as it should. A handler that panics counts as failed.
    ///
    /// # Errors
    /// When the queue is not there, or the broker refuses what the worker asks. Errors that pass are waited out.
    pub async fn run<H, F>(self, handler: H) -> Result<WorkerStats>
    where
        H: Fn(Work) -> F,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let visibility = match self.config.visibility {
            Some(visibility) => visibility,
            None => self.queue.visibility_timeout().await?,
        };
        check_visibility(visibility)?;
        let mut stop = self.stop.subscribe();
        let mut desk = Desk::new(&self, visibility);
        loop {
            let now = Instant::now();
            if desk.is_over() {
                break;
            }
            desk.lose(now);
            desk.extend(now);
            desk.settling.begin_requests(&desk.queue);
            desk.receive(now);
            self.stats.send_replace(desk.stats());
            let deadline = desk.next_deadline();
            tokio::select! {
                biased;
                () = stopped(&mut stop), if !desk.is_stopping => desk.stop().await,
                Some(received) = desk.receiving.join_next() => desk.received(received, &handler),
                Some(ended) = desk.running.join_next_with_id() => desk.ended(ended),
                Some(settled) = desk.settling.next() => desk.settled(settled),
                Some(extended) = desk.extending.join_next() => desk.extended(extended),
                () = sleep_until(deadline.unwrap_or(now)), if deadline.is_some() => {}
            }
        }
        let stats = desk.stats();
        self.stats.send_replace(stats);
        desk.fatal.map_or(Ok(stats), Err)
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The worker has a sender itself, so this ends only by being told.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What a running worker has on its desk.
struct Desk {
    queue: Queue,
    config: WorkerConfig,
    visibility: Duration,
    leases: Leases,
    breaker: Breaker,
    settling: Settling,
    receiving: JoinSet<Result<Vec<QueueMessage>>>,
    running: JoinSet<Result<(), HandlerError>>,
    begun: HashMap<Id, Begun>,
    extending: JoinSet<Extended>,
    next: Delivery,
    /// Nothing is received before.
    receives_at: Option<Instant>,
    failures: u32,
    is_stopping: bool,
    /// Why it has to stop.
    fatal: Option<Error>,
    stats: WorkerStats,
}

/// A message that is being worked.
struct Begun {
    delivery: Delivery,
    receipt: String,
    lost: watch::Sender<bool>,
}

/// What became of extensions.
struct Extended {
    sent_at: Instant,
    asked: Vec<Delivery>,
    results: Result<Vec<Result<Settled>>>,
}

impl Desk {
    fn new(worker: &QueueWorker, visibility: Duration) -> Desk {
        Desk {
            queue: worker.queue.clone(),
            config: worker.config.clone(),
            visibility,
            leases: Leases::new(visibility),
            breaker: Breaker::new(worker.config.breaker),
            settling: Settling::default(),
            receiving: JoinSet::new(),
            running: JoinSet::new(),
            begun: HashMap::new(),
            extending: JoinSet::new(),
            next: 0,
            receives_at: None,
            failures: 0,
            is_stopping: false,
            fatal: None,
            stats: WorkerStats::default(),
        }
    }

    fn stats(&self) -> WorkerStats {
        WorkerStats {
            running: self.running.len(),
            breaker: self.breaker.state(),
            breaker_opened: self.breaker.opened(),
            ..self.stats
        }
    }

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool {
        let is_last = self.is_stopping || self.left_to_begin() == 0;
        is_last && self.running.is_empty() && self.receiving.is_empty() && self.settling.is_empty()
    }

    /// How many messages may still be begun, in all.
    fn left_to_begin(&self) -> usize {
        let left = self.config.messages_max.map(|max| max.saturating_sub(self.stats.begun));
        left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// How many messages may be begun now.
    fn capacity(&mut self, now: Instant) -> usize {
        let allowed = self.breaker.allowed(now, self.config.parallel);
        allowed.saturating_sub(self.running.len()).min(self.left_to_begin())
    }

    /// Asks for messages, if there is capacity and nobody asks already.
    fn receive(&mut self, now: Instant) {
        // A time that has passed is forgotten here whatever else is in the way, or it would wake the loop at
        // once, again and again: `capacity` does the same for the breaker's.
        self.receives_at = self.receives_at.filter(|at| now < *at);
        let capacity = self.capacity(now);
        let is_paused = self.receives_at.is_some();
        let is_full = UNSETTLED_MAX <= self.settling.len();
        let may_ask = capacity != 0 && !is_paused && !is_full && self.receiving.is_empty();
        if self.is_stopping || !may_ask {
            return;
        }
        let options = ReceiveOptions {
            max: capacity.min(BATCH_MAX),
            wait: self.config.wait,
            visibility: Some(self.visibility),
            subscription: self.config.subscription.clone(),
            holder: self.config.holder.clone(),
            attempt_id: None,
        };
        let queue = self.queue.clone();
        self.receiving.spawn(async move { queue.receive(&options).await });
    }

    fn received<H, F>(
        &mut self,
        received: Result<Result<Vec<QueueMessage>>, JoinError>,
        handler: &H,
    ) where
        H: Fn(Work) -> F,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let now = Instant::now();
        match received {
            Ok(Ok(messages)) => {
                self.failures = 0;
                self.is_stopping |= self.config.stops_when_empty
                    && messages.is_empty()
                    && self.running.is_empty()
                    && self.settling.is_empty();
                // The breaker may have opened since they were asked for.
                let capacity = self.capacity(now);
                for (at, message) in messages.into_iter().enumerate() {
                    if at < capacity {
                        self.begin(now, message, handler);
                    } else {
                        self.give_back(message);
                    }
                }
            }
            Ok(Err(error)) => self.receive_failed(now, error),
            // It was taken back.
            Err(_) => {}
        }
    }

    fn receive_failed(&mut self, now: Instant, error: Error) {
        tracing::warn!(%error, queue = self.queue.name(), "a receive failed");
        self.stats.receive_errors += 1;
        if is_for_good(&error) {
            self.fatal = Some(error);
            self.is_stopping = true;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.receives_at = Some(now + self.config.backoff.wait(self.failures));
    }

    fn begin<H, F>(&mut self, now: Instant, message: QueueMessage, handler: &H)
    where
        H: Fn(Work) -> F,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let delivery = self.number();
        let receipt = message.receipt.clone();
        self.leases.begin(now, delivery, receipt.clone());
        let (lost, told) = watch::channel(false);
        let task = self.running.spawn(handler(Work { message, lost: told }));
        self.begun.insert(task.id(), Begun { delivery, receipt, lost });
        self.stats.begun += 1;
    }

    fn number(&mut self) -> Delivery {
        self.next += 1;
        self.next
    }

    fn give_back(&mut self, message: QueueMessage) {
        self.stats.given_back += 1;
        let delivery = self.number();
        self.settling.put(Verb::GiveBack, delivery, message.receipt);
    }

    fn ended(&mut self, ended: Result<(Id, Result<(), HandlerError>), JoinError>) {
        let (id, outcome) = ended.unwrap_or_else(|error| {
            let note = "the handler panicked";
            (error.id(), Err(HandlerError::retry(note)))
        });
        let Some(begun) = self.begun.remove(&id) else { return };
        let is_retry = matches!(outcome, Err(HandlerError::Retry { .. }));
        self.breaker.record(Instant::now(), is_retry);
        let (count, verb) = match outcome {
            Ok(()) => (&mut self.stats.done, Verb::Delete),
            Err(HandlerError::Retry { delay, note }) => {
                (&mut self.stats.retried, Verb::Release { delay, note })
            }
            Err(HandlerError::Reject { reason }) => {
                (&mut self.stats.rejected, Verb::Reject { reason })
            }
        };
        *count += 1;
        // A lost lease gives nothing back, but what is done may be deleted as long as nobody else has it.
        let is_held = self.leases.receipt(begun.delivery).is_some();
        if is_held || verb == Verb::Delete {
            self.settling.put(verb, begun.delivery, begun.receipt);
        }
    }

    fn settled(&mut self, settled: settling::Outcome) {
        for delivery in settled.deliveries {
            self.leases.end(delivery);
        }
        self.stats.settle_errors += settled.failed;
    }

    /// Has leases extended that are due.
    fn extend(&mut self, now: Instant) {
        let due = self.leases.due(now, BATCH_MAX);
        if due.is_empty() {
            return;
        }
        let (asked, receipts): (Vec<Delivery>, Vec<String>) = due.into_iter().unzip();
        let (queue, visibility) = (self.queue.clone(), self.visibility);
        self.extending.spawn(async move {
            // Retried here would be too late: the next one is asked soon.
            let asking = queue.extend(&receipts, visibility);
            let results = tokio::time::timeout(visibility / 3, asking).await;
            let late =
                |_| Error::TimedOut { doing: "an extension".to_owned(), after: visibility / 3 };
            Extended { sent_at: now, asked, results: results.map_err(late).and_then(|told| told) }
        });
    }

    fn extended(&mut self, extended: Result<Extended, JoinError>) {
        // These tasks do not panic, and nothing cancels them.
        let Ok(Extended { sent_at, asked, results }) = extended else { return };
        let now = Instant::now();
        let results =
            results.unwrap_or_else(|error| asked.iter().map(|_| Err(error.clone())).collect());
        for (delivery, result) in asked.into_iter().zip(results) {
            match result {
                Ok(Settled {}) => self.leases.extended(sent_at, delivery),
                Err(error) if is_for_good(&error) => self.lose_one(delivery, &error.to_string()),
                Err(_) => self.leases.not_extended(now, delivery),
            }
        }
    }

    /// Tells handlers whose leases have ended.
    fn lose(&mut self, now: Instant) {
        for delivery in self.leases.lost(now) {
            self.lose_one(delivery, "it could not be extended in time");
        }
    }

    fn lose_one(&mut self, delivery: Delivery, why: &str) {
        self.leases.end(delivery);
        let Some(begun) = self.begun.values().find(|begun| begun.delivery == delivery) else {
            return;
        };
        tracing::warn!(
            queue = self.queue.name(),
            why,
            "the lease of a message was lost while it was worked"
        );
        self.stats.leases_lost += 1;
        begun.lost.send_replace(true);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let receives_at = self.receives_at.filter(|_| !self.is_stopping);
        let opens_at = self.breaker.opens_at().filter(|_| !self.is_stopping);
        [self.leases.next_deadline(), receives_at, opens_at].into_iter().flatten().min()
    }

    /// Receives no more. Who hangs up is handed out nothing; what has arrived meanwhile is given back.
    async fn stop(&mut self) {
        self.is_stopping = true;
        self.receiving.abort_all();
        while let Some(received) = self.receiving.join_next().await {
            if let Ok(Ok(messages)) = received {
                messages.into_iter().for_each(|message| self.give_back(message));
            }
        }
    }
}

/// Whether asking again would be refused again. Limits (422) are reached for a while: others hold too much.
fn is_for_good(error: &Error) -> bool {
    match error {
        Error::HttpRefused { status, .. } => {
            (400..500).contains(status) && !matches!(status, 408 | 421 | 422 | 429)
        }
        Error::InvalidArgument(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
