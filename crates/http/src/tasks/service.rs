//! Tasks for every front end: start one, look, order. What is refused is told in the metadata's own words, so
//! that each front end can put it into its own.

use towpath_metadata::{NewTask, Refusal, Reply, Request, Task, TaskKind, TaskOrder};
use towpath_model::Uuid;
use towpath_server::random_uuid;

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::refusals;

use super::filter::Filter;

/// A task that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) kind: TaskKind,
    /// From which queue.
    pub(crate) source: String,
    /// To which queue; `None`: each message to where it came from.
    pub(crate) destination: Option<String>,
    pub(crate) filter: Filter,
    /// How many messages at most.
    pub(crate) messages_max: Option<u64>,
    /// How many messages per second at most.
    pub(crate) rate: Option<u32>,
    /// Messages that came back so often already stay where they are.
    pub(crate) redrives_max: u32,
    /// Who wants it, for people; up to 249 bytes.
    pub(crate) by: String,
}

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// The metadata refuses.
    Refused(Refusal),
    /// It could not be asked.
    Failed(ApiError),
}

impl NotDone {
    /// As this API says it.
    pub(crate) fn into_error(self) -> ApiError {
        match self {
            NotDone::Failed(error) => error,
            NotDone::Refused(refusal) => refusals::of_metadata(&refusal),
        }
    }
}

/// Starts a task.
///
/// # Errors
/// [`NotDone`].
pub(crate) async fn start(app: &App, start: Start) -> Result<Task, NotDone> {
    let filter = start.filter.written().map_err(NotDone::Failed)?;
    let asked = NewTask {
        candidate_id: random_uuid(),
        kind: start.kind,
        source: start.source,
        destination: start.destination,
        filter,
        messages_max: start.messages_max,
        rate: start.rate,
        redrives_max: start.redrives_max,
        by: start.by,
    };
    let task = ask(app, Request::StartTask(asked)).await?;
    tracing::info!(task = %task.id, kind = task.kind.name(), source = %task.source.name,
        destination = task.destination.as_ref().map(|to| to.name.as_str()), filter = %task.filter,
        messages_max = task.messages_max, rate = task.rate, by = %task.by, "a task was started");
    Ok(task)
}

/// Pauses, resumes or cancels a task. Repeating it is no error.
///
/// # Errors
/// [`NotDone`].
pub(crate) async fn order(
    app: &App,
    id: Uuid,
    order: TaskOrder,
    by: String,
) -> Result<Task, NotDone> {
    let task = ask(app, Request::OrderTask { id, order, by: by.clone() }).await?;
    tracing::info!(task = %task.id, kind = task.kind.name(), source = %task.source.name, by,
        state = task.state.name(), moved = task.progress.moved, "a task was ordered: {order:?}");
    Ok(task)
}

/// All tasks, the newest first; only those that take from `source`, if that is said.
pub(crate) fn list(app: &App, source: Option<&str>) -> Vec<Task> {
    let image = app.node.driver().image();
    let wanted = |task: &&Task| source.is_none_or(|source| task.source.name.as_str() == source);
    let mut tasks: Vec<Task> = image.tasks().filter(wanted).cloned().collect();
    tasks.sort_by_key(|task| std::cmp::Reverse((task.started_at, task.id)));
    tasks
}

/// A task.
///
/// # Errors
/// When there is none of this id.
pub(crate) fn find(app: &App, id: Uuid) -> Result<Task, NotDone> {
    let image = app.node.driver().image();
    image.task(id).cloned().ok_or(NotDone::Refused(Refusal::UnknownTask(id)))
}

/// Asks the metadata about a task.
pub(super) async fn ask(app: &App, request: Request) -> Result<Task, NotDone> {
    let failed = |error| NotDone::Failed(refusals::of_unavailable(error));
    match app.node.ask_metadata(request).await.map_err(failed)? {
        Reply::Task(Ok(task)) => Ok(*task),
        Reply::Task(Err(refusal)) => Err(NotDone::Refused(refusal)),
        _ => {
            let message = "the metadata gave an answer out of turn";
            Err(NotDone::Failed(ApiError::new(Code::Internal, message)))
        }
    }
}
