//! Attributes of SQS as properties of a topic.
//!
//! ```text
//! VisibilityTimeout, DelaySeconds, MessageRetentionPeriod, RedrivePolicy, FifoQueue, DeduplicationScope
//!        ⇄ queue.visibility.timeout.ms, queue.delay.ms, …: the same for everybody who uses the queue
//! all others that clients set, and when they did  ⇄ queue.sqs.attributes: a JSON object of texts
//! ```
//!
//! A property counts more than what a client of SQS once said: RedrivePolicy is kept as it was sent, and
//! shown so only as long as the properties say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_model::properties::QueueConfig;
use towpath_sqs::{
    DeduplicationScope, QueueArn, QueueAttribute, QueueAttributeChanges, QueueAttributes,
    QueueFacts, QueueName, RedrivePolicy,
};

/// What clients of SQS have set and no other property says.
pub(super) const ATTRIBUTES: &str = "queue.sqs.attributes";
/// Tags, by key.
pub(super) const TAGS: &str = "queue.tags";
pub(super) const FIFO: &str = "queue.fifo";

/// The account that all queues belong to.
pub(super) const ACCOUNT: &str = "000000000000";
/// Where clients believe queues that do not say a region.
pub(super) const REGION: &str = "us-east-1";

/// Of a topic that keeps messages without end: the longest that SQS has.
const RETENTION_SHOWN_MAX: Duration = Duration::from_secs(1_209_600);
/// Records are kept for longer than their messages are worth something.
const RETENTION_BEYOND: Duration = Duration::from_secs(24 * 60 * 60);
/// A batch of the largest messages, with what is said of them when they are moved as dead letters.
const RECORD_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What is kept in [`ATTRIBUTES`].
const KEPT: [QueueAttribute; 12] = [
    QueueAttribute::ContentBasedDeduplication,
    QueueAttribute::CreatedTimestamp,
    QueueAttribute::FifoThroughputLimit,
    QueueAttribute::KmsDataKeyReusePeriodSeconds,
    QueueAttribute::KmsMasterKeyId,
    QueueAttribute::LastModifiedTimestamp,
    QueueAttribute::MaximumMessageSize,
    QueueAttribute::Policy,
    QueueAttribute::ReceiveMessageWaitTimeSeconds,
    QueueAttribute::RedriveAllowPolicy,
    QueueAttribute::RedrivePolicy,
    QueueAttribute::SqsManagedSseEnabled,
];

/// A queue's attributes, and when they were set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(super) attributes: QueueAttributes,
    /// In seconds since 1970; 0 where nobody has written it down.
    pub(super) created_at: u64,
    pub(super) last_modified_at: u64,
}

/// Properties of a topic, by name.
pub(super) type Properties = BTreeMap<&'static str, String>;

