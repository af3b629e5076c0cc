//! `towpath cluster`: one file per verb.

mod show;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::session::Session;

/// The verbs of `cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show who decides on metadata, and how nodes and partitions do
    #[command(alias = "describe", alias = "info")]
    Show(show::ShowArgs),
}

pub(crate) async fn run(session: &Session, command: ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Show(args) => show::run(session, &args).await,
    }
}
