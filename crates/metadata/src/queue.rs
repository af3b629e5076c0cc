//! Topics that are worked as queues: what their configuration may say.
//!
//! `queue.enable` goes one way. A queue's deliveries are the only record of who was given which message
//! and of what is done; there is no moment at which they could be dropped and leave a topic that its
//! consumers know.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use towpath_model::properties::elements;

use crate::configs::ConfigSource;
use crate::record::Overrides;
use crate::refusal::Refusal;
use crate::topic::Topic;

/// `queue.enable`.
const ENABLE: &str = "queue.enable";
/// `queue.only`.
const ONLY: &str = "queue.only";

/// `queue.dedup.partitions`.
const DEDUP_PARTITIONS: &str = "queue.dedup.partitions";

/// Why a topic cannot be worked as a queue, or not be one any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum QueueRefusal {
    /// It is one.
    #[error(
        "it stays true as long as the topic is there: who has received which message is kept beside the \
         records. To be rid of the queue, delete the topic; where AlterConfigs replaces all values, name \
         queue.enable=true among them"
    )]
    StaysOn,
    /// The broker's own.
    #[error("the topic is internal: the broker itself reads its records, and nobody receives them")]
    Internal,
    /// `cleanup.policy` has `compact`.
    #[error(
        "with cleanup.policy=compact a newer record removes an older one of its key, received or not, so \
         messages would be lost: set cleanup.policy=delete for the topic"
    )]
    Compacted,
    /// `durability` is `relaxed`.
    #[error(
        "with durability=relaxed a power cut can take messages away that were received already, and \
         others would get their offsets: set durability=synced for the topic"
    )]
    Relaxed,
}

impl Topic {
    /// Whether the topic is worked as a queue: each partition has a delivery log then.
    #[must_use]
    pub fn is_queue(&self) -> bool {
        is_queue(&self.overrides)
    }
}

fn is_queue(overrides: &Overrides) -> bool {
    overrides.get(ENABLE).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// Whether a value of this property counts for queues. What would break a queue is refused where it is
/// set for the topic; what brokers are told for all topics cannot be, and does not count.
pub(crate) fn counts_for_queues(property: &str, source: ConfigSource) -> bool {
    let breaks_queues = ["cleanup.policy", "durability"];
    matches!(source, ConfigSource::Topic | ConfigSource::Default)
        || !breaks_queues.contains(&property)
}

/// A topic that is created as a queue is nothing else, if nobody says so; one that has become a queue had readers
/// before.
pub(crate) fn complete_new(overrides: &mut Overrides) {
    if is_queue(overrides) {
        overrides.entry(ONLY.to_owned()).or_insert_with(|| "true".to_owned());
    }
}

/// What is set for a standard queue that gets more partitions than `current`: messages with ids go on to those that it
/// has, or a repeat of one would miss it. That counts also where more are set than there are: they were among all those.
/// `None`: nothing.
pub(crate) fn keep_ids(topic: &Topic, is_fifo: bool, current: usize) -> Option<Overrides> {
    let said = topic.overrides.get(DEDUP_PARTITIONS).and_then(|value| value.trim().parse().ok());
    let is_kept = said.is_some_and(|said: usize| said != 0 && said <= current);
    (topic.is_queue() && !is_fifo && !is_kept).then(|| {
        let mut overrides = topic.overrides.clone();
        overrides.insert(DEDUP_PARTITIONS.to_owned(), current.to_string());
        overrides
    })
}

/// Refuses values that a new topic cannot have together.
pub(crate) fn check_new(is_internal: bool, overrides: &Overrides) -> Result<(), Refusal> {
    check(is_internal, overrides).map_err(Refusal::Queue)
}

/// Refuses values that a topic cannot get together, or not any more. `is_compacted`: by what is in force
/// for it now, wherever that is set; it is not made another topic without a word.
pub(crate) fn check_change(
    topic: &Topic,
    is_compacted: bool,
    after: &Overrides,
) -> Result<(), Refusal> {
    let changes = || {
        if topic.is_queue() && !is_queue(after) {
            return Err(QueueRefusal::StaysOn);
        }
        let is_new = is_queue(after) && !topic.is_queue();
        if is_new && is_compacted && !after.contains_key("cleanup.policy") {
            return Err(QueueRefusal::Compacted);
        }
        check(topic.internal, after)
    };
    changes().map_err(Refusal::Queue)
}

fn check(is_internal: bool, overrides: &Overrides) -> Result<(), QueueRefusal> {
    let value = |name: &str| overrides.get(name).map_or("", |value| value.trim());
    if !is_queue(overrides) {
        return Ok(());
    }
    if is_internal {
        return Err(QueueRefusal::Internal);
    }
    if elements(value("cleanup.policy")).any(|policy| policy == "compact") {
        return Err(QueueRefusal::Compacted);
    }
    if value("durability") == "relaxed" {
        return Err(QueueRefusal::Relaxed);
    }
    Ok(())
}
