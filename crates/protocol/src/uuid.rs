//! The 16-byte ids of topics and directories as the protocol carries them.

use std::fmt;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A 16-byte id. All zero means "none" (KIP-516).
///
/// It prints as Kafka's tools print it: 22 characters of URL-safe base64 without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The id that says "none".
    pub const ZERO: Self = Self([0; 16]);

    /// The id whose big-endian number is `value`.
    pub const fn from_u128(value: u128) -> Self {
        Self(value.to_be_bytes())
    }

    /// The id as a big-endian number.
    pub const fn as_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Whether it says "none".
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 128 bits are 21 groups of six and two bits that the last character carries on its left.
        let value = self.as_u128();
        for group in 0..21 {
            let index = (value >> (122 - 6 * group)) & 0x3f;
            write!(f, "{}", char::from(ALPHABET[index as usize]))?;
        }
        write!(f, "{}", char::from(ALPHABET[((value & 0x3) << 4) as usize]))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    #[test]
    fn prints_as_url_safe_base64() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::from_u128(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
        assert_eq!(Uuid::from_u128(Uuid([7; 16]).as_u128()), Uuid([7; 16]));
    }
}
