//! `towpath serve`: a server for production.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to keep the data
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub(crate) data: Option<PathBuf>,
    /// Keep the data in a directory that is removed at the end
    #[arg(long)]
    pub(crate) ephemeral: bool,
    /// Where Kafka clients connect; port 0 picks one, and then every listener that is not named picks one
    #[arg(long, value_name = "ADDR")]
    pub(crate) kafka: Option<String>,
    /// Where HTTP clients connect
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// The address that Kafka clients are told to connect to; if not given, the one they used
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise_kafka: Option<String>,
    /// Print one line of JSON with the addresses once everything is up
    #[arg(long)]
    pub(crate) ready_json: bool,
    /// Listen beyond loopback although nobody has to prove who they are
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Runs until it is told to stop.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let ServeArgs { data, ephemeral, kafka, http, advertise_kafka, ready_json, insecure, config } =
        args;
    let _ = (data, ephemeral, kafka, http, advertise_kafka, ready_json, insecure, config);
    anyhow::bail!("this build has no server in it")
}
