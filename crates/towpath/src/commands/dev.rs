//! `towpath dev`: one node for a laptop.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

/// Flags of `dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Where to keep the data
    #[arg(long, value_name = "DIR", default_value = "towpath-data", conflicts_with = "ephemeral")]
    pub(crate) data: PathBuf,
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
}

/// Runs until it is told to stop.
pub(crate) fn run(args: DevArgs) -> anyhow::Result<ExitCode> {
    let DevArgs { data, ephemeral, kafka, http, advertise_kafka, ready_json } = args;
    let _ = (data, ephemeral, kafka, http, advertise_kafka, ready_json);
    anyhow::bail!("this build has no server in it")
}
