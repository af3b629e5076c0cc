//! Who a broker is, as it tells a peer at the beginning of a connection; `docs/peer-protocol.md` draws it.

use std::fmt;
use std::str::FromStr;

use bytes::{Buf, BufMut};
use towpath_model::{BrokerId, Uuid};

/// The levels of the protocol that this build speaks: the first and the last.
pub const LEVELS: (u16, u16) = (1, 1);

/// Longest hello, in bytes; the rest is for later levels.
pub const HELLO_BYTES_MAX: usize = 1024;

/// Longest text in a hello, in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// Bytes of what makes a handshake unlike every other one.
pub(crate) const NONCE_BYTES: usize = 32;

/// What a connection carries. Each pair of brokers has one of each and in each direction, so that
/// records hold up nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Heartbeats, consensus, what is durable, requests to the controller.
    Control,
    /// Records for followers.
    Records,
}

impl Class {
    /// Both.
    pub const ALL: [Class; 2] = [Class::Control, Class::Records];

    pub(crate) fn index(self) -> usize {
        match self {
            Class::Control => 0,
            Class::Records => 1,
        }
    }

    /// As logs and metrics call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Control => "control",
            Class::Records => "records",
        }
    }
}

/// Where a peer listens: a name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress {
    /// A name that the system resolves, or an IP address.
    pub host: String,
    /// Not 0.
    pub port: u16,
}

/// Why a text is not a peer's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a peer; write host:port, such as broker-2:9094")]
pub struct InvalidAddress(pub String);

impl FromStr for PeerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<PeerAddress, InvalidAddress> {
        let invalid = || InvalidAddress(text.to_owned());
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(invalid)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => host,
            None if host.contains(':') => return Err(invalid()),
            None => host,
        };
        let address = PeerAddress { host: host.to_owned(), port: port.parse().unwrap_or(0) };
        if address.is_possible() { Ok(address) } else { Err(invalid()) }
    }
}

