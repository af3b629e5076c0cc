//! What queues tell over HTTP, as commands read it. `docs/http.md` says what it means; what a command does
//! not show is not here.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::broker_api::{BrokerApi, encoded};
use crate::failure::{Failure, Outcome};
use crate::suggest::closest;

/// Queues that are asked for something at a time.
const ASKED_AT_ONCE: usize = 16;
/// Most messages of one look.
pub(crate) const LOOK_MAX: usize = 500;

#[derive(Deserialize)]
struct Page {
    queues: Vec<ListedQueue>,
    next: Option<String>,
}

/// A queue of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ListedQueue {
    pub(crate) name: String,
    pub(crate) fifo: bool,
}

/// `GET /queues/{queue}`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ShownQueue {
    pub(crate) name: String,
    pub(crate) partitions: usize,
    pub(crate) settings: BTreeMap<String, Value>,
}

impl ShownQueue {
    pub(crate) fn dead_letter_queue(&self) -> Option<&str> {
        self.settings.get("dead_letter_queue")?.as_str().filter(|name| !name.is_empty())
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.settings.get("fifo") == Some(&Value::Bool(true))
    }
}

/// `GET /queues/{queue}/stats`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct QueueStats {
    pub(crate) ready: u64,
    pub(crate) in_flight: u64,
    pub(crate) delayed: u64,
    pub(crate) moving: u64,
    pub(crate) unmovable: u64,
    pub(crate) ready_groups: u64,
    pub(crate) held_groups: u64,
    pub(crate) receivers: u64,
    pub(crate) oldest_waiting_ms: Option<u64>,
    pub(crate) oldest_ms: Option<u64>,
    pub(crate) dead: Option<u64>,
    pub(crate) arrivals_per_second: f64,
    pub(crate) served_per_second: f64,
    pub(crate) processing_p50_ms: Option<u64>,
    pub(crate) processing_p99_ms: Option<u64>,
    pub(crate) suggested_visibility_timeout_ms: Option<u64>,
    pub(crate) counts: QueueCounts,
    pub(crate) notices: Vec<Notice>,
    pub(crate) partitions_missing: Vec<i32>,
}

impl QueueStats {
    /// Messages that are there, wherever they are.
    pub(crate) fn depth(&self) -> u64 {
        self.ready + self.in_flight + self.delayed + self.moving
    }
}

/// What happened how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct QueueCounts {
    pub(crate) received: u64,
    pub(crate) returned: BTreeMap<String, u64>,
}

/// What the broker says should be known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Notice {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// `GET /queues/{queue}/peek`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Peeked {
    pub(crate) messages: Vec<PeekedMessage>,
    pub(crate) next: Option<String>,
    #[serde(default)]
    pub(crate) partitions_missing: Vec<i32>,
}

/// A message that somebody looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct PeekedMessage {
    pub(crate) id: String,
    pub(crate) value: Option<String>,
    pub(crate) value_encoding: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) headers: Vec<PeekedHeader>,
    pub(crate) receives: u32,
    pub(crate) age_ms: u64,
    pub(crate) state: String,
    pub(crate) holder: Option<String>,
    pub(crate) held_ms: Option<u64>,
    pub(crate) left_ms: Option<u64>,
    /// Why its last deliveries ended, the newest last.
    pub(crate) history: Vec<PeekedAttempt>,
}

/// A header of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct PeekedHeader {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// A delivery that is over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct PeekedAttempt {
    pub(crate) why: String,
    pub(crate) note: Option<String>,
}

impl PeekedMessage {
    /// The value of its last header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().rfind(|header| header.name == name)?.value.as_deref()
    }
}

#[derive(Deserialize)]
struct Purged {
    purged: u64,
}

impl BrokerApi {
    /// Every queue.
    pub(crate) async fn queues(&self) -> Outcome<Vec<ListedQueue>> {
        let (mut all, mut path) = (Vec::new(), "/queues".to_owned());
        loop {
            let page: Page = self.call("GET", &path).await?;
            all.extend(page.queues);
            let Some(next) = page.next else { return Ok(all) };
            path = format!("/queues?after={}", encoded(&next));
        }
    }

    /// How a queue is configured.
    pub(crate) async fn queue(&self, name: &str) -> Outcome<ShownQueue> {
        self.explained(name, self.call("GET", &queue_path(name, "")).await).await
    }