/// Reads what [`ATTRIBUTES`] and the other properties say. Whatever cannot be read is as if nobody had said
/// it: the property can be set to anything with Kafka's tools.
pub(super) fn read(text: &str, config: &QueueConfig) -> Kept {
    let mut said = texts(text);
    let mut time = |attribute: QueueAttribute| {
        said.remove(attribute.name()).and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    let created_at = time(QueueAttribute::CreatedTimestamp);
    let last_modified_at = time(QueueAttribute::LastModifiedTimestamp);
    let mut attributes = QueueAttributes::defaults(config.fifo);
    if let Some(fifo) = &mut attributes.fifo
        && config.dedup_by_group
    {
        fifo.deduplication_scope = DeduplicationScope::MessageGroup;
    }
    for (name, value) in said {
        let change = QueueAttributeChanges::new(BTreeMap::from([(name, value)]), config.fifo);
        if let Ok(changed) = change.and_then(|change| attributes.with(&change)) {
            attributes = changed;
        }
    }
    attributes.delay = config.delay;
    attributes.visibility_timeout = config.visibility_timeout;
    attributes.retention = config.message_retention.unwrap_or(RETENTION_SHOWN_MAX);
    attributes.redrive_policy = redrive_policy(attributes.redrive_policy.take(), config);
    Kept { attributes, created_at, last_modified_at }
}

/// The policy that the properties say, in the words in which it was sent if it was this one.
fn redrive_policy(said: Option<RedrivePolicy>, config: &QueueConfig) -> Option<RedrivePolicy> {
    let queue = QueueName::new(config.dead_letter_queue.as_ref()?.as_str())?;
    let receives = config.dead_letter_receives?;
    let is_same =
        |said: &RedrivePolicy| said.target().name == queue && said.receive_count_max() == receives;
    said.filter(is_same).or_else(|| {
        let target = arn(REGION, queue);
        let policy = serde_json::json!({
            "deadLetterTargetArn": target.to_string(),
            "maxReceiveCount": receives,
        });
        RedrivePolicy::parse(&policy.to_string()).ok()
    })
}

/// The name of a queue across accounts, for who believes itself in a region.
pub(super) fn arn(region: &str, name: QueueName) -> QueueArn {
    QueueArn {
        partition: "aws".to_owned(),
        region: region.to_owned(),
        account: ACCOUNT.to_owned(),
        name,
    }
}

/// The properties that say these attributes.
pub(super) fn properties(kept: &Kept) -> Properties {
    let attributes = &kept.attributes;
    let ms = |duration: Duration| duration.as_millis().to_string();
    let mut properties = Properties::from([
        ("queue.delay.ms", ms(attributes.delay)),
        ("queue.visibility.timeout.ms", ms(attributes.visibility_timeout)),
        ("queue.message.retention.ms", ms(attributes.retention)),
        ("retention.ms", ms(attributes.retention.saturating_add(RETENTION_BEYOND))),
        ("max.message.bytes", RECORD_BYTES_MAX.to_string()),
        (ATTRIBUTES, kept_text(kept)),
    ]);
    if let Some(policy) = &attributes.redrive_policy {
        properties.insert("queue.dead.letter.queue", policy.target().name.to_string());
        properties.insert("queue.dead.letter.receives", policy.receive_count_max().to_string());
    }
    if let Some(fifo) = &attributes.fifo {
        properties.insert(FIFO, true.to_string());
        let is_by_group = fifo.deduplication_scope == DeduplicationScope::MessageGroup;
        let scope = if is_by_group { "group" } else { "queue" };
        properties.insert("queue.dedup.scope", scope.to_owned());
    }
    properties
}

/// What has to be set, or brought back to its default, to come from one to the other. What is the same in
/// both is left as somebody else may have set it.
pub(super) fn changes(from: &Kept, to: &Kept) -> BTreeMap<String, Option<String>> {
    let (from, to) = (properties(from), properties(to));
    let gone = from.keys().filter(|name| !to.contains_key(*name));
    let gone = gone.map(|name| ((*name).to_owned(), None));
    let set = to.iter().filter(|(name, value)| from.get(*name) != Some(value));
    gone.chain(set.map(|(name, value)| ((*name).to_owned(), Some(value.clone())))).collect()
}

/// What [`ATTRIBUTES`] is set to: only what is other than usual.
fn kept_text(kept: &Kept) -> String {
    let shown = |attributes: &QueueAttributes, created_at, last_modified_at| {
        let name = QueueName::new("any").expect("it is a name");
        let facts = QueueFacts {
            arn: arn(REGION, name),
            created_at,
            last_modified_at,
            messages: 0,
            messages_not_visible: 0,
            messages_delayed: 0,
        };
        attributes.shown(&facts, &BTreeSet::from(KEPT))
    };
    let usual = shown(&QueueAttributes::defaults(kept.attributes.fifo.is_some()), 0, 0);
    let mut shown = shown(&kept.attributes, kept.created_at, kept.last_modified_at);
    shown.retain(|name, value| usual.get(name) != Some(value));
    // It is not shown without a key, and kept for when there is one.
    let reuse = kept.attributes.kms_data_key_reuse;
    if reuse != QueueAttributes::defaults(false).kms_data_key_reuse {
        let name = QueueAttribute::KmsDataKeyReusePeriodSeconds.name();
        shown.insert(name, reuse.as_secs().to_string());
    }
    serde_json::to_string(&shown).expect("texts are JSON")
}

/// A JSON object of texts; anything else says nothing.
pub(super) fn texts(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use towpath_model::properties::TopicConfig;

    use super::*;

    fn config(properties: &Properties) -> QueueConfig {
        let value = |property: &towpath_model::properties::Property| {
            properties.get(property.name).map(|value| value.as_str().into())
        };
        TopicConfig::resolve(value).queue
    }

    fn kept(pairs: &[(&str, &str)], is_fifo: bool) -> Kept {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let changes = QueueAttributeChanges::new(pairs.collect(), is_fifo).unwrap();
        let attributes = QueueAttributes::defaults(is_fifo).with(&changes).unwrap();
        Kept { attributes, created_at: 5, last_modified_at: 7 }
    }

    const REDRIVE: &str =
        r#"{ "maxReceiveCount": "3", "deadLetterTargetArn": "arn:aws:sqs:x:1:dead" }"#;

    #[test]
    fn what_was_set_comes_back_from_the_properties() {
        let standard = kept(
            &[
                ("VisibilityTimeout", "7"),
                ("DelaySeconds", "3"),
                ("MessageRetentionPeriod", "60"),
                ("RedrivePolicy", REDRIVE),
                ("RedriveAllowPolicy", r#"{"redrivePermission":"denyAll"}"#),
                ("MaximumMessageSize", "2048"),
                ("ReceiveMessageWaitTimeSeconds", "20"),
                ("Policy", "{}"),
                ("KmsMasterKeyId", "k"),
                ("KmsDataKeyReusePeriodSeconds", "60"),
            ],
            false,
        );
        let fifo = kept(
            &[
                ("FifoQueue", "true"),
                ("ContentBasedDeduplication", "true"),
                ("DeduplicationScope", "messageGroup"),
                ("FifoThroughputLimit", "perMessageGroupId"),
            ],
            true,
        );
        for kept in [standard, fifo, kept(&[], false)] {
            let properties = properties(&kept);
            for (name, value) in &properties {
                let property = towpath_model::properties::topic(name).unwrap();
                property.check(value).unwrap_or_else(|refused| panic!("{refused}"));
            }
            let again = read(&properties[ATTRIBUTES], &config(&properties));
            assert_eq!(again, kept);
            let policy = |kept: &Kept| {
                kept.attributes.redrive_policy.as_ref().map(|policy| policy.as_str().to_owned())
            };
            assert_eq!(policy(&again), policy(&kept));
        }
    }

    #[test]
    fn a_property_counts_more_than_what_was_sent() {
        let mut properties = properties(&kept(&[("RedrivePolicy", REDRIVE)], false));
        properties.insert("queue.dead.letter.receives", "9".to_owned());
        let changed = read(&properties[ATTRIBUTES], &config(&properties));
        let policy = changed.attributes.redrive_policy.unwrap();
        assert_eq!(
            policy.as_str(),
            r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":9}"#
        );
        properties.remove("queue.dead.letter.queue");
        assert!(read("", &config(&properties)).attributes.redrive_policy.is_none());
    }

    #[test]
    fn only_what_differs_is_changed() {
        let before = kept(&[("RedrivePolicy", REDRIVE), ("VisibilityTimeout", "7")], false);
        let mut after = before.clone();
        after.attributes.redrive_policy = None;
        after.attributes.delay = Duration::from_secs(1);
        let changes = changes(&before, &after);
        let names: Vec<&str> = changes.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "queue.dead.letter.queue",
                "queue.dead.letter.receives",
                "queue.delay.ms",
                "queue.sqs.attributes"
            ]
        );
        assert_eq!(changes["queue.dead.letter.queue"], None);
    }

    #[test]
    fn nonsense_in_the_property_is_as_if_nobody_had_said_it() {
        let config = config(&Properties::new());
        for text in
            ["", "x", "[]", r#"{"MaximumMessageSize":"x","Nonsense":"1","FifoQueue":"true"}"#]
        {
            let read = read(text, &config);
            assert_eq!(read.attributes, QueueAttributes::defaults(false), "{text}");
        }
    }
}
