//! Messages as JSON, in and out.

use serde::de::{self, MapAccess, SeqAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use towpath_model::Timestamp;

use crate::api_error::{ApiError, Code};
use crate::body::{AtMost, nullable, parse_json};
use crate::encoding::{Encoded, Encoding};
use crate::limits::{MESSAGES_MAX, RECORD_HEADERS_MAX};
use crate::time::parse_rfc3339;

/// Longest `producer_id`, in bytes.
const PRODUCER_ID_BYTES_MAX: usize = 249;

/// Names and values of a record's headers, in their order.
pub(crate) type RecordHeaders = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// What a caller wants published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewMessage {
    pub(crate) key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: RecordHeaders,
    /// `None`: the time of its arrival.
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) partition: Option<i32>,
    /// Who publishes, and which of its messages this is: a repeat is not published twice.
    pub(crate) producer: Option<(String, i64)>,
}

/// A body of `POST /topics/{topic}/messages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Publish {
    One(NewMessage),
    Many(Vec<NewMessage>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMessage {
    #[serde(default)]
    key: Option<String>,
    #[serde(deserialize_with = "nullable")]
    value: Option<String>,
    #[serde(default)]
    key_encoding: Encoding,
    #[serde(default)]
    value_encoding: Encoding,
    #[serde(default)]
    headers: Option<WrittenHeaders>,
    #[serde(default)]
    timestamp: Option<WrittenTime>,
    #[serde(default)]
    partition: Option<i32>,
    #[serde(default)]
    producer_id: Option<WrittenId>,
    #[serde(default)]
    sequence: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBatch {
    messages: AtMost<MESSAGES_MAX, WrittenMessage>,
}

/// Enough of the body to know which of the two it is.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    messages: Option<de::IgnoredAny>,
}

impl Publish {
    pub(crate) fn parse(body: &[u8]) -> Result<Publish, ApiError> {
        let kind: Kind = parse_json(body)?;
        if kind.messages.is_none() {
            return parse_json::<WrittenMessage>(body)?.read().map(Publish::One);
        }
        let AtMost(written) = parse_json::<WrittenBatch>(body)?.messages;
        if written.is_empty() {
            return Err(ApiError::new(Code::InvalidRequest, "messages is empty"));
        }
        let read = |(index, message): (usize, WrittenMessage)| {
            message.read().map_err(|error| error.at(&format!("messages[{index}]")))
        };
        written.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Publish::Many)
    }
}

impl WrittenMessage {
    fn read(self) -> Result<NewMessage, ApiError> {
        let producer = match (self.producer_id, self.sequence) {
            (None, None) => None,
            (Some(_), None) => return Err(half_a_producer("sequence")),
            (None, Some(_)) => return Err(half_a_producer("producer_id")),
            (Some(id), Some(sequence)) => Some((id.read()?, read_sequence(sequence)?)),
        };
        let timestamp = self.timestamp.map(WrittenTime::read).transpose()?;
        let headers = self.headers.map_or_else(|| Ok(Vec::new()), WrittenHeaders::read)?;
        Ok(NewMessage {
            key: self.key.map(|key| self.key_encoding.decode("key", key)).transpose()?,
            value: self.value.map(|v| self.value_encoding.decode("value", v)).transpose()?,
            headers,
            timestamp,
            partition: self.partition,
            producer,
        })
    }
}

fn half_a_producer(missing: &str) -> ApiError {
    ApiError::new(Code::InvalidRequest, format!("{missing} is missing"))
        .with_help("producer_id and sequence go together: they make a repeat recognisable")
}

fn read_sequence(sequence: i64) -> Result<i64, ApiError> {
    if sequence < 0 {
        return Err(ApiError::new(Code::InvalidRequest, "sequence is negative")
            .with_help("sequences start at 0 or above and rise with every message"));
    }
    Ok(sequence)
}

/// A `producer_id`; the number 7 and the text "7" are the same one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a producer_id is an integer or a string")]
enum WrittenId {
    Number(i64),
    Text(String),
}

