//! `towpath topic accept-loss`: gives up what is on no replica of a partition that can come back.

use clap::Args;

use crate::broker_api::BrokerApi;
use crate::cluster_api::{LossOrder, LossProposal};
use crate::commands::cluster::{losses_table, parse_partition};
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Outcome};
use crate::output::Report;
use crate::session::Session;

/// Flags of `topic accept-loss`.
#[derive(Debug, Args)]
#[command(
    after_help = "The replica that is there and holds most leads then; what it lacks is lost. Who accepted it, when and \
    from which offset on stays on record: towpath cluster losses."
)]
pub(crate) struct AcceptLossArgs {
    /// The partition that nobody can lead
    #[arg(value_name = "TOPIC:PARTITION", value_parser = parse_partition)]
    partition: (String, i32),
    /// Where no replica holds any record: the first offset of new ones, one that no consumer has come to
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    next_offset: Option<i64>,
    /// Although a node whose replica holds everything may come back: what only it holds is lost
    #[arg(long)]
    even_if_returning: bool,
    /// Who accepts it, for the record [default: the user who runs this]
    #[arg(long, value_name = "NAME", env = "USER", hide_env = true)]
    by: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &AcceptLossArgs) -> Outcome {
    let (topic, partition) = &args.partition;
    let api = BrokerApi::of_any(session).await;
    let proposal = api.propose_loss(topic, *partition).await?;
    let what = words(topic, *partition, &proposal, args);
    if confirm(session, &what, topic)? == Decision::SayOnly {
        return Ok(Exit::Ok);
    }
    let order = LossOrder {
        by: args.by.as_deref().unwrap_or("somebody"),
        next_offset: args.next_offset,
        even_if_returning: args.even_if_returning,
    };
    let loss = api.accept_loss(topic, *partition, &order).await?;
    session.say(format!(
        "lost: the records of partition {partition} of {topic} from offset {} on; new ones begin at {}, \
         led by node {}. Publish again what is missing",
        loss.lost_from, loss.resume_at, loss.node
    ));
    session.print(&Report::new().table(losses_table("accepted", &[loss])))?;
    Ok(Exit::Ok)
}

fn words(topic: &str, partition: i32, proposal: &LossProposal, args: &AcceptLossArgs) -> String {
    let mut what = format!(
        "give up the records of partition {partition} of {topic} from offset {} on, which node {} does \
         not hold",
        proposal.lost_from, proposal.node
    );
    if !proposal.may_return.is_empty() && args.even_if_returning {
        let nodes: Vec<String> = proposal.may_return.iter().map(ToString::to_string).collect();
        what += &format!(", although node {} may come back with them", nodes.join(", "));
    }
    what
}
