//! What an operator wrote, by flag, environment and file, and the settings that follow from it.
//!
//! ```text
//! flag > environment > file > default          Written ──check──▶ Settings
//! ```
//!
//! Two stages: the layers are read without side effects and keep where each value came from, so
//! that a message can name the flag, the variable or the line; then they are checked together.
//! Below this file nobody reads flags, environment or files.

mod address;
mod cluster;
mod file;
#[cfg(test)]
mod reference;
mod sqs;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use towpath_model::Uuid;
use towpath_model::properties::BrokerConfig;

pub(crate) use address::HostPort;
pub(crate) use cluster::{ClusterSettings, ClusterWritten, Company, SecretSource};
pub(crate) use file::read_file;
pub(crate) use sqs::{SqsAddress, SqsServed, SqsWritten};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag, as it is typed.
    Flag(&'static str),
    /// An environment variable.
    Environment(String),
    /// A line of a file, counted from 1.
    File { path: PathBuf, line: usize },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => f.write_str(flag),
            Origin::Environment(variable) => write!(f, "environment variable {variable}"),
            Origin::File { path, line } => write!(f, "{} line {line}", path.display()),
        }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Something that cannot be, and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    pub(crate) origin: Option<Origin>,
    pub(crate) message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// What was written, in one layer or in several on top of each other; nothing of it is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// The data directories; the metadata lives in the first.
    pub(crate) data: Option<Given<Vec<PathBuf>>>,
    pub(crate) kafka: Option<Given<String>>,
    pub(crate) http: Option<Given<String>>,
    pub(crate) advertise_kafka: Option<Given<String>>,
    pub(crate) insecure: Option<Given<bool>>,
    /// What is said of SQS.
    pub(crate) sqs: SqsWritten,
    /// What a broker among others is told.
    pub(crate) cluster: ClusterWritten,
    /// Broker properties by name.
    pub(crate) broker: BTreeMap<String, Given<String>>,
}

/// Properties in the environment: `TOWPATH_BROKER__NUM_PARTITIONS`.
const PROPERTY_PREFIX: &str = "TOWPATH_BROKER__";

impl Written {
    /// The layer of the environment.
    pub(crate) fn from_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Written, Vec<ConfigError>> {
        let mut written = Written::default();
        let mut errors = Vec::new();
        for (name, value) in variables {
            let origin = Origin::Environment(name.clone());
            let given = |value| Some(Given { value, origin: origin.clone() });
            match name.as_str() {
                "TOWPATH_DATA" => {
                    let value = std::env::split_paths(&value).collect();
                    written.data = Some(Given { value, origin });
                }
                "TOWPATH_KAFKA" => written.kafka = given(value),
                "TOWPATH_HTTP" => written.http = given(value),
                "TOWPATH_ADVERTISE_KAFKA" => written.advertise_kafka = given(value),
                "TOWPATH_INSECURE" => match read_boolean(&value) {
                    Some(value) => written.insecure = Some(Given { value, origin }),
                    None => errors.push(ConfigError {
                        message: format!("{value:?} is neither true nor false"),
                        origin: Some(origin),
                    }),
                },
                _ if written.cluster.take_variable(&name, &value) => {}
                _ if written.sqs.take_variable(&name, &value) => {}
                _ => {
                    if let Some(property) = name.strip_prefix(PROPERTY_PREFIX) {
                        let property = property.to_lowercase().replace('_', ".");
                        written.broker.insert(property, Given { value, origin });
                    }
                }
            }
        }
        if errors.is_empty() { Ok(written) } else { Err(errors) }
    }

    /// This layer on top of another one.
    pub(crate) fn over(mut self, below: Written) -> Written {
        let mut broker = below.broker;
        broker.append(&mut self.broker);
        Written {
            data: self.data.or(below.data),
            kafka: self.kafka.or(below.kafka),
            http: self.http.or(below.http),
            advertise_kafka: self.advertise_kafka.or(below.advertise_kafka),
            insecure: self.insecure.or(below.insecure),
            sqs: self.sqs.over(below.sqs),
            cluster: self.cluster.over(below.cluster),
            broker,
        }
    }
}

