//! What the log keeps: one entry is one decision, a change of the membership, or nothing (with
//! which a leader begins its term).

use serde::{Deserialize, Serialize};
use towpath_model::FoldError;

use super::bytes::{Reader, Writer};
use super::ids::{LogIndex, Term};
use super::membership::MembershipChange;

/// The most bytes of one command.
pub const COMMAND_BYTES_MAX: usize = 16 << 20;

/// One position of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Where it stands.
    pub index: LogIndex,
    /// In which term a leader appended it; never 0, never less than that of the entry before.
    pub term: Term,
    /// What it says.
    pub payload: Payload,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Payload {
    /// Nothing: a new leader begins with it, so that what came before gets committed.
    Empty,
    /// A command of whoever uses this log; never empty, at most [`COMMAND_BYTES_MAX`].
    Command(Vec<u8>),
    /// A change of who takes part.
    Membership(MembershipChange),
}

const PAYLOAD_VERSION: u8 = 1;
const EMPTY: u8 = 0;
const COMMAND: u8 = 1;
const MEMBERSHIP: u8 = 2;

impl Payload {
    /// The bytes of the record; index and term are those of its batch. `docs/file-formats.md` draws
    /// them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(PAYLOAD_VERSION);
        match self {
            Payload::Empty => {
                out.u8(EMPTY);
            }
            Payload::Command(command) => {
                out.u8(COMMAND).raw(command);
            }
            Payload::Membership(change) => change.write(out.u8(MEMBERSHIP)),
        }
        out.finish()
    }

    /// # Errors
    ///
    /// When the bytes are not those of a payload.
    pub fn decode(bytes: &[u8]) -> Result<Payload, FoldError> {
        let mut reader = Reader::new(bytes);
        reader.version(PAYLOAD_VERSION, "payload of the metadata log")?;
        let payload = match reader.u8()? {
            EMPTY => Payload::Empty,
            COMMAND => {
                let payload = Payload::Command(reader.rest().to_vec());
                if payload.fits() {
                    return Ok(payload);
                }
                return Err(FoldError("a command that is empty or too long".into()));
            }
            MEMBERSHIP => Payload::Membership(MembershipChange::read(&mut reader)?),
            other => return Err(FoldError(format!("payload {other} is not known"))),
        };
        reader.end()?;
        Ok(payload)
    }

    /// Whether it is within the bounds of what the log keeps.
    pub(super) fn fits(&self) -> bool {
        match self {
            Payload::Empty => true,
            Payload::Command(command) => (1..=COMMAND_BYTES_MAX).contains(&command.len()),
            Payload::Membership(change) => change.fits(),
        }
    }
}
