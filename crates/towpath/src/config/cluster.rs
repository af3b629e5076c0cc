//! Other brokers: how this one comes to a cluster, and what they share.
//!
//! ```text
//! --cluster 1@a:9094,2@b:9094,3@c:9094     these begin together
//! --join a:9094                            one more
//! --peer 127.0.0.1:9094                    one by itself, which others may join
//! none of them                             one by itself
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use towpath_metadata::Role;
use towpath_model::BrokerId;
use towpath_server::peer::{PeerAddress, Secret};

use super::{ConfigError, Given, HostPort, Origin, PEER_PORT};

/// What was written about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) peer: Option<Given<String>>,
    pub(crate) advertise_peer: Option<Given<String>>,
    pub(crate) advertise_http: Option<Given<String>>,
    pub(crate) members: Option<Given<String>>,
    pub(crate) join: Option<Given<String>>,
    pub(crate) role: Option<Given<String>>,
    pub(crate) secret_file: Option<Given<PathBuf>>,
    /// Only ever in the environment.
    pub(crate) secret: Option<Given<String>>,
}

impl Written {
    /// This layer on top of another one. A secret of any kind hides one that lies below.
    pub(super) fn over(self, below: Written) -> Written {
        let has_secret = self.secret.is_some() || self.secret_file.is_some();
        let below_secret = (!has_secret).then_some((below.secret_file, below.secret));
        let (secret_file, secret) = below_secret.unwrap_or((self.secret_file, self.secret));
        Written {
            peer: self.peer.or(below.peer),
            advertise_peer: self.advertise_peer.or(below.advertise_peer),
            advertise_http: self.advertise_http.or(below.advertise_http),
            members: self.members.or(below.members),
            join: self.join.or(below.join),
            role: self.role.or(below.role),
            secret_file,
            secret,
        }
    }
}

/// How it comes to its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It is one by itself, until others join.
    Alone,
    /// These begin together, this one among them.
    With(BTreeMap<BrokerId, PeerAddress>),
    /// It joins those whom it finds there.
    Join(Vec<PeerAddress>),
}

/// Everything about other brokers, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Where other brokers connect.
    pub(crate) peer: SocketAddr,
    /// What they are told to connect to; `None`: that address.
    pub(crate) advertised: Option<PeerAddress>,
    pub(crate) membership: Membership,
    pub(crate) role: Role,
    pub(crate) secret: Option<Secret>,
}

/// Collects what cannot be.
struct Checker<'a> {
    errors: &'a mut Vec<ConfigError>,
}

