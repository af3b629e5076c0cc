//! `towpath task`: one file per verb.

mod ls;
mod order;
mod show;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use tokio::time::sleep;

use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report};
use crate::session::Session;
use crate::task_api::Task;

pub(super) use show::report;

/// Between two looks at how far a task is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The verbs of `task`.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks, the newest first
    #[command(alias = "list", alias = "get")]
    Ls(ls::LsArgs),
    /// Show one task: what was ordered, and how far it is
    #[command(alias = "describe", alias = "info")]
    Show(show::ShowArgs),
    /// Stop a task until it is resumed
    Pause(order::OrderArgs),
    /// Let a paused task go on
    Resume(order::OrderArgs),
    /// End a task; what it has moved stays moved
    Cancel(order::OrderArgs),
}

/// Which task.
#[derive(Debug, Args)]
pub(super) struct TaskId {
    /// The task's id
    #[arg(value_name = "TASK", allow_hyphen_values = true)]
    id: String,
}

/// Who orders something.
#[derive(Debug, Args)]
pub(super) struct By {
    /// Who orders it, for the record [default: the user who runs this]
    #[arg(long, value_name = "NAME", env = "USER", hide_env = true)]
    by: Option<String>,
}

impl By {
    pub(super) fn name(&self) -> &str {
        self.by.as_deref().unwrap_or("somebody")
    }
}

pub(crate) async fn run(session: &Session, command: TaskCommand) -> Outcome {
    match command {
        TaskCommand::Ls(args) => ls::run(session, &args).await,
        TaskCommand::Show(args) => show::run(session, &args).await,
        TaskCommand::Pause(args) => order::run(session, "pause", &args).await,
        TaskCommand::Resume(args) => order::run(session, "resume", &args).await,
        TaskCommand::Cancel(args) => order::run(session, "cancel", &args).await,
    }
}

/// Waits until a task is over, and says how far it is. Whoever was asked first may be gone meanwhile.
pub(super) async fn wait(session: &Session, task: Task, limit: Option<Duration>) -> Outcome<Task> {
    let began = Instant::now();
    let mut task = task;
    loop {
        if task.is_over() {
            return Ok(task);
        }
        if limit.is_some_and(|limit| limit <= began.elapsed()) {
            let message = format!("task {} is {} and goes on", task.id, task.state);
            return Err(Failure::new(message).with_try(format!("towpath task show {}", task.id)));
        }
        sleep(LOOK_EVERY).await;
        let seen = BrokerApi::of_any(session).await.task(&task.id).await;
        match seen {
            Ok(seen) => {
                if seen.moved != task.moved || seen.state != task.state {
                    session.say(format!("{}: {} moved", seen.state, seen.moved));
                }
                task = seen;
            }
            Err(failure) if failure.exit == Exit::Unreachable => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Prints a task; one that has failed, or was cancelled while it was waited for, is a failure.
pub(super) fn print(session: &Session, task: &Task) -> Outcome {
    session.print(&report(task))?;
    match task.state.as_str() {
        "failed" => Err(Failure::new(format!(
            "task {} has failed: {}",
            task.id,
            task.reason.as_deref().unwrap_or("it does not say why")
        ))),
        "cancelled" => Err(Failure::new(format!(
            "task {} was cancelled by {}",
            task.id,
            task.changed_by.as_deref().unwrap_or("somebody")
        ))),
        _ => Ok(Exit::Ok),
    }
}

fn count(count: u64) -> Cell {
    Cell::count(i64::try_from(count).unwrap_or(i64::MAX))
}

fn optional_report(report: Report, name: &'static str, cell: Option<impl Into<Cell>>) -> Report {
    report.field(name, Cell::or_none(cell))
}
