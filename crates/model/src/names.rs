//! Names that people choose, checked once.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A topic's name: 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..` (Kafka's rule).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicName(Arc<str>);

/// The longest topic name, in bytes.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Why a text is not a topic name. The texts are the ones that Kafka's users know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum InvalidName {
    /// The empty text.
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    /// `.` or `..`, which would leave a directory.
    #[error("Topic name is invalid: '{0}' is not allowed")]
    Dots(String),
    /// More than [`TOPIC_NAME_BYTES_MAX`].
    #[error("Topic name is invalid: the length of '{0}' is longer than the max allowed length 249")]
    TooLong(String),
    /// A character outside the alphabet.
    #[error(
        "Topic name is invalid: '{0}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    )]
    Character(String),
}

impl TopicName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<TopicName, InvalidName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match name {
            "" => Err(InvalidName::Empty),
            "." | ".." => Err(InvalidName::Dots(name.to_owned())),
            _ if name.len() > TOPIC_NAME_BYTES_MAX => Err(InvalidName::TooLong(name.to_owned())),
            _ if !name.chars().all(allowed) => Err(InvalidName::Character(name.to_owned())),
            _ => Ok(TopicName(name.into())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether two names would share metric names: Kafka refuses `a.b` beside `a_b`.
    #[must_use]
    pub fn collides_with(&self, other: &TopicName) -> bool {
        self.0.replace('.', "_") == other.0.replace('.', "_")
    }
}

impl TryFrom<String> for TopicName {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<TopicName, InvalidName> {
        TopicName::new(&name)
    }
}

impl From<TopicName> for String {
    fn from(name: TopicName) -> String {
        name.as_str().to_owned()
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Topics that the broker keeps for itself: two underscores in front, Kafka's own names included.
#[must_use]
pub fn is_internal_topic(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
        || name.starts_with("__towpath_")
}

/// The cluster's id, as text of at most 249 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterId(pub Arc<str>);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rule() {
        assert!(TopicName::new("orders.v1_x-2").is_ok());
        assert_eq!(TopicName::new(""), Err(InvalidName::Empty));
        assert_eq!(TopicName::new(".."), Err(InvalidName::Dots("..".to_owned())));
        assert!(matches!(TopicName::new("a/b"), Err(InvalidName::Character(_))));
        assert!(matches!(TopicName::new(&"x".repeat(250)), Err(InvalidName::TooLong(_))));
        assert!(TopicName::new("a.b").unwrap().collides_with(&TopicName::new("a_b").unwrap()));
    }
}
