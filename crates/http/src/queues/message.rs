//! Messages of queues as JSON, in and out.
//!
//! How a message wants to be delivered stands in headers of its record, the same that any Kafka producer
//! may set; whoever receives it is not shown them.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_model::{Offset, PartitionIndex, Timestamp};
use towpath_queue::{
    DEDUP_ID, DELAY_MAX, DELIVER_AFTER, DELIVER_AT, Delay, FIRST_DEDUP_ID, FIRST_ID, FIRST_SENT,
    Identity, MOVED_FROM, PRIORITY, PRIORITY_MAX, TTL, identity,
};
use towpath_server::StoredMessage;

use crate::api_error::{ApiError, Code};
use crate::body::{AtMost, nullable, parse_json};
use crate::encoding::{Encoded, Encoding};
use crate::limits::QUEUE_MESSAGES_MAX;
use crate::message::{NewMessage, RecordHeaders, WrittenHeaders};

/// What our own headers begin with.
const OUR_PREFIX: &[u8] = b"towpath-";
/// The longest id of a send.
const DEDUP_ID_BYTES_MAX: usize = 128;
/// The longest name of a message group.
const GROUP_BYTES_MAX: usize = 1_024;

/// A message that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NewQueueMessage {
    pub(crate) value: Option<Vec<u8>>,
    /// The message group, where order matters; the key of its record.
    pub(crate) group: Option<Vec<u8>>,
    pub(crate) headers: RecordHeaders,
    pub(crate) delay: Option<Delay>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) priority: Option<u8>,
    pub(crate) dedup_id: Option<Vec<u8>>,
}

impl NewQueueMessage {
    /// As a record that says by its headers how it wants to be delivered.
    pub(crate) fn into_record(self) -> NewMessage {
        let mut headers = self.headers;
        let mut say = |name: &[u8], value: Option<Vec<u8>>| {
            headers.extend(value.map(|value| (name.to_vec(), Some(value))));
        };
        let (after, at) = match self.delay {
            None => (None, None),
            Some(Delay::For(delay)) => (Some(delay.as_millis().to_string().into_bytes()), None),
            Some(Delay::Until(moment)) => (None, Some(moment.0.to_string().into_bytes())),
        };
        say(DELIVER_AFTER, after);
        say(DELIVER_AT, at);
        say(TTL, self.ttl.map(|ttl| ttl.as_millis().to_string().into_bytes()));
        say(PRIORITY, self.priority.map(|priority| priority.to_string().into_bytes()));
        say(DEDUP_ID, self.dedup_id);
        NewMessage {
            key: self.group,
            value: self.value,
            headers,
            timestamp: None,
            partition: None,
            producer: None,
        }
    }
}

/// A body of `POST /queues/{queue}/messages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Send {
    One(Box<NewQueueMessage>),
    Many(Vec<NewQueueMessage>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMessage {
    #[serde(deserialize_with = "nullable")]
    value: Option<String>,
    #[serde(default)]
    value_encoding: Encoding,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    group_encoding: Encoding,
    #[serde(default)]
    headers: Option<WrittenHeaders>,
    #[serde(default)]
    delay_ms: Option<u64>,
    #[serde(default)]
    deliver_at_ms: Option<i64>,
    #[serde(default)]
    ttl_ms: Option<u64>,
    #[serde(default)]
    priority: Option<u8>,
    #[serde(default)]
    dedup_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBatch {
    messages: AtMost<QUEUE_MESSAGES_MAX, WrittenMessage>,
}

/// Enough of the body to know which of the two it is.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    messages: Option<serde::de::IgnoredAny>,
}

impl Send {
    pub(crate) fn parse(body: &[u8]) -> Result<Send, ApiError> {
        let kind: Kind = parse_json(body)?;
        if kind.messages.is_none() {
            let message = parse_json::<WrittenMessage>(body)?.read()?;
            return Ok(Send::One(Box::new(message)));
        }
        let AtMost(written) = parse_json::<WrittenBatch>(body)?.messages;
        if written.is_empty() {
            return Err(ApiError::new(Code::InvalidRequest, "messages is empty"));
        }
        let read = |(index, message): (usize, WrittenMessage)| {
            message.read().map_err(|error| error.at(&format!("messages[{index}]")))
        };
        written.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Send::Many)
    }
}

