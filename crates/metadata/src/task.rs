//! Long work on queues that somebody ordered: dead letters that go back, or are dropped; a queue that is given up.
//!
//! ```text
//!             ┌─ pause ─▶ paused ─ resume ─┐
//! start ─▶ running ◀───────────────────────┘
//!             ├─▶ done         everything before `ends` has been looked at
//!             ├─▶ cancelled    somebody has had enough
//!             └─▶ failed       a queue is gone
//! ```
//!
//! A task is a fact of the cluster, so it outlives the broker that works on it: `run` says whose turn it is, and
//! what a broker writes down before it moves messages (`in_hand`) is finished by the next one.

use serde::{Deserialize, Serialize};
use towpath_model::{Offset, PartitionIndex, Timestamp, TopicId, TopicName, TopicPartition, Uuid};

use crate::image::Image;

/// Tasks that are not over, at most.
pub const TASKS_ACTIVE_MAX: usize = 100;
/// Tasks that are over and are kept to be looked up, the newest ones.
pub const TASKS_KEPT: usize = 300;
/// Messages that a broker takes in hand at once, at most.
pub const IN_HAND_MAX: usize = 500;
/// Bytes of a filter, as it is written down.
pub const FILTER_BYTES_MAX: usize = 16 << 10;
/// Bytes of a name of who has ordered something.
pub(crate) const BY_BYTES_MAX: usize = 249;
/// A message that came back so often already stays where it is, unless the task says otherwise.
pub const REDRIVES_MAX_USUAL: u32 = 3;

/// What a task does with the messages that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskKind {
    /// They go to another queue, or each back to where it came from.
    Redrive,
    /// They are dropped.
    Drop,
    /// All go to the dead-letter queue, held ones too, and their queue is deleted.
    Retire,
}

/// A queue as a task names it: its name may be another one's by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskQueue {
    /// Its identity.
    pub id: TopicId,
    /// Its name when the task began.
    pub name: TopicName,
}

/// A task that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// A random id that the caller drew for it.
    pub candidate_id: Uuid,
    /// What it does.
    pub kind: TaskKind,
    /// From which queue, by name.
    pub source: String,
    /// To which queue, by name; `None`: each message to where it came from. Who retires a queue names one.
    pub destination: Option<String>,
    /// Which messages, in a form that the metadata does not read; empty: all.
    pub filter: String,
    /// How many messages at most.
    pub messages_max: Option<u64>,
    /// How many messages per second; `None`: as fast as it goes.
    pub rate: Option<u32>,
    /// Messages that came back so often already stay where they are.
    pub redrives_max: u32,
    /// Who wants it, for people.
    pub by: String,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its identity.
    pub id: Uuid,
    /// What it does.
    pub kind: TaskKind,
    /// From which queue.
    pub source: TaskQueue,
    /// To which queue; `None`: each message to where it came from.
    pub destination: Option<TaskQueue>,
    /// Which messages, as [`NewTask::filter`] says.
    pub filter: String,
    /// How many messages at most.
    pub messages_max: Option<u64>,
    /// How many messages per second.
    pub rate: Option<u32>,
    /// Messages that came back so often already stay where they are.
    pub redrives_max: u32,
    /// Who has started it.
    pub by: String,
    /// When.
    pub started_at: Timestamp,
    /// How it stands.
    pub state: TaskState,
    /// Since when it stands so.
    pub changed_at: Timestamp,
    /// Who has paused, resumed or cancelled it last; empty: nobody.
    pub changed_by: String,
    /// How often a broker has taken it on. Only the last one that has may report.
    pub run: u32,
    /// How far it is.
    pub progress: TaskProgress,
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// A broker works on it.
    Running,
    /// It waits until somebody resumes it.
    Paused,
    /// Somebody has ended it.
    Cancelled,
    /// Everything has been looked at.
    Done,
    /// It cannot go on.
    Failed(TaskFailure),
}

