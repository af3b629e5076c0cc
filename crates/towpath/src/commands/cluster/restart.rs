//! `towpath cluster restart`: one node after the other starts anew, the controller last, and none before
//! all replicas are in sync again.
//!
//! ```text
//! whole? ─▶ order ─▶ registered again ─▶ whole? ─▶ the next one
//! ```

use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::sleep;

use super::moves::timed_out;
use crate::broker_api::BrokerApi;
use crate::cluster_api::{Cluster, Node};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;
use crate::units::parse_duration;

/// Between two looks at how the cluster is.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many entries of the metadata a voter may lack: more are written all the time.
const QUORUM_LAG_MAX: u64 = 1_000;

/// Flags of `cluster restart`.
#[derive(Debug, Args)]
#[command(after_help = "Where the program was replaced, each node comes back with the new one.")]
pub(crate) struct RestartArgs {
    /// Only this node (repeatable)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    node: Vec<i32>,
    /// How long one node may take until it is back and everything is in sync
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "DURATION")]
    node_timeout: Duration,
}

pub(crate) async fn run(session: &Session, args: &RestartArgs) -> Outcome {
    let nodes = BrokerApi::of_any(session).await.nodes().await?;
    let order = order(nodes, &args.node)?;
    let mut table = Table::new("restarted", &["node", "seconds"]);
    if session.global.dry_run {
        let numbers: Vec<String> = order.iter().map(|node| node.node.to_string()).collect();
        session.say(format!("would start nodes {} anew, in this order", numbers.join(", ")));
        return Ok(Exit::Ok);
    }
    for node in order {
        let number = node.node;
        wait_until_whole(session, args.node_timeout, &format!("before node {number}")).await?;
        let began = Instant::now();
        // Another one may have become the controller, and others lead: that changes nothing here.
        let before = look(session, number).await?;
        session.say(format!("node {number}: starting anew"));
        BrokerApi::of_any(session).await.restart(number).await?;
        wait_until_back(session, &before, began, args.node_timeout).await?;
        wait_until_whole(session, args.node_timeout, &format!("after node {number}")).await?;
        session.say(format!("node {number}: back, and everything is in sync"));
        table.row(vec![number.into(), Cell::seconds(began.elapsed().as_secs_f64())]);
    }
    session.print(&Report::new().table(table))?;
    Ok(Exit::Ok)
}

/// Those that lead least first, the controller last: so leaderships and the office move as seldom as can be.
fn order(mut nodes: Vec<Node>, only: &[i32]) -> Outcome<Vec<Node>> {
    if let Some(absent) = only.iter().find(|id| nodes.iter().all(|node| node.node != **id)) {
        return Err(Failure::new(format!("there is no node {absent}")).with_try("towpath node ls"));
    }
    nodes.retain(|node| only.is_empty() || only.contains(&node.node));
    nodes.sort_by_key(|node| (node.is_controller, node.partitions_led, node.node));
    Ok(nodes)
}

/// A question to whoever answers: the one that was asked last may have gone.
async fn ask<T, F: Future<Output = Outcome<T>>>(
    session: &Session,
    question: impl Fn(BrokerApi) -> F,
) -> Outcome<T> {
    let api = BrokerApi::of_any(session).await;
    let asked = question(api).await;
    if asked.is_err() {
        // Who is there may have changed.
        let _ = session.admin.topics().await;
    }
    asked
}

async fn look(session: &Session, number: i32) -> Outcome<Node> {
    ask(session, |api| async move { api.node(number).await }).await
}

async fn wait_until_back(
    session: &Session,
    before: &Node,
    began: Instant,
    limit: Duration,
) -> Outcome<()> {
    let number = before.node;
    let mut waits = Waits::new(session);
    loop {
        let why = match look(session, number).await {
            Ok(node) if node.broker_epoch == before.broker_epoch => {
                "has not stopped yet".to_owned()
            }
            Ok(node) if node.state == "live" || node.state.starts_with("drain") => return Ok(()),
            Ok(node) => format!("is {}", node.state),
            Err(error) => format!("is not known of: {}", error.message),
        };
        let why = format!("node {number} {why}");
        if limit <= began.elapsed() {
            return Err(timed_out(format!("node {number} is not back after {limit:.0?}: {why}"))
                .with_help("no other node was touched; look at its log"));
        }
        waits.for_what(&why);
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until every node is there and every replica in sync.
async fn wait_until_whole(session: &Session, limit: Duration, when: &str) -> Outcome<()> {
    let began = Instant::now();
    let mut waits = Waits::new(session);
    loop {
        let state =
            ask(session, |api| async move { Ok((api.cluster().await?, api.nodes().await?)) });
        let why = match state.await {
            Ok((cluster, nodes)) => match missing(&cluster, &nodes) {
                None => return Ok(()),
                Some(why) => why,
            },
            Err(error) => error.message,
        };
        if limit <= began.elapsed() {
            return Err(timed_out(format!("the cluster is not whole {when}: {why}"))
                .with_help("the nodes that are left were not touched"));
        }
        waits.for_what(&why);
        sleep(LOOK_EVERY).await;
    }
}

/// What keeps the cluster from doing without one node; `None`: nothing.
fn missing(cluster: &Cluster, nodes: &[Node]) -> Option<String> {
    let is_there = |node: &Node| node.state == "live" || node.state.starts_with("drain");
    if let Some(node) = nodes.iter().find(|node| !is_there(node)) {
        return Some(format!("node {} is {}", node.node, node.state));
    }
    if cluster.controller.is_none() {
        return Some("no node is the controller".to_owned());
    }
    let counts = &cluster.partitions;
    for (count, what) in [
        (counts.offline, "without a leader"),
        (counts.under_min_in_sync, "with too few replicas in sync"),
        (counts.under_replicated, "with replicas that are not in sync"),
    ] {
        if 0 < count {
            return Some(format!("partitions {what}: {count}"));
        }
    }
    if let Some(node) = nodes.iter().find(|node| 0 < node.replicas_out_of_sync) {
        let count = node.replicas_out_of_sync;
        return Some(format!("replicas on node {} that are not in sync: {count}", node.node));
    }
    let late =
        cluster.quorum.voters.iter().find(|voter| voter.lag.is_none_or(|lag| QUORUM_LAG_MAX < lag));
    late.map(|voter| format!("node {} has not got all metadata", voter.node))
}

/// Says what is waited for, once for each thing.
struct Waits<'s> {
    session: &'s Session,
    said: Option<String>,
}

impl<'s> Waits<'s> {
    fn new(session: &'s Session) -> Waits<'s> {
        Waits { session, said: None }
    }

    fn for_what(&mut self, why: &str) {
        if self.said.as_deref() != Some(why) {
            self.session.say(format!("waiting: {why}"));
            self.said = Some(why.to_owned());
        }
    }
}
