//! StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask: redrives, as our own API starts them too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use towpath_metadata::{Refusal, Task, TaskFailure, TaskKind, TaskOrder, TaskState};
use towpath_model::Uuid;
use towpath_sqs::actions::{ListMessageMoveTasks, MoveTaskStatus, StartMessageMoveTask};
use towpath_sqs::refusals as words;
use towpath_sqs::{Answer, Error, ErrorKind, MoveTask, QueueArn, QueueName};

use crate::tasks::filter::Filter;
use crate::tasks::service::{NotDone, Start, find, list, order, start};

use super::call::Call;
use super::list_queues::is_source_of;
use super::queue::SqsQueue;
use super::refusals;

/// What a handle says, as AWS's do: base64 of this as JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    task_id: String,
    source_arn: String,
}

impl Call<'_> {
    pub(super) async fn start_move_task(
        &self,
        wanted: StartMessageMoveTask,
    ) -> Result<Answer, Error> {
        let source = self.queue_of_task(&wanted.source, "SourceArn").await?;
        let (sources, _) = self.names("", "", 1, |config| is_source_of(config, &source.topic.name));
        if sources.is_empty() {
            return Err(words::source_is_no_dead_letter_queue());
        }
        let destination = match &wanted.destination {
            Some(arn) => Some(self.queue_of_task(arn, "DestinationArn").await?),
            None => None,
        };
        let asked = Start {
            kind: TaskKind::Redrive,
            source: source.name().to_owned(),
            destination: destination.map(|queue| queue.name().to_owned()),
            filter: Filter::default(),
            messages_max: None,
            rate: wanted.messages_per_second_max,
            // AWS lets messages come back for ever.
            redrives_max: u32::MAX,
            by: self.who(),
        };
        let task = start(self.app, asked).await.map_err(not_started)?;
        Ok(Answer::StartMessageMoveTask { task_handle: handle(task.id, &wanted.source) })
    }

    pub(super) async fn list_move_tasks(
        &self,
        wanted: ListMessageMoveTasks,
    ) -> Result<Answer, Error> {
        let source = self.queue_of_task(&wanted.source, "SourceArn").await?;
        let max = usize::try_from(wanted.tasks_max).unwrap_or(usize::MAX);
        let tasks = list(self.app, Some(source.name())).into_iter();
        let tasks = tasks.filter(|task| task.kind == TaskKind::Redrive).take(max);
        Ok(Answer::ListMessageMoveTasks(tasks.filter_map(|task| self.shown(&task)).collect()))
    }

    pub(super) async fn cancel_move_task(&self, handle: String) -> Result<Answer, Error> {
        let (id, source) = read_handle(&handle).ok_or_else(words::task_handle_is_invalid)?;
        let source = self.queue_of_task(&source, "SourceArn").await?;
        let task = find(self.app, id).map_err(not_found)?;
        let is_its = task.source.id == source.topic.id && task.kind == TaskKind::Redrive;
        if !is_its || status(&task) != MoveTaskStatus::Running {
            return Err(words::move_task_does_not_exist());
        }
        let task = order(self.app, id, TaskOrder::Cancel, self.who()).await.map_err(not_found)?;
        Ok(Answer::CancelMessageMoveTask { moved: task.progress.moved })
    }

    async fn queue_of_task(&self, arn: &QueueArn, parameter: &str) -> Result<SqsQueue, Error> {
        self.queue_named(&arn.name).await.map_err(|error| match error.kind() {
            ErrorKind::QueueDoesNotExist => words::move_task_queue_does_not_exist(parameter),
            _ => error,
        })
    }

    /// Who orders something, for people.
    fn who(&self) -> String {
        let id = &self.signer.access_key_id;
        if id.trim().is_empty() { "sqs".to_owned() } else { id.chars().take(60).collect() }
    }

    /// A task as SQS shows it; `None`: it is about a queue that SQS cannot name.
    fn shown(&self, task: &Task) -> Option<MoveTask> {
        let arn = |name: &str| Some(self.arn(QueueName::new(name)?));
        let source = arn(task.source.name.as_str())?;
        Some(MoveTask {
            status: status(task),
            task_handle: handle(task.id, &source),
            source,
            destination: task.destination.as_ref().and_then(|queue| arn(queue.name.as_str())),
            messages_per_second_max: task.rate,
            moved: task.progress.moved,
            to_move: (!task.progress.ends.is_empty()).then_some(task.progress.to_look_at),
            failure_reason: match task.state {
                TaskState::Failed(failure) => Some(failure_reason(failure)),
                _ => None,
            },
            started_at_ms: u64::try_from(task.started_at.0).unwrap_or_default(),
        })
    }
}

/// AWS knows no pause.
fn status(task: &Task) -> MoveTaskStatus {
    match task.state {
        TaskState::Running | TaskState::Paused => MoveTaskStatus::Running,
        TaskState::Cancelled => MoveTaskStatus::Cancelled,
        TaskState::Done => MoveTaskStatus::Completed,
        TaskState::Failed(_) => MoveTaskStatus::Failed,
    }
}

fn failure_reason(failure: TaskFailure) -> String {
    match failure {
        TaskFailure::SourceDeleted | TaskFailure::DestinationDeleted => {
            ErrorKind::QueueDoesNotExist.code()
        }
        TaskFailure::Unreadable
        | TaskFailure::NotDeletable
        | TaskFailure::NotTaken
        | TaskFailure::Subscribed => failure.text().to_owned(),
    }
}

fn not_started(error: NotDone) -> Error {
    match error {
        NotDone::Refused(Refusal::TaskActive { .. }) => words::move_task_is_running(),
        NotDone::Refused(refusal @ Refusal::TooManyTasks(_)) => {
            Error::new(ErrorKind::OverLimit, refusal.to_string())
        }
        error => refusals::of(error.into_error()),
    }
}

fn not_found(error: NotDone) -> Error {
    match error {
        NotDone::Refused(Refusal::UnknownTask(_) | Refusal::TaskOver { .. }) => {
            words::move_task_does_not_exist()
        }
        error => refusals::of(error.into_error()),
    }
}

fn handle(task: Uuid, source: &QueueArn) -> String {
    let handle = Handle { task_id: task.hyphenated(), source_arn: source.to_string() };
    STANDARD.encode(serde_json::to_vec(&handle).expect("texts are JSON"))
}

fn read_handle(handle: &str) -> Option<(Uuid, QueueArn)> {
    let handle: Handle = serde_json::from_slice(&STANDARD.decode(handle).ok()?).ok()?;
    Some((Uuid::from_hyphenated(&handle.task_id)?, QueueArn::parse(&handle.source_arn)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_the_task_and_its_source() {
        // {"taskId": "10f57157-fc38-4da9-a113-4de7e12d05dd", "sourceArn": "arn:aws:sqs:us-east-1:1:q"}
        let written = "eyJ0YXNrSWQiOiAiMTBmNTcxNTctZmMzOC00ZGE5LWExMTMtNGRlN2UxMmQwNWRkIiwgInNvdXJjZUFybiI6ICJhcm46YXdzOnNxczp1cy1lYXN0LTE6MTpxIn0=";
        let (id, source) = read_handle(written).unwrap();
        assert_eq!(id.hyphenated(), "10f57157-fc38-4da9-a113-4de7e12d05dd");
        assert_eq!(source.to_string(), "arn:aws:sqs:us-east-1:1:q");
        assert_eq!(read_handle(&handle(id, &source)), Some((id, source)));
        assert_eq!(read_handle("foobared"), None);
        assert_eq!(read_handle(""), None);
    }
}
