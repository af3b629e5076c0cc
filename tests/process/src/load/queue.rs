//! A work queue under load while brokers die: senders, and workers that delete, give back, or forget what they
//! were given.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::history::{Delivered, DeliveryHistory};
use crate::http;

/// The queue in which order matters.
pub(crate) const LINES: &str = "lines";
/// The one in which it does not.
pub(crate) const JOBS: &str = "jobs";
/// Message groups of each sender to [`LINES`].
const GROUPS: u64 = 4;
const SENDERS: u64 = 2;
const WORKERS: u64 = 6;
/// Until somebody tries again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Between two sends of one sender.
const PACE: Duration = Duration::from_millis(10);
const VISIBILITY: std::ops::Range<u64> = 2_000..8_000;
const DELAY_MS: std::ops::Range<u64> = 100..3_000;
const DELAYED_PERCENT: u8 = 20;
/// What becomes of a message: it is deleted, given back, or forgotten, which is the rest.
const DELETED_PERCENT: u8 = 88;
const RELEASED_PERCENT: u8 = 6;
/// Of what is deleted, so much is held for so long before.
const SLOW_PERCENT: u8 = 10;
const SLOW: std::ops::Range<u64> = 200..2_500;

/// One queue and those who use it.
#[derive(Debug)]
pub(crate) struct QueueLoad {
    queue: &'static str,
    is_ordered: bool,
    brokers: Vec<SocketAddr>,
    began: Instant,
    history: Mutex<DeliveryHistory>,
    next: AtomicU64,
    sending_ends: AtomicBool,
    working_ends: AtomicBool,
}

/// Threads that end when they are told to.
pub(crate) struct Users {
    pub(crate) load: Arc<QueueLoad>,
    senders: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl QueueLoad {
    /// Creates the queue.
    pub(crate) fn create(queue: &'static str, brokers: &[SocketAddr]) -> Result<Arc<QueueLoad>> {
        let is_ordered = queue == LINES;
        let wanted = json!({"name": queue, "settings": {"fifo": is_ordered}});
        http::post(brokers[0], "/queues", &wanted)?.success()?;
        Ok(Arc::new(QueueLoad {
            queue,
            is_ordered,
            brokers: brokers.to_vec(),
            began: Instant::now(),
            history: Mutex::default(),
            next: AtomicU64::new(0),
            sending_ends: AtomicBool::new(false),
            working_ends: AtomicBool::new(false),
        }))
    }

    /// Lets senders and workers begin.
    pub(crate) fn begin(self: Arc<Self>, rng: &mut Rng) -> Users {
        let mut spawn = |count: u64, act: fn(&QueueLoad, &mut Rng, u64)| {
            (0..count)
                .map(|number| {
                    let (load, mut rng) = (Arc::clone(&self), Rng::with_seed(rng.u64(..)));
                    thread::spawn(move || act(&load, &mut rng, number))
                })
                .collect()
        };
        let senders = spawn(SENDERS, QueueLoad::send);
        let workers = spawn(WORKERS, QueueLoad::work);
        Users { load: self, senders, workers }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, DeliveryHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the history.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn queue(&self) -> &'static str {
        self.queue
    }

    /// What the queue says of its messages, as far as somebody answers.
    pub(crate) fn look(&self) -> String {
        let ways = ["stats", "peek?state=ready", "peek?state=held", "peek?state=delayed"];
        let told = ways.map(|way| {
            let path = format!("/queues/{}/{way}", self.queue);
            let answer = http::get(self.brokers[0], &path).and_then(|answer| answer.json());
            format!("{way}: {}", answer.unwrap_or_default())
        });
        told.join("; ")
    }

    fn ask(&self, rng: &mut Rng, verb: &str, body: &Value) -> Result<Value> {
        let at = self.brokers[rng.usize(..self.brokers.len())];
        http::post(at, &format!("/queues/{}/{verb}", self.queue), body)?.success()
    }

    /// Sends one message after the other, each until it is acknowledged: by its id it is one message.
    fn send(&self, rng: &mut Rng, sender: u64) {
        while !self.sending_ends.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let mut message = json!({"value": number.to_string(), "dedup_id": number.to_string()});
            let group = self.is_ordered.then(|| sender * GROUPS + rng.u64(..GROUPS));
            let mut due = Duration::ZERO;
            if let Some(group) = group {
                message["group"] = group.to_string().into();
            } else if rng.u8(..100) < DELAYED_PERCENT {
                let delay_ms = rng.u64(DELAY_MS);
                message["delay_ms"] = delay_ms.into();
                due = self.now() + Duration::from_millis(delay_ms);
            }
            self.history().sending(number, group, due);
            loop {
                match self.ask(rng, "messages", &message) {
                    Ok(_) => break self.history().acknowledged(number),
                    Err(_) if self.sending_ends.load(Ordering::Relaxed) => return,
                    Err(_) => thread::sleep(AGAIN_AFTER),
                }
            }
            thread::sleep(PACE);
        }
    }

