//! Messages of a queue, as applications see them and as the HTTP API writes them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::record::Header;

/// A message on its way out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The value; `None` is a record without one.
    pub value: Option<Bytes>,
    /// The message group: a queue with `queue.fifo` keeps its order.
    pub group: Option<Bytes>,
    /// The headers, in order.
    pub headers: Vec<Header>,
    /// When it may be received first.
    pub delay: Option<Duration>,
    /// For how long it is worth anything.
    pub ttl: Option<Duration>,
    /// 0 to 9; higher ones are received first.
    pub priority: Option<u8>,
    /// Another message of this id, sent shortly before, makes this one a repeat that is not delivered.
    pub dedup_id: Option<String>,
}

impl OutgoingMessage {
    /// A message with a value and nothing else.
    pub fn new(value: impl Into<Bytes>) -> OutgoingMessage {
        OutgoingMessage { value: Some(value.into()), ..OutgoingMessage::default() }
    }

    /// About how many bytes it takes in a request.
    pub(crate) fn size(&self) -> usize {
        const FIELDS: usize = 256;
        let header =
            |header: &Header| header.key.len() + header.value.as_ref().map_or(0, Bytes::len);
        let text: usize = self.headers.iter().map(header).sum::<usize>()
            + self.value.as_ref().map_or(0, Bytes::len)
            + self.group.as_ref().map_or(0, Bytes::len);
        FIELDS + text + text / 3
    }
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueMessage {
    /// Its name, for good; it keeps it as a dead letter.
    pub id: String,
    /// The value.
    pub value: Option<Bytes>,
    /// Its message group, and the key of its record.
    pub group: Option<Bytes>,
    /// The headers, in order.
    pub headers: Vec<Header>,
    /// When it was sent first, in milliseconds since 1970.
    pub sent_ms: i64,
    /// How often it was received, with this time.
    pub receives: u32,
    /// Proves this delivery, whatever is done with it.
    pub receipt: String,
    /// When others may receive it if nothing is done, in milliseconds since 1970 by the broker's clock.
    pub visible_again_ms: i64,
}

/// Where a message went.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SentMessage {
    /// Its name; of a repeat, that of the first one.
    pub id: String,
    /// When it was sent, in milliseconds since 1970.
    pub sent_ms: i64,
    /// It is a repeat, and not delivered again.
    #[serde(default)]
    pub duplicate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Utf8,
    Base64,
}

/// Text that stands for bytes.
fn text(bytes: &[u8]) -> (String, Option<Encoding>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (STANDARD.encode(bytes), Some(Encoding::Base64)),
    }
}

fn optional_text(bytes: Option<&Bytes>) -> (Option<String>, Option<Encoding>) {
    bytes.map_or((None, None), |bytes| {
        let (text, encoding) = text(bytes);
        (Some(text), encoding)
    })
}

fn bytes(text: String, encoding: Option<Encoding>) -> Result<Bytes, base64::DecodeError> {
    match encoding {
        Some(Encoding::Base64) => STANDARD.decode(text).map(Bytes::from),
        Some(Encoding::Utf8) | None => Ok(Bytes::from(text)),
    }
}

#[derive(Serialize, Deserialize)]
struct WrittenHeader {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name_encoding: Option<Encoding>,
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_encoding: Option<Encoding>,
}

/// A message as the body of a send has it.
#[derive(Serialize)]
pub(crate) struct WrittenMessage {
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<WrittenHeader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup_id: Option<String>,
}

impl From<&OutgoingMessage> for WrittenMessage {
    fn from(message: &OutgoingMessage) -> WrittenMessage {
        let (value, value_encoding) = optional_text(message.value.as_ref());
        let (group, group_encoding) = optional_text(message.group.as_ref());
        let header = |header: &Header| {
            let (value, value_encoding) = optional_text(header.value.as_ref());
            let name = header.key.to_string();
            WrittenHeader { name, name_encoding: None, value, value_encoding }
        };
        WrittenMessage {
            value,
            value_encoding,
            group,
            group_encoding,
            headers: message.headers.iter().map(header).collect(),
            delay_ms: message.delay.map(milliseconds),
            ttl_ms: message.ttl.map(milliseconds),
            priority: message.priority,
            dedup_id: message.dedup_id.clone(),
        }
    }
}

/// Whole milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The answer to a receive.
#[derive(Deserialize)]
pub(crate) struct Received {
    pub(crate) messages: Vec<ReceivedMessage>,
}

#[derive(Deserialize)]
pub(crate) struct ReceivedMessage {
    id: String,
    value: Option<String>,
    #[serde(default)]
    value_encoding: Option<Encoding>,
    group: Option<String>,
    #[serde(default)]
    group_encoding: Option<Encoding>,
    headers: Vec<WrittenHeader>,
    sent_ms: i64,
    receives: u32,
    receipt: String,
    visible_again_ms: i64,
}

impl TryFrom<ReceivedMessage> for QueueMessage {
    type Error = base64::DecodeError;

    fn try_from(told: ReceivedMessage) -> Result<QueueMessage, base64::DecodeError> {
        let header = |header: WrittenHeader| {
            let name = bytes(header.name, header.name_encoding)?;
            let value =
                header.value.map(|value| bytes(value, header.value_encoding)).transpose()?;
            Ok(Header { key: String::from_utf8_lossy(&name).into(), value })
        };
        Ok(QueueMessage {
            id: told.id,
            value: told.value.map(|value| bytes(value, told.value_encoding)).transpose()?,
            group: told.group.map(|group| bytes(group, told.group_encoding)).transpose()?,
            headers: told.headers.into_iter().map(header).collect::<Result<_, _>>()?,
            sent_ms: told.sent_ms,
            receives: told.receives,
            receipt: told.receipt,
            visible_again_ms: told.visible_again_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_sent_as_base64() {
        let message = OutgoingMessage {
            group: Some("g".into()),
            headers: vec![Header { key: "h".into(), value: Some(Bytes::from_static(b"\xff")) }],
            delay: Some(Duration::from_secs(2)),
            ..OutgoingMessage::new(&b"\xff\x00"[..])
        };
        let written = serde_json::to_value(WrittenMessage::from(&message)).unwrap();
        let expected = json!({
            "value": "/wA=", "value_encoding": "base64", "group": "g", "delay_ms": 2000,
            "headers": [{"name": "h", "value": "/w==", "value_encoding": "base64"}],
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn a_received_message_has_its_bytes_again() {
        let told = json!({
            "id": "0-1", "value": "/wA=", "value_encoding": "base64", "group": null,
            "headers": [{"name": "h", "value": null}], "sent_ms": 1, "receives": 2,
            "first_received_ms": 3, "receipt": "r", "visible_again_ms": 4,
        });
        let told: ReceivedMessage = serde_json::from_value(told).unwrap();
        let message = QueueMessage::try_from(told).unwrap();
        assert_eq!(message.value.as_deref(), Some(&b"\xff\x00"[..]));
        assert_eq!(message.headers, [Header { key: "h".into(), value: None }]);
        assert_eq!((message.receives, message.visible_again_ms), (2, 4));
    }
}
