//! What can be set for a queue: the properties of its topic that begin with `queue.`, by shorter names.
//!
//! `queue.visibility.timeout.ms` is `visibility_timeout_ms` here, and so on. Whether a queue is one is none of
//! them, and everything else of its topic is configured as for any topic.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use towpath_metadata::Topic;
use towpath_model::properties::{Property, topics};

use crate::api_error::{ApiError, Code};

/// `queue.enable`.
pub(super) const ENABLE: &str = "queue.enable";
const PREFIX: &str = "queue.";

fn all() -> impl Iterator<Item = &'static Property> {
    topics().iter().filter(|property| property.name.starts_with(PREFIX) && property.name != ENABLE)
}

fn setting_of(property: &Property) -> String {
    property.name.trim_start_matches(PREFIX).replace('.', "_")
}

/// The property behind a setting.
pub(super) fn property_of(setting: &str) -> Result<&'static str, ApiError> {
    let found = all().find(|property| setting_of(property) == setting);
    found.map(|property| property.name).ok_or_else(|| {
        let names: Vec<String> = all().map(setting_of).collect();
        ApiError::new(Code::InvalidConfig, format!("a queue has no setting {setting:?}"))
            .with_help(format!("settings are {}", names.join(", ")))
    })
}

/// A queue as it is configured.
#[derive(Debug, Serialize)]
pub(crate) struct ShownQueue {
    name: String,
    partitions: usize,
    settings: BTreeMap<String, Value>,
    /// What else is configured for its topic.
    configs: BTreeMap<String, String>,
}

impl ShownQueue {
    pub(super) fn of(topic: &Topic) -> ShownQueue {
        let setting = |property: &'static Property| {
            let text = topic.overrides.get(property.name).map(String::as_str).or(property.default);
            (setting_of(property), typed(text.unwrap_or_default()))
        };
        let others = topic.overrides.iter().filter(|(name, _)| !name.starts_with(PREFIX));
        ShownQueue {
            name: topic.name.as_str().to_owned(),
            partitions: topic.partitions.len(),
            settings: all().map(setting).collect(),
            configs: others.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

/// A value as JSON has it.
fn typed(text: &str) -> Value {
    match (text, text.parse::<i64>()) {
        (_, Ok(number)) => number.into(),
        ("true" | "false", _) => (text == "true").into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_of_queues_is_a_setting_but_that_it_is_one() {
        assert_eq!(property_of("visibility_timeout_ms").unwrap(), "queue.visibility.timeout.ms");
        assert_eq!(property_of("fifo").unwrap(), "queue.fifo");
        let refused = property_of("enable").unwrap_err();
        assert_eq!(refused.code, Code::InvalidConfig);
        assert!(refused.help.unwrap().contains("dead_letter_queue"));
    }

    #[test]
    fn values_have_types() {
        assert_eq!(typed("5"), Value::from(5));
        assert_eq!(typed("true"), Value::from(true));
        assert_eq!(typed(""), Value::from(""));
    }
}
