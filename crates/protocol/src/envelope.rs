//! Header and body together: what one frame carries.
//!
//! Which header version belongs to a request follows from the API and its version: flexible
//! versions have flexible headers. The one exception is the answer to ApiVersions, whose header
//! stays at version 0, because a client reads it before it knows what the broker speaks (KIP-511).

use crate::messages::{RequestHeader, ResponseHeader};
use crate::{ApiKey, DecodeError, Decoder, EncodeError, Encoder, Frame, Message};

/// The version of the header in front of a request.
pub fn request_header_version(api_key: ApiKey, version: i16) -> i16 {
    if api_key.is_flexible(version) { 2 } else { 1 }
}

/// The version of the header in front of a response.
pub fn response_header_version(api_key: ApiKey, version: i16) -> i16 {
    let is_flexible = api_key != ApiKey::ApiVersions && api_key.is_flexible(version);
    i16::from(is_flexible)
}

/// Reads the header of a request frame without its length prefix, and leaves the decoder at the
/// body.
///
/// The version in the header is not judged here: a request in a version that we do not have still
/// has a readable header, and ApiVersions needs an answer to it.
pub fn decode_request_header(
    frame: &[u8],
) -> Result<(RequestHeader<'_>, Decoder<'_>), DecodeError> {
    let mut peek = Decoder::new(frame);
    let key = peek.i16("RequestHeader.request_api_key")?;
    let version = peek.i16("RequestHeader.request_api_version")?;
    let api_key = ApiKey::try_from(key)?;

    let mut d = Decoder::new(frame);
    let header = RequestHeader::decode(request_header_version(api_key, version), &mut d)?;
    Ok((header, d))
}

/// Reads the header of a response frame without its length prefix, and leaves the decoder at the
/// body.
pub fn decode_response_header(
    api_key: ApiKey,
    version: i16,
    frame: &[u8],
) -> Result<(ResponseHeader, Decoder<'_>), DecodeError> {
    let mut d = Decoder::new(frame);
    let header = ResponseHeader::decode(response_header_version(api_key, version), &mut d)?;
    Ok((header, d))
}

/// Makes the frame of a request. Its header must name the message's API and `version`.
pub fn encode_request<'a, M: Message<'a>>(
    header: &RequestHeader<'_>,
    message: &M,
    version: i16,
) -> Result<Frame, EncodeError> {
    let no_such = EncodeError::UnsupportedVersion { message: M::NAME, version };
    let api_key = ApiKey::try_from(M::API_KEY).map_err(|_| no_such)?;
    if (header.request_api_key, header.request_api_version) != (M::API_KEY, version) {
        return Err(no_such);
    }
    let mut e = Encoder::new();
    header.encode(request_header_version(api_key, version), &mut e)?;
    message.encode(version, &mut e)?;
    e.finish()
}

/// Makes the frame of a response.
pub fn encode_response<'a, M: Message<'a>>(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    message: &M,
) -> Result<Frame, EncodeError> {
    let mut e = Encoder::new();
    let header = ResponseHeader { correlation_id };
    header.encode(response_header_version(api_key, version), &mut e)?;
    message.encode(version, &mut e)?;
    e.finish()
}

#[cfg(test)]
mod tests;
