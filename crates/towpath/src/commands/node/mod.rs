//! `towpath node`: one file per verb.

mod drain;
mod ls;
mod rm;
mod show;

use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

use crate::cluster_api::Node;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Format};
use crate::session::Session;

/// The verbs of `node`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes: what they lead and hold, and who is absent
    #[command(alias = "list", alias = "get")]
    Ls(ls::LsArgs),
    /// Show one node: its addresses, its part in the cluster, its data directories
    #[command(alias = "describe", alias = "info")]
    Show(show::ShowArgs),
    /// Let a node give away what it leads and holds, before it is stopped for long or removed
    Drain(drain::DrainArgs),
    /// Let a node that was drained take work again
    Undrain(drain::UndrainArgs),
    /// Remove a node that holds nothing, for good
    #[command(alias = "remove", alias = "delete")]
    Rm(rm::RmArgs),
}

/// The number of a node on the command line.
#[derive(Debug, Args)]
struct NodeNumber {
    /// The node's number
    #[arg(value_parser = clap::value_parser!(i32).range(0..))]
    node: i32,
}

pub(crate) async fn run(session: &Session, command: NodeCommand) -> Outcome {
    match command {
        NodeCommand::Ls(args) => ls::run(session, &args).await,
        NodeCommand::Show(args) => show::run(session, &args).await,
        NodeCommand::Drain(args) => drain::run(session, &args).await,
        NodeCommand::Undrain(args) => drain::undo(session, &args).await,
        NodeCommand::Rm(args) => rm::run(session, &args).await,
    }
}

/// For programs that ask for it: what an order has led to.
fn print_node(session: &Session, node: &Node) -> Outcome {
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        session.print(&show::report(node))?;
    }
    Ok(Exit::Ok)
}

/// Its part in deciding on metadata.
fn part_of(node: &Node) -> Cell {
    match node.is_controller {
        true => "controller".into(),
        false => Cell::or_none(node.quorum.clone()),
    }
}

/// How long ago that was, by this machine's clock.
fn seconds_since(at: Option<i64>) -> Cell {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    at.map_or_else(Cell::none, |at| Cell::seconds((now.as_secs_f64() - at as f64 / 1e3).max(0.0)))
}
