//! What a broker among others is told: who they are, where it is for them, and what they share.
//!
//! ```text
//! --cluster 1@a:9094,2@b:9094,3@c:9094   begin together       --join a:9094   come to those who are there
//! ```
//!
//! A host that is said once is enough: what is not advertised is advertised at the host that peers know.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use towpath_metadata::Role;
use towpath_model::BrokerId;
use towpath_server::formation::Membership;
use towpath_server::peer::{PeerAddress, Secret};

use super::{ConfigError, Given, HostPort, Origin, address};

/// Where peers connect when nobody says otherwise.
const PEER_PORT: u16 = 9094;
/// Largest file that is read for a secret; anything larger is none.
const SECRET_FILE_BYTES_MAX: u64 = 64 << 10;

/// Where the secret of the cluster stands. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SecretSource {
    /// Here, as the environment has it.
    Text(String),
    /// In a file.
    File(PathBuf),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Text(_) => f.write_str("Text(…)"),
            SecretSource::File(path) => write!(f, "File({path:?})"),
        }
    }
}

/// What was written of it; nothing is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterWritten {
    pub(crate) peer: Option<Given<String>>,
    pub(crate) cluster: Option<Given<String>>,
    pub(crate) join: Option<Given<String>>,
    pub(crate) advertise_http: Option<Given<String>>,
    pub(crate) advertise_peer: Option<Given<String>>,
    pub(crate) role: Option<Given<String>>,
    pub(crate) secret: Option<Given<SecretSource>>,
}

impl ClusterWritten {
    /// The settings, as the file names them.
    pub(crate) const SETTINGS: [&str; 7] =
        ["peer", "cluster", "join", "advertise_http", "advertise_peer", "role", "peer_secret_file"];

    /// Takes a value by the name that it has in the file.
    pub(crate) fn take(&mut self, name: &str, given: Given<String>) {
        let place = match name {
            "peer" => &mut self.peer,
            "cluster" => &mut self.cluster,
            "join" => &mut self.join,
            "advertise_http" => &mut self.advertise_http,
            "advertise_peer" => &mut self.advertise_peer,
            "role" => &mut self.role,
            "peer_secret_file" => {
                let Given { value, origin } = given;
                self.secret = Some(Given { value: SecretSource::File(value.into()), origin });
                return;
            }
            _ => return,
        };
        *place = Some(given);
    }

    /// Takes an environment variable, if it is one of these.
    pub(super) fn take_variable(&mut self, variable: &str, value: &str) -> bool {
        let Some(name) = variable.strip_prefix("TOWPATH_") else { return false };
        let origin = Origin::Environment(variable.to_owned());
        if name == "PEER_SECRET" {
            self.secret = Some(Given { value: SecretSource::Text(value.to_owned()), origin });
            return true;
        }
        let name = name.to_ascii_lowercase();
        let is_known = Self::SETTINGS.contains(&name.as_str());
        // The secret itself counts more than where it stands, in whatever order they come.
        let is_said = name == "peer_secret_file" && self.secret.is_some();
        if is_known && !is_said {
            self.take(&name, Given { value: value.to_owned(), origin });
        }
        is_known
    }

    /// This layer on top of another one.
    pub(super) fn over(self, below: ClusterWritten) -> ClusterWritten {
        // Who says how this broker comes to its cluster says all of it.
        let is_said = self.cluster.is_some() || self.join.is_some();
        ClusterWritten {
            peer: self.peer.or(below.peer),
            cluster: if is_said { self.cluster } else { below.cluster },
            join: if is_said { self.join } else { below.join },
            advertise_http: self.advertise_http.or(below.advertise_http),
            advertise_peer: self.advertise_peer.or(below.advertise_peer),
            role: self.role.or(below.role),
            secret: self.secret.or(below.secret),
        }
    }
}

/// How a broker comes to its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Company {
    /// It is one by itself, to which others may come.
    Alone,
    /// It begins together with these, itself among them.
    With(BTreeMap<BrokerId, PeerAddress>),
    /// It joins those who are there.
    Join(Vec<PeerAddress>),
}

impl Company {
    /// What the formation of a cluster is told.
    pub(crate) fn membership(&self) -> Membership {
        match self {
            Company::Alone => Membership::Alone,
            Company::With(members) => Membership::With(members.keys().copied().collect()),
            Company::Join(_) => Membership::Join,
        }
    }
}

