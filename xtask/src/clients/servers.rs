//! What the clients are run against, told to them in environment variables.

use std::collections::BTreeMap;
use std::net::TcpStream;

use anyhow::{Context, Result};

use crate::product::Product;

/// `HOST:PORT` for Kafka clients.
const KAFKA: &str = "BOOTSTRAP";
/// `HOST:PORT` for HTTP. Other brokers than ours have no queues behind their topics.
pub(super) const HTTP: &str = "HTTP";

/// The environment of every client.
pub(crate) struct Servers(BTreeMap<&'static str, String>);

impl Servers {
    /// A product of ours.
    pub(crate) fn of(product: &Product) -> Servers {
        Servers(BTreeMap::from([(KAFKA, product.kafka.clone()), (HTTP, product.http.clone())]))
    }

    /// Any broker at `HOST:PORT`.
    pub(super) fn kafka(bootstrap: &str) -> Servers {
        Servers(BTreeMap::from([(KAFKA, bootstrap.to_owned())]))
    }

    /// Whether there is what the variable names.
    pub(super) fn have(&self, variable: &str) -> bool {
        self.0.contains_key(variable)
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Ten clients that each wait for a broker that is not there would take twenty minutes to say so.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(kafka) = self.0.get(KAFKA) {
            TcpStream::connect(kafka).with_context(|| format!("no broker at {kafka}"))?;
        }
        Ok(())
    }
}
