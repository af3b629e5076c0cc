//! `towpath topic`: one file per verb.

mod accept_loss;
mod create;
mod ls;
mod partitions;
mod rm;
mod set;
mod show;
mod trim;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::session::Session;

/// The verbs of `topic`.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// List topics
    #[command(alias = "list", alias = "get")]
    Ls(ls::LsArgs),
    /// Show one topic: its promise, its partitions, what was configured
    #[command(alias = "describe", alias = "info")]
    Show(show::ShowArgs),
    /// Create topics
    #[command(alias = "add", alias = "new")]
    Create(create::CreateArgs),
    /// Change a topic's configuration: NAME=VALUE, NAME+=ITEM, NAME-=ITEM, NAME- for the default
    #[command(alias = "alter", alias = "edit")]
    Set(set::SetArgs),
    /// Delete topics and everything in them
    #[command(alias = "delete", alias = "remove")]
    Rm(rm::RmArgs),
    /// Partitions of a topic: add
    #[command(subcommand)]
    Partitions(partitions::PartitionsCommand),
    /// Delete the records before a place
    Trim(trim::TrimArgs),
    /// Give up the records of a partition that are on no replica which can come back
    AcceptLoss(accept_loss::AcceptLossArgs),
}

pub(crate) async fn run(session: &Session, command: TopicCommand) -> Outcome {
    match command {
        TopicCommand::Ls(args) => ls::run(session, &args).await,
        TopicCommand::Show(args) => show::run(session, &args).await,
        TopicCommand::Create(args) => create::run(session, &args).await,
        TopicCommand::Set(args) => set::run(session, &args).await,
        TopicCommand::Rm(args) => rm::run(session, &args).await,
        TopicCommand::Partitions(command) => partitions::run(session, command).await,
        TopicCommand::Trim(args) => trim::run(session, &args).await,
        TopicCommand::AcceptLoss(args) => accept_loss::run(session, &args).await,
    }
}
