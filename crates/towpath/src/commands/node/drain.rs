//! `towpath node drain` and `towpath node undrain`.

use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::sleep;

use super::{NodeNumber, print_node};
use crate::broker_api::BrokerApi;
use crate::cluster_api::{Drain, Node, Stuck};
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::units::{parse_duration, plural};

/// Between two looks at how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long nothing may move, with nowhere to go, until that is the answer: a node that is starting anew
/// may take replicas in a moment.
const STUCK_MAX: Duration = Duration::from_secs(15);

/// Flags of `node drain`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath node drain 3 --wait && systemctl stop towpath")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    node: NodeNumber,
    /// Wait until it leads and holds nothing, or until that cannot be; say how far it is
    #[arg(short, long)]
    wait: bool,
    /// Wait no longer than this; the order stays
    #[arg(long, requires = "wait", value_parser = parse_duration, value_name = "DURATION")]
    wait_max: Option<Duration>,
}

/// Flags of `node undrain`.
#[derive(Debug, Args)]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    node: NodeNumber,
}

pub(crate) async fn run(session: &Session, args: &DrainArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let number = args.node.node;
    let before = api.node(number).await?;
    if session.global.dry_run {
        session.say(format!("would drain node {number}: {}", left(&before)));
        return Ok(Exit::Ok);
    }
    let mut node = api.drain(number).await?;
    session.say(format!("draining node {number}: {}", left(&node)));
    if args.wait {
        node = wait(session, node, args.wait_max).await?;
        session.say(format!("node {number} leads and holds nothing: its process may be stopped"));
    } else if let Some(why) = node.drain.as_ref().and_then(|drain| cannot_leave(&drain.stuck)) {
        session.say(format!("not everything can leave: {why}"));
    }
    print_node(session, &node)
}

pub(crate) async fn undo(session: &Session, args: &UndrainArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let number = args.node.node;
    if session.global.dry_run {
        api.node(number).await?;
        session.say(format!("would let node {number} take work again"));
        return Ok(Exit::Ok);
    }
    let node = api.undrain(number).await?;
    session
        .say(format!("node {number} takes work again; the cluster moves replicas to it by itself"));
    print_node(session, &node)
}

/// Waits until a node is empty. Whoever was asked first may be gone meanwhile: then another node is.
async fn wait(session: &Session, node: Node, limit: Option<Duration>) -> Outcome<Node> {
    let number = node.node;
    let began = Instant::now();
    let (mut node, mut moved_at) = (node, began);
    loop {
        let Some(drain) = node.drain.clone() else {
            return Err(Failure::new(format!("node {number} is not drained any more"))
                .with_help("somebody has taken the order back"));
        };
        if drain.is_done {
            return Ok(node);
        }
        if is_stuck(&drain) && STUCK_MAX <= moved_at.elapsed() {
            return Err(stuck(number, &drain));
        }
        if limit.is_some_and(|limit| limit <= began.elapsed()) {
            let message = format!("node {number} is not empty yet: {}", left(&node));
            return Err(Failure { code: "TIMED_OUT".to_owned(), ..Failure::new(message) }
                .with_try(format!("towpath node drain {number} --wait")));
        }
        sleep(LOOK_EVERY).await;
        node = look(session, number).await?;
        if node.drain.as_ref() != Some(&drain) {
            moved_at = Instant::now();
            session.say(format!("node {number}: {}", left(&node)));
        }
    }
}

/// The node as any of the others sees it.
async fn look(session: &Session, number: i32) -> Outcome<Node> {
    let mut failure = None;
    for _ in 0..3 {
        match BrokerApi::of_any(session).await.node(number).await {
            Ok(node) => return Ok(node),
            Err(error) if error.exit == Exit::Unreachable || error.code == "UNAVAILABLE" => {
                failure = Some(error);
                // Who is there may have changed.
                let _ = session.admin.topics().await;
                sleep(LOOK_EVERY).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(failure.expect("it was asked"))
}

fn left(node: &Node) -> String {
    format!(
        "{} led, {} left",
        plural(i64::try_from(node.partitions_led).unwrap_or(i64::MAX), "partition"),
        plural(i64::try_from(node.replicas).unwrap_or(i64::MAX), "replica"),
    )
}

/// Whether everything that is left has nowhere to go.
fn is_stuck(drain: &Drain) -> bool {
    let stuck: usize = drain.stuck.iter().map(|stuck| stuck.partitions).sum();
    0 < stuck && drain.replicas <= stuck
}

fn stuck(number: i32, drain: &Drain) -> Failure {
    let why = cannot_leave(&drain.stuck).unwrap_or_default();
    let message = format!("node {number} cannot be emptied: {why}");
    Failure { code: "DRAIN_STUCK".to_owned(), ..Failure::new(message) }
        .with_help(
            "every other node that takes work has a replica already, or nobody leads: start another \
             node, or give these topics fewer replicas; it leads nothing that others can lead",
        )
        .with_try(format!("towpath node undrain {number}"))
}

/// Names the topics; `None`: everything can.
fn cannot_leave(stuck: &[Stuck]) -> Option<String> {
    const NAMED_MAX: usize = 10;
    let named = stuck.iter().take(NAMED_MAX).map(|stuck| {
        let partitions = plural(i64::try_from(stuck.partitions).unwrap_or(i64::MAX), "partition");
        format!("{} ({partitions} with {} replicas)", stuck.topic, stuck.replication_factor)
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = stuck.len().saturating_sub(NAMED_MAX);
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named),
        (false, more) => Some(format!("{named}, and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> Stuck {
        Stuck { topic: name.to_owned(), partitions: 2, replication_factor: 3 }
    }

    #[test]
    fn a_drain_is_stuck_when_nothing_that_is_left_can_go() {
        let drain = |replicas, stuck| Drain { is_done: false, partitions_led: 0, replicas, stuck };
        assert!(is_stuck(&drain(2, vec![topic("t")])));
        assert!(!is_stuck(&drain(3, vec![topic("t")])));
        assert!(!is_stuck(&drain(3, Vec::new())));
    }

    #[test]
    fn topics_that_cannot_leave_are_named_up_to_a_bound() {
        assert_eq!(cannot_leave(&[]), None);
        let one = cannot_leave(&[topic("t")]);
        assert_eq!(one.as_deref(), Some("t (2 partitions with 3 replicas)"));
        let many: Vec<Stuck> = (0..12).map(|n| topic(&n.to_string())).collect();
        assert!(
            cannot_leave(&many).unwrap().ends_with("9 (2 partitions with 3 replicas), and 2 more")
        );
    }
}