fn read_boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Some(true),
        "false" | "0" | "no" => Some(false),
        _ => None,
    }
}

/// What differs between the two ways to run a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    /// `None`: somebody has to say it.
    pub(crate) data: Option<&'static str>,
    /// Broker properties that are other than registered.
    pub(crate) broker: &'static [(&'static str, &'static str)],
    /// Other brokers may come: there is a listener for them.
    pub(crate) may_have_peers: bool,
    /// SQS has a listener even if nobody names one, and whoever reaches it on loopback may use it.
    pub(crate) has_open_sqs: bool,
}

/// For a laptop: topics appear when they are used, a group does not wait for more members, and no
/// space is set aside.
pub(crate) const DEV: Defaults = Defaults {
    data: Some("towpath-data"),
    broker: &[
        ("auto.create.topics.enable", "true"),
        ("disk.reserve.bytes", "0"),
        ("group.initial.rebalance.delay.ms", "0"),
    ],
    may_have_peers: false,
    has_open_sqs: true,
};

/// For production: a typing error in a topic's name does not become a topic.
pub(crate) const SERVE: Defaults = Defaults {
    data: None,
    broker: &[("auto.create.topics.enable", "false")],
    may_have_peers: true,
    has_open_sqs: false,
};

/// Where listeners are when nobody says otherwise.
const KAFKA_PORT: u16 = 9092;
const HTTP_PORT: u16 = 8080;

/// What the server is started with: checked, and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// None: a directory that is removed at the end.
    pub(crate) data: Vec<PathBuf>,
    pub(crate) kafka: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) sqs: SqsServed,
    pub(crate) advertised: Option<HostPort>,
    /// Broker properties that are other than registered, by name.
    pub(crate) statics: BTreeMap<String, String>,
    pub(crate) broker: BrokerConfig,
    /// What it is among others; `None`: there are none, and none can come.
    pub(crate) cluster: Option<ClusterSettings>,
    /// Data directories that are given up.
    pub(crate) forgotten_directories: Vec<Uuid>,
}

impl Settings {
    /// Checks what was written and fills in the rest. Every error is returned, not only the first.
    pub(crate) fn check(
        written: &Written,
        is_ephemeral: bool,
        defaults: Defaults,
    ) -> Result<Settings, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut note = |result: Result<Option<HostPort>, ConfigError>| {
            result.unwrap_or_else(|error| {
                errors.push(error);
                None
            })
        };
        let kafka = note(address::read(written.kafka.as_ref()));
        let http = note(address::read(written.http.as_ref()));
        let mut advertised = note(address::read(written.advertise_kafka.as_ref()));
        let any_port = [&kafka, &http].iter().any(|a| a.as_ref().is_some_and(|a| a.port == 0));
        let is_insecure = written.insecure.as_ref().is_some_and(|insecure| insecure.value);
        let mut bind = |named: Option<HostPort>, given: Option<&Given<String>>, port: u16| {
            let unnamed = || HostPort::loopback(if any_port { 0 } else { port });
            let origin = given.map(|given| given.origin.clone());
            let address = named.unwrap_or_else(unnamed).resolve().and_then(|address| {
                if address.ip().is_loopback() || is_insecure {
                    return Ok(address);
                }
                Err(format!(
                    "{address} can be reached from other machines, and nobody has to prove who \
                     they are yet; listen on 127.0.0.1, or type --insecure"
                ))
            });
            address.unwrap_or_else(|message| {
                errors.push(ConfigError { origin, message });
                SocketAddr::from(([127, 0, 0, 1], port))
            })
        };
        let kafka = bind(kafka, written.kafka.as_ref(), KAFKA_PORT);
        let http = bind(http, written.http.as_ref(), HTTP_PORT);
        if advertised.as_ref().is_some_and(|address| address.port == 0) {
            let origin = written.advertise_kafka.as_ref().map(|given| given.origin.clone());
            let message = "port 0 cannot be advertised: clients have to connect to it".to_owned();
            errors.push(ConfigError { origin, message });
        }

