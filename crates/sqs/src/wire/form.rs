//! `application/x-www-form-urlencoded`, of bodies and of query strings.

use super::malformed;
use crate::error::Error;
use crate::hexadecimal::byte_of;

/// A batch of ten messages with ten attributes each has about 400; nothing has more.
const PAIRS_MAX: usize = 2_000;

/// Names and values in their order. What is no escape (`%zz`) stands for itself, as in browsers.
///
/// # Errors
/// MalformedInput: no UTF-8, or more pairs than any action has.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, Error> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let mut decoded = Vec::new();
    for pair in pairs {
        if decoded.len() == PAIRS_MAX {
            return Err(malformed(format!("The request has more than {PAIRS_MAX} parameters.")));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        decoded.push((text_of(name)?, text_of(value)?));
    }
    Ok(decoded)
}

fn text_of(escaped: &str) -> Result<String, Error> {
    let text = String::from_utf8(unescape(escaped));
    text.map_err(|_| malformed("The request has parameters that are no UTF-8."))
}

/// Undoes escapes, of any bytes.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        match digits.and_then(byte_of) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_what_is_none_stays() {
        let one = |text: &str| pairs(text).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(one("a=b+c%20d%2B&&e"), [pair("a", "b c d+"), pair("e", "")]);
        assert_eq!(one("a=%C3%A4=%zz%4"), [pair("a", "ä=%zz%4")]);
        assert!(pairs("a=%ff").is_err());
        assert!(pairs(&"a&".repeat(2000)).is_ok());
        assert!(pairs(&"a&".repeat(2001)).is_err());
    }
}
