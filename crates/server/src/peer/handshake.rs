//! How two brokers get to know each other, without sockets: bytes in, bytes out.
//!
//! ```text
//! dialler                                   accepter
//!    ── MAGIC, hello (nonce) ─────────────────▶     who are you
//!    ◀───────────────── MAGIC, hello (nonce) ──     both judge what they have read
//!    ── proof: HMAC(secret, "dialler", hellos) ▶
//!    ◀─ proof: HMAC(secret, "accepter", hellos) ─   messages may follow
//! ```
//!
//! Each proof covers both hellos, so both nonces, both identities and the class; its label tells
//! the direction. So nothing that was recorded or is thrown back proves anything. Whoever dials proves
//! first: a stranger who calls gets nothing to try secrets on.

use bytes::{Buf, BytesMut};
use towpath_model::BrokerId;

use super::frame::{Kind, MAGIC, Malformed, next_frame, put};
use super::hello::{HELLO_BYTES_MAX, Hello, InvalidHello};
use super::secret::{Secret, TAG_BYTES};
use crate::first_bytes::Stranger;

const DIALLER: &[u8] = b"towpath peer 1 dialler";
const ACCEPTER: &[u8] = b"towpath peer 1 accepter";

/// Where the secret comes from, for messages.
pub(crate) const SECRET_SETTING: &str = "--peer-secret-file or TOWPATH_PEER_SECRET";

/// Why there is no connection between two brokers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Somebody who is not a broker.
    #[error("it {}", advice(.0))]
    Stranger(Stranger),
    /// Bytes that no peer of ours sends.
    #[error("it sent {0}")]
    Malformed(#[from] Malformed),
    /// A hello that is none.
    #[error("it sent {0}")]
    InvalidHello(#[from] InvalidHello),
    /// The two speak no common level.
    #[error(
        "it speaks levels {} to {} of the protocol between brokers, this broker {} to {}; upgrade \
         the older of the two one version after the other", .theirs.0, .theirs.1, .mine.0, .mine.1
    )]
    NoCommonLevel {
        /// Those of this broker.
        mine: (u16, u16),
        /// Those of the other one.
        theirs: (u16, u16),
    },
    /// It has the number of this broker.
    #[error(
        "it is another broker with the node id {0} too; every broker of a cluster needs a node id of \
         its own (--node-id)"
    )]
    OwnNodeId(BrokerId),
    /// It is this broker.
    #[error("it is this broker itself")]
    Itself,
    /// It is somebody else.
    #[error("it is broker {is}, and not broker {wanted}; correct the addresses of the cluster")]
    OtherBroker {
        /// Who was to be there.
        wanted: BrokerId,
        /// Who is.
        is: BrokerId,
    },
    /// It belongs to another cluster.
    #[error("it belongs to the cluster {theirs}, this broker to {mine}")]
    OtherCluster {
        /// That of this broker.
        mine: String,
        /// That of the other one.
        theirs: String,
    },
    /// It has no secret and this broker has one.
    #[error("it has no secret, and this broker has one; give it the same ({SECRET_SETTING})")]
    SecretOnlyHere,
    /// It has a secret and this broker has none.
    #[error("it has a secret, and this broker has none; give this one the same ({SECRET_SETTING})")]
    SecretOnlyThere,
    /// Neither has a secret, and others may be listening.
    #[error(
        "without a secret brokers speak to each other on one machine only (loopback addresses); \
         give all of them the same secret ({SECRET_SETTING})"
    )]
    NotLoopback,
    /// It does not know the secret.
    #[error("it has another secret; give all brokers of the cluster the same ({SECRET_SETTING})")]
    WrongSecret,
    /// A connection of another data directory under the same number is open.
    #[error(
        "another broker with the node id {0} and another data directory is connected; every broker \
         of a cluster needs a node id of its own (--node-id)"
    )]
    TakenNodeId(BrokerId),
    /// There are as many peers as may be.
    #[error("there are as many peers as may be")]
    TooManyPeers,
    /// The other side said so.
    #[error("it refuses: {}", meaning(*.0))]
    Told(u16),
    /// It did not end in time.
    #[error("it did not complete the handshake in time")]
    Slow,
}

fn advice(stranger: &Stranger) -> &'static str {
    match stranger {
        Stranger::Tls => "speaks TLS, but this port is for the brokers of the cluster",
        Stranger::Http => {
            "speaks HTTP, but this port is for the brokers of the cluster: use the HTTP address \
             that `towpath status` shows"
        }
        Stranger::Nonsense => {
            "is no broker, but this port is for the brokers of the cluster: Kafka clients use the \
             Kafka address that `towpath status` shows"
        }
    }
}

/// What the sender of a code means, to the one that reads it.
fn meaning(code: u16) -> &'static str {
    match code {
        1 => "this broker does not follow the protocol",
        2 => "no level of the protocol between brokers is common to both",
        3 => "it has the same node id",
        4 => "it is not the broker that was meant",
        5 => "it belongs to another cluster",
        6 => "only one of the two has a secret",
        7 => "neither has a secret, and the connection is not a loopback one",
        8 => "it has another secret",
        9 => "another broker with this node id is connected to it",
        10 => "it has as many peers as may be",
        _ => "for a reason that this version does not know",
    }
}

