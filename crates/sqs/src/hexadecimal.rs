//! Bytes as hexadecimal texts: checksums, hashes, signatures and escapes.

/// Two lower-case digits per byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut text = Vec::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    String::from_utf8(text).expect("digits are ASCII")
}

/// The bytes of such a text, with digits in either case.
pub(crate) fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    text.as_bytes().chunks(2).map(byte_of).collect()
}

/// The byte of two digits.
pub(crate) fn byte_of(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match digits {
        [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_has_two_digits() {
        assert_eq!(hexadecimal(&[0, 255]), "00ff");
        assert_eq!(from_hexadecimal("00fF"), Some(vec![0, 255]));
        assert_eq!(from_hexadecimal("0"), None);
        assert_eq!(from_hexadecimal("0g"), None);
    }
}