/// What a broker is among others: checked, and complete.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSettings {
    /// Where peers connect.
    pub(crate) peer: SocketAddr,
    /// Where they are told to; `None`: where it is bound.
    pub(crate) advertised: Option<PeerAddress>,
    /// Where clients of other brokers are told to connect, if nobody has said so and it is not where it
    /// is bound. Clients of a broker without others are told the address that they have used.
    pub(crate) kafka: Option<HostPort>,
    /// Where other brokers reach HTTP; `None`: where it is bound.
    pub(crate) http: Option<HostPort>,
    pub(crate) company: Company,
    pub(crate) role: Role,
    pub(crate) secret: Option<Secret>,
}

/// The other listeners, already checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listeners {
    pub(super) kafka: SocketAddr,
    pub(super) http: SocketAddr,
    /// Somebody has said where Kafka clients are to connect.
    pub(super) kafka_is_advertised: bool,
    /// Somebody has asked for any free port.
    pub(super) any_port: bool,
}

/// Where and what is wrong, of one value after the other.
struct Notes<'e>(&'e mut Vec<ConfigError>);

impl Notes<'_> {
    fn refuse<T>(&mut self, given: Option<&Given<T>>, message: impl Into<String>) {
        let origin = given.map(|given| given.origin.clone());
        self.0.push(ConfigError { origin, message: message.into() });
    }

    fn address(&mut self, given: Option<&Given<String>>) -> Option<HostPort> {
        address::read(given).unwrap_or_else(|error| {
            self.0.push(error);
            None
        })
    }
}

impl ClusterWritten {
    /// Checks what was written and fills in the rest; `None` when something was wrong.
    pub(super) fn check(
        &self,
        me: BrokerId,
        listeners: Listeners,
        errors: &mut Vec<ConfigError>,
    ) -> Option<ClusterSettings> {
        let before = errors.len();
        let mut notes = Notes(errors);
        let company = self.company(me, &mut notes);
        let role = self.role(&company, &mut notes);
        let secret = self.secret(&mut notes);
        let own = match &company {
            Company::With(members) => members.get(&me).cloned(),
            _ => None,
        };
        let peer = self.bind(own.as_ref(), listeners.any_port, secret.is_some(), &mut notes);
        let advertised = match notes.address(self.advertise_peer.as_ref()) {
            Some(HostPort { port: 0, .. }) => {
                let message = "port 0 cannot be advertised: brokers have to connect to it";
                notes.refuse(self.advertise_peer.as_ref(), message);
                None
            }
            Some(HostPort { host, port }) => Some(PeerAddress { host, port }),
            None => own,
        };
        if advertised.is_none() && peer.ip().is_unspecified() {
            let message = format!(
                "other brokers cannot connect to {peer}: say where they reach this one with \
                 --advertise-peer HOST:PORT"
            );
            notes.refuse(self.peer.as_ref(), message);
        }
        // The host that peers know is this machine for everybody, unless somebody says otherwise.
        let named = advertised.as_ref().map(|address| address.host.clone());
        let host = named.or_else(|| (!peer.ip().is_unspecified()).then(|| peer.ip().to_string()));
        let at_host = |bound: SocketAddr| match &host {
            Some(host) if bound.ip().is_unspecified() => {
                Some(HostPort { host: host.clone(), port: bound.port() })
            }
            _ => None,
        };
        let kafka = at_host(listeners.kafka);
        let is_local = host.as_deref().is_none_or(is_loopback);
        if kafka.is_some()
            && is_local
            && !listeners.kafka_is_advertised
            && company != Company::Alone
        {
            let message = format!(
                "clients of the other brokers cannot connect to {}: say where they reach this one \
                 with --advertise-kafka HOST:PORT",
                listeners.kafka
            );
            notes.refuse(None::<&Given<String>>, message);
        }
        let http = notes.address(self.advertise_http.as_ref()).or(at_host(listeners.http));
        (errors.len() == before).then_some(ClusterSettings {
            peer,
            advertised,
            kafka,
            http,
            company,
            role,
            secret,
        })
    }