impl WrittenMessage {
    fn read(self) -> Result<NewQueueMessage, ApiError> {
        let delay = match (self.delay_ms, self.deliver_at_ms) {
            (None, None) => None,
            (Some(ms), None) => Some(Delay::For(duration("delay_ms", ms)?)),
            (None, Some(at)) if 0 <= at => Some(Delay::Until(Timestamp(at))),
            (None, Some(_)) => return Err(invalid("deliver_at_ms is no time since 1970")),
            (Some(_), Some(_)) => {
                return Err(invalid("delay_ms and deliver_at_ms exclude each other"));
            }
        };
        if self.priority.is_some_and(|priority| PRIORITY_MAX < priority) {
            return Err(invalid(&format!("priority is 0 to {PRIORITY_MAX}")));
        }
        let group =
            self.group.map(|group| self.group_encoding.decode("group", group)).transpose()?;
        check_length("group", group.as_deref(), GROUP_BYTES_MAX)?;
        let dedup_id = self.dedup_id.map(String::into_bytes);
        check_length("dedup_id", dedup_id.as_deref(), DEDUP_ID_BYTES_MAX)?;
        let headers = self.headers.map_or_else(|| Ok(Vec::new()), WrittenHeaders::read)?;
        if let Some((name, _)) = headers.iter().find(|(name, _)| name.starts_with(OUR_PREFIX)) {
            let name = String::from_utf8_lossy(name);
            return Err(invalid(&format!("the header {name:?} is not a sender's to set"))
                .with_help("delay_ms, ttl_ms, priority and dedup_id are fields of a message"));
        }
        let decode = |value| self.value_encoding.decode("value", value);
        Ok(NewQueueMessage {
            value: self.value.map(decode).transpose()?,
            group,
            headers,
            delay,
            ttl: self.ttl_ms.map(|ms| duration("ttl_ms", ms)).transpose()?,
            priority: self.priority,
            dedup_id,
        })
    }
}

fn invalid(message: &str) -> ApiError {
    ApiError::new(Code::InvalidRequest, message)
}

/// So many milliseconds, if they are not too many.
pub(super) fn duration(field: &str, ms: u64) -> Result<Duration, ApiError> {
    let duration = Duration::from_millis(ms);
    let max = DELAY_MAX.as_millis();
    let fits = duration <= DELAY_MAX;
    fits.then_some(duration).ok_or_else(|| invalid(&format!("{field} is at most {max}")))
}

fn check_length(field: &str, bytes: Option<&[u8]>, max: usize) -> Result<(), ApiError> {
    match bytes {
        Some(bytes) if bytes.is_empty() || max < bytes.len() => {
            Err(invalid(&format!("{field} has 1 to {max} bytes")))
        }
        _ => Ok(()),
    }
}

/// What was sent, as somebody gets it who receives it or looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    /// Where it was sent first; it keeps it when it is moved to another queue.
    pub(crate) id: String,
    pub(crate) value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value_encoding: Option<Encoding>,
    pub(crate) group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group_encoding: Option<Encoding>,
    pub(crate) headers: Vec<ShownHeader>,
    /// When it was sent first.
    pub(crate) sent_ms: i64,
}

/// A header of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownHeader {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name_encoding: Option<Encoding>,
    pub(crate) value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value_encoding: Option<Encoding>,
}

/// A text, and how it stands for bytes.
fn text(bytes: Option<&[u8]>) -> (Option<String>, Option<Encoding>) {
    let encoded = bytes.map(Encoded::of);
    let encoding = encoded.as_ref().and_then(|encoded| encoded.encoding);
    (encoded.map(|encoded| encoded.text), encoding)
}

impl Content {
    /// What a record says; of headers that are for its delivery only where `all_headers` are wanted.
    pub(crate) fn of(
        partition: PartitionIndex,
        stored: &StoredMessage,
        all_headers: bool,
    ) -> Content {
        let (value, value_encoding) = text(stored.value.as_deref());
        let (group, group_encoding) = text(stored.key.as_deref());
        let named = stored.headers.iter().map(|(name, value)| (&name[..], value.as_deref()));
        let sent = named.clone().rfind(|(name, _)| *name == FIRST_SENT);
        let sent = sent.and_then(|(_, value)| std::str::from_utf8(value?).ok()?.parse().ok());
        // Who is shown all headers finds it there.
        let sent = sent.filter(|_| !all_headers);
        let shown = named.filter(|(name, _)| all_headers || !is_for_delivery(name));
        let headers = shown.map(|(name, value)| {
            let name = Encoded::of(name);
            let (value, value_encoding) = text(value);
            ShownHeader { name: name.text, name_encoding: name.encoding, value, value_encoding }
        });
        Content {
            id: id_of(partition, stored),
            value,
            value_encoding,
            group,
            group_encoding,
            headers: headers.collect(),
            sent_ms: sent.unwrap_or(stored.timestamp.0),
        }
    }

    /// The record that says this, at an offset.
    pub(super) fn into_stored(self, offset: Offset) -> Result<StoredMessage, ApiError> {
        let bytes = |field, text: Option<String>, encoding: Option<Encoding>| {
            let decode = |text| encoding.unwrap_or_default().decode(field, text).map(Bytes::from);
            text.map(decode).transpose()
        };
        let mut headers = Vec::with_capacity(self.headers.len());
        for header in self.headers {
            let name = bytes("name", Some(header.name), header.name_encoding)?.unwrap_or_default();
            headers.push((name, bytes("value", header.value, header.value_encoding)?));
        }
        Ok(StoredMessage {
            offset,
            timestamp: Timestamp(self.sent_ms),
            key: bytes("group", self.group, self.group_encoding)?,
            value: bytes("value", self.value, self.value_encoding)?,
            headers,
        })
    }
}

