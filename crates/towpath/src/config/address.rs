//! Addresses as people write them.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use super::{ConfigError, Given};

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostPort { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Reads an address that was given.
pub(super) fn read(given: Option<&Given<String>>) -> Result<Option<HostPort>, ConfigError> {
    let Some(Given { value, origin }) = given else { return Ok(None) };
    match HostPort::parse(value) {
        Some(address) => Ok(Some(address)),
        None => Err(ConfigError {
            origin: Some(origin.clone()),
            message: format!("{value:?} is no address; write host:port, such as 127.0.0.1:9092"),
        }),
    }
}

impl HostPort {
    pub(super) fn loopback(port: u16) -> HostPort {
        HostPort { host: "127.0.0.1".to_owned(), port }
    }

    /// `host:port`, `[::1]:port`, `:port` (every address of this machine) or `port` (loopback).
    pub(super) fn parse(text: &str) -> Option<HostPort> {
        let text = text.trim();
        if let Ok(port) = text.parse() {
            return Some(HostPort::loopback(port));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => host,
            None if host.contains(':') => return None,
            None if host.is_empty() => "0.0.0.0",
            None => host,
        };
        let is_possible = !host.is_empty() && !host.contains(['/', '[', ']', ' ']);
        is_possible.then(|| HostPort { host: host.to_owned(), port })
    }

    /// The address to bind; an IPv4 one where there is a choice, because clients that are told a
    /// name try that first more often than not.
    pub(super) fn resolve(&self) -> Result<SocketAddr, String> {
        let resolved = (self.host.as_str(), self.port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = match resolved {
            Ok(addresses) => addresses.collect(),
            Err(error) => return Err(format!("{} is not known: {error}", self.host)),
        };
        let best = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
        best.copied().ok_or_else(|| format!("{} has no address", self.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(&str, u16)>) {
        let parsed = HostPort::parse(text);
        let parsed = parsed.as_ref().map(|address| (address.host.as_str(), address.port));
        assert_eq!(parsed, expected, "{text}");
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        check("127.0.0.1:9092", Some(("127.0.0.1", 9092)));
        check("localhost:0", Some(("localhost", 0)));
        check("[::1]:8080", Some(("::1", 8080)));
        check(":9092", Some(("0.0.0.0", 9092)));
        check("9092", Some(("127.0.0.1", 9092)));
        check("::1:8080", None);
        check("localhost", None);
        check("localhost:99999", None);
        check("http://localhost:80", None);
        check("", None);
    }

    #[test]
    fn ipv6_addresses_are_printed_so_that_they_can_be_read_again() {
        let address = HostPort { host: "::1".to_owned(), port: 1 };
        assert_eq!(address.to_string(), "[::1]:1");
        assert_eq!(HostPort::parse(&address.to_string()), Some(address));
    }
}
