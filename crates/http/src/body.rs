//! Bodies of requests: how much of them is read, for how long, and how they become values.

use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use tokio::time::timeout;

use crate::api_error::{ApiError, Code};
use crate::limits::{BODY_BYTES_MAX, arrival_max};
use crate::memory::{Memory, Share};

/// Reads a whole body. The share of memory lives as long as what was made of the body.
pub(crate) async fn read_body(
    memory: &Memory,
    headers: &HeaderMap,
    body: Body,
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
    let share = memory.take(length).await?;
    let limit = arrival_max(length);
    match timeout(limit, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok((bytes, share)),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(error)) => {
            Err(ApiError::new(Code::InvalidRequest, format!("the body broke off: {error}")))
        }
        Err(_) => Err(ApiError::new(
            Code::RequestTimeout,
            format!("the body did not arrive within {} s", limit.as_secs()),
        )),
    }
}

fn too_large() -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("a body has at most {BODY_BYTES_MAX} bytes"))
        .with_help("send fewer messages per request")
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        source = error.source();
    }
    false
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
