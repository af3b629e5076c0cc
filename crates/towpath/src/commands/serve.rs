//! `towpath serve`: a server for production. What both ways to run a server share is below it.

mod banner;
mod bind;
mod lifecycle;
mod logging;
mod port_holder;
mod stop;
mod surroundings;

use std::path::PathBuf;

use clap::Args;
use towpath_model::Uuid;

pub(super) use lifecycle::{Mode, start};

use crate::cli::Global;
use crate::config::{
    ConfigError, Defaults, Given, Origin, SERVE, Settings, Written, WrittenCluster, read_file,
};
use crate::failure::{Exit, Failure, Outcome};

/// Flags that both ways to run a server have.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Where to keep the data (repeatable: one directory per disk, the metadata in the first)
    /// [environment: TOWPATH_DATA]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub(crate) data: Vec<PathBuf>,
    /// Give up a data directory that is gone for good, by its id: what it held is lost, and the
    /// partitions that were in it begin anew, empty (repeatable)
    #[arg(long, value_name = "ID")]
    pub(crate) forget_directory: Vec<Uuid>,
    /// Keep the data in a directory that is removed at the end
    #[arg(long)]
    pub(crate) ephemeral: bool,
    /// Where Kafka clients connect [default: 127.0.0.1:9092] [environment: TOWPATH_KAFKA]; port 0
    /// picks one, and then every listener that is not named picks one
    #[arg(long, value_name = "ADDR")]
    pub(crate) kafka: Option<String>,
    /// Where HTTP clients connect [default: 127.0.0.1:8080] [environment: TOWPATH_HTTP]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// The address that Kafka clients are told to connect to; if not given, the one they used
    /// [environment: TOWPATH_ADVERTISE_KAFKA]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise_kafka: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The number of this broker in its cluster, the property node.id [default: 1]; a data directory
    /// belongs to one broker [environment: TOWPATH_BROKER__NODE_ID]
    #[arg(long, value_name = "N")]
    pub(crate) node_id: Option<String>,
    /// Set a broker property, such as num.partitions=3 (repeatable)
    /// [environment: TOWPATH_BROKER__NUM_PARTITIONS]
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) properties: Vec<String>,
    /// Listen beyond loopback although nobody has to prove who they are
    /// [environment: TOWPATH_INSECURE]
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Print one line of JSON with the addresses once everything is up, and nothing else
    #[arg(long)]
    pub(crate) ready_json: bool,
}

/// Flags about other brokers.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Where other brokers connect [default: this broker's place in --cluster, else 127.0.0.1:9094]
    /// [environment: TOWPATH_PEER]
    #[arg(long, value_name = "ADDR")]
    pub(crate) peer: Option<String>,
    /// The address that other brokers are told to connect to [environment: TOWPATH_ADVERTISE_PEER]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise_peer: Option<String>,
    /// The address of HTTP that other brokers are told [environment: TOWPATH_ADVERTISE_HTTP]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise_http: Option<String>,
    /// The brokers that begin a cluster together, this one among them; the same for all of them, such
    /// as 1@a:9094,2@b:9094,3@c:9094 [environment: TOWPATH_CLUSTER]
    #[arg(long, value_name = "ID@HOST:PORT,…")]
    pub(crate) cluster: Option<String>,
    /// Join the cluster of a broker at one of these addresses [environment: TOWPATH_JOIN]
    #[arg(long, value_name = "HOST:PORT,…")]
    pub(crate) join: Option<String>,
    /// What this broker is there for: `broker`, or `frontend`, which keeps no data and passes HTTP on
    /// [default: broker] [environment: TOWPATH_ROLE]
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// A file with the secret that all brokers of the cluster share [environment:
    /// TOWPATH_CLUSTER_SECRET_FILE, or the secret itself in TOWPATH_CLUSTER_SECRET]
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_secret_file: Option<PathBuf>,
    /// Where this broker stands, the property broker.rack; replicas of a partition are spread over racks
    /// [environment: TOWPATH_BROKER__BROKER_RACK]
    #[arg(long, value_name = "NAME")]
    pub(crate) rack: Option<String>,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The configuration file, in TOML
    #[arg(long, value_name = "FILE", env = "TOWPATH_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    pub(crate) check: bool,
}

/// Runs until it is told to stop.
pub(crate) fn run(global: &Global, args: ServeArgs) -> Outcome {
    let written = written(&args.server, args.config.as_deref())?;
    let mut settings = check(&written, args.server.ephemeral, SERVE)?;
    settings.forgotten_directories = args.server.forget_directory;
    if args.check {
        eprintln!("the configuration is valid");
        return Ok(Exit::Ok);
    }
    let mode = Mode {
        command: "serve",
        tests_itself: false,
        has_local_names_only: false,
        ready_json: args.server.ready_json,
    };
    start(global, settings, mode).map(|()| Exit::Ok)
}

/// Everything that was written, the layers on top of each other.
pub(super) fn written(args: &ServerArgs, file: Option<&std::path::Path>) -> Outcome<Written> {
    let file = file.map_or_else(|| Ok(Written::default()), read_file).map_err(refused)?;
    // A variable that is not text is none of ours.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = Written::from_environment(variables).map_err(refused)?;
    Ok(flags(args)?.over(environment.over(file)))
}

/// Checks what was written.
pub(super) fn check(
    written: &Written,
    is_ephemeral: bool,
    defaults: Defaults,
) -> Outcome<Settings> {
    Settings::check(written, is_ephemeral, defaults).map_err(refused)
}

fn flags(args: &ServerArgs) -> Outcome<Written> {
    fn given<T>(flag: &'static str, value: &Option<T>) -> Option<Given<T>>
    where
        T: Clone,
    {
        value.clone().map(|value| Given { value, origin: Origin::Flag(flag) })
    }
    let mut written = Written {
        data: given("--data", &Some(&args.data).filter(|data| !data.is_empty()).cloned()),
        kafka: given("--kafka", &args.kafka),
        http: given("--http", &args.http),
        advertise_kafka: given("--advertise-kafka", &args.advertise_kafka),
        insecure: given("--insecure", &args.insecure.then_some(true)),
        cluster: WrittenCluster {
            peer: given("--peer", &args.cluster.peer),
            advertise_peer: given("--advertise-peer", &args.cluster.advertise_peer),
            advertise_http: given("--advertise-http", &args.cluster.advertise_http),
            members: given("--cluster", &args.cluster.cluster),
            join: given("--join", &args.cluster.join),
            role: given("--role", &args.cluster.role),
            secret_file: given("--cluster-secret-file", &args.cluster.cluster_secret_file),
            // Never in an argument: everybody on the machine can read those.
            secret: None,
        },
        ..Written::default()
    };
    for property in &args.properties {
        let Some((name, value)) = property.split_once('=') else {
            let message = format!("--set {property}: write NAME=VALUE");
            return Err(Failure::usage(message).with_try("--set num.partitions=3"));
        };
        let given = Given { value: value.to_owned(), origin: Origin::Flag("--set") };
        written.broker.insert(name.trim().to_owned(), given);
    }
    if let Some(given) = given("--node-id", &args.node_id) {
        written.broker.insert("node.id".to_owned(), given);
    }
    if let Some(given) = given("--rack", &args.cluster.rack) {
        written.broker.insert("broker.rack".to_owned(), given);
    }
    Ok(written)
}

fn refused(errors: Vec<ConfigError>) -> Failure {
    let lines: Vec<String> = errors.iter().map(ConfigError::to_string).collect();
    Failure::usage(lines.join("\n       "))
        .with_help("docs/configuration.md lists every setting; `towpath serve --check` checks them")
}
