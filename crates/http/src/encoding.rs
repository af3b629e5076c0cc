//! Bytes in JSON: text where they are UTF-8, base64 where they are not.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use crate::api_error::{ApiError, Code};

/// Reads base64 with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a JSON string stands for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    /// As it is.
    #[default]
    Utf8,
    /// RFC 4648, the standard alphabet.
    Base64,
}

impl Encoding {
    /// The bytes that `text` stands for in the field `field`.
    pub(crate) fn decode(self, field: &str, text: String) -> Result<Vec<u8>, ApiError> {
        match self {
            Encoding::Utf8 => Ok(text.into_bytes()),
            Encoding::Base64 => BASE64.decode(&text).map_err(|error| {
                ApiError::new(Code::InvalidEncoding, format!("{field} is not base64: {error}"))
                    .with_help("use the standard alphabet of RFC 4648 (with + and /)")
            }),
        }
    }
}

/// Bytes as a caller gets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) text: String,
    /// Said only where it is not UTF-8.
    pub(crate) encoding: Option<Encoding>,
}

impl Encoded {
    pub(crate) fn of(bytes: &[u8]) -> Encoded {
        match std::str::from_utf8(bytes) {
            Ok(text) => Encoded { text: text.to_owned(), encoding: None },
            Err(_) => Encoded { text: BASE64.encode(bytes), encoding: Some(Encoding::Base64) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_utf8_becomes_base64() {
        let text = Encoded::of("grüße".as_bytes());
        assert_eq!((text.text.as_str(), text.encoding), ("grüße", None));
        let bytes = Encoded::of(&[0xff, 0x00]);
        assert_eq!((bytes.text.as_str(), bytes.encoding), ("/wA=", Some(Encoding::Base64)));
    }

    #[test]
    fn base64_is_read_with_and_without_padding_and_nothing_else() {
        let read = |text: &str| Encoding::Base64.decode("value", text.to_owned());
        assert_eq!(read("/wA=").unwrap(), [0xff, 0x00]);
        assert_eq!(read("/wA").unwrap(), [0xff, 0x00]);
        assert_eq!(read("_wA").unwrap_err().code, Code::InvalidEncoding);
    }
}
