//! `towpath dev`: one node for a laptop. Topics appear when they are used, and nothing has to be
//! configured.

use clap::Args;

use super::serve::{self, Mode, ServerArgs};
use crate::cli::Global;
use crate::config::DEV;
use crate::failure::{Exit, Outcome};

/// Flags of `dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Runs until it is told to stop.
pub(crate) fn run(global: &Global, args: DevArgs) -> Outcome {
    let written = serve::written(&args.server, None, None)?;
    let mut settings = serve::check(&written, args.server.ephemeral, DEV)?;
    settings.forgotten_directories = args.server.forget_directory;
    let mode = Mode {
        command: "dev",
        tests_itself: true,
        has_local_names_only: true,
        ready_json: args.server.ready_json,
    };
    serve::start(global, settings, mode).map(|()| Exit::Ok)
}
