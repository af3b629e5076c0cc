//! Message attributes as headers of a record, so that one message reads well from both sides: an
//! attribute is the header of its name, and a header of a record that another client has written is
//! an attribute.
//!
//! ```text
//!   attribute                             header
//!   trace  String  "abc"             ⇄    trace: abc
//!   raw    Binary  00 ff             ⇄    raw: 00 ff
//!   count  Number.int  "5"           ⇄    count: 5     and   towpath-sqs-types: {"count":"Number.int"}
//!   towpath-x  String  "a"           ⇄    towpath-sqs-attribute-towpath-x: a
//!                                         towpath-…: of the server, no attribute
//! ```
//!
//! A header alone is a String if its value is a text that SQS can carry, and else a Binary; only
//! where that is not the attribute's type does `towpath-sqs-types` name it. Headers that no attribute
//! can be (without a value or with an empty one, with another name than SQS allows) have no
//! attribute. Where a name comes twice, the last one counts. There may be more than ten: that limit
//! is for those who send by SQS.

use std::collections::BTreeMap;

use crate::message_attributes::{AttributeValue, DataType, MessageAttributes, is_message_text};

/// What all headers begin with that are the server's own, and never attributes: how a message wants
/// to be delivered, where it comes from, and what SQS's messages carry otherwise.
pub const OWN_PREFIX: &str = "towpath-";
const TYPES: &str = "towpath-sqs-types";
const ESCAPED_PREFIX: &str = "towpath-sqs-attribute-";

/// The headers that carry these attributes, by name.
pub fn to_record_headers(attributes: &MessageAttributes) -> Vec<(String, Vec<u8>)> {
    let mut headers = Vec::new();
    let mut types = BTreeMap::new();
    for (name, attribute) in attributes.iter() {
        let value = attribute.value().as_bytes();
        let data_type = attribute.data_type().as_str();
        if data_type != plain_type(value) {
            types.insert(name, data_type);
        }
        let is_own = name.starts_with(OWN_PREFIX);
        let key = if is_own { [ESCAPED_PREFIX, name].concat() } else { name.to_owned() };
        headers.push((key, value.to_vec()));
    }
    if !types.is_empty() {
        let types = serde_json::to_vec(&types).expect("a map of texts is JSON");
        headers.push((TYPES.to_owned(), types));
    }
    headers
}

/// The attributes that a record's headers carry, whoever has written it.
pub fn from_record_headers<'a>(
    headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone,
) -> MessageAttributes {
    let types = headers.clone().filter(|(key, _)| *key == TYPES.as_bytes());
    let types = types.last().and_then(|(_, value)| serde_json::from_slice(value?).ok());
    let types: BTreeMap<String, String> = types.unwrap_or_default();
    let mut attributes = MessageAttributes::default();
    for (key, value) in headers {
        let (Some(name), Some(value)) = (name_of(key), value) else { continue };
        let plain = plain_type(value);
        let listed = types.get(name).map_or(plain, String::as_str);
        // A type that does not fit is none of ours: the value counts.
        if !insert(&mut attributes, name, listed, value) {
            insert(&mut attributes, name, plain, value);
        }
    }
    attributes
}

fn name_of(key: &[u8]) -> Option<&str> {
    let key = std::str::from_utf8(key).ok()?;
    match key.strip_prefix(ESCAPED_PREFIX) {
        Some(name) => Some(name),
        None => Some(key).filter(|key| !key.starts_with(OWN_PREFIX)),
    }
}

fn insert(attributes: &mut MessageAttributes, name: &str, data_type: &str, value: &[u8]) -> bool {
    let is_binary = DataType::parse(data_type).is_some_and(|data_type| data_type.is_binary());
    let value = if is_binary {
        AttributeValue::Binary(value.to_vec())
    } else {
        match std::str::from_utf8(value) {
            Ok(text) => AttributeValue::Text(text.to_owned()),
            Err(_) => return false,
        }
    };
    attributes.insert(name, data_type, value)
}