impl PeerAddress {
    fn is_possible(&self) -> bool {
        is_plain(&self.host) && !self.host.contains(['/', '[', ']']) && self.port != 0
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerAddress { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Who somebody is. Until the handshake has ended, what somebody says that they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The first and the last level of the protocol that they speak.
    pub levels: (u16, u16),
    /// What the connection is for; the dialler chooses.
    pub class: Class,
    /// Whether they have a secret.
    pub has_secret: bool,
    /// Their broker id.
    pub node_id: BrokerId,
    /// The data directory with their metadata: another one is another memory.
    pub directory_id: Uuid,
    /// This run of their process.
    pub incarnation: Uuid,
    /// Random, and never used again.
    pub nonce: [u8; NONCE_BYTES],
    /// Whom they mean to speak to; `None`: whoever answers.
    pub expects: Option<BrokerId>,
    /// The cluster that they belong to; `None`: none yet.
    pub cluster_id: Option<String>,
    /// Where other brokers reach them.
    pub address: Option<PeerAddress>,
}

/// Why bytes are no hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hello with {0}")]
pub struct InvalidHello(pub &'static str);

const HAS_SECRET: u8 = 1;
/// `expects` of somebody who means nobody in particular.
const NOBODY: i32 = -1;
/// Bytes before the texts.
const FIXED_BYTES: usize = 2 + 2 + 1 + 1 + 4 + 16 + 16 + NONCE_BYTES + 4;

impl Hello {
    /// The highest level that both speak.
    #[must_use]
    pub fn common_level(&self, other: &Hello) -> Option<u16> {
        let level = self.levels.1.min(other.levels.1);
        (self.levels.0.max(other.levels.0) <= level).then_some(level)
    }

    /// As bytes. Texts that do not fit or are not plain are left out: the configuration refuses them
    /// before anything starts.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + 64);
        bytes.put_u16(self.levels.0);
        bytes.put_u16(self.levels.1);
        bytes.put_u8(self.class.index() as u8);
        bytes.put_u8(if self.has_secret { HAS_SECRET } else { 0 });
        bytes.put_i32(self.node_id.0);
        bytes.put_slice(&self.directory_id.0);
        bytes.put_slice(&self.incarnation.0);
        bytes.put_slice(&self.nonce);
        bytes.put_i32(self.expects.map_or(NOBODY, |id| id.0));
        put_text(&mut bytes, self.cluster_id.as_deref());
        let address = self.address.as_ref().filter(|address| address.is_possible());
        put_text(&mut bytes, address.map(|address| address.host.as_str()));
        bytes.put_u16(address.map_or(0, |address| address.port));
        bytes
    }

    /// From bytes. What follows the last field belongs to a later level and is passed over.
    ///
    /// # Errors
    /// [`InvalidHello`], with what is wrong.
    pub fn decode(mut bytes: &[u8]) -> Result<Hello, InvalidHello> {
        if HELLO_BYTES_MAX < bytes.len() {
            return Err(InvalidHello("too many bytes"));
        }
        if bytes.len() < FIXED_BYTES {
            return Err(InvalidHello("too few bytes"));
        }
        let levels = (bytes.get_u16(), bytes.get_u16());
        if levels.0 == 0 || levels.1 < levels.0 {
            return Err(InvalidHello("levels out of order"));
        }
        let class = bytes.get_u8();
        let class = Class::ALL.get(usize::from(class)).copied();
        let class = class.ok_or(InvalidHello("an unknown class"))?;
        let has_secret = bytes.get_u8() & HAS_SECRET != 0;
        let node_id = broker_id(bytes.get_i32()).ok_or(InvalidHello("a negative node id"))?;
        let (mut directory_id, mut incarnation) = (Uuid::ZERO, Uuid::ZERO);
        let mut nonce = [0; NONCE_BYTES];
        bytes.copy_to_slice(&mut directory_id.0);
        bytes.copy_to_slice(&mut incarnation.0);
        bytes.copy_to_slice(&mut nonce);
        let expects = match bytes.get_i32() {
            NOBODY => None,
            id => Some(broker_id(id).ok_or(InvalidHello("a negative node id"))?),
        };
        let cluster_id = text(&mut bytes)?;
        let host = text(&mut bytes)?;
        let port = bytes.try_get_u16().map_err(|_| InvalidHello("too few bytes"))?;
        let address = host.map(|host| PeerAddress { host, port });
        if address.as_ref().is_some_and(|address| !address.is_possible()) {
            return Err(InvalidHello("an impossible address"));
        }
        Ok(Hello {
            levels,
            class,
            has_secret,
            node_id,
            directory_id,
            incarnation,
            nonce,
            expects,
            cluster_id,
            address,
        })
    }
}

fn broker_id(number: i32) -> Option<BrokerId> {
    (0 <= number).then_some(BrokerId(number))
}

/// Texts end up in logs of other brokers: nothing there that moves a cursor.
fn is_plain(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn put_text(bytes: &mut Vec<u8>, text: Option<&str>) {
    let text = text.filter(|text| is_plain(text)).unwrap_or_default();
    bytes.put_u8(text.len() as u8);
    bytes.put_slice(text.as_bytes());
}

fn text(bytes: &mut &[u8]) -> Result<Option<String>, InvalidHello> {
    let length = bytes.try_get_u8().map_err(|_| InvalidHello("too few bytes"))?;
    let cut = bytes.split_at_checked(usize::from(length));
    let (text, rest) = cut.ok_or(InvalidHello("too few bytes"))?;
    *bytes = rest;
    if text.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).ok().filter(|text| is_plain(text));
    Ok(Some(text.ok_or(InvalidHello("a text that is not plain"))?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            levels: (1, 3),
            class: Class::Records,
            has_secret: true,
            node_id: BrokerId(7),
            directory_id: Uuid([1; 16]),
            incarnation: Uuid([2; 16]),
            nonce: [3; NONCE_BYTES],
            expects: Some(BrokerId(0)),
            cluster_id: Some("abc".to_owned()),
            address: Some("broker-7:9094".parse().unwrap()),
        }
    }

    #[test]
    fn a_hello_is_read_as_it_was_written() {
        let nobody = Hello { expects: None, cluster_id: None, address: None, ..hello() };
        for hello in [hello(), nobody] {
            let mut bytes = hello.encode();
            assert_eq!(Hello::decode(&bytes), Ok(hello.clone()));
            bytes.extend(b"of a later level");
            assert_eq!(Hello::decode(&bytes), Ok(hello));
        }
    }

    #[test]
    fn a_hello_that_was_cut_is_none() {
        let bytes = hello().encode();
        for cut in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..cut]), Err(InvalidHello("too few bytes")), "{cut}");
        }
    }

    #[test]
    fn texts_that_would_disturb_a_log_are_refused() {
        let mut bytes = hello().encode();
        bytes[FIXED_BYTES + 1] = b'\n';
        assert_eq!(Hello::decode(&bytes), Err(InvalidHello("a text that is not plain")));
    }

    #[test]
    fn the_highest_level_of_both_is_spoken() {
        let of = |levels| Hello { levels, ..hello() };
        assert_eq!(of((1, 3)).common_level(&of((2, 5))), Some(3));
        assert_eq!(of((1, 3)).common_level(&of((4, 5))), None);
    }

    #[test]
    fn addresses_are_read_as_they_are_printed() {
        for text in ["broker-2:9094", "10.0.0.1:1", "[::1]:65535"] {
            assert_eq!(text.parse::<PeerAddress>().unwrap().to_string(), text);
        }
        for text in ["", "host", ":9094", "host:0", "host:99999", "::1:9094", "a b:1", "http://h:1"]
        {
            assert!(text.parse::<PeerAddress>().is_err(), "{text}");
        }
    }
}
