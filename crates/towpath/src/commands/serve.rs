//! `towpath serve`: a server for production. What both ways to run a server share is below it.

mod again;
mod banner;
mod bind;
mod joining;
mod leaving;
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
    ClusterWritten, ConfigError, Defaults, Given, Origin, SERVE, SecretSource, Settings,
    SqsWritten, Written, read_file,
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
    /// Where clients of Amazon SQS connect [default: in dev 127.0.0.1:9324, in serve only where HTTP
    /// clients do] [environment: TOWPATH_SQS]
    #[arg(long, value_name = "ADDR")]
    pub(crate) sqs: Option<String>,
    /// The address under which clients know SQS here, where a proxy stands between; if not given, the
    /// one they used [environment: TOWPATH_ADVERTISE_SQS]
    #[arg(long, value_name = "URL")]
    pub(crate) advertise_sqs: Option<String>,
    /// A file with the access keys of clients of SQS: a line for each, its id and its secret; or the
    /// lines themselves in the environment: TOWPATH_SQS_KEYS [environment: TOWPATH_SQS_KEYS_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) sqs_keys_file: Option<PathBuf>,
    /// The address that Kafka clients are told to connect to; if not given, the one they used
    /// [environment: TOWPATH_ADVERTISE_KAFKA]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise_kafka: Option<String>,
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

/// Flags of a broker among others.
#[derive(Debug, Args)]
#[command(next_help_heading = "A cluster")]
pub(crate) struct ClusterArgs {
    /// Begin a cluster with these brokers, this one among them, each started with the same list
    /// [environment: TOWPATH_CLUSTER]
    #[arg(long, value_name = "N@HOST:PORT,…", conflicts_with = "join")]
    pub(crate) cluster: Option<String>,
    /// Join a cluster, some of whose brokers are at these addresses [environment: TOWPATH_JOIN]
    #[arg(long, value_name = "HOST:PORT,…")]
    pub(crate) join: Option<String>,
    /// Where other brokers connect [default: this broker's address in --cluster, else 127.0.0.1:9094]
    /// [environment: TOWPATH_PEER]
    #[arg(long, value_name = "ADDR")]
    pub(crate) peer: Option<String>,
    /// The address that other brokers are told to connect to [environment: TOWPATH_ADVERTISE_PEER]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise_peer: Option<String>,
    /// The address at which other brokers reach HTTP here [environment: TOWPATH_ADVERTISE_HTTP]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise_http: Option<String>,
    /// A file with the secret that all brokers of the cluster share, needed beyond loopback; or the
    /// secret itself in the environment: TOWPATH_PEER_SECRET [environment: TOWPATH_PEER_SECRET_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_secret_file: Option<PathBuf>,
    /// Where this broker stands, the property broker.rack: replicas are spread over racks
    /// [environment: TOWPATH_BROKER__BROKER_RACK]
    #[arg(long, value_name = "NAME")]
    pub(crate) rack: Option<String>,
    /// What it is there for: broker, or frontend, which serves clients and holds nothing
    /// [environment: TOWPATH_ROLE]
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The configuration file, in TOML
    #[arg(long, value_name = "FILE", env = "TOWPATH_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    pub(crate) check: bool,
}

/// Runs until it is told to stop.
pub(crate) fn run(global: &Global, args: ServeArgs) -> Outcome {
    let written = written(&args.server, Some(&args.cluster), args.config.as_deref())?;
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
pub(super) fn written(
    args: &ServerArgs,
    cluster: Option<&ClusterArgs>,
    file: Option<&std::path::Path>,
) -> Outcome<Written> {
    let file = file.map_or_else(|| Ok(Written::default()), read_file).map_err(refused)?;
    // A variable that is not text is none of ours.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = Written::from_environment(variables).map_err(refused)?;
    let mut flags = flags(args)?;
    if let Some(cluster) = cluster {
        cluster.write(&mut flags);
    }
    Ok(flags.over(environment.over(file)))
}

/// Checks what was written.
pub(super) fn check(
    written: &Written,
    is_ephemeral: bool,
    defaults: Defaults,
) -> Outcome<Settings> {
    Settings::check(written, is_ephemeral, defaults).map_err(refused)
}

fn given<T: Clone>(flag: &'static str, value: &Option<T>) -> Option<Given<T>> {
    value.clone().map(|value| Given { value, origin: Origin::Flag(flag) })
}

impl ClusterArgs {
    fn write(&self, written: &mut Written) {
        let secret = self.peer_secret_file.clone().map(SecretSource::File);
        written.cluster = ClusterWritten {
            peer: given("--peer", &self.peer),
            cluster: given("--cluster", &self.cluster),
            join: given("--join", &self.join),
            advertise_http: given("--advertise-http", &self.advertise_http),
            advertise_peer: given("--advertise-peer", &self.advertise_peer),
            role: given("--role", &self.role),
            secret: given("--peer-secret-file", &secret),
        };
        if let Some(given) = given("--rack", &self.rack) {
            written.broker.insert("broker.rack".to_owned(), given);
        }
    }
}

fn flags(args: &ServerArgs) -> Outcome<Written> {
    let mut written = Written {
        data: given("--data", &Some(&args.data).filter(|data| !data.is_empty()).cloned()),
        kafka: given("--kafka", &args.kafka),
        http: given("--http", &args.http),
        advertise_kafka: given("--advertise-kafka", &args.advertise_kafka),
        insecure: given("--insecure", &args.insecure.then_some(true)),
        sqs: SqsWritten {
            listen: given("--sqs", &args.sqs),
            advertise: given("--advertise-sqs", &args.advertise_sqs),
            keys: given("--sqs-keys-file", &args.sqs_keys_file.clone().map(SecretSource::File)),
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
    Ok(written)
}

fn refused(errors: Vec<ConfigError>) -> Failure {
    let lines: Vec<String> = errors.iter().map(ConfigError::to_string).collect();
    Failure::usage(lines.join("\n       "))
        .with_help("docs/configuration.md lists every setting; `towpath serve --check` checks them")
}
