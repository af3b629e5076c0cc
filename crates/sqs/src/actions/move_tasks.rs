//! Bringing dead letters back: StartMessageMoveTask and ListMessageMoveTasks. CancelMessageMoveTask
//! says no more than which task.

use crate::arn::QueueArn;
use crate::error::Error;
use crate::limits::{LISTED_MOVE_TASKS, MOVED_MESSAGES_PER_SECOND};
use crate::wire::{Fields, Writer};

/// Begins to move all messages of a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartMessageMoveTask {
    /// The dead-letter queue.
    pub source: QueueArn,
    /// Where to; else each message goes back to the queue that it came from.
    pub destination: Option<QueueArn>,
    /// How many per second at most, 1 to 500; else the server says.
    pub messages_per_second_max: Option<u32>,
}

impl StartMessageMoveTask {
    pub(super) fn read(fields: &mut Fields) -> Result<StartMessageMoveTask, Error> {
        let source = arn(&fields.required("SourceArn")?, "SourceArn")?;
        let destination = fields.text("DestinationArn")?.filter(|text| !text.is_empty());
        let destination = destination.map(|text| arn(&text, "DestinationArn")).transpose()?;
        let rate = fields.integer("MaxNumberOfMessagesPerSecond")?;
        if let Some(rate) = rate.filter(|rate| !MOVED_MESSAGES_PER_SECOND.contains(rate)) {
            let reason = "Must be between 1 and 500, if provided.";
            return Err(Error::invalid_value(rate, "MaxNumberOfMessagesPerSecond", reason));
        }
        let messages_per_second_max = rate.map(|rate| rate as u32);
        Ok(StartMessageMoveTask { source, destination, messages_per_second_max })
    }
}

/// Asks what has been moved of a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMessageMoveTasks {
    /// The dead-letter queue.
    pub source: QueueArn,
    /// How many of the newest tasks, 1 to 10.
    pub tasks_max: u32,
}

impl ListMessageMoveTasks {
    pub(super) fn read(fields: &mut Fields) -> Result<ListMessageMoveTasks, Error> {
        let source = arn(&fields.required("SourceArn")?, "SourceArn")?;
        let tasks_max = fields.integer("MaxResults")?.unwrap_or(1);
        if !LISTED_MOVE_TASKS.contains(&tasks_max) {
            let reason = "Must be between 1 and 10, if provided.";
            return Err(Error::invalid_value(tasks_max, "MaxResults", reason));
        }
        Ok(ListMessageMoveTasks { source, tasks_max: tasks_max as u32 })
    }
}

fn arn(text: &str, parameter: &str) -> Result<QueueArn, Error> {
    QueueArn::parse(text).ok_or_else(|| {
        Error::invalid_parameter(format!(
            "You must use this format to specify the {parameter}: \
             arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        ))
    })
}

/// A task that moves messages, or has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveTask {
    /// How far it is. Only while it runs are clients told its handle.
    pub status: MoveTaskStatus,
    /// By which it can be cancelled.
    pub task_handle: String,
    /// The dead-letter queue.
    pub source: QueueArn,
    /// Where to, if that was said.
    pub destination: Option<QueueArn>,
    /// How many per second at most, if that was said.
    pub messages_per_second_max: Option<u32>,
    /// How many were moved.
    pub moved: u64,
    /// How many there were when it began, as far as is known.
    pub to_move: Option<u64>,
    /// Why it has failed, such as `AWS.SimpleQueueService.NonExistentQueue`.
    pub failure_reason: Option<String>,
    /// When it began, in milliseconds since 1970.
    pub started_at_ms: u64,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "AWS's names")]
pub enum MoveTaskStatus {
    Running,
    Completed,
    Cancelling,
    Cancelled,
    Failed,
}

impl MoveTaskStatus {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            MoveTaskStatus::Running => "RUNNING",
            MoveTaskStatus::Completed => "COMPLETED",
            MoveTaskStatus::Cancelling => "CANCELLING",
            MoveTaskStatus::Cancelled => "CANCELLED",
            MoveTaskStatus::Failed => "FAILED",
        }
    }
}

pub(super) fn write(writer: &mut Writer, tasks: &[MoveTask]) {
    if !tasks.is_empty() {
        writer.structures("Results", "ListMessageMoveTasksResultEntry", tasks, write_task);
    }
}

fn write_task(writer: &mut Writer, task: &MoveTask) {
    if task.status == MoveTaskStatus::Running {
        writer.text("TaskHandle", &task.task_handle);
    }
    writer.text("Status", task.status.name());
    writer.text("SourceArn", &task.source.to_string());
    if let Some(destination) = &task.destination {
        writer.text("DestinationArn", &destination.to_string());
    }
    if let Some(rate) = task.messages_per_second_max {
        writer.number("MaxNumberOfMessagesPerSecond", u64::from(rate));
    }
    writer.number("ApproximateNumberOfMessagesMoved", task.moved);
    if let Some(to_move) = task.to_move {
        writer.number("ApproximateNumberOfMessagesToMove", to_move);
    }
    writer.optional("FailureReason", task.failure_reason.as_deref());
    writer.number("StartedTimestamp", task.started_at_ms);
}
