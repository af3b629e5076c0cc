//! What brokers tell over HTTP of tasks that work on queues, as commands read it. `docs/http.md` says what it means;
//! what a command does not show is not here.

use serde::Deserialize;
use serde_json::Value;

use crate::broker_api::{BrokerApi, encoded};
use crate::failure::Outcome;

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

impl BrokerApi {
    /// Starts a task on a queue: `verb` is `redrive` or `drop`.
    pub(crate) async fn start_task(&self, queue: &str, verb: &str, order: &Value) -> Outcome<Task> {
        let path = format!("/queues/{}/{verb}", encoded(queue));
        self.explained(queue, self.call_with("POST", &path, &order.to_string()).await).await
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
        self.explained(queue, self.call_with("POST", &path, &order.to_string()).await).await
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
