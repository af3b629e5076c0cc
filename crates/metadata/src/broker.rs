//! A broker as the cluster knows it.

use towpath_model::{BrokerId, Uuid};

/// Where a broker listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The listener's name, such as `PLAINTEXT`.
    pub listener: String,
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
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
    /// Where it stands.
    pub rack: Option<String>,
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// Its data directories.
    pub directories: Vec<Uuid>,
}