/// What a header is without a word of its type.
fn plain_type(value: &[u8]) -> &'static str {
    match std::str::from_utf8(value) {
        Ok(text) if is_message_text(text) => "String",
        _ => "Binary",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(headers: &[(&str, Option<&[u8]>)]) -> MessageAttributes {
        from_record_headers(headers.iter().map(|(key, value)| (key.as_bytes(), *value)))
    }

    fn written(attributes: &MessageAttributes) -> Vec<(String, String)> {
        let headers = to_record_headers(attributes).into_iter();
        headers.map(|(key, value)| (key, String::from_utf8_lossy(&value).into_owned())).collect()
    }

    #[test]
    fn an_attribute_is_the_header_of_its_name() {
        let mut attributes = MessageAttributes::default();
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        assert!(attributes.insert("trace", "String", text("abc")));
        assert!(attributes.insert("count", "Number.int", text("5")));
        assert!(attributes.insert("towpath-x", "String", text("a")));
        let header = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let expected = [
            header("count", "5"),
            header("towpath-sqs-attribute-towpath-x", "a"),
            header("trace", "abc"),
            header("towpath-sqs-types", r#"{"count":"Number.int"}"#),
        ];
        assert_eq!(written(&attributes), expected);
    }

    #[test]
    fn headers_of_others_are_attributes() {
        let attributes = read(&[
            ("trace", Some(b"old")),
            ("trace", Some(b"abc")),
            ("raw", Some(b"\xff")),
            ("none", None),
            ("empty", Some(b"")),
            ("no name", Some(b"x")),
            ("AWS.x", Some(b"x")),
            ("towpath-ttl", Some(b"5")),
            ("towpath-sqs-group", Some(b"g")),
        ]);
        let names: Vec<&str> = attributes.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["raw", "trace"]);
        let of = |name| attributes.get(name).unwrap();
        assert_eq!(of("trace").value().as_bytes(), b"abc");
        assert_eq!(of("trace").data_type().as_str(), "String");
        assert_eq!(of("raw").data_type().as_str(), "Binary");
    }

    #[test]
    fn types_that_do_not_fit_are_passed_over() {
        let types: &[u8] = br#"{"a":"Number","b":"x","c":"String"}"#;
        let attributes = read(&[
            ("a", Some(b"word")),
            ("b", Some(b"1")),
            ("c", Some(b"\xff")),
            ("towpath-sqs-types", Some(types)),
        ]);
        let of = |name: &str| attributes.get(name).unwrap().data_type().as_str();
        assert_eq!((of("a"), of("b"), of("c")), ("String", "String", "Binary"));
        let broken = read(&[("a", Some(b"1")), ("towpath-sqs-types", Some(b"[]"))]);
        assert_eq!(broken.len(), 1);
    }

    proptest! {
        #[test]
        fn attributes_come_back_as_they_were(
            list in prop::collection::vec(
                (
                    "(towpath-(sqs-(types|attribute-)?)?)?[a-c.]{0,2}",
                    "(String|Number|Binary)(\\.[a-z]{1,3})?",
                    "(-?[0-9]{1,4}|.{0,4})",
                    any::<Vec<u8>>(),
                ),
                0..8,
            ),
        ) {
            let mut attributes = MessageAttributes::default();
            for (name, data_type, text, bytes) in list {
                attributes.insert(&name, &data_type, AttributeValue::Text(text));
                attributes.insert(&name, &data_type, AttributeValue::Binary(bytes));
            }
            let headers = to_record_headers(&attributes);
            let again = from_record_headers(
                headers.iter().map(|(key, value)| (key.as_bytes(), Some(value.as_slice()))),
            );
            prop_assert_eq!(again, attributes);
        }

        #[test]
        fn no_header_is_too_strange(
            headers in prop::collection::vec(
                (any::<Vec<u8>>(), prop::option::of(any::<Vec<u8>>())), 0..4,
            ),
            types in any::<Vec<u8>>(),
        ) {
            let own = [(TYPES.as_bytes(), Some(types.as_slice()))];
            let headers = headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
            let _ = from_record_headers(own.into_iter().chain(headers));
        }
    }
}