impl Refusal {
    /// As a number on the wire; `None`: there is nobody to tell.
    fn code(&self) -> Option<u16> {
        match self {
            Refusal::Stranger(_) | Refusal::Told(_) | Refusal::Slow => None,
            Refusal::Malformed(_) | Refusal::InvalidHello(_) => Some(1),
            Refusal::NoCommonLevel { .. } => Some(2),
            Refusal::OwnNodeId(_) | Refusal::Itself => Some(3),
            Refusal::OtherBroker { .. } => Some(4),
            Refusal::OtherCluster { .. } => Some(5),
            Refusal::SecretOnlyHere | Refusal::SecretOnlyThere => Some(6),
            Refusal::NotLoopback => Some(7),
            Refusal::WrongSecret => Some(8),
            Refusal::TakenNodeId(_) => Some(9),
            Refusal::TooManyPeers => Some(10),
        }
    }

    /// As metrics call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Refusal::Stranger(_) => "stranger",
            Refusal::Malformed(_) | Refusal::InvalidHello(_) => "malformed",
            Refusal::NoCommonLevel { .. } => "level",
            Refusal::OwnNodeId(_)
            | Refusal::Itself
            | Refusal::OtherBroker { .. }
            | Refusal::TakenNodeId(_) => "node id",
            Refusal::OtherCluster { .. } => "cluster",
            Refusal::SecretOnlyHere
            | Refusal::SecretOnlyThere
            | Refusal::NotLoopback
            | Refusal::WrongSecret => "secret",
            Refusal::TooManyPeers => "too many",
            Refusal::Told(_) => "told",
            Refusal::Slow => "slow",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Dialler,
    Accepter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Magic,
    Hello,
    Proof,
    /// The accepter's own proof, which its owner orders.
    Welcome,
    Nothing,
}

/// One side of a handshake.
#[derive(Debug)]
pub struct Handshake {
    side: Side,
    secret: Option<Secret>,
    /// Both ends are loopback addresses.
    is_local: bool,
    mine: Hello,
    mine_bytes: Vec<u8>,
    theirs: Option<Hello>,
    theirs_bytes: Vec<u8>,
    next: Next,
}

impl Handshake {
    /// Begins as the one who dials, to the broker that `mine` expects. `is_local`: both ends of the
    /// connection are loopback addresses.
    pub fn dial(
        mine: Hello,
        secret: Option<Secret>,
        is_local: bool,
        out: &mut Vec<u8>,
    ) -> Handshake {
        let mut handshake = Handshake::new(Side::Dialler, mine, secret, is_local);
        handshake.say_hello(out);
        handshake
    }

    /// Waits for one who dials. The class and the expectation of `mine` are those of the caller later.
    #[must_use]
    pub fn accept(mine: Hello, secret: Option<Secret>, is_local: bool) -> Handshake {
        Handshake::new(Side::Accepter, mine, secret, is_local)
    }

    fn new(side: Side, mine: Hello, secret: Option<Secret>, is_local: bool) -> Handshake {
        let mine = Hello { has_secret: secret.is_some(), ..mine };
        Handshake {
            side,
            secret,
            is_local,
            mine,
            mine_bytes: Vec::new(),
            theirs: None,
            theirs_bytes: Vec::new(),
            next: Next::Magic,
        }
    }

    fn say_hello(&mut self, out: &mut Vec<u8>) {
        self.mine_bytes = self.mine.encode();
        out.extend(MAGIC);
        put(out, Kind::Hello, &self.mine_bytes);
    }

