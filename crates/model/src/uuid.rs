//! 128-bit ids as Kafka writes them: 22 characters of unpadded URL-safe base64.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A 128-bit id. Zero means "no id" on the wire (KIP-516).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Uuid(pub [u8; 16]);

/// The permanent identity of a topic; it changes when the topic is deleted and created again.
pub type TopicId = Uuid;

const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Uuid {
    /// "No id".
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// The topic id of the metadata log, as Kafka reserves it.
    pub const METADATA_TOPIC: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// As most of the world writes it: `01234567-89ab-cdef-0123-456789abcdef`.
    #[must_use]
    pub fn hyphenated(self) -> String {
        let mut text = Vec::with_capacity(36);
        for (at, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&at) {
                text.push(b'-');
            }
            text.extend([byte >> 4, byte & 0xf].map(|digit| HEXADECIMAL[usize::from(digit)]));
        }
        String::from_utf8(text).expect("digits are ASCII")
    }

    /// Reads [`Uuid::hyphenated`] back.
    #[must_use]
    pub fn from_hyphenated(text: &str) -> Option<Uuid> {
        let parts: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let digits = parts.concat();
        if lengths != [8, 4, 4, 4, 12] || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(&digits, 16).ok().map(|bits| Uuid(bits.to_be_bytes()))
    }

    /// A version 4 id made of 16 random bytes that the caller drew.
    #[must_use]
    pub fn from_random_bytes(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    /// Whether this is "no id".
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Uuid::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        let mut text = [0u8; 22];
        for (at, out) in text.iter_mut().enumerate() {
            // 22 groups of six bits hold 132; the last group carries two bits of the id.
            let group = if at < 21 { bits >> (122 - 6 * at) } else { bits << 4 };
            *out = ALPHABET[(group & 63) as usize];
        }
        f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id: expected 22 characters of URL-safe base64")]
pub struct InvalidUuid(pub String);

impl FromStr for Uuid {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Uuid, InvalidUuid> {
        let invalid = || InvalidUuid(text.to_owned());
        if text.len() != 22 {
            return Err(invalid());
        }
        let mut bits: u128 = 0;
        for (at, c) in text.bytes().enumerate() {
            let group = ALPHABET.iter().position(|a| *a == c).ok_or_else(invalid)? as u128;
            bits = if at < 21 { (bits << 6) | group } else { (bits << 2) | (group >> 4) };
        }
        Ok(Uuid(bits.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_kafka_prints_and_reads_back() {
        // Kafka's own constants: Uuid.ONE_UUID prints as this.
        assert_eq!(Uuid::METADATA_TOPIC.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let id = Uuid::from_random_bytes([0xab; 16]);
        assert_eq!(id.to_string().parse::<Uuid>(), Ok(id));
        assert!("short".parse::<Uuid>().is_err());
    }

    #[test]
    fn hyphenated_text_is_read_back() {
        let id = Uuid::from_random_bytes([0xab; 16]);
        assert_eq!(Uuid::from_hyphenated(&id.hyphenated()), Some(id));
        for wrong in
            ["", "abababab-abab-4bab-abab-abababababa", "+bababab-abab-4bab-abab-abababababab"]
        {
            assert_eq!(Uuid::from_hyphenated(wrong), None, "{wrong}");
        }
    }
}
