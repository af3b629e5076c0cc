//! Which messages a task wants. Every condition that is given has to hold.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use towpath_metadata::FILTER_BYTES_MAX;
use towpath_model::PartitionIndex;
use towpath_queue::{DEAD_NOTE, DEAD_REASON, DEAD_SOURCE, FIRST_SENT};
use towpath_server::StoredMessage;

use crate::api_error::{ApiError, Code};
use crate::queues::{header, id_of};

/// Messages that a filter names, at most.
const IDS_MAX: usize = 500;

/// What is wanted, as the API has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Filter {
    /// Why it is a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The queue that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// A part of what was said when it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note_contains: Option<String>,
    /// Its message group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// A part of its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value_contains: Option<String>,
    /// What its headers say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) headers: Vec<HeaderFilter>,
    /// When it was sent first, in milliseconds since 1970; from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sent_from_ms: Option<i64>,
    /// Before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sent_before_ms: Option<i64>,
    /// When it came to this queue; from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_from_ms: Option<i64>,
    /// Before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_before_ms: Option<i64>,
    /// It is one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ids: Option<BTreeSet<String>>,
}

/// A condition on a header; some header of this name satisfies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderFilter {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) equals: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) contains: Option<String>,
}

impl Filter {
    /// Reads back what [`Filter::written`] has written; `None`: another program wrote it.
    pub(crate) fn read(written: &str) -> Option<Filter> {
        if written.is_empty() {
            return Some(Filter::default());
        }
        serde_json::from_str(written).ok()
    }

    /// As the metadata keeps it.
    ///
    /// # Errors
    /// When it is too long.
    pub(crate) fn written(&self) -> Result<String, ApiError> {
        if self.ids.as_ref().is_some_and(|ids| IDS_MAX < ids.len()) {
            let message = format!("a filter names at most {IDS_MAX} ids");
            return Err(ApiError::new(Code::InvalidRequest, message));
        }
        if *self == Filter::default() {
            return Ok(String::new());
        }
        let written = serde_json::to_string(self).expect("texts and numbers are JSON");
        if FILTER_BYTES_MAX < written.len() {
            let message = format!("a filter has at most {FILTER_BYTES_MAX} bytes");
            return Err(ApiError::new(Code::InvalidRequest, message));
        }
        Ok(written)
    }

    /// Whether a message is wanted.
    pub(crate) fn wants(&self, partition: PartitionIndex, message: &StoredMessage) -> bool {
        let says = |name: &[u8], wanted: &Option<String>| {
            let said = || header(message, name);
            wanted.as_ref().is_none_or(|wanted| said() == Some(wanted.as_bytes()))
        };
        let has = |bytes: Option<&[u8]>, part: &Option<String>| {
            part.as_ref().is_none_or(|part| contains(bytes.unwrap_or_default(), part.as_bytes()))
        };
        let group = message.key.as_deref();
        says(DEAD_REASON, &self.reason)
            && says(DEAD_SOURCE, &self.source)
            && has(header(message, DEAD_NOTE), &self.note_contains)
            && self.group.as_ref().is_none_or(|wanted| group == Some(wanted.as_bytes()))
            && has(message.value.as_deref(), &self.value_contains)
            && self.headers.iter().all(|wanted| wanted.is_satisfied_by(message))
            && within(first_sent(message), self.sent_from_ms, self.sent_before_ms)
            && within(message.timestamp.0, self.dead_from_ms, self.dead_before_ms)
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&id_of(partition, message)))
    }
}

impl HeaderFilter {
    fn is_satisfied_by(&self, message: &StoredMessage) -> bool {
        let own = message.headers.iter().filter(|(name, _)| **name == *self.name.as_bytes());
        own.map(|(_, value)| value.as_deref().unwrap_or_default()).any(|value| {
            self.equals.as_ref().is_none_or(|wanted| value == wanted.as_bytes())
                && self.contains.as_ref().is_none_or(|part| contains(value, part.as_bytes()))
        })
    }
}

fn first_sent(message: &StoredMessage) -> i64 {
    let said = header(message, FIRST_SENT).and_then(|value| std::str::from_utf8(value).ok());
    said.and_then(|value| value.parse().ok()).unwrap_or(message.timestamp.0)
}

fn within(at: i64, from: Option<i64>, before: Option<i64>) -> bool {
    from.is_none_or(|from| from <= at) && before.is_none_or(|before| at < before)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || memchr::memmem::find(bytes, part).is_some()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use towpath_model::{Offset, Timestamp};

    use super::*;

    fn dead_letter() -> StoredMessage {
        let header = |name: &[u8], value: &str| {
            (Bytes::copy_from_slice(name), Some(Bytes::from(value.to_owned())))
        };
        StoredMessage {
            offset: Offset(7),
            timestamp: Timestamp(5_000),
            key: Some(Bytes::from_static(b"customer-7")),
            value: Some(Bytes::from_static(b"{\"card\":\"declined\"}")),
            headers: vec![
                header(DEAD_REASON, "rejected"),
                header(DEAD_SOURCE, "orders"),
                header(DEAD_NOTE, "no such customer"),
                header(FIRST_SENT, "1000"),
                header(b"trace", "abc"),
                header(b"trace", "xyz"),
            ],
        }
    }

    fn wants(filter: &str) -> bool {
        let filter: Filter = serde_json::from_str(filter).unwrap();
        assert_eq!(Filter::read(&filter.written().unwrap()), Some(filter.clone()));
        filter.wants(PartitionIndex(2), &dead_letter())
    }

    #[test]
    fn every_condition_has_to_hold() {
        for wanted in [
            "{}",
            r#"{"reason":"rejected","source":"orders"}"#,
            r#"{"note_contains":"such","group":"customer-7","value_contains":"declined"}"#,
            r#"{"headers":[{"name":"trace","equals":"abc"},{"name":"trace","contains":"y"}]}"#,
            r#"{"headers":[{"name":"trace"}]}"#,
            r#"{"sent_from_ms":1000,"sent_before_ms":1001,"dead_from_ms":5000,"dead_before_ms":5001}"#,
            r#"{"ids":["2-7","x"]}"#,
        ] {
            assert!(wants(wanted), "{wanted}");
        }
        for unwanted in [
            r#"{"reason":"expired"}"#,
            r#"{"reason":"rejected","source":"payments"}"#,
            r#"{"note_contains":"other"}"#,
            r#"{"group":"customer-8"}"#,
            r#"{"value_contains":"accepted"}"#,
            r#"{"headers":[{"name":"trace","equals":"abc","contains":"x"}]}"#,
            r#"{"headers":[{"name":"span"}]}"#,
            r#"{"sent_from_ms":1001}"#,
            r#"{"sent_before_ms":1000}"#,
            r#"{"dead_before_ms":5000}"#,
            r#"{"ids":["0-7"]}"#,
        ] {
            assert!(!wants(unwanted), "{unwanted}");
        }
    }

    #[test]
    fn a_filter_is_bounded_and_one_of_a_newer_program_is_not_read() {
        let long = Filter { group: Some("x".repeat(FILTER_BYTES_MAX)), ..Filter::default() };
        assert_eq!(long.written().unwrap_err().code, Code::InvalidRequest);
        let ids = (0..=IDS_MAX).map(|at| at.to_string()).collect();
        let many = Filter { ids: Some(ids), ..Filter::default() };
        assert_eq!(many.written().unwrap_err().code, Code::InvalidRequest);
        assert_eq!(Filter::read(r#"{"colour":"red"}"#), None);
        assert_eq!(Filter::default().written().unwrap(), "");
    }
}
