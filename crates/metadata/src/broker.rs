//! A broker as the cluster knows it.

use serde::{Deserialize, Serialize};
use towpath_model::{BrokerId, Uuid};

/// Where a broker listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The listener's name: `PLAINTEXT` for Kafka's protocol, `HTTP`, `PEER` for other brokers.
    pub listener: String,
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// What a node is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Role {
    /// Holds partitions and serves clients.
    #[default]
    Broker,
    /// Serves clients and holds nothing.
    Frontend,
}

/// A registered broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// Its number.
    pub id: BrokerId,
    /// Which registration this is; rises over all registrations of the cluster (KIP-903).
    pub epoch: i64,
    /// Identity of the process that registered.
    pub incarnation: Uuid,
    /// What it is there for.
    pub role: Role,
    /// Where it stands.
    pub rack: Option<String>,
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// Its data directories, those included that are offline.
    pub directories: Vec<Uuid>,
    /// Those of them that failed or are absent; what lies there can neither be read nor written.
    pub offline: Vec<Uuid>,
    /// The newest level of formats that its program reads and writes.
    pub format_level: u16,
    /// Whether it counts as gone: it leads nothing and is in sync with nobody.
    pub fenced: bool,
    /// Whether it is about to stop and hands its leaderships over (KIP-500's controlled shutdown).
    pub in_controlled_shutdown: bool,
    /// Whether its operator wants its replicas elsewhere.
    pub drained: bool,
}

impl Broker {
    /// Whether it can lead and be in sync.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Whether it can be given new replicas.
    #[must_use]
    pub fn is_placeable(&self) -> bool {
        self.is_active() && !self.drained && self.role == Role::Broker
    }

    /// Whether a replica that lies in `directory` can be read there; one whose directory nobody has
    /// told yet can.
    #[must_use]
    pub fn holds(&self, directory: Uuid) -> bool {
        directory.is_zero()
            || (self.directories.contains(&directory) && !self.offline.contains(&directory))
    }

    /// Where it listens under this name.
    #[must_use]
    pub fn address(&self, listener: &str) -> Option<&Address> {
        self.addresses.iter().find(|address| address.listener == listener)
    }

    /// Where a replica of it will lie, if there is no choice.
    pub(crate) fn only_directory(&self) -> Uuid {
        match self.directories[..] {
            [only] => only,
            _ => Uuid::ZERO,
        }
    }
}
