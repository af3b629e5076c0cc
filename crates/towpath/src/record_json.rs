//! Records as JSON, the same both ways, and the same as the HTTP API has them: text as it is, and
//! bytes that are not UTF-8 as base64 with `…_encoding` beside them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use towpath_client::{Header, OutgoingRecord, Record, Timestamp};

use crate::record_format::parse_timestamp;
use crate::when::format_millis;

/// A record that was read.
pub(crate) fn record_to_json(record: &Record) -> Value {
    let mut object = Map::new();
    object.insert("topic".to_owned(), (*record.topic).into());
    object.insert("partition".to_owned(), record.partition.0.into());
    object.insert("offset".to_owned(), record.offset.0.into());
    object.insert("timestamp".to_owned(), record.timestamp.0.into());
    object.insert("time".to_owned(), format_millis(record.timestamp.0).into());
    put_bytes(&mut object, "key", record.key.as_ref());
    put_bytes(&mut object, "value", record.value.as_ref());
    let headers: Vec<Value> = record.headers.iter().map(header_to_json).collect();
    object.insert("headers".to_owned(), headers.into());
    Value::Object(object)
}

fn header_to_json(header: &Header) -> Value {
    let mut object = Map::new();
    object.insert("key".to_owned(), (*header.key).into());
    put_bytes(&mut object, "value", header.value.as_ref());
    Value::Object(object)
}

fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&Bytes>) {
    let value = match bytes {
        None => Value::Null,
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => {
                object.insert(format!("{name}_encoding"), "base64".into());
                BASE64.encode(bytes).into()
            }
        },
    };
    object.insert(name.to_owned(), value);
}

/// Reads one JSON object into `record`: `key`, `value`, `headers`, `partition`, `timestamp`, `topic`
/// are all optional; a value that is not text is sent as its JSON. What the server chooses is
/// ignored, so that what was read can be sent again. `follow_place` also takes topic and partition.
pub(crate) fn json_to_record(
    line: &[u8],
    record: &mut OutgoingRecord,
    follow_place: bool,
) -> Result<(), String> {
    let object: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("not a JSON object: {error}"))?;
    record.key = take_bytes(&object, "key")?.or(record.key.take());
    record.value = take_bytes(&object, "value")?;
    if let Some(timestamp) = object.get("timestamp").filter(|t| !t.is_null()) {
        record.timestamp = Some(match timestamp {
            Value::String(text) => parse_timestamp(text)?,
            other => Timestamp(other.as_i64().ok_or("\"timestamp\" is not a number")?),
        });
    }
    if follow_place && let Some(partition) = object.get("partition").filter(|p| !p.is_null()) {
        let partition = partition.as_i64().and_then(|p| i32::try_from(p).ok());
        *record = record.clone().partition(partition.ok_or("\"partition\" is not a number")?);
    }
    match object.get("headers") {
        None | Some(Value::Null) => {}
        Some(Value::Object(headers)) => {
            for name in headers.keys() {
                let value = take_bytes(headers, name)?;
                record.headers.push(Header { key: name.as_str().into(), value });
            }
        }
        Some(Value::Array(headers)) => {
            for header in headers {
                let header = header.as_object().ok_or("a header is not an object")?;
                let key = header.get("key").and_then(Value::as_str).ok_or("a header has no key")?;
                let value = take_bytes(header, "value")?;
                record.headers.push(Header { key: key.into(), value });
            }
        }
        Some(_) => return Err("\"headers\" is neither an object nor a list".to_owned()),
    }
    Ok(())
}

fn take_bytes(object: &Map<String, Value>, name: &str) -> Result<Option<Bytes>, String> {
    let encoding =
        object.get(&format!("{name}_encoding")).and_then(Value::as_str).unwrap_or("utf8");
    match (object.get(name), encoding) {
        (None | Some(Value::Null), _) => Ok(None),
        (Some(Value::String(text)), "utf8") => Ok(Some(text.clone().into_bytes().into())),
        (Some(Value::String(text)), "base64") => BASE64
            .decode(text)
            .map(|bytes| Some(bytes.into()))
            .map_err(|error| format!("{name:?} is not base64: {error}")),
        (Some(_), "base64") => Err(format!("{name:?} is not base64 text")),
        (Some(value), "utf8") => Ok(Some(json!(value).to_string().into_bytes().into())),
        (_, other) => Err(format!("\"{name}_encoding\" is {other:?}: there are utf8 and base64")),
    }
}

#[cfg(test)]
mod tests {
    use towpath_client::{Offset, PartitionIndex};

    use super::*;

    #[test]
    fn what_was_read_can_be_sent_again() {
        let read = Record {
            topic: "t".into(),
            partition: PartitionIndex(1),
            offset: Offset(9),
            timestamp: Timestamp(5),
            leader_epoch: None,
            key: Some(Bytes::from_static(&[0xff, 0xfe])),
            value: Some("text".into()),
            headers: vec![
                Header { key: "h".into(), value: Some("1".into()) },
                Header { key: "h".into(), value: None },
            ],
        };
        let json = record_to_json(&read);
        assert_eq!(json["key_encoding"], "base64");
        assert_eq!(json.get("value_encoding"), None);
        let mut sent = OutgoingRecord::new("u", "");
        json_to_record(json.to_string().as_bytes(), &mut sent, true).unwrap();
        assert_eq!((&*sent.topic, sent.partition), ("u", Some(PartitionIndex(1))));
        assert_eq!((sent.key, sent.value), (read.key, read.value));
        assert_eq!((sent.headers, sent.timestamp), (read.headers, Some(Timestamp(5))));
    }

    #[test]
    fn values_that_are_not_text_are_sent_as_json() {
        let mut sent = OutgoingRecord::new("t", "");
        json_to_record(br#"{"value":{"a":1},"headers":{"n":2}}"#, &mut sent, false).unwrap();
        assert_eq!(sent.value.unwrap(), r#"{"a":1}"#);
        assert_eq!(sent.headers[0].value.as_deref(), Some(&b"2"[..]));
        assert!(json_to_record(b"[1]", &mut OutgoingRecord::new("t", ""), false).is_err());
    }
}
