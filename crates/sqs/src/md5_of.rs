//! The checksums that clients compare: Java's and PHP's SDKs throw where one differs, and where one
//! is there that should not be. All are lower-case hexadecimal MD5.
//!
//! ```text
//!  of attributes, sorted by name:  length u32 │ name │ length u32 │ type with its label
//!                                  │ 1 text, 2 bytes: u8 │ length u32 │ value       … next one
//! ```
//!
//! Integers are big-endian. No attributes have no checksum, rather than that of nothing. On receive
//! it covers what is given out, after [`crate::AttributeFilter`].

use md5::{Digest, Md5};

use crate::hexadecimal::hexadecimal;
use crate::message_attributes::{AttributeValue, MessageAttribute, MessageAttributes};

/// `MD5OfBody` and `MD5OfMessageBody`.
pub fn md5_of_body(body: &str) -> String {
    hexadecimal(&Md5::digest(body))
}

/// `MD5OfMessageAttributes`.
pub fn md5_of_message_attributes(attributes: &MessageAttributes) -> Option<String> {
    of_attributes(attributes.iter())
}

/// `MD5OfMessageSystemAttributes` of a message that was sent with this `AWSTraceHeader`, the only
/// system attribute that senders set.
pub fn md5_of_system_attributes(trace_header: Option<&str>) -> Option<String> {
    let attribute = trace_header.map(|header| MessageAttribute::text("String", header));
    of_attributes(attribute.iter().map(|attribute| ("AWSTraceHeader", attribute)))
}

fn of_attributes<'a>(
    attributes: impl Iterator<Item = (&'a str, &'a MessageAttribute)>,
) -> Option<String> {
    let mut attributes = attributes.peekable();
    attributes.peek()?;
    let mut md5 = Md5::new();
    for (name, attribute) in attributes {
        let is_binary = matches!(attribute.value(), AttributeValue::Binary(_));
        update(&mut md5, name.as_bytes());
        update(&mut md5, attribute.data_type().as_str().as_bytes());
        md5.update([if is_binary { 2 } else { 1 }]);
        update(&mut md5, attribute.value().as_bytes());
    }
    Some(hexadecimal(&md5.finalize()))
}

fn update(md5: &mut Md5, bytes: &[u8]) {
    // Lengths come from a request of a few megabytes.
    md5.update((bytes.len() as u32).to_be_bytes());
    md5.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(list: &[(&str, &str, AttributeValue)]) -> MessageAttributes {
        let mut attributes = MessageAttributes::default();
        for (name, data_type, value) in list {
            assert!(attributes.insert(name, data_type, value.clone()));
        }
        attributes
    }

    fn text(value: &str) -> AttributeValue {
        AttributeValue::Text(value.to_owned())
    }

    #[test]
    fn bodies_as_recorded_from_aws() {
        assert_eq!(md5_of_body("msg"), "6e2baaf3b97dbeef01c0043275f9a0e7");
        assert_eq!(md5_of_body("message-body-1"), "19c9e282d65f9733bc6b35d50062c7ee");
        assert_eq!(md5_of_body("g1-m1"), "fc4286b824b39ddf3606c9f27ff664bd");
    }

    #[test]
    fn attributes_as_recorded_from_aws() {
        let of = |list: &[_]| md5_of_message_attributes(&attributes(list));
        let recorded = |digest: &str| Some(digest.to_owned());
        let (hello, general, help) = (
            ("Hello", "String", text("There")),
            ("General", "String", text("Kenobi")),
            ("Help.Me", "String", text("Me")),
        );
        let all = [hello.clone(), general.clone(), help.clone()];
        assert_eq!(of(&all), recorded("4c360f3fdafd970e05fae2f149d997f5"));
        assert_eq!(of(&[hello.clone(), general]), recorded("fca026605781cb4126a1e9044df24232"));
        assert_eq!(of(std::slice::from_ref(&hello)), recorded("a311262e065454b75da111d535b8dacd"));
        assert_eq!(of(&[hello, help]), recorded("83fee93c1bcd8b9a5a923ffacdc636c7"));
        let foo = [("Foo", "String", text("Bar"))];
        assert_eq!(of(&foo), recorded("ae7155c6026991b6d54b11589678bf9c"));
        let vector = [("attribName1", "String", text("attribValue 1"))];
        assert_eq!(of(&vector), recorded("19e27d4e946b072f3f58da80d94fd778"));
        let bytes = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01";
        let binary = [("attr1", "Binary", AttributeValue::Binary(bytes.to_vec()))];
        assert_eq!(of(&binary), recorded("8cbe4db156db8a94db8b801b7addb984"));
    }

    #[test]
    fn a_label_counts_and_nothing_has_no_checksum() {
        let of = |data_type| md5_of_message_attributes(&attributes(&[("a", data_type, text("1"))]));
        assert_ne!(of("Number"), of("Number.float"));
        assert_ne!(of("Number"), of("String"));
        assert_eq!(md5_of_message_attributes(&MessageAttributes::default()), None);
        assert_eq!(md5_of_system_attributes(None), None);
        assert!(md5_of_system_attributes(Some("Root=1")).is_some());
    }
}
