//! Recognises what answers instead of a Kafka broker, so that the error can say so.

/// What the first bytes of an answer look like, if they cannot be Kafka's.
///
/// A Kafka answer begins with its length; these read as lengths of more than a hundred megabytes, or
/// as a record of TLS.
#[must_use]
pub fn recognise(first: &[u8]) -> Option<&'static str> {
    match first {
        // Alert (0x15) and handshake (0x16) records of TLS 1.0 to 1.3.
        [0x15 | 0x16, 3, 0..=4, ..] => Some("a TLS listener"),
        [b'H', b'T', b'T', b'P', ..] => Some("an HTTP server"),
        [b'S', b'S', b'H', b'-', ..] => Some("an SSH server"),
        [b'-', b'E', b'R', b'R', ..] => Some("a Redis server"),
        [b'2', b'2', b'0', b' ' | b'-', ..] => Some("a mail server"),
        [b'I', b'N', b'F', b'O', ..] => Some("a NATS server"),
        [b'A', b'M', b'Q', b'P', ..] => Some("an AMQP broker"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::recognise;

    #[test]
    fn lengths_are_not_mistaken_for_other_protocols() {
        assert_eq!(recognise(&[0, 0, 1, 0]), None);
        assert_eq!(recognise(&[0x15, 3, 3, 0]), Some("a TLS listener"));
        assert_eq!(recognise(b"HTTP/1.1 400"), Some("an HTTP server"));
        assert_eq!(recognise(b""), None);
    }
}
