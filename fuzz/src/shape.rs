//! What happened, as a number: inputs that do the same have the same shape.

use std::fmt::Debug;

/// A running hash (FNV-1a, 64 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape(u64);

impl Default for Shape {
    fn default() -> Shape {
        Shape(0xcbf2_9ce4_8422_2325)
    }
}

impl Shape {
    /// Adds a word: a kind, a name.
    #[must_use]
    pub fn word(self, word: &str) -> Shape {
        self.bytes(word.bytes()).bytes([0xff])
    }

    /// Adds the magnitude of a number: 0, 1, 2–3, 4–7 … are one each.
    #[must_use]
    pub fn size(self, number: usize) -> Shape {
        self.bytes([(usize::BITS - number.leading_zeros()) as u8])
    }

    /// Adds a small number as it is, such as a version.
    #[must_use]
    pub fn exact(self, number: i16) -> Shape {
        self.bytes(number.to_be_bytes())
    }

    /// Adds an error: its words, without the numbers and strings in it that the input chose.
    #[must_use]
    pub fn error(self, error: &impl Debug) -> Shape {
        let text = format!("{error:?}");
        let mut quoted = false;
        let kept = text.bytes().filter(|byte| {
            if *byte == b'"' {
                quoted = !quoted;
            }
            !quoted && !byte.is_ascii_digit() && *byte != b'-'
        });
        // Names of fields are strings of ours, and what tells two errors apart.
        let named = text.split('"').skip(1).step_by(2).filter(|name| name.contains('.'));
        let names: String = named.collect();
        self.bytes(kept).word(&names)
    }

    fn bytes(self, bytes: impl IntoIterator<Item = u8>) -> Shape {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Shape(bytes.into_iter().fold(self.0, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[allow(dead_code, reason = "only its text is looked at")]
    struct Short {
        field: &'static str,
        at: i32,
    }

    #[test]
    fn errors_differ_by_field_and_not_by_number() {
        let shape = |field, at| Shape::default().error(&Short { field, at });
        assert_eq!(shape("Fetch.topics", 7), shape("Fetch.topics", -1234));
        assert_ne!(shape("Fetch.topics", 7), shape("Fetch.rack", 7));
        assert_eq!(shape("chosen", 7), shape("otherwise", 7));
    }
}