/// Where a message was sent first, if it was moved since.
pub(crate) fn first_identity(stored: &StoredMessage) -> Option<Identity> {
    let (_, first) = stored.headers.iter().rfind(|(name, _)| **name == *FIRST_ID)?;
    identity(std::str::from_utf8(first.as_deref()?).ok()?)
}

/// How a message that lies in this partition is called: by where it was sent first.
pub(crate) fn id_of(partition: PartitionIndex, stored: &StoredMessage) -> String {
    match first_identity(stored) {
        Some(first) => message_id(first.partition, first.offset.0),
        None => message_id(partition, stored.offset.0),
    }
}

/// How a message is called that was sent to this place.
pub(crate) fn message_id(partition: PartitionIndex, offset: i64) -> String {
    format!("{}-{offset}", partition.0)
}

fn is_for_delivery(name: &[u8]) -> bool {
    const OURS: [&[u8]; 9] = [
        DELIVER_AFTER,
        DELIVER_AT,
        TTL,
        PRIORITY,
        DEDUP_ID,
        MOVED_FROM,
        FIRST_DEDUP_ID,
        FIRST_ID,
        FIRST_SENT,
    ];
    OURS.contains(&name)
}

/// Bytes that a message takes as JSON, about.
pub(crate) fn size(stored: &StoredMessage) -> usize {
    stored.bytes() + stored.headers.len() * 40 + 300
}

#[cfg(test)]
mod tests {
    use towpath_model::Uuid;
    use towpath_queue::{facts_of, identity_header};

    use super::*;

    fn one(json: &str) -> Result<NewQueueMessage, ApiError> {
        match Send::parse(json.as_bytes())? {
            Send::One(message) => Ok(*message),
            Send::Many(_) => panic!("this is one message"),
        }
    }

    #[test]
    fn what_a_sender_says_becomes_headers() {
        let message = one(
            r#"{"value":"v","group":"g","delay_ms":90,"ttl_ms":5000,"priority":7,"dedup_id":"d",
                "headers":{"trace":"1"}}"#,
        );
        let record = message.unwrap().into_record();
        assert_eq!(record.key.as_deref(), Some(&b"g"[..]));
        let headers = record.headers.iter().map(|(name, value)| (&name[..], value.as_deref()));
        let (facts, unread) = facts_of(None, headers);
        assert_eq!(unread, 0);
        assert_eq!(facts.delay, Some(Delay::For(Duration::from_millis(90))));
        assert_eq!((facts.ttl, facts.priority), (Some(Duration::from_secs(5)), Some(7)));
        assert_eq!(facts.dedup_id.as_deref(), Some(&b"d"[..]));
        assert_eq!(record.headers[0], (b"trace".to_vec(), Some(b"1".to_vec())));
    }

    #[test]
    fn what_is_not_possible_is_refused() {
        for json in [
            r#"{"value":"v","delay_ms":99999999999}"#,
            r#"{"value":"v","delay_ms":1,"deliver_at_ms":1}"#,
            r#"{"value":"v","priority":10}"#,
            r#"{"value":"v","dedup_id":""}"#,
            r#"{"value":"v","headers":{"towpath-moved-from":"x"}}"#,
            r#"{"messages":[]}"#,
        ] {
            assert_eq!(
                Send::parse(json.as_bytes()).unwrap_err().code,
                Code::InvalidRequest,
                "{json}"
            );
        }
        for json in [r"{}", r#"{"value":"v","delay":1}"#, r#"{"value":1}"#] {
            assert_eq!(Send::parse(json.as_bytes()).unwrap_err().code, Code::InvalidJson, "{json}");
        }
        let error = Send::parse(br#"{"messages":[{"value":"a"},{"value":"b","priority":99}]}"#);
        assert!(error.unwrap_err().message.starts_with("messages[1]"));
    }

    #[test]
    fn a_moved_message_keeps_its_id_and_shows_no_delivery_headers() {
        let moved = Identity {
            topic: Uuid([1; 16]),
            partition: PartitionIndex(2),
            offset: Offset(40),
            subscription: 0,
        };
        let header = |name: &[u8], value: &str| {
            (Bytes::copy_from_slice(name), Some(Bytes::from(value.to_owned())))
        };
        let stored = StoredMessage {
            offset: Offset(7),
            timestamp: Timestamp(1000),
            key: None,
            value: Some(Bytes::from_static(b"\xff")),
            headers: vec![header(b"a", "b"), header(FIRST_ID, &identity_header(&moved))],
        };
        let whole = Content::of(PartitionIndex(0), &stored, true);
        assert_eq!(whole.into_stored(Offset(7)).unwrap(), stored);
        let content = Content::of(PartitionIndex(0), &stored, false);
        assert_eq!((content.id.as_str(), content.value_encoding), ("2-40", Some(Encoding::Base64)));
        assert_eq!(content.headers.len(), 1);
        let plain = StoredMessage { headers: Vec::new(), ..stored };
        assert_eq!(Content::of(PartitionIndex(0), &plain, false).id, "0-7");
    }
}
