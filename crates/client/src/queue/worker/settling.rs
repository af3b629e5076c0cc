//! Messages that have ended and are to be settled, in as few requests as there are verbs.
//!
//! One request of a verb is under way at a time; what ends meanwhile goes with the next one. Requests are
//! tried again by the client itself; what fails then is given up, and comes back when its lease ends.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::error::Result;
use crate::queue::client::{BATCH_MAX, Queue, Settled};

use super::leases::Delivery;

/// Requests that are under way at once: verbs with words of their own are many.
const REQUESTS_MAX: usize = 8;

/// What is to become of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verb {
    Delete,
    Release { delay: Option<Duration>, note: Option<String> },
    Reject { reason: String },
    GiveBack,
}

/// What has ended, and what is being settled.
#[derive(Debug, Default)]
pub(super) struct Settling {
    waiting: Vec<(Verb, Delivery, String)>,
    /// Verbs that are under way.
    verbs: Vec<Verb>,
    requests: JoinSet<Outcome>,
    under_way: usize,
}

/// What became of messages.
#[derive(Debug)]
pub(super) struct Outcome {
    verb: Verb,
    pub(super) deliveries: Vec<Delivery>,
    /// How many of them were not settled.
    pub(super) failed: u64,
}

impl Settling {
    pub(super) fn put(&mut self, verb: Verb, delivery: Delivery, receipt: String) {
        self.waiting.push((verb, delivery, receipt));
    }

    /// Messages that are not settled.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.under_way
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins the requests that can be begun.
    pub(super) fn begin_requests(&mut self, queue: &Queue) {
        while self.verbs.len() < REQUESTS_MAX {
            let free = self.waiting.iter().find(|(verb, _, _)| !self.verbs.contains(verb));
            let Some(verb) = free.map(|(verb, _, _)| verb.clone()) else { break };
            let (deliveries, receipts) = self.take(&verb);
            self.under_way += deliveries.len();
            self.verbs.push(verb.clone());
            self.requests.spawn(settle(queue.clone(), verb, deliveries, receipts));
        }
    }

    /// As many of this verb as a request takes.
    fn take(&mut self, verb: &Verb) -> (Vec<Delivery>, Vec<String>) {
        let mut left = BATCH_MAX;
        let mut is_taken = |waiting: &(Verb, Delivery, String)| {
            let is_taken = waiting.0 == *verb && 0 < left;
            left -= usize::from(is_taken);
            is_taken
        };
        let taken = self.waiting.extract_if(.., |waiting| is_taken(waiting));
        taken.map(|(_, delivery, receipt)| (delivery, receipt)).unzip()
    }

    /// What a request has come to; nothing when none is under way.
    pub(super) async fn next(&mut self) -> Option<Outcome> {
        // These tasks do not panic, and nothing cancels them.
        let outcome = self.requests.join_next().await?.ok()?;
        self.under_way -= outcome.deliveries.len();
        self.verbs.retain(|verb| *verb != outcome.verb);
        Some(outcome)
    }
}

async fn settle(
    queue: Queue,
    verb: Verb,
    deliveries: Vec<Delivery>,
    receipts: Vec<String>,
) -> Outcome {
    let settled: Result<Vec<Result<Settled>>> = match &verb {
        Verb::Delete => queue.delete(&receipts).await,
        Verb::Release { delay, note } => queue.release(&receipts, *delay, note.as_deref()).await,
        Verb::Reject { reason } => queue.reject(&receipts, reason).await,
        Verb::GiveBack => queue.give_back(&receipts).await,
    };
    let results =
        settled.unwrap_or_else(|error| receipts.iter().map(|_| Err(error.clone())).collect());
    let mut failed = 0;
    for error in results.into_iter().filter_map(Result::err) {
        tracing::warn!(%error, queue = queue.name(), "a message could not be settled: it comes back");
        failed += 1;
    }
    Outcome { verb, deliveries, failed }
}