/// Why a task cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskFailure {
    /// The queue that it takes from is gone.
    SourceDeleted,
    /// The queue that it moves to is gone.
    DestinationDeleted,
    /// What it was ordered to do cannot be read by the program that works on it.
    Unreadable,
    /// It has emptied its queue, which may not be deleted any more.
    NotDeletable,
    /// Its destination does not take what is left in its queue.
    NotTaken,
    /// Its queue has got subscriptions, which its destination could not tell from the queue itself.
    Subscribed,
}

/// How far a task is.
///
/// Invariant: `in_hand` are offsets of the partition `at.0`, [`IN_HAND_MAX`] at most.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Messages that were there to be taken when it began; an upper bound where others take some.
    pub to_look_at: u64,
    /// Messages that it has looked at.
    pub looked_at: u64,
    /// Messages that are on their way or there, or were dropped.
    pub moved: u64,
    /// Messages that the filter does not want.
    pub passed_over: u64,
    /// Messages that came back too often already.
    pub guarded: u64,
    /// Messages that came from nowhere that is there, or that cannot be read.
    pub stranded: u64,
    /// By partition, where it ends: what came later is none of its business. Empty: it has not begun.
    pub ends: Vec<Offset>,
    /// Where it goes on.
    pub at: (PartitionIndex, Offset),
    /// Messages that are moved now; not counted in `moved` yet.
    pub in_hand: Vec<Offset>,
}

/// What somebody orders of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOrder {
    /// It stops until it is resumed.
    Pause,
    /// It goes on.
    Resume,
    /// It ends.
    Cancel,
}

/// What the broker reports that works on a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Which task.
    pub id: Uuid,
    /// By which run of it.
    pub run: u32,
    /// How far it is.
    pub progress: TaskProgress,
    /// How it ended, if it has: [`TaskState::Done`] or [`TaskState::Failed`].
    pub end: Option<TaskState>,
}

impl TaskKind {
    /// For people, in the API and in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Redrive => "redrive",
            TaskKind::Drop => "drop",
            TaskKind::Retire => "retire",
        }
    }
}

impl TaskState {
    /// For people, in the API and in logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            TaskState::Running => "running",
            TaskState::Paused => "paused",
            TaskState::Cancelled => "cancelled",
            TaskState::Done => "done",
            TaskState::Failed(_) => "failed",
        }
    }

    /// Whether it may still move something.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self, TaskState::Running | TaskState::Paused)
    }
}

impl TaskFailure {
    /// For people, in the API and in logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            TaskFailure::SourceDeleted => "the source queue was deleted",
            TaskFailure::DestinationDeleted => "the destination queue was deleted",
            TaskFailure::Unreadable => "the task was ordered by a newer program",
            TaskFailure::NotTaken => {
                "the destination queue does not take what is left: a look at those messages says why (towpath peek)"
            }
            TaskFailure::Subscribed => {
                "the source queue has got a subscription, and what that has not worked would be lost: delete it, and give up the queue again"
            }
            TaskFailure::NotDeletable => {
                "the source queue was emptied, and may not be deleted: set delete.topic.enable=true on the brokers, and delete it again"
            }
        }
    }
}

impl Task {
    /// The partition whose leader works on it.
    #[must_use]
    pub fn seat(&self) -> TopicPartition {
        TopicPartition { topic: self.source.id, partition: PartitionIndex(0) }
    }
}

impl Image {
    /// All tasks, those that are over too, in no order that means anything.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// A task.
    #[must_use]
    pub fn task(&self, id: Uuid) -> Option<&Task> {
        self.tasks.get(&id)
    }

    /// Whether a task moves everything out of a queue before it is deleted.
    pub(crate) fn is_given_up(&self, queue: TopicId) -> bool {
        self.active_tasks().any(|task| task.kind == TaskKind::Retire && task.source.id == queue)
    }

    pub(crate) fn active_tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks().filter(|task| task.state.is_active())
    }
}
