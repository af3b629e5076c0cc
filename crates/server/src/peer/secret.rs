//! What the brokers of one cluster know and strangers do not.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Fewer bytes could be guessed from one recorded handshake.
const BYTES_MIN: usize = 16;
const BYTES_MAX: usize = 1024;

/// Bytes of a proof.
pub(crate) const TAG_BYTES: usize = 32;

/// The secret that all brokers of a cluster share. Never sent, never printed.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

/// Why a text is no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret of {bytes} bytes; it must have {BYTES_MIN} to {BYTES_MAX}, such as what \
     `openssl rand -base64 32` prints"
)]
pub struct InvalidSecret {
    bytes: usize,
}

impl Secret {
    /// Takes what stands in a file or a variable; white space around it does not count.
    ///
    /// # Errors
    /// [`InvalidSecret`]: too short to be one, or too long.
    pub fn new(text: &[u8]) -> Result<Secret, InvalidSecret> {
        let text = text.trim_ascii();
        if !(BYTES_MIN..=BYTES_MAX).contains(&text.len()) {
            return Err(InvalidSecret { bytes: text.len() });
        }
        Ok(Secret(text.into()))
    }

    /// What proves, to somebody who knows the secret too, that it is known here (HMAC, RFC 2104, with
    /// SHA-256). Each part counts with its length.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is that of these parts. Takes the same time wherever they differ.
    pub(crate) fn is_tag(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.mac(parts).verify_slice(tag).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0);
        let mut mac = mac.expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

/// Takes the same time wherever two secrets differ.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.is_tag(&[], &other.tag(&[]))
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_white_space_around_them_does_not_count() {
        assert!(Secret::new(b"short").is_err());
        assert!(Secret::new(&[b' '; 40]).is_err());
        assert!(Secret::new(&[b'x'; 1025]).is_err());
        let (one, two) = (Secret::new(b"0123456789abcdef"), Secret::new(b" 0123456789abcdef\n"));
        assert_eq!(one.unwrap().tag(&[b"a"]), two.unwrap().tag(&[b"a"]));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        assert!(!format!("{secret:?}").contains("0123"));
    }

    #[test]
    fn tags_differ_by_secret_and_by_where_a_part_ends() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let tag = secret.tag(&[b"ab", b"c"]);
        assert!(secret.is_tag(&[b"ab", b"c"], &tag));
        assert!(!secret.is_tag(&[b"a", b"bc"], &tag));
        assert!(!secret.is_tag(&[b"ab", b"c"], &tag[..31]));
        assert!(!Secret::new(b"0123456789abcdeF").unwrap().is_tag(&[b"ab", b"c"], &tag));
    }
}
