//! What the codec's tests share.

pub(crate) mod chance;
pub(crate) mod memory;
pub(crate) mod samples;

use bytes::Bytes;
use towpath_protocol::{EncodeError, Encoder, Message};

/// Encodes a message alone, without header or length prefix.
pub(crate) fn encode<'a, M: Message<'a>>(message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut e = Encoder::new();
    message.encode(version, &mut e)?;
    e.into_body()
}