impl WrittenId {
    fn read(self) -> Result<String, ApiError> {
        let text = match self {
            WrittenId::Number(number) => number.to_string(),
            WrittenId::Text(text) => text,
        };
        if text.is_empty() || PRODUCER_ID_BYTES_MAX < text.len() {
            let message = format!("a producer_id has 1 to {PRODUCER_ID_BYTES_MAX} bytes");
            return Err(ApiError::new(Code::InvalidProducer, message));
        }
        Ok(text)
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a timestamp is a number of milliseconds or a text like \
    2026-11-29T17:41:35Z"
)]
enum WrittenTime {
    Millis(i64),
    Text(String),
}

impl WrittenTime {
    fn read(self) -> Result<Timestamp, ApiError> {
        let time = match self {
            WrittenTime::Millis(millis) => Some(Timestamp(millis)),
            WrittenTime::Text(text) => parse_rfc3339(&text),
        };
        time.filter(|time| 0 <= time.0).ok_or_else(|| {
            ApiError::new(Code::InvalidRequest, "timestamp is no time since 1970")
                .with_help("milliseconds since 1970, or RFC 3339 such as 2026-11-29T17:41:35Z")
        })
    }
}

/// Headers as an object of names and texts, or as a list where names repeat or are not text.
#[derive(Default)]
pub(crate) struct WrittenHeaders(Vec<WrittenHeader>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenHeader {
    name: String,
    #[serde(deserialize_with = "nullable")]
    value: Option<String>,
    #[serde(default)]
    name_encoding: Encoding,
    #[serde(default)]
    value_encoding: Encoding,
}

impl WrittenHeaders {
    pub(crate) fn read(self) -> Result<RecordHeaders, ApiError> {
        let read = |header: WrittenHeader| {
            let name = header.name_encoding.decode("the name of a header", header.name)?;
            let decode = |value| header.value_encoding.decode("the value of a header", value);
            Ok((name, header.value.map(decode).transpose()?))
        };
        self.0.into_iter().map(read).collect()
    }
}

impl<'de> Deserialize<'de> for WrittenHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        fn check<E: de::Error>(count: usize) -> Result<(), E> {
            if count < RECORD_HEADERS_MAX {
                return Ok(());
            }
            Err(E::custom(format!("a message has at most {RECORD_HEADERS_MAX} headers")))
        }

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = WrittenHeaders;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of texts, or a list of {name, value}, as headers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut headers = WrittenHeaders::default();
                while let Some(header) = seq.next_element()? {
                    check(headers.0.len())?;
                    headers.0.push(header);
                }
                Ok(headers)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut headers = WrittenHeaders::default();
                while let Some((name, value)) = map.next_entry()? {
                    check(headers.0.len())?;
                    headers.0.push(WrittenHeader {
                        name,
                        value,
                        name_encoding: Encoding::Utf8,
                        value_encoding: Encoding::Utf8,
                    });
                }
                Ok(headers)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Where a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedMessage {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    /// The message of a queue that it repeats: it is not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duplicate_of: Option<i64>,
}

/// A message as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadMessage {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Encoded>,
    pub(crate) value: Option<Encoded>,
    pub(crate) headers: Vec<ReadHeader>,
}

/// A header of a message as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadHeader {
    pub(crate) name: Encoded,
    pub(crate) value: Option<Encoded>,
}

fn put<M: SerializeMap>(
    map: &mut M,
    name: &'static str,
    encoding_name: &'static str,
    encoded: Option<&Encoded>,
) -> Result<(), M::Error> {
    map.serialize_entry(name, &encoded.map(|encoded| &encoded.text))?;
    match encoded.and_then(|encoded| encoded.encoding) {
        Some(encoding) => map.serialize_entry(encoding_name, &encoding),
        None => Ok(()),
    }
}

impl Serialize for ReadMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("offset", &self.offset)?;
        map.serialize_entry("timestamp", &self.timestamp)?;
        put(&mut map, "key", "key_encoding", self.key.as_ref())?;
        put(&mut map, "value", "value_encoding", self.value.as_ref())?;
        map.serialize_entry("headers", &self.headers)?;
        map.end()
    }
}

impl Serialize for ReadHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        put(&mut map, "name", "name_encoding", Some(&self.name))?;
        put(&mut map, "value", "value_encoding", self.value.as_ref())?;
        map.end()
    }
}

#[cfg(test)]
mod tests;
