//! `towpath task pause`, `resume` and `cancel`.

use clap::Args;

use super::{By, TaskId, report};
use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::session::Session;

/// Flags of `task pause`, `resume` and `cancel`.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    #[command(flatten)]
    task: TaskId,
    #[command(flatten)]
    by: By,
}

pub(crate) async fn run(session: &Session, verb: &str, args: &OrderArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let id = &args.task.id;
    if session.global.dry_run {
        let task = api.task(id).await?;
        session.say(format!("would {verb} task {id}, which is {}", task.state));
        return Ok(Exit::Ok);
    }
    let task = api.order_task(id, verb, args.by.name()).await?;
    session.say(format!("task {id} is {}", task.state));
    session.print(&report(&task))?;
    Ok(Exit::Ok)
}
