//! A queue's tags: TagQueue, UntagQueue. ListQueueTags says no more than which queue.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::limits::{TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX};
use crate::queue_name::{QueueName, QueueReference};
use crate::refusals;
use crate::wire::{Fields, KEY_VALUE};

/// Adds tags to a queue, or gives them other values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagQueue {
    /// The queue.
    pub queue: QueueReference,
    /// Values by key.
    pub tags: BTreeMap<String, String>,
}

impl TagQueue {
    pub(super) fn read(fields: &mut Fields) -> Result<TagQueue, Error> {
        let queue = fields.queue()?;
        let tags = fields.map("Tags", "Tag", &KEY_VALUE)?;
        if tags.is_empty() {
            return Err(Error::missing("Tags"));
        }
        check(&tags)?;
        check_count(&queue.name, tags.len())?;
        Ok(TagQueue { queue, tags })
    }

    /// The queue's tags with these.
    ///
    /// # Errors
    /// InvalidParameterValue: they would be more than 50.
    pub fn added_to(
        &self,
        tags: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Error> {
        let mut all = tags.clone();
        all.extend(self.tags.clone());
        check_count(&self.queue.name, all.len())?;
        Ok(all)
    }
}

/// Takes tags from a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntagQueue {
    /// The queue.
    pub queue: QueueReference,
    /// The keys of the tags; those that the queue lacks are passed over.
    pub keys: Vec<String>,
}

impl UntagQueue {
    pub(super) fn read(fields: &mut Fields) -> Result<UntagQueue, Error> {
        let queue = fields.queue()?;
        let keys = fields.texts("TagKeys", "TagKey")?;
        if keys.is_empty() {
            return Err(Error::missing("TagKeys"));
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        Ok(UntagQueue { queue, keys })
    }
}

pub(super) fn check(tags: &BTreeMap<String, String>) -> Result<(), Error> {
    for (key, value) in tags {
        check_key(key)?;
        if TAG_VALUE_CHARS_MAX < value.chars().count() {
            return Err(Error::invalid_parameter(
                "Tag values must be between 0 and 256 characters in length.",
            ));
        }
    }
    Ok(())
}

pub(super) fn check_count(queue: &QueueName, count: usize) -> Result<(), Error> {
    if TAGS_MAX < count { Err(refusals::too_many_tags(queue)) } else { Ok(()) }
}

fn check_key(key: &str) -> Result<(), Error> {
    if !(1..=TAG_KEY_CHARS_MAX).contains(&key.chars().count()) {
        return Err(Error::invalid_parameter(
            "Tag keys must be between 1 and 128 characters in length.",
        ));
    }
    if key.to_lowercase().starts_with("aws:") {
        return Err(Error::invalid_parameter("Tag keys cannot start with 'aws:'."));
    }
    Ok(())
}