    /// How it does.
    pub(crate) async fn queue_stats(&self, name: &str) -> Outcome<QueueStats> {
        self.explained(name, self.call("GET", &queue_path(name, "/stats")).await).await
    }

    /// The same of several, in their order, as far as they can be asked.
    pub(crate) async fn stats_of_each(&self, names: Vec<String>) -> Vec<Outcome<QueueStats>> {
        let ask = async |name: String| self.queue_stats(&name).await;
        stream::iter(names).map(ask).buffered(ASKED_AT_ONCE).collect().await
    }

    /// How several are configured, in their order.
    pub(crate) async fn each_queue(&self, names: Vec<String>) -> Vec<Outcome<ShownQueue>> {
        let ask = async |name: String| self.queue(&name).await;
        stream::iter(names).map(ask).buffered(ASKED_AT_ONCE).collect().await
    }

    /// Looks at up to `max` messages; all states if none is named.
    pub(crate) async fn peek(
        &self,
        name: &str,
        state: Option<&str>,
        max: usize,
    ) -> Outcome<Peeked> {
        let mut seen = Peeked::default();
        let state = state.map_or_else(String::new, |state| format!("&state={state}"));
        let mut from = String::new();
        while seen.messages.len() < max {
            let some = (max - seen.messages.len()).min(LOOK_MAX);
            let path = queue_path(name, &format!("/peek?max={some}{state}{from}"));
            let more: Peeked = self.explained(name, self.call("GET", &path).await).await?;
            seen.messages.extend(more.messages);
            seen.partitions_missing.extend(more.partitions_missing);
            seen.next = more.next;
            let Some(next) = &seen.next else { break };
            from = format!("&from={}", encoded(next));
        }
        Ok(seen)
    }

    /// Creates a queue.
    pub(crate) async fn create_queue(&self, wanted: &Value) -> Outcome<ShownQueue> {
        self.call_with("POST", "/queues", &wanted.to_string()).await
    }

    /// Changes settings; null brings a default back.
    pub(crate) async fn set_queue(
        &self,
        name: &str,
        settings: &BTreeMap<String, Value>,
    ) -> Outcome<ShownQueue> {
        let body = json!({ "settings": settings });
        self.explained(
            name,
            self.call_with("PATCH", &queue_path(name, ""), &body.to_string()).await,
        )
        .await
    }

    /// Deletes a queue and everything in it.
    pub(crate) async fn delete_queue(&self, name: &str) -> Outcome<()> {
        let deleted: Outcome<Value> = self.call("DELETE", &queue_path(name, "")).await;
        self.explained(name, deleted.map(drop)).await
    }

    /// Forgets every message of a queue; how many it was.
    pub(crate) async fn purge_queue(&self, name: &str) -> Outcome<u64> {
        let purged = self.call_with("POST", &queue_path(name, "/purge"), "{}").await;
        self.explained(name, purged.map(|Purged { purged }| purged)).await
    }

    /// An error that knows similar names, where there is no such queue.
    pub(crate) async fn explained<T>(&self, name: &str, outcome: Outcome<T>) -> Outcome<T> {
        match outcome {
            Err(failure) => Err(self.explain(name, failure).await),
            done => done,
        }
    }

    /// The same for a failure that came another way.
    pub(crate) async fn explain(&self, name: &str, failure: Failure) -> Failure {
        match failure.code.as_str() {
            // Another queue that the same order names may be the one that is not there.
            "QUEUE_NOT_FOUND" if failure.message.contains(&format!("{name:?}")) => {}
            "NOT_A_QUEUE" => {
                return Failure { help: None, ..failure }
                    .with_try(format!("towpath topic set {name} queue.enable=true"));
            }
            _ => return failure,
        }
        // The API's own advice is about HTTP.
        let failure =
            Failure { help: None, ..failure }.with_try(format!("towpath queue create {name}"));
        let Ok(queues) = self.queues().await else { return failure };
        match closest(name, queues.iter().map(|queue| queue.name.as_str())) {
            Some(meant) => failure.with_help(format!("did you mean {meant:?}?")),
            None => failure,
        }
    }
}

fn queue_path(name: &str, rest: &str) -> String {
    format!("/queues/{}{rest}", encoded(name))
}
