//! Bodies of requests: how much of them is read, for how long, and how they become values.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use tokio::time::{Instant, timeout_at};

use crate::api_error::{ApiError, Code};
use crate::limits::{BODY_BYTES_MAX, BODY_WAIT_MAX, arrival_max};
use crate::memory::{Memory, Share};

/// Reads a whole body. The share of memory lives as long as what was made of the body.
pub(crate) async fn read_body(
    memory: &Memory,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Bytes, Share), ApiError> {
    let is_compressed = headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if is_compressed {
        return Err(ApiError::new(Code::EncodingNotSupported, "compressed bodies are not taken")
            .with_help("send the body without content-encoding"));
    }
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok())
        .and_then(|length| length.parse::<usize>().ok());
    let length = declared.unwrap_or(BODY_BYTES_MAX);
    if BODY_BYTES_MAX < length {
        return Err(too_large());
    }
    let limit = arrival_max(length);
    let late = || {
        let limit = limit.as_secs();
        ApiError::new(Code::RequestTimeout, format!("the body did not arrive within {limit} s"))
    };
    let deadline = Instant::now() + limit;
    let mut share = Share::default();
    let mut bytes = BytesMut::new();
    loop {
        // A large body has its time, but no piece of it has more than a small one.
        let piece = timeout_at(deadline.min(Instant::now() + BODY_WAIT_MAX), next_piece(&mut body));
        let Some(piece) = piece.await.map_err(|_| late())? else { break };
        let piece = piece.map_err(|error| {
            ApiError::new(Code::InvalidRequest, format!("the body broke off: {error}"))
        })?;
        if BODY_BYTES_MAX - bytes.len() < piece.len() {
            return Err(too_large());
        }
        memory.cover(&mut share, bytes.len() + piece.len()).await?;
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes.freeze(), share))
}

/// The next bytes of a body; trailers are passed over.
async fn next_piece(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(piece)) => return Some(Ok(piece)),
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

fn too_large() -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("a body has at most {BODY_BYTES_MAX} bytes"))
        .with_help("send fewer messages per request")
}

/// Reads JSON. The content type does not matter: `curl -d` sends another one.
pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    if body.is_empty() {
        return Err(ApiError::new(
            Code::InvalidJson,
            "the body is empty; a JSON object is expected",
        ));
    }
    serde_json::from_slice(body).map_err(|error| {
        ApiError::new(Code::InvalidJson, format!("the body cannot be read: {error}"))
            .with_help("see /openapi.json for what this path takes")
    })
}

/// Reads the query of a request.
pub(crate) fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    match Query::try_from_uri(uri) {
        Ok(Query(query)) => Ok(query),
        Err(rejection) => {
            let text = rejection.body_text();
            let text = text.trim_start_matches("Failed to deserialize query string: ");
            Err(ApiError::new(Code::InvalidParameter, format!("the query cannot be read: {text}")))
        }
    }
}

/// A field that must be there and may be null.
pub(crate) fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// A list of at most `MAX` elements; memory is taken element by element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AtMost<const MAX: usize, T>(pub(crate) Vec<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Deserialize<'de> for AtMost<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<const MAX: usize, T>(std::marker::PhantomData<T>);

        impl<'de, const MAX: usize, T: Deserialize<'de>> de::Visitor<'de> for Visitor<MAX, T> {
            type Value = AtMost<MAX, T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a list of at most {MAX} elements")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if elements.len() == MAX {
                        return Err(de::Error::custom(format!("more than {MAX} elements")));
                    }
                    elements.push(element);
                }
                Ok(AtMost(elements))
            }
        }

        deserializer.deserialize_seq(Visitor(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_bounded() {
        let read = |json: &str| parse_json::<AtMost<2, u8>>(json.as_bytes());
        assert_eq!(read("[1,2]").unwrap(), AtMost(vec![1, 2]));
        let refused = read("[1,2,3]").unwrap_err();
        assert_eq!(refused.code, Code::InvalidJson);
        assert!(refused.message.contains("more than 2 elements"), "{}", refused.message);
    }

    #[test]
    fn an_unknown_parameter_is_named() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wanted {
            #[expect(dead_code, reason = "only its name matters here")]
            offset: Option<i64>,
        }
        let refused = parse_query::<Wanted>(&Uri::from_static("/a?ofset=3")).unwrap_err();
        assert_eq!(refused.code, Code::InvalidParameter);
        assert!(refused.message.contains("ofset"), "{}", refused.message);
    }
}
