//! Messages that are not frames: keys and values of `__consumer_offsets`, and the consumer
//! protocol's subscription and assignment inside JoinGroup and SyncGroup. All begin with a 16-bit
//! number.
//!
//! ```text
//!   value, subscription, assignment   version i16 │ body at that version
//!   key                               type    i16 │ body at version 0  (type: the schema's API key)
//! ```

use bytes::Bytes;

use crate::{DecodeError, Decoder, EncodeError, Encoder, Message};

/// Writes the version and then the message.
pub fn encode_versioned<'a, M: Message<'a>>(
    version: i16,
    message: &M,
) -> Result<Bytes, EncodeError> {
    encode_after(version, version, message)
}

/// Reads the version and then the message, which must be all of `bytes`. Returns both.
pub fn decode_versioned<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<(i16, M), DecodeError> {
    let (version, mut d) = read_leading_i16(bytes)?;
    let message = M::decode(version, &mut d)?;
    d.finish()?;
    Ok((version, message))
}

/// Writes the record type that the schema gives, and then the key.
pub fn encode_record_key<'a, M: Message<'a>>(key: &M) -> Result<Bytes, EncodeError> {
    encode_after(M::API_KEY, *M::VERSIONS.start(), key)
}

/// Reads the number in front, and leaves the decoder at the body: for callers who must look at the
/// type or version before they know which message follows or how leniently to read it.
pub fn read_leading_i16(bytes: &[u8]) -> Result<(i16, Decoder<'_>), DecodeError> {
    let mut d = Decoder::new(bytes);
    let number = d.i16("version")?;
    Ok((number, d))
}

fn encode_after<'a, M: Message<'a>>(
    leading: i16,
    version: i16,
    message: &M,
) -> Result<Bytes, EncodeError> {
    let mut e = Encoder::new();
    e.i16(leading);
    message.encode(version, &mut e)?;
    e.into_body()
}
