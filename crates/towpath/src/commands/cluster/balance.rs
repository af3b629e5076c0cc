//! `towpath cluster balance`: lets nodes lead and hold about as much as each other.

use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::sleep;

use super::moves::{bytes_left, timed_out};
use crate::broker_api::BrokerApi;
use crate::cluster_api::BalancePlan;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;
use crate::units::{bytes_in_words, parse_duration, plural};

/// Between two looks at how far it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Flags of `cluster balance`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath cluster balance --plan, then without --plan")]
pub(crate) struct BalanceArgs {
    /// Only show what would move; an empty plan: nothing has to
    #[arg(long)]
    plan: bool,
    /// Wait until everything has moved; say how far it is
    #[arg(short, long, conflicts_with = "plan")]
    wait: bool,
    /// Wait no longer than this; what was ordered goes on
    #[arg(long, requires = "wait", value_parser = parse_duration, value_name = "DURATION")]
    wait_max: Option<Duration>,
}

pub(crate) async fn run(session: &Session, args: &BalanceArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    if args.plan || session.global.dry_run {
        let plan = api.balance_plan().await?;
        session.say(words("would move", &plan));
        return print(session, &plan);
    }
    let plan = api.balance().await?;
    session.say(words("moving", &plan));
    if args.wait && !plan.is_empty() {
        wait(session, &api, args.wait_max).await?;
        session.say("the cluster is balanced");
    }
    print(session, &plan)
}

/// Waits until nothing moves any more, and orders what is left: leaders can only be chosen among
/// replicas that are there.
async fn wait(session: &Session, api: &BrokerApi, limit: Option<Duration>) -> Outcome<()> {
    let began = Instant::now();
    let mut said = None;
    loop {
        sleep(LOOK_EVERY).await;
        let moves = api.moves().await?;
        if moves.is_empty() && api.balance().await?.is_empty() {
            return Ok(());
        }
        let left = (moves.len(), bytes_left(&moves));
        if said.replace(left) != Some(left) && !moves.is_empty() {
            let partitions = plural(i64::try_from(left.0).unwrap_or(i64::MAX), "partition");
            session.say(format!("{partitions} moving, {} left", bytes_in_words(left.1)));
        }
        if limit.is_some_and(|limit| limit <= began.elapsed()) {
            return Err(timed_out("the cluster is not balanced yet")
                .with_help("what was ordered goes on")
                .with_try("towpath cluster moves"));
        }
    }
}

fn words(verb: &str, plan: &BalancePlan) -> String {
    if plan.is_empty() {
        return "nothing has to move: nodes lead and hold about as much as each other".to_owned();
    }
    let count = |count: usize, what| plural(i64::try_from(count).unwrap_or(i64::MAX), what);
    format!(
        "{verb} {} and replicas of {}, {}",
        count(plan.leaders.len(), "leader"),
        count(plan.moves.len(), "partition"),
        bytes_in_words(plan.bytes),
    )
}

fn print(session: &Session, plan: &BalancePlan) -> Outcome {
    let mut leaders = Table::new("leaders", &["topic", "partition", "from", "to"]);
    for planned in &plan.leaders {
        leaders.row(vec![
            planned.topic.as_str().into(),
            planned.partition.into(),
            planned.from.into(),
            planned.to.into(),
        ]);
    }
    let mut moves = Table::new("moves", &["topic", "partition", "from", "to", "bytes"]);
    for planned in &plan.moves {
        moves.row(vec![
            planned.topic.as_str().into(),
            planned.partition.into(),
            Cell::list(planned.from.iter().copied()),
            Cell::list(planned.to.iter().copied()),
            Cell::bytes(planned.bytes),
        ]);
    }
    session.print(&Report::new().table(leaders).table(moves))?;
    Ok(Exit::Ok)
}
