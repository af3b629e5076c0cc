//! `towpath cluster`: one file per verb.

mod balance;
mod losses;
mod moves;
mod restart;
mod show;
mod upgrade;

use clap::Subcommand;

pub(super) use losses::losses_table;
pub(super) use moves::parse_partition;

use crate::failure::Outcome;
use crate::session::Session;

/// The verbs of `cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show who decides on metadata, and how nodes and partitions do
    #[command(alias = "describe", alias = "info")]
    Show(show::ShowArgs),
    /// Replicas that come and go, and how much is left to copy; --cancel takes a move back
    Moves(moves::MovesArgs),
    /// Let nodes lead and hold about as much as each other; --plan shows what would move
    Balance(balance::BalanceArgs),
    /// Which level of formats is in force and which could be; --finalize raises it, for good
    Upgrade(upgrade::UpgradeArgs),
    /// What operators have given up (topic accept-loss), newest first
    Losses(losses::LossesArgs),
    /// Start one node after the other anew, none before everything is in sync again
    Restart(restart::RestartArgs),
}

pub(crate) async fn run(session: &Session, command: ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Show(args) => show::run(session, &args).await,
        ClusterCommand::Moves(args) => moves::run(session, &args).await,
        ClusterCommand::Balance(args) => balance::run(session, &args).await,
        ClusterCommand::Losses(args) => losses::run(session, &args).await,
        ClusterCommand::Upgrade(args) => upgrade::run(session, &args).await,
        ClusterCommand::Restart(args) => restart::run(session, &args).await,
    }
}
