//! Who may use SQS, and under which address clients know it.

use std::collections::BTreeMap;
use std::fmt;

use towpath_sqs::sigv4::AccessKey;

/// How SQS is served.
#[derive(Debug, Clone, Default)]
pub struct SqsSettings {
    /// Whose requests are carried out.
    pub keys: AccessKeys,
    /// Without any key, everybody who reaches a listener on loopback is let in, whatever they sign with.
    pub lets_anybody_in_on_loopback: bool,
    /// `http://host:port`, where a proxy stands between the clients and this server; else the address
    /// that each client used.
    pub advertised: Option<String>,
}

/// Access keys by their id.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AccessKeys(BTreeMap<String, AccessKey>);

/// Says nothing of the secrets.
impl fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKeys").field("count", &self.0.len()).finish()
    }
}

/// A text that holds no access keys. Repeats nothing of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAccessKeys {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for InvalidAccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} {}", self.line, self.reason)
    }
}

/// The longest id of a key; AWS has them from 16 to 128 characters, emulators' users shorter ones.
const ID_BYTES_MAX: usize = 128;
/// The shortest secret.
const SECRET_BYTES_MIN: usize = 16;

impl AccessKeys {
    /// Reads a key per line: its id, and after spaces its secret. Empty lines and those that begin with
    /// `#` are passed over.
    ///
    /// # Errors
    /// The first line that is none of these.
    pub fn parse(text: &str) -> Result<AccessKeys, InvalidAccessKeys> {
        let mut keys = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let refuse = |reason| InvalidAccessKeys { line: at + 1, reason };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [id, secret] = words[..] else {
                return Err(refuse("is not an access key id and its secret"));
            };
            let is_id =
                id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
            if ID_BYTES_MAX < id.len() || !is_id {
                return Err(refuse(
                    "has an id of other characters than letters, digits, _ - and .",
                ));
            }
            if secret.len() < SECRET_BYTES_MIN {
                return Err(refuse("has a secret of less than 16 bytes"));
            }
            let key = AccessKey { secret: secret.to_owned(), session_token: None };
            if keys.insert(id.to_owned(), key).is_some() {
                return Err(refuse("names a key that an earlier line names"));
            }
        }
        Ok(AccessKeys(keys))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, id: &str) -> Option<AccessKey> {
        self.0.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_line_and_secrets_are_never_shown() {
        let keys = AccessKeys::parse(
            "# of the billing team\n\nBILLING  0123456789abcdef\r\n  OTHER\t0123456789abcdefg/+=\n",
        );
        let keys = keys.unwrap();
        assert_eq!(keys.get("BILLING").unwrap().secret, "0123456789abcdef");
        assert_eq!(keys.get("OTHER").unwrap().secret, "0123456789abcdefg/+=");
        assert!(keys.get("billing").is_none());
        let shown =
            format!("{keys:?} {:?}", SqsSettings { keys: keys.clone(), ..SqsSettings::default() });
        assert!(!shown.contains("0123") && shown.contains("count: 2"), "{shown}");
        assert!(AccessKeys::parse("").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_key_is_named_by_its_line_and_not_repeated() {
        for (text, line) in [
            ("A 0123456789abcdef\nB", 2),
            ("A short", 1),
            ("A 0123456789abcdef\nA 0123456789abcdeg", 2),
            ("A 0123456789abcdef x", 1),
            ("A/B 0123456789abcdef", 1),
        ] {
            let refused = AccessKeys::parse(text).unwrap_err();
            assert_eq!(refused.line, line, "{text}");
            assert!(!refused.to_string().contains("0123"));
        }
    }
}
