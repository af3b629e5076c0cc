//! What every part of the client shares: where the cluster is, and how patient to be with it.

use std::time::Duration;

use crate::error::{Error, Result};

/// Settings of a [`crate::Cluster`] and of everything that stands on it.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Addresses (`host:port`) to ask first; one that answers is enough.
    pub bootstrap: Vec<String>,
    /// What the broker's logs and quotas call this client.
    pub client_id: String,
    /// How long a TCP connection may take to open.
    pub connect_timeout: Duration,
    /// How long an answer may take before its connection is given up.
    pub request_timeout: Duration,
    /// Pause before a broker that failed is dialled again.
    pub reconnect_backoff: Backoff,
    /// Pause before a request that failed is tried again.
    pub retry_backoff: Backoff,
    /// Age at which cached metadata is fetched again although nothing failed.
    pub metadata_age_max: Duration,
    /// Requests on one connection that may wait for their answers at a time.
    pub in_flight_max: usize,
    /// The largest answer that is read; a longer one closes its connection.
    pub response_bytes_max: usize,
}

impl ClientConfig {
    /// Defaults for a cluster at `bootstrap`: addresses separated by commas, port 9092 if none is
    /// named.
    pub fn new(bootstrap: &str) -> Result<ClientConfig> {
        let bootstrap: Vec<String> = bootstrap
            .split(',')
            .map(str::trim)
            .filter(|address| !address.is_empty())
            .map(|address| split_address(address).map(|(host, port)| join_address(host, port)))
            .collect::<Result<_>>()?;
        if bootstrap.is_empty() {
            return Err(Error::InvalidArgument("no server address was given".to_owned()));
        }
        Ok(ClientConfig {
            bootstrap,
            client_id: "towpath".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            reconnect_backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            retry_backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            metadata_age_max: Duration::from_secs(300),
            in_flight_max: 16,
            response_bytes_max: 128 << 20,
        })
    }
}

/// The port of a Kafka listener when an address names none.
pub const DEFAULT_PORT: u16 = 9092;

/// Takes `host`, `host:port`, `[v6]:port` or a bare IPv6 address apart.
pub fn split_address(address: &str) -> Result<(&str, u16)> {
    let invalid = || {
        Error::InvalidArgument(format!("{address:?} is not an address: expected host or host:port"))
    };
    let address = address.strip_prefix("kafka://").unwrap_or(address);
    let (host, port) = if let Some(rest) = address.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(invalid)?;
        (host, rest.strip_prefix(':'))
    } else if address.matches(':').count() > 1 {
        (address, None)
    } else {
        match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        }
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| invalid())?,
        None => DEFAULT_PORT,
    };
    if host.is_empty() || host.contains(['/', ' ']) { Err(invalid()) } else { Ok((host, port)) }
}

/// `host:port`, with brackets around an IPv6 address.
#[must_use]
pub fn join_address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Waits that double up to a limit, with up to a fifth of jitter so that clients that failed
/// together do not return together.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Starts at `first` and never exceeds `max` by more than the jitter.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max }
    }

    /// The wait after the `failures`-th failure in a row, counted from 1.
    #[must_use]
    pub fn wait(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let wait = self.first.saturating_mul(1 << doublings).min(self.max);
        wait.mul_f64(0.8 + 0.4 * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_omit_the_port_and_may_be_ipv6() {
        assert_eq!(split_address("db1").unwrap(), ("db1", 9092));
        assert_eq!(split_address("db1:19092").unwrap(), ("db1", 19092));
        assert_eq!(split_address("[::1]:9").unwrap(), ("::1", 9));
        assert_eq!(split_address("::1").unwrap(), ("::1", 9092));
        assert!(split_address("http://x").is_err());
        assert!(split_address("x:port").is_err());
        assert_eq!(ClientConfig::new("a, b:1").unwrap().bootstrap, ["a:9092", "b:1"]);
        assert!(ClientConfig::new(" , ").is_err());
    }

    #[test]
    fn waits_double_up_to_the_limit() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for (failures, expected) in [(1, 100.0), (2, 200.0), (4, 800.0), (5, 1000.0), (400, 1000.0)]
        {
            let wait = backoff.wait(failures).as_secs_f64() * 1000.0;
            assert!(expected * 0.8 <= wait && wait <= expected * 1.2, "{failures}: {wait}");
        }
    }
}