impl Checker<'_> {
    fn refuse<T>(&mut self, given: Option<&Given<T>>, message: impl Into<String>) {
        let origin: Option<Origin> = given.map(|given| given.origin.clone());
        self.errors.push(ConfigError { origin, message: message.into() });
    }

    fn address(&mut self, given: Option<&Given<String>>, text: &str) -> Option<PeerAddress> {
        match text.parse::<PeerAddress>() {
            Ok(address) => Some(address),
            Err(error) => {
                self.refuse(given, error.to_string());
                None
            }
        }
    }

    fn members(&mut self, given: &Given<String>, me: BrokerId) -> BTreeMap<BrokerId, PeerAddress> {
        let mut members = BTreeMap::new();
        for text in given.value.split(',').map(str::trim) {
            let member = text.split_once('@');
            let id = member.and_then(|(id, _)| id.parse().ok()).filter(|id: &i32| 0 <= *id);
            let (Some((_, address)), Some(id)) = (member, id) else {
                let message =
                    format!("{text:?} is no member; write ID@HOST:PORT, such as 1@a:9094");
                self.refuse(Some(given), message);
                continue;
            };
            let Some(address) = self.address(Some(given), address) else { continue };
            if members.insert(BrokerId(id), address).is_some() {
                self.refuse(Some(given), format!("broker {id} is named twice"));
            }
        }
        if !members.contains_key(&me) && !members.is_empty() {
            let message = format!(
                "this broker (--node-id {me}) is not among those that begin the cluster; a broker \
                 that comes later takes --join HOST:PORT"
            );
            self.refuse(Some(given), message);
        }
        members
    }

    fn membership(&mut self, written: &Written, me: BrokerId) -> Membership {
        match (&written.members, &written.join) {
            (Some(_), Some(join)) => {
                let message = "a broker begins a cluster with others (--cluster) or joins one \
                    (--join), not both";
                self.refuse(Some(join), message);
                Membership::Alone
            }
            (Some(given), None) => Membership::With(self.members(given, me)),
            (None, Some(given)) => {
                let texts = given.value.split(',').map(str::trim);
                Membership::Join(texts.filter_map(|text| self.address(Some(given), text)).collect())
            }
            (None, None) => Membership::Alone,
        }
    }

    fn role(&mut self, written: &Written, membership: &Membership) -> Role {
        let Some(given) = &written.role else { return Role::Broker };
        match given.value.trim() {
            "broker" => Role::Broker,
            "frontend" => {
                if !matches!(membership, Membership::Join(_)) {
                    let message = "a front end keeps no data, so it joins a cluster: name one of its \
                        brokers with --join HOST:PORT";
                    self.refuse(Some(given), message);
                }
                Role::Frontend
            }
            other => {
                self.refuse(Some(given), format!("{other:?} is no role; broker and frontend are"));
                Role::Broker
            }
        }
    }

    fn secret(&mut self, written: &Written) -> Option<Secret> {
        let read = |given: &Given<PathBuf>| {
            let path = given.value.display();
            let text = std::fs::read(&given.value).map_err(|error| format!("{path}: {error}"))?;
            Secret::new(&text).map_err(|error| format!("{path}: {error}"))
        };
        match (&written.secret_file, &written.secret) {
            (Some(file), Some(_)) => {
                let message = "the secret of the cluster is also given as TOWPATH_CLUSTER_SECRET; \
                    one of the two is enough";
                self.refuse(Some(file), message);
                None
            }
            (Some(file), None) => {
                read(file).map_err(|message| self.refuse(Some(file), message)).ok()
            }
            (None, Some(given)) => {
                let secret = Secret::new(given.value.as_bytes());
                secret.map_err(|error| self.refuse(Some(given), error.to_string())).ok()
            }
            (None, None) => None,
        }
    }
}

impl Cluster {
    /// Checks what was written. `peer`: the address that was named; `me`: this broker's number;
    /// `any_port`: listeners that were not named take any.
    pub(super) fn check(
        written: &Written,
        peer: Option<HostPort>,
        me: BrokerId,
        any_port: bool,
        errors: &mut Vec<ConfigError>,
    ) -> Option<Cluster> {
        if written.peer.is_none() && written.members.is_none() && written.join.is_none() {
            let alone = [&written.advertise_peer, &written.advertise_http, &written.role];
            for given in alone.into_iter().flatten().filter(|given| given.value.trim() != "broker")
            {
                let message = "this says something to other brokers, and there are none: --cluster, \
                    --join or --peer is missing";
                errors.push(ConfigError {
                    origin: Some(given.origin.clone()),
                    message: message.to_owned(),
                });
            }
            return None;
        }
        let mut checker = Checker { errors };
        let membership = checker.membership(written, me);
        let role = checker.role(written, &membership);
        let secret = checker.secret(written);
        let own = match &membership {
            Membership::With(members) => members.get(&me).cloned(),
            Membership::Alone | Membership::Join(_) => None,
        };
        let advertised = written.advertise_peer.as_ref();
        let advertised = advertised.and_then(|given| checker.address(Some(given), &given.value));
        let advertised = advertised.or(own.clone());
        let named = peer.unwrap_or_else(|| match own {
            Some(PeerAddress { host, port }) => HostPort { host, port },
            None => HostPort::loopback(if any_port { 0 } else { PEER_PORT }),
        });
        let peer = match named.resolve() {
            Ok(peer) => peer,
            Err(message) => {
                checker.refuse(written.peer.as_ref(), message);
                return None;
            }
        };
        if !peer.ip().is_loopback() && secret.is_none() {
            let message = format!(
                "other machines can reach {peer}, so brokers have to prove who they are: give all of \
                 them the same secret (--cluster-secret-file FILE or TOWPATH_CLUSTER_SECRET)"
            );
            checker.refuse(written.peer.as_ref(), message);
        }
        if peer.ip().is_unspecified() && advertised.is_none() {
            let message = format!(
                "{peer} is every address of this machine, and other brokers have to be told one of \
                 them: name it with --advertise-peer HOST:PORT"
            );
            checker.refuse(written.peer.as_ref(), message);
        }
        Some(Cluster { peer, advertised, membership, role, secret })
    }
}

#[cfg(test)]
mod tests;
