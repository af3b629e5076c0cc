//! `towpath task show`.

use clap::Args;

use super::{TaskId, count, optional_report};
use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::Report;
use crate::session::Session;
use crate::task_api::Task;

/// Flags of `task show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    task: TaskId,
}

pub(crate) async fn run(session: &Session, args: &ShowArgs) -> Outcome {
    let task = BrokerApi::of_any(session).await.task(&args.task.id).await?;
    session.print(&report(&task))?;
    Ok(Exit::Ok)
}

/// Everything that is known of a task.
pub(in crate::commands) fn report(task: &Task) -> Report {
    let task = task.clone();
    let report = Report::new().field("id", task.id).field("kind", task.kind);
    let report = report.field("state", task.state).field("source", task.source);
    let report = optional_report(report, "reason", task.reason);
    let report = optional_report(report, "destination", task.destination);
    let report = optional_report(report, "filter", task.filter.map(|filter| filter.to_string()));
    let report = optional_report(report, "max", task.max);
    let report = optional_report(report, "rate", task.rate);
    let report = report
        .field("redrives_max", task.redrives_max)
        .field("by", task.by)
        .field("started_ms", task.started_ms)
        .field("changed_ms", task.changed_ms);
    let report = optional_report(report, "changed_by", task.changed_by);
    report
        .field("to_look_at", count(task.to_look_at))
        .field("looked_at", count(task.looked_at))
        .field("moved", count(task.moved))
        .field("passed_over", count(task.passed_over))
        .field("guarded", count(task.guarded))
        .field("stranded", count(task.stranded))
}