    fn company(&self, me: BrokerId, notes: &mut Notes<'_>) -> Company {
        match (&self.cluster, &self.join) {
            (None, None) => Company::Alone,
            (Some(_), Some(join)) => {
                let message = "a broker either begins a cluster (--cluster) or joins one (--join)";
                notes.refuse(Some(join), message);
                Company::Alone
            }
            (Some(given), None) => match members(&given.value, me) {
                Ok(members) => Company::With(members),
                Err(message) => {
                    notes.refuse(Some(given), message);
                    Company::Alone
                }
            },
            (None, Some(given)) => {
                let seeds = given.value.split(',').map(str::parse::<PeerAddress>);
                match seeds.collect() {
                    Ok(seeds) => Company::Join(seeds),
                    Err(invalid) => {
                        notes.refuse(Some(given), invalid.to_string());
                        Company::Alone
                    }
                }
            }
        }
    }

    fn role(&self, company: &Company, notes: &mut Notes<'_>) -> Role {
        let Some(given) = &self.role else { return Role::Broker };
        match (given.value.trim(), company) {
            ("broker", _) => return Role::Broker,
            ("frontend", Company::Join(_)) => return Role::Frontend,
            ("frontend", _) => notes.refuse(
                Some(given),
                "a front end holds nothing: it joins a cluster of brokers; name one with --join",
            ),
            (other, _) => {
                notes.refuse(Some(given), format!("{other:?} is neither broker nor frontend"));
            }
        }
        Role::Broker
    }

    fn secret(&self, notes: &mut Notes<'_>) -> Option<Secret> {
        let given = self.secret.as_ref()?;
        let text = match &given.value {
            SecretSource::Text(text) => Ok(text.clone().into_bytes()),
            SecretSource::File(path) => read_secret(path),
        };
        let secret = text.and_then(|text| Secret::new(&text).map_err(|error| error.to_string()));
        secret.map_err(|message| notes.refuse(Some(given), message)).ok()
    }

    /// Where to listen for peers: where it is said, else at the address that the others have for this
    /// broker, else on loopback.
    fn bind(
        &self,
        own: Option<&PeerAddress>,
        any_port: bool,
        has_secret: bool,
        notes: &mut Notes<'_>,
    ) -> SocketAddr {
        let unnamed = HostPort::loopback(if any_port { 0 } else { PEER_PORT });
        let named = notes.address(self.peer.as_ref());
        let given = if named.is_some() { self.peer.as_ref() } else { self.cluster.as_ref() };
        let own = own.map(|own| HostPort { host: own.host.clone(), port: own.port });
        let resolved = named.or(own).unwrap_or(unnamed).resolve();
        let checked = resolved.and_then(|address| {
            if address.ip().is_loopback() || has_secret {
                return Ok(address);
            }
            Err(format!(
                "{address} can be reached from other machines: brokers there prove that they \
                 belong to the cluster by a secret that all of them share; name it with \
                 --peer-secret-file FILE (`openssl rand -base64 32 > FILE` makes one) or in \
                 TOWPATH_PEER_SECRET"
            ))
        });
        checked.unwrap_or_else(|message| {
            notes.refuse(given, message);
            SocketAddr::from(([127, 0, 0, 1], PEER_PORT))
        })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn members(text: &str, me: BrokerId) -> Result<BTreeMap<BrokerId, PeerAddress>, String> {
    let mut members = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for item in text.split(',').map(str::trim) {
        let parsed = item.split_once('@').and_then(|(id, address)| {
            let id = id.parse::<u32>().ok().and_then(|id| i32::try_from(id).ok())?;
            Some((BrokerId(id), address.parse::<PeerAddress>().ok()?))
        });
        let Some((id, address)) = parsed else {
            return Err(format!(
                "{item:?} is no broker; write N@host:port, such as 1@broker-1:9094"
            ));
        };
        if !addresses.insert(address.clone()) {
            return Err(format!("two brokers cannot both be at {address}"));
        }
        if members.insert(id, address).is_some() {
            return Err(format!("broker {id} is named twice"));
        }
    }
    if members.contains_key(&me) {
        return Ok(members);
    }
    let ids: Vec<String> = members.keys().map(ToString::to_string).collect();
    Err(format!(
        "this is broker {me}, and the cluster has {}: say which of them this one is with --node-id",
        ids.join(", ")
    ))
}

/// Reads a file that holds a secret; what is wrong with it does not repeat it.
pub(super) fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    let failed = |error| format!("the secret in {name} cannot be read: {error}");
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if SECRET_FILE_BYTES_MAX < length {
        return Err(format!("{name} has {length} bytes; that is no secret"));
    }
    std::fs::read(path).map_err(failed)
}

#[cfg(test)]
mod tests;
