//! What all messages can do.

use std::ops::RangeInclusive;

use crate::{DecodeError, Decoder, EncodeError, Encoder};

/// A message of the protocol: a request, a response, a header, or the content of an internal
/// record.
///
/// `'a` is how long the bytes live that a decoded message borrows from.
pub trait Message<'a>: Sized {
    /// Kafka's name for it.
    const NAME: &'static str;
    /// The API it belongs to; for a key or value of `__consumer_offsets` the record type that the
    /// key begins with; −1 for headers and the consumer protocol.
    const API_KEY: i16;
    /// The versions that decode and encode.
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields, if there is one (KIP-482).
    const FIRST_FLEXIBLE: Option<i16>;

    /// Whether `version` has compact lengths and tagged fields.
    fn is_flexible(version: i16) -> bool {
        Self::FIRST_FLEXIBLE.is_some_and(|first| first <= version)
    }

    /// Reads the message and leaves `d` behind it.
    fn decode(version: i16, d: &mut Decoder<'a>) -> Result<Self, DecodeError>;

    /// Appends the message to `e`.
    fn encode(&self, version: i16, e: &mut Encoder) -> Result<(), EncodeError>;
}

/// A request, which knows the type of its answer.
pub trait Request<'a>: Message<'a> {
    /// The answer, borrowing from bytes that live for `'r`.
    type Response<'r>: Message<'r>;
}

/// Reads a message that is all of `bytes`.
pub fn decode_exact<'a, M: Message<'a>>(version: i16, bytes: &'a [u8]) -> Result<M, DecodeError> {
    let mut d = Decoder::new(bytes);
    let message = M::decode(version, &mut d)?;
    d.finish()?;
    Ok(message)
}

/// Refuses a version that the message does not have, before reading it.
pub(crate) fn check_decode<'a, M: Message<'a>>(version: i16) -> Result<(), DecodeError> {
    if M::VERSIONS.contains(&version) {
        return Ok(());
    }
    Err(DecodeError::UnsupportedVersion { message: M::NAME, version })
}

/// Refuses a version that the message does not have, before writing it.
pub(crate) fn check_encode<'a, M: Message<'a>>(version: i16) -> Result<(), EncodeError> {
    if M::VERSIONS.contains(&version) {
        return Ok(());
    }
    Err(EncodeError::UnsupportedVersion { message: M::NAME, version })
}