        let sqs = written.sqs.check(defaults.has_open_sqs, any_port, &mut errors);
        let data = match (&written.data, defaults.data) {
            _ if is_ephemeral => Vec::new(),
            (Some(given), _) => check_data(given, &mut errors),
            (None, Some(default)) => vec![default.into()],
            (None, None) => {
                let message = "no data directory: name one with --data DIR, TOWPATH_DATA or \
                    `data` in the file, or type --ephemeral";
                errors.push(ConfigError { origin: None, message: message.to_owned() });
                Vec::new()
            }
        };
        let broker = check_broker(&written.broker, defaults, &mut errors);
        let mut cluster = None;
        if let Some((_, broker)) = &broker
            && defaults.may_have_peers
        {
            let kafka_is_advertised = advertised.is_some();
            let listeners = cluster::Listeners { kafka, http, kafka_is_advertised, any_port };
            cluster = written.cluster.check(broker.node_id, listeners, &mut errors);
            if let Some(cluster) = &cluster
                && advertised.is_none()
                && cluster.company != Company::Alone
            {
                advertised = cluster.kafka.clone();
            }
        }
        match broker {
            Some((statics, broker)) if errors.is_empty() => {
                let forgotten_directories = Vec::new();
                Ok(Settings {
                    data,
                    kafka,
                    http,
                    sqs,
                    advertised,
                    statics,
                    broker,
                    cluster,
                    forgotten_directories,
                })
            }
            _ => Err(errors),
        }
    }
}

fn check_data(given: &Given<Vec<PathBuf>>, errors: &mut Vec<ConfigError>) -> Vec<PathBuf> {
    let mut refuse = |message| {
        errors.push(ConfigError { origin: Some(given.origin.clone()), message });
    };
    if given.value.is_empty() || given.value.iter().any(|path| path.as_os_str().is_empty()) {
        refuse("a data directory has no name".to_owned());
    }
    for (at, path) in given.value.iter().enumerate() {
        if given.value[..at].contains(path) {
            refuse(format!("data directory {} is named twice", path.display()));
        }
    }
    given.value.clone()
}

fn check_broker(
    written: &BTreeMap<String, Given<String>>,
    defaults: Defaults,
    errors: &mut Vec<ConfigError>,
) -> Option<(BTreeMap<String, String>, BrokerConfig)> {
    let before = errors.len();
    for (name, given) in written {
        let origin = Some(given.origin.clone());
        match towpath_model::properties::broker(name) {
            None => {
                let message = format!("there is no broker property {name:?}");
                errors.push(ConfigError { origin, message });
            }
            Some(property) => {
                if let Err(invalid) = property.check(&given.value) {
                    errors.push(ConfigError { origin, message: invalid.to_string() });
                }
            }
        }
    }
    if before < errors.len() {
        return None;
    }
    let default = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut statics: BTreeMap<String, String> = defaults.broker.iter().map(default).collect();
    let trimmed = |given: &Given<String>| given.value.trim().to_owned();
    statics.extend(written.iter().map(|(name, given)| (name.clone(), trimmed(given))));
    match BrokerConfig::from_overrides(&statics) {
        Ok(broker) => {
            // Two names for one thing: whoever asks for either gets the same number, as in Kafka.
            if statics.contains_key("node.id") || statics.contains_key("broker.id") {
                let id = broker.node_id.0.to_string();
                statics.extend(["node.id", "broker.id"].map(|name| (name.to_owned(), id.clone())));
            }
            Some((statics, broker))
        }
        Err(invalid) => {
            // Each value is possible; together they are not.
            let origin = written.get(&invalid.property).map(|given| given.origin.clone());
            errors.push(ConfigError { origin, message: invalid.to_string() });
            None
        }
    }
}

#[cfg(test)]
mod tests;