    fn work(&self, rng: &mut Rng, _: u64) {
        while !self.working_ends.load(Ordering::Relaxed) {
            let visibility_ms = rng.u64(VISIBILITY);
            let wanted =
                json!({"max": rng.u32(1..=10), "wait_ms": 500, "visibility_ms": visibility_ms});
            let receive = self.next.fetch_add(1, Ordering::Relaxed);
            let asked = self.now();
            let Ok(received) = self.ask(rng, "receive", &wanted) else {
                thread::sleep(AGAIN_AFTER);
                continue;
            };
            let answered = self.now();
            let visibility = Duration::from_millis(visibility_ms);
            for message in received["messages"].as_array().into_iter().flatten() {
                let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
                let delivery = self.history().delivered(Delivered {
                    message: text("value").parse().unwrap_or(u64::MAX),
                    id: text("id"),
                    receive,
                    asked,
                    answered,
                    visibility,
                    receives: message["receives"].as_u64().unwrap_or_default(),
                });
                self.finish(rng, delivery, &text("receipt"));
            }
        }
    }

    fn finish(&self, rng: &mut Rng, delivery: usize, receipt: &str) {
        // At the end everything is worked that comes.
        let is_end = self.sending_ends.load(Ordering::Relaxed);
        let fate = if is_end { 0 } else { rng.u8(..100) };
        let receipts = json!({"receipts": [receipt]});
        if fate < DELETED_PERCENT {
            if !is_end && rng.u8(..100) < SLOW_PERCENT {
                thread::sleep(Duration::from_millis(rng.u64(SLOW)));
            }
            self.history().gives_up(delivery, self.now());
            match self.ask(rng, "delete", &receipts) {
                Ok(answer) if answer["results"][0]["error"].is_null() => {
                    self.history().deleted(delivery, self.now());
                }
                // The receipt was of no use any more, or the partition could not be asked.
                Ok(answer) if is_stale(&answer["results"][0]["error"]) => {}
                _ => self.history().perhaps_deleted(delivery),
            }
        } else if fate < DELETED_PERCENT + RELEASED_PERCENT {
            self.history().gives_up(delivery, self.now());
            let _ = self.ask(rng, "release", &receipts);
        }
    }
}

fn is_stale(error: &Value) -> bool {
    error["code"] == "RECEIPT_STALE"
}

impl Users {
    /// No more is sent; when nothing is left, the workers go too. Gives back what was left after so long.
    pub(crate) fn end(self, patience: Duration) -> Result<Vec<u64>> {
        let Users { load, senders, workers } = self;
        load.sending_ends.store(true, Ordering::Relaxed);
        for sender in senders {
            sender.join().map_err(|_| anyhow::anyhow!("a sender panicked"))?;
        }
        let deadline = Instant::now() + patience;
        let left = loop {
            let left = load.history().left();
            if left.is_empty() || deadline <= Instant::now() {
                break left;
            }
            thread::sleep(Duration::from_millis(100));
        };
        load.working_ends.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
        }
        Ok(left)
    }
}