    /// Takes what has arrived; what belongs to it is cut off. The result is the other side, once it
    /// is known: the accepter then says [`Self::welcome`] or [`Self::refuse`]. Whatever is put to
    /// `out` is to be sent, after an error too.
    ///
    /// # Errors
    /// [`Refusal`]: the connection has to end.
    pub fn receive(
        &mut self,
        input: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<Option<Hello>, Refusal> {
        let advanced = self.advance(input, out);
        if let Err(refusal) = &advanced {
            self.refuse(refusal, out);
        }
        advanced
    }

    fn advance(
        &mut self,
        input: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<Option<Hello>, Refusal> {
        if self.next == Next::Magic {
            let common = input.len().min(MAGIC.len());
            if input[..common] != MAGIC[..common] {
                return Err(Refusal::Stranger(Stranger::of(input)));
            }
            if common < MAGIC.len() {
                return Ok(None);
            }
            input.advance(MAGIC.len());
            self.next = Next::Hello;
        }
        while matches!(self.next, Next::Hello | Next::Proof) {
            let Some((kind, payload)) = next_frame(input, HELLO_BYTES_MAX)? else {
                return Ok(None);
            };
            match (kind, self.next) {
                (Kind::Hello, Next::Hello) => {
                    self.take_hello(&payload, out)?;
                    self.next = Next::Proof;
                }
                (Kind::Proof, Next::Proof) => {
                    self.take_proof(&payload)?;
                    self.next = match self.side {
                        Side::Dialler => Next::Nothing,
                        Side::Accepter => Next::Welcome,
                    };
                    return Ok(self.theirs.clone());
                }
                (Kind::Refused, _) => {
                    let code =
                        payload.first_chunk::<2>().map_or(0, |code| u16::from_be_bytes(*code));
                    return Err(Refusal::Told(code));
                }
                (kind, _) => return Err(Malformed::Order(kind).into()),
            }
        }
        Ok(None)
    }

    fn take_hello(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let theirs = Hello::decode(payload)?;
        self.theirs_bytes = payload.to_vec();
        if self.side == Side::Accepter {
            self.mine.class = theirs.class;
            self.mine.expects = Some(theirs.node_id);
            self.say_hello(out);
        }
        self.judge(&theirs)?;
        if self.side == Side::Dialler {
            put(out, Kind::Proof, &self.proof(DIALLER));
        }
        self.theirs = Some(theirs);
        Ok(())
    }

    fn judge(&self, theirs: &Hello) -> Result<(), Refusal> {
        let mine = &self.mine;
        if mine.common_level(theirs).is_none() {
            return Err(Refusal::NoCommonLevel { mine: mine.levels, theirs: theirs.levels });
        }
        if mine.node_id == theirs.node_id {
            let is_itself = mine.directory_id == theirs.directory_id;
            let own = Refusal::OwnNodeId(mine.node_id);
            return Err(if is_itself { Refusal::Itself } else { own });
        }
        let is_other = |wanted: Option<BrokerId>, is| match wanted {
            Some(wanted) if wanted != is => Err(Refusal::OtherBroker { wanted, is }),
            _ => Ok(()),
        };
        is_other(mine.expects, theirs.node_id)?;
        is_other(theirs.expects, mine.node_id)?;
        if let (Some(mine), Some(theirs)) = (&mine.cluster_id, &theirs.cluster_id)
            && mine != theirs
        {
            return Err(Refusal::OtherCluster { mine: mine.clone(), theirs: theirs.clone() });
        }
        match (mine.has_secret, theirs.has_secret) {
            (true, false) => Err(Refusal::SecretOnlyHere),
            (false, true) => Err(Refusal::SecretOnlyThere),
            (false, false) if !self.is_local => Err(Refusal::NotLoopback),
            _ if mine.class != theirs.class => Err(Malformed::Order(Kind::Hello).into()),
            _ => Ok(()),
        }
    }

    fn take_proof(&self, payload: &[u8]) -> Result<(), Refusal> {
        let label = match self.side {
            Side::Dialler => ACCEPTER,
            Side::Accepter => DIALLER,
        };
        let is_proved = match &self.secret {
            Some(secret) => {
                payload.len() == TAG_BYTES && secret.is_tag(&self.proven(label), payload)
            }
            None => payload.is_empty(),
        };
        if is_proved { Ok(()) } else { Err(Refusal::WrongSecret) }
    }

    fn proof(&self, label: &[u8]) -> Vec<u8> {
        let tag = self.secret.as_ref().map(|secret| secret.tag(&self.proven(label)));
        tag.map_or_else(Vec::new, |tag| tag.to_vec())
    }

    /// What is proved: direction, the dialler's hello, the accepter's hello.
    fn proven<'a>(&'a self, label: &'a [u8]) -> [&'a [u8]; 3] {
        match self.side {
            Side::Dialler => [label, &self.mine_bytes, &self.theirs_bytes],
            Side::Accepter => [label, &self.theirs_bytes, &self.mine_bytes],
        }
    }

    /// The accepter's last word. Messages follow.
    ///
    /// # Panics
    /// Before the other side is known: whoever gets a proof could throw it back.
    pub fn welcome(&mut self, out: &mut Vec<u8>) {
        assert_eq!(self.next, Next::Welcome, "a proof is for those who have proved themselves");
        put(out, Kind::Proof, &self.proof(ACCEPTER));
        self.next = Next::Nothing;
    }

    /// Says why the connection ends, to a peer that understands it.
    pub fn refuse(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        self.next = Next::Nothing;
        if let Refusal::Stranger(stranger) = refusal {
            out.clear();
            out.extend(answer(*stranger));
        }
        if let Some(code) = refusal.code() {
            if self.mine_bytes.is_empty() {
                out.extend(MAGIC);
            }
            put(out, Kind::Refused, &code.to_be_bytes());
        }
    }
}

/// An answer in the caller's own language, where it has one.
fn answer(stranger: Stranger) -> &'static [u8] {
    match stranger {
        Stranger::Http => {
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 84\r\n\
              connection: close\r\n\r\n\
              This port is for the brokers of a cluster. HTTP is on another port (default: 8080).\n"
        }
        Stranger::Tls => stranger.answer(),
        Stranger::Nonsense => b"",
    }
}

#[cfg(test)]
#[path = "handshake/tests.rs"]
mod tests;
