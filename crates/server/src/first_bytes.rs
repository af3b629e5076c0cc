//! What somebody who is not a Kafka client sent to the Kafka port, told from the first bytes.
//!
//! A Kafka frame begins with its length as four bytes. TLS and HTTP begin with bytes that would be
//! lengths of hundreds of megabytes, so they are only looked for where the length is absurd.

/// Another protocol on our port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranger {
    /// A TLS client's hello.
    Tls,
    /// An HTTP request.
    Http,
    /// Nobody known.
    Nonsense,
}

impl Stranger {
    /// Judges the first bytes of a connection whose length prefix is out of bounds.
    pub fn of(first: &[u8]) -> Stranger {
        const METHODS: [&[u8]; 9] =
            [b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "];
        match first {
            [0x16, 0x03, ..] => Stranger::Tls,
            _ if METHODS.iter().any(|method| first.starts_with(method)) => Stranger::Http,
            _ => Stranger::Nonsense,
        }
    }

    /// What the log says, after the peer's address.
    pub fn advice(self) -> &'static str {
        match self {
            Stranger::Tls => {
                "speaks TLS, but this listener expects the Kafka protocol in plain text: \
                 set security.protocol=PLAINTEXT in the client"
            }
            Stranger::Http => {
                "speaks HTTP, but this listener expects the Kafka protocol: \
                 use the HTTP address that `towpath status` shows"
            }
            Stranger::Nonsense => {
                "sent a frame length out of bounds: this listener expects the Kafka protocol \
                 in plain text"
            }
        }
    }

    /// An answer in the peer's own language, where it has one.
    pub fn answer(self) -> &'static [u8] {
        match self {
            // A fatal protocol_version alert, so that the client reports TLS and not a hang-up.
            Stranger::Tls => &[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46],
            Stranger::Http => {
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 78\r\n\
                  connection: close\r\n\r\n\
                  This port speaks the Kafka protocol. HTTP is on another port (default: 8080).\n"
            }
            Stranger::Nonsense => b"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_http_are_told_from_nonsense() {
        assert_eq!(Stranger::of(&[0x16, 3, 1, 2]), Stranger::Tls);
        assert_eq!(Stranger::of(b"GET / HTTP/1.1"), Stranger::Http);
        assert_eq!(Stranger::of(&[0xff; 4]), Stranger::Nonsense);
    }

    #[test]
    fn the_http_answer_is_as_long_as_it_says() {
        let answer = std::str::from_utf8(Stranger::Http.answer()).unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert!(answer.contains(&format!("content-length: {}\r\n", body.len())));
    }
}
