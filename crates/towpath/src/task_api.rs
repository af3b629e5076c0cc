//! What brokers tell over HTTP of queues and of the tasks that work on them, as commands read it. `docs/http.md` says what
//! it means; what a command does not show is not here.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::broker_api::{BrokerApi, encoded};
use crate::failure::Outcome;

/// Most pages of queues: a million of them.
const PAGES_MAX: usize = 1_000;

/// `GET /tasks/{task}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) destination: Option<String>,
    pub(crate) filter: Option<Value>,
    pub(crate) max: Option<u64>,
    pub(crate) rate: Option<u32>,
    pub(crate) redrives_max: u32,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) by: String,
    /// Milliseconds since 1970.
    pub(crate) started_ms: i64,
    pub(crate) changed_ms: i64,
    pub(crate) changed_by: Option<String>,
    pub(crate) to_look_at: u64,
    pub(crate) looked_at: u64,
    pub(crate) moved: u64,
    pub(crate) passed_over: u64,
    pub(crate) guarded: u64,
    pub(crate) stranded: u64,
}

impl Task {
    /// Whether it has ended, one way or the other.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.state.as_str(), "running" | "paused")
    }
}

#[derive(Deserialize)]
struct Tasks {
    tasks: Vec<Task>,
}

/// What a task would do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Forecast {
    pub(crate) would_move: u64,
    pub(crate) looked_at: u64,
    pub(crate) passed_over: u64,
    pub(crate) guarded: u64,
    pub(crate) stranded: u64,
    pub(crate) complete: bool,
    pub(crate) examples: Vec<Example>,
}

/// A message that would be moved.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Example {
    pub(crate) id: String,
    pub(crate) value: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) sent_ms: i64,
    headers: Vec<Header>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Header {
    name: String,
    value: Option<String>,
}

impl Example {
    /// The last header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().rfind(|header| header.name == name);
        found.and_then(|header| header.value.as_deref())
    }
}

/// `GET /queues/{queue}`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    settings: Map<String, Value>,
}

impl Queue {
    /// Where its dead letters go.
    pub(crate) fn dead_letter_queue(&self) -> Option<&str> {
        self.settings.get("dead_letter_queue")?.as_str().filter(|name| !name.is_empty())
    }
}

/// `GET /queues/{queue}/stats`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct QueueStats {
    pub(crate) ready: u64,
    pub(crate) in_flight: u64,
    pub(crate) moving: u64,
    pub(crate) oldest_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Queues {
    queues: Vec<ListedQueue>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct ListedQueue {
    name: String,
}

impl BrokerApi {
    /// Every queue.
    pub(crate) async fn queues(&self) -> Outcome<Vec<Queue>> {
        let (mut all, mut path) = (Vec::new(), "/queues".to_owned());
        for _ in 0..PAGES_MAX {
            let page: Queues = self.call("GET", &path).await?;
            for listed in page.queues {
                all.push(self.call("GET", &format!("/queues/{}", encoded(&listed.name))).await?);
            }
            let Some(next) = page.next else { break };
            path = format!("/queues?after={}", encoded(&next));
        }
        Ok(all)
    }

    /// How many messages of a queue are where.
    pub(crate) async fn queue_stats(&self, queue: &str) -> Outcome<QueueStats> {
        self.call("GET", &format!("/queues/{}/stats", encoded(queue))).await
    }

    /// Starts a task on a queue: `verb` is `redrive` or `drop`.
    pub(crate) async fn start_task(&self, queue: &str, verb: &str, order: &Value) -> Outcome<Task> {
        let path = format!("/queues/{}/{verb}", encoded(queue));
        self.call_with("POST", &path, &order.to_string()).await
    }

    /// What such a task would do.
    pub(crate) async fn foresee_task(
        &self,
        queue: &str,
        verb: &str,
        order: &Value,
    ) -> Outcome<Forecast> {
        let mut order = order.clone();
        order["dry_run"] = true.into();
        let path = format!("/queues/{}/{verb}", encoded(queue));
        self.call_with("POST", &path, &order.to_string()).await
    }

    /// Tasks, the newest first.
    pub(crate) async fn tasks(
        &self,
        source: Option<&str>,
        state: Option<&str>,
    ) -> Outcome<Vec<Task>> {
        let given = [("source", source), ("state", state)];
        let pairs = given.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        let query: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let path = format!("/tasks?{}", query.join("&"));
        self.call("GET", path.trim_end_matches('?')).await.map(|Tasks { tasks }| tasks)
    }

    /// A task.
    pub(crate) async fn task(&self, id: &str) -> Outcome<Task> {
        self.call("GET", &format!("/tasks/{}", encoded(id))).await
    }

    /// Pauses, resumes or cancels it.
    pub(crate) async fn order_task(&self, id: &str, verb: &str, by: &str) -> Outcome<Task> {
        let path = format!("/tasks/{}/{verb}?by={}", encoded(id), encoded(by));
        self.call("POST", &path).await
    }
}
