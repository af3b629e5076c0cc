//! A task as JSON.

use serde::Serialize;
use towpath_metadata::{Task, TaskState};

use super::filter::Filter;

#[derive(Debug, Serialize)]
pub(crate) struct TaskView {
    id: String,
    kind: &'static str,
    source: String,
    /// Null: each message to the queue that it came from.
    destination: Option<String>,
    filter: Option<Filter>,
    max: Option<u64>,
    rate: Option<u32>,
    redrives_max: u32,
    state: &'static str,
    /// Why it has failed.
    reason: Option<&'static str>,
    by: String,
    started_ms: i64,
    changed_ms: i64,
    changed_by: Option<String>,
    to_look_at: u64,
    looked_at: u64,
    moved: u64,
    passed_over: u64,
    guarded: u64,
    stranded: u64,
}

impl TaskView {
    pub(super) fn of(task: &Task) -> TaskView {
        let progress = &task.progress;
        TaskView {
            id: task.id.to_string(),
            kind: task.kind.name(),
            source: task.source.name.to_string(),
            destination: task.destination.as_ref().map(|to| to.name.to_string()),
            filter: Filter::read(&task.filter),
            max: task.messages_max,
            rate: task.rate,
            redrives_max: task.redrives_max,
            state: task.state.name(),
            reason: match task.state {
                TaskState::Failed(failure) => Some(failure.text()),
                _ => None,
            },
            by: task.by.clone(),
            started_ms: task.started_at.0,
            changed_ms: task.changed_at.0,
            changed_by: Some(task.changed_by.clone()).filter(|by| !by.is_empty()),
            to_look_at: progress.to_look_at,
            looked_at: progress.looked_at,
            moved: progress.moved,
            passed_over: progress.passed_over,
            guarded: progress.guarded,
            stranded: progress.stranded,
        }
    }
}
