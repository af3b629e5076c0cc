//! What the server says while it runs: lines on standard error.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::cli::Global;
use crate::failure::{Failure, Outcome};
use crate::session::use_color;

/// Begins to log: warnings, `-v` informs, `-vv` debugs, `-q` keeps to errors. `TOWPATH_LOG` says
/// it per module, such as `warn,towpath_http=debug`.
pub(super) fn begin(global: &Global) -> Outcome<()> {
    let by_flag = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let filter = match std::env::var("TOWPATH_LOG") {
        Ok(filter) if global.verbose == 0 && !global.quiet => EnvFilter::try_new(filter)
            .map_err(|error| Failure::usage(format!("TOWPATH_LOG: {error}")))?,
        _ => EnvFilter::new(by_flag),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(use_color(global, &io::stderr()))
        .init();
    Ok(())
}
