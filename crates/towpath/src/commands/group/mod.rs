//! `towpath group`: one file per verb.

mod lag;
mod ls;
mod rm;
mod seek;
mod show;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::session::Session;

/// The verbs of `group`.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List groups
    #[command(alias = "list", alias = "get")]
    Ls(ls::LsArgs),
    /// Show one group: its members, what they read, how far they are behind
    #[command(alias = "describe", alias = "info")]
    Show(show::ShowArgs),
    /// How far groups are behind
    Lag(lag::LagArgs),
    /// Move a group's committed offsets
    #[command(alias = "reset")]
    Seek(seek::SeekArgs),
    /// Delete groups and their committed offsets
    #[command(alias = "delete", alias = "remove")]
    Rm(rm::RmArgs),
}

pub(crate) async fn run(session: &Session, command: GroupCommand) -> Outcome {
    match command {
        GroupCommand::Ls(args) => ls::run(session, &args).await,
        GroupCommand::Show(args) => show::run(session, &args).await,
        GroupCommand::Lag(args) => lag::run(session, &args).await,
        GroupCommand::Seek(args) => seek::run(session, &args).await,
        GroupCommand::Rm(args) => rm::run(session, &args).await,
    }
}
