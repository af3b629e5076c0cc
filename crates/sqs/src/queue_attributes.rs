//! A queue's attributes: their defaults, what may be set, and how GetQueueAttributes shows them. All
//! travel as texts.
//!
//! Where they are kept is the caller's business. Encryption at rest is none of this server's: what
//! clients set of it is kept and shown, and nothing is on that they have not set.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::arn::QueueArn;
use crate::error::{Error, ErrorKind};
use crate::limits;
use crate::redrive::{RedriveAllowPolicy, RedrivePolicy};

/// The name of a queue's attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "AWS's names")]
pub enum QueueAttribute {
    ApproximateNumberOfMessages,
    ApproximateNumberOfMessagesDelayed,
    ApproximateNumberOfMessagesNotVisible,
    ContentBasedDeduplication,
    CreatedTimestamp,
    DeduplicationScope,
    DelaySeconds,
    FifoQueue,
    FifoThroughputLimit,
    KmsDataKeyReusePeriodSeconds,
    KmsMasterKeyId,
    LastModifiedTimestamp,
    MaximumMessageSize,
    MessageRetentionPeriod,
    Policy,
    QueueArn,
    ReceiveMessageWaitTimeSeconds,
    RedriveAllowPolicy,
    RedrivePolicy,
    SqsManagedSseEnabled,
    VisibilityTimeout,
}

impl QueueAttribute {
    /// All of them.
    pub const ALL: [QueueAttribute; 21] = [
        QueueAttribute::ApproximateNumberOfMessages,
        QueueAttribute::ApproximateNumberOfMessagesDelayed,
        QueueAttribute::ApproximateNumberOfMessagesNotVisible,
        QueueAttribute::ContentBasedDeduplication,
        QueueAttribute::CreatedTimestamp,
        QueueAttribute::DeduplicationScope,
        QueueAttribute::DelaySeconds,
        QueueAttribute::FifoQueue,
        QueueAttribute::FifoThroughputLimit,
        QueueAttribute::KmsDataKeyReusePeriodSeconds,
        QueueAttribute::KmsMasterKeyId,
        QueueAttribute::LastModifiedTimestamp,
        QueueAttribute::MaximumMessageSize,
        QueueAttribute::MessageRetentionPeriod,
        QueueAttribute::Policy,
        QueueAttribute::QueueArn,
        QueueAttribute::ReceiveMessageWaitTimeSeconds,
        QueueAttribute::RedriveAllowPolicy,
        QueueAttribute::RedrivePolicy,
        QueueAttribute::SqsManagedSseEnabled,
        QueueAttribute::VisibilityTimeout,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            QueueAttribute::ApproximateNumberOfMessages => "ApproximateNumberOfMessages",
            QueueAttribute::ApproximateNumberOfMessagesDelayed => {
                "ApproximateNumberOfMessagesDelayed"
            }
            QueueAttribute::ApproximateNumberOfMessagesNotVisible => {
                "ApproximateNumberOfMessagesNotVisible"
            }
            QueueAttribute::ContentBasedDeduplication => "ContentBasedDeduplication",
            QueueAttribute::CreatedTimestamp => "CreatedTimestamp",
            QueueAttribute::DeduplicationScope => "DeduplicationScope",
            QueueAttribute::DelaySeconds => "DelaySeconds",
            QueueAttribute::FifoQueue => "FifoQueue",
            QueueAttribute::FifoThroughputLimit => "FifoThroughputLimit",
            QueueAttribute::KmsDataKeyReusePeriodSeconds => "KmsDataKeyReusePeriodSeconds",
            QueueAttribute::KmsMasterKeyId => "KmsMasterKeyId",
            QueueAttribute::LastModifiedTimestamp => "LastModifiedTimestamp",
            QueueAttribute::MaximumMessageSize => "MaximumMessageSize",
            QueueAttribute::MessageRetentionPeriod => "MessageRetentionPeriod",
            QueueAttribute::Policy => "Policy",
            QueueAttribute::QueueArn => "QueueArn",
            QueueAttribute::ReceiveMessageWaitTimeSeconds => "ReceiveMessageWaitTimeSeconds",
            QueueAttribute::RedriveAllowPolicy => "RedriveAllowPolicy",
            QueueAttribute::RedrivePolicy => "RedrivePolicy",
            QueueAttribute::SqsManagedSseEnabled => "SqsManagedSseEnabled",
            QueueAttribute::VisibilityTimeout => "VisibilityTimeout",
        }
    }

    /// The attribute of this name.
    pub fn by_name(name: &str) -> Option<QueueAttribute> {
        QueueAttribute::ALL.into_iter().find(|attribute| attribute.name() == name)
    }

    /// Those that AttributeNames of GetQueueAttributes asks for; `All` is all.
    pub(crate) fn asked_for(names: &[String]) -> Result<BTreeSet<QueueAttribute>, Error> {
        let mut asked = BTreeSet::new();
        for name in names {
            if name == "All" {
                asked.extend(QueueAttribute::ALL);
            } else {
                asked.insert(QueueAttribute::by_name(name).ok_or_else(|| unknown(name))?);
            }
        }
        Ok(asked)
    }
}

/// What a queue does with its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueAttributes {
    /// How long a message is hidden after it was sent; up to 15 minutes.
    pub delay: Duration,
    /// The largest message, in bytes, attributes included.
    pub maximum_message_bytes: u32,
    /// After which time a message is gone.
    pub retention: Duration,
    /// How long a receive waits that does not say so; up to 20 seconds.
    pub receive_wait: Duration,
    /// How long a message is hidden after it was received; up to 12 hours.
    pub visibility_timeout: Duration,
    /// The access policy, a JSON text.
    pub policy: Option<String>,
    /// Where dead letters go.
    pub redrive_policy: Option<RedrivePolicy>,
    /// Whose dead letters come here.
    pub redrive_allow_policy: Option<RedriveAllowPolicy>,
    /// What a FIFO queue has beside; nothing for a standard queue.
    pub fifo: Option<Fifo>,
    /// What clients have said of encryption by KMS: the key.
    pub kms_master_key_id: Option<String>,
    /// What clients have said of encryption by KMS: how long a data key is used.
    pub kms_data_key_reuse: Duration,
    /// What clients have said of encryption by SQS.
    pub sqs_managed_sse: bool,
}

/// What only FIFO queues have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fifo {
    /// Messages without a deduplication id have the SHA-256 of their body as theirs.
    pub content_based_deduplication: bool,
    /// Among which messages a deduplication id is unique.
    pub deduplication_scope: DeduplicationScope,
    /// What AWS's limit of throughput counts.
    pub throughput_limit: FifoThroughputLimit,
}

/// Among which messages a deduplication id is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeduplicationScope {
    /// Those of the queue.
    Queue,
    /// Those of its message group.
    MessageGroup,
}

/// What AWS's limit of throughput counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FifoThroughputLimit {
    /// Calls to the queue.
    PerQueue,
    /// Calls for a message group; only with [`DeduplicationScope::MessageGroup`].
    PerMessageGroupId,
}

/// What only the queue itself knows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueFacts {
    /// Its name across accounts.
    pub arn: QueueArn,
    /// In seconds since 1970.
    pub created_at: u64,
    /// When its attributes were last set, in seconds since 1970.
    pub last_modified_at: u64,
    /// Messages that can be received.
    pub messages: u64,
    /// Messages in flight.
    pub messages_not_visible: u64,
    /// Messages that were sent with a delay which is not over.
    pub messages_delayed: u64,
}

impl QueueAttributes {
    /// AWS's defaults.
    pub fn defaults(is_fifo: bool) -> QueueAttributes {
        QueueAttributes {
            delay: Duration::ZERO,
            maximum_message_bytes: limits::MESSAGE_BYTES_MAX as u32,
            retention: Duration::from_secs(345_600),
            receive_wait: Duration::ZERO,
            visibility_timeout: Duration::from_secs(30),
            policy: None,
            redrive_policy: None,
            redrive_allow_policy: None,
            fifo: is_fifo.then_some(Fifo {
                content_based_deduplication: false,
                deduplication_scope: DeduplicationScope::Queue,
                throughput_limit: FifoThroughputLimit::PerQueue,
            }),
            kms_master_key_id: None,
            kms_data_key_reuse: Duration::from_secs(300),
            sqs_managed_sse: false,
        }
    }

    /// These attributes with changes.
    ///
    /// # Errors
    /// InvalidAttributeName or InvalidAttributeValue: the result would contradict itself.
    pub fn with(&self, changes: &QueueAttributeChanges) -> Result<QueueAttributes, Error> {
        let mut changed = self.clone();
        for setting in changes.0.values() {
            changed.set(setting);
        }
        if changed.kms_master_key_id.is_some() && changed.sqs_managed_sse {
            let is_asked_for = changes.0.contains_key(&QueueAttribute::SqsManagedSseEnabled);
            if is_asked_for {
                return Err(Error::new(
                    ErrorKind::InvalidAttributeName,
                    "You can use one type of server-side encryption (SSE) at one time. You can \
                     either enable KMS SSE or SQS SSE.",
                ));
            }
            changed.sqs_managed_sse = false;
        }
        let contradicts_itself = changed.fifo.is_some_and(|fifo| {
            fifo.throughput_limit == FifoThroughputLimit::PerMessageGroupId
                && fifo.deduplication_scope == DeduplicationScope::Queue
        });
        if contradicts_itself {
            return Err(Error::new(
                ErrorKind::InvalidAttributeValue,
                "Invalid value for the parameter FifoThroughputLimit. Reason: The \
                 perMessageGroupId value is allowed only when the value for DeduplicationScope is \
                 messageGroup.",
            ));
        }
        Ok(changed)
    }

    /// The first attribute for which a CreateQueue asks another value than this queue has. Where
    /// there is none, the queue is the one that was asked for: attributes that the request does not
    /// name do not count.
    pub fn differs_from(&self, asked: &QueueAttributeChanges) -> Option<QueueAttribute> {
        let differs = |setting: &Setting| {
            let mut changed = self.clone();
            changed.set(setting);
            changed != *self
        };
        let differing = asked.0.iter().find(|(_, setting)| differs(setting));
        differing.map(|(attribute, _)| *attribute)
    }

    /// What GetQueueAttributes answers. Attributes that the queue does not have are left out.
    pub fn shown(
        &self,
        facts: &QueueFacts,
        asked: &BTreeSet<QueueAttribute>,
    ) -> BTreeMap<&'static str, String> {
        let shown = asked.iter().filter_map(|attribute| {
            self.value(*attribute, facts).map(|value| (attribute.name(), value))
        });
        shown.collect()
    }

    fn value(&self, attribute: QueueAttribute, facts: &QueueFacts) -> Option<String> {
        let seconds = |duration: Duration| Some(duration.as_secs().to_string());
        match attribute {
            QueueAttribute::ApproximateNumberOfMessages => Some(facts.messages.to_string()),
            QueueAttribute::ApproximateNumberOfMessagesDelayed => {
                Some(facts.messages_delayed.to_string())
            }
            QueueAttribute::ApproximateNumberOfMessagesNotVisible => {
                Some(facts.messages_not_visible.to_string())
            }
            QueueAttribute::CreatedTimestamp => Some(facts.created_at.to_string()),
            QueueAttribute::LastModifiedTimestamp => Some(facts.last_modified_at.to_string()),
            QueueAttribute::QueueArn => Some(facts.arn.to_string()),
            QueueAttribute::DelaySeconds => seconds(self.delay),
            QueueAttribute::MaximumMessageSize => Some(self.maximum_message_bytes.to_string()),
            QueueAttribute::MessageRetentionPeriod => seconds(self.retention),
            QueueAttribute::ReceiveMessageWaitTimeSeconds => seconds(self.receive_wait),
            QueueAttribute::VisibilityTimeout => seconds(self.visibility_timeout),
            QueueAttribute::Policy => self.policy.clone(),
            QueueAttribute::RedrivePolicy => {
                self.redrive_policy.as_ref().map(|policy| policy.as_str().to_owned())
            }
            QueueAttribute::RedriveAllowPolicy => {
                self.redrive_allow_policy.as_ref().map(|policy| policy.as_str().to_owned())
            }
            QueueAttribute::FifoQueue => self.fifo.map(|_| true.to_string()),
            QueueAttribute::ContentBasedDeduplication => {
                self.fifo.map(|fifo| fifo.content_based_deduplication.to_string())
            }
            QueueAttribute::DeduplicationScope => {
                self.fifo.map(|fifo| fifo.deduplication_scope.name().to_owned())
            }
            QueueAttribute::FifoThroughputLimit => {
                self.fifo.map(|fifo| fifo.throughput_limit.name().to_owned())
            }
            QueueAttribute::KmsMasterKeyId => self.kms_master_key_id.clone(),
            QueueAttribute::KmsDataKeyReusePeriodSeconds => {
                self.kms_master_key_id.as_ref().and_then(|_| seconds(self.kms_data_key_reuse))
            }
            QueueAttribute::SqsManagedSseEnabled => Some(self.sqs_managed_sse.to_string()),
        }
    }

    fn set(&mut self, setting: &Setting) {
        match setting.clone() {
            Setting::Delay(delay) => self.delay = delay,
            Setting::MaximumMessageBytes(bytes) => self.maximum_message_bytes = bytes,
            Setting::Retention(retention) => self.retention = retention,
            Setting::ReceiveWait(wait) => self.receive_wait = wait,
            Setting::VisibilityTimeout(timeout) => self.visibility_timeout = timeout,
            Setting::Policy(policy) => self.policy = policy,
            Setting::RedrivePolicy(policy) => self.redrive_policy = policy,
            Setting::RedriveAllowPolicy(policy) => self.redrive_allow_policy = policy,
            Setting::KmsMasterKeyId(key) => self.kms_master_key_id = key,
            Setting::KmsDataKeyReuse(period) => self.kms_data_key_reuse = period,
            Setting::SqsManagedSse(enabled) => self.sqs_managed_sse = enabled,
            Setting::Fifo(setting) => {
                if let Some(fifo) = &mut self.fifo {
                    fifo.set(setting);
                }
            }
        }
    }
}

impl Fifo {
    fn set(&mut self, setting: FifoSetting) {
        match setting {
            FifoSetting::IsFifo => {}
            FifoSetting::ContentBased(enabled) => self.content_based_deduplication = enabled,
            FifoSetting::Scope(scope) => self.deduplication_scope = scope,
            FifoSetting::Throughput(limit) => self.throughput_limit = limit,
        }
    }
}

impl DeduplicationScope {
    fn by_name(name: &str) -> Option<DeduplicationScope> {
        [DeduplicationScope::Queue, DeduplicationScope::MessageGroup]
            .into_iter()
            .find(|scope| scope.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            DeduplicationScope::Queue => "queue",
            DeduplicationScope::MessageGroup => "messageGroup",
        }
    }
}

impl FifoThroughputLimit {
    fn by_name(name: &str) -> Option<FifoThroughputLimit> {
        [FifoThroughputLimit::PerQueue, FifoThroughputLimit::PerMessageGroupId]
            .into_iter()
            .find(|limit| limit.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            FifoThroughputLimit::PerQueue => "perQueue",
            FifoThroughputLimit::PerMessageGroupId => "perMessageGroupId",
        }
    }
}

/// What a CreateQueue or a SetQueueAttributes sets, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueAttributeChanges(BTreeMap<QueueAttribute, Setting>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Setting {
    Delay(Duration),
    MaximumMessageBytes(u32),
    Retention(Duration),
    ReceiveWait(Duration),
    VisibilityTimeout(Duration),
    Policy(Option<String>),
    RedrivePolicy(Option<RedrivePolicy>),
    RedriveAllowPolicy(Option<RedriveAllowPolicy>),
    KmsMasterKeyId(Option<String>),
    KmsDataKeyReuse(Duration),
    SqsManagedSse(bool),
    Fifo(FifoSetting),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FifoSetting {
    IsFifo,
    ContentBased(bool),
    Scope(DeduplicationScope),
    Throughput(FifoThroughputLimit),
}

impl QueueAttributeChanges {
    /// Checks attributes as they came, for a FIFO queue or a standard one. The empty text takes a
    /// policy or a key away.
    ///
    /// # Errors
    /// InvalidAttributeName: no such attribute, not to be set, or not of this kind of queue.
    /// InvalidAttributeValue, InvalidParameterValue: not one of its values.
    pub fn new(
        attributes: BTreeMap<String, String>,
        is_fifo: bool,
    ) -> Result<QueueAttributeChanges, Error> {
        let mut changes = BTreeMap::new();
        for (name, value) in attributes {
            let attribute = QueueAttribute::by_name(&name).ok_or_else(|| unknown(&name))?;
            changes.insert(attribute, Setting::read(attribute, value, is_fifo)?);
        }
        Ok(QueueAttributeChanges(changes))
    }

    /// Which attributes are set.
    pub fn attributes(&self) -> impl Iterator<Item = QueueAttribute> {
        self.0.keys().copied()
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Setting {
    fn read(attribute: QueueAttribute, value: String, is_fifo: bool) -> Result<Setting, Error> {
        let number = |range: RangeInclusive<i32>| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            // No range has negative numbers; `+5` is no number of AWS's.
            let number = number.filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
            number.map(|number: i32| number as u32).ok_or_else(|| invalid(attribute))
        };
        let seconds = |range| number(range).map(|seconds| Duration::from_secs(u64::from(seconds)));
        let given = (!value.is_empty()).then_some(value.as_str());
        Ok(match attribute {
            QueueAttribute::DelaySeconds => Setting::Delay(seconds(limits::DELAY_SECONDS)?),
            QueueAttribute::MaximumMessageSize => {
                Setting::MaximumMessageBytes(number(limits::MAXIMUM_MESSAGE_BYTES)?)
            }
            QueueAttribute::MessageRetentionPeriod => {
                Setting::Retention(seconds(limits::RETENTION_SECONDS)?)
            }
            QueueAttribute::ReceiveMessageWaitTimeSeconds => {
                Setting::ReceiveWait(seconds(limits::WAIT_SECONDS)?)
            }
            QueueAttribute::VisibilityTimeout => {
                Setting::VisibilityTimeout(seconds(limits::VISIBILITY_SECONDS)?)
            }
            QueueAttribute::Policy => Setting::Policy(given.map(read_policy).transpose()?),
            QueueAttribute::RedrivePolicy => {
                Setting::RedrivePolicy(given.map(RedrivePolicy::parse).transpose()?)
            }
            QueueAttribute::RedriveAllowPolicy => {
                Setting::RedriveAllowPolicy(given.map(RedriveAllowPolicy::parse).transpose()?)
            }
            QueueAttribute::KmsMasterKeyId => Setting::KmsMasterKeyId(given.map(ToOwned::to_owned)),
            QueueAttribute::KmsDataKeyReusePeriodSeconds => {
                Setting::KmsDataKeyReuse(seconds(limits::KMS_REUSE_SECONDS)?)
            }
            QueueAttribute::SqsManagedSseEnabled => {
                Setting::SqsManagedSse(flag(&value).ok_or_else(|| invalid(attribute))?)
            }
            QueueAttribute::FifoQueue
            | QueueAttribute::ContentBasedDeduplication
            | QueueAttribute::DeduplicationScope
            | QueueAttribute::FifoThroughputLimit => {
                Setting::Fifo(FifoSetting::read(attribute, &value, is_fifo)?)
            }
            QueueAttribute::ApproximateNumberOfMessages
            | QueueAttribute::ApproximateNumberOfMessagesDelayed
            | QueueAttribute::ApproximateNumberOfMessagesNotVisible
            | QueueAttribute::CreatedTimestamp
            | QueueAttribute::LastModifiedTimestamp
            | QueueAttribute::QueueArn => return Err(unknown(attribute.name())),
        })
    }
}

impl FifoSetting {
    fn read(attribute: QueueAttribute, value: &str, is_fifo: bool) -> Result<FifoSetting, Error> {
        if !is_fifo {
            return Err(not_of_standard_queues(attribute));
        }
        let setting = match attribute {
            QueueAttribute::FifoQueue if flag(value) == Some(true) => Some(FifoSetting::IsFifo),
            QueueAttribute::FifoQueue => {
                return Err(Error::new(
                    ErrorKind::InvalidAttributeValue,
                    "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is \
                     not supported.",
                ));
            }
            QueueAttribute::ContentBasedDeduplication => flag(value).map(FifoSetting::ContentBased),
            QueueAttribute::DeduplicationScope => {
                DeduplicationScope::by_name(value).map(FifoSetting::Scope)
            }
            _ => FifoThroughputLimit::by_name(value).map(FifoSetting::Throughput),
        };
        setting.ok_or_else(|| invalid(attribute))
    }
}

/// Whether these attributes are those of a FIFO queue to be created.
pub(crate) fn ask_for_fifo(attributes: &BTreeMap<String, String>) -> bool {
    attributes.get(QueueAttribute::FifoQueue.name()).and_then(|value| flag(value)) == Some(true)
}

fn flag(value: &str) -> Option<bool> {
    value.to_ascii_lowercase().parse().ok()
}

fn read_policy(text: &str) -> Result<String, Error> {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Object(_)) => Ok(text.to_owned()),
        _ => Err(invalid(QueueAttribute::Policy)),
    }
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::InvalidAttributeName, format!("Unknown Attribute {name}."))
}

fn invalid(attribute: QueueAttribute) -> Error {
    let message = format!("Invalid value for the parameter {}.", attribute.name());
    Error::new(ErrorKind::InvalidAttributeValue, message)
}

fn not_of_standard_queues(attribute: QueueAttribute) -> Error {
    match attribute {
        QueueAttribute::DeduplicationScope | QueueAttribute::FifoThroughputLimit => Error::new(
            ErrorKind::InvalidAttributeName,
            format!("You can specify the {} only when FifoQueue is set to true.", attribute.name()),
        ),
        _ => unknown(attribute.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(pairs: &[(&str, &str)], is_fifo: bool) -> Result<QueueAttributeChanges, Error> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        QueueAttributeChanges::new(owned.collect(), is_fifo)
    }

    fn facts() -> QueueFacts {
        QueueFacts {
            arn: QueueArn::parse("arn:aws:sqs:us-east-1:123456789012:jobs").unwrap(),
            created_at: 1,
            last_modified_at: 2,
            messages: 3,
            messages_not_visible: 4,
            messages_delayed: 5,
        }
    }

    fn all() -> BTreeSet<QueueAttribute> {
        QueueAttribute::asked_for(&["All".to_owned()]).unwrap()
    }

    #[test]
    fn a_new_queue_shows_the_defaults() {
        let shown = QueueAttributes::defaults(false).shown(&facts(), &all());
        let expected = [
            ("ApproximateNumberOfMessages", "3"),
            ("ApproximateNumberOfMessagesDelayed", "5"),
            ("ApproximateNumberOfMessagesNotVisible", "4"),
            ("CreatedTimestamp", "1"),
            ("DelaySeconds", "0"),
            ("LastModifiedTimestamp", "2"),
            ("MaximumMessageSize", "1048576"),
            ("MessageRetentionPeriod", "345600"),
            ("QueueArn", "arn:aws:sqs:us-east-1:123456789012:jobs"),
            ("ReceiveMessageWaitTimeSeconds", "0"),
            ("SqsManagedSseEnabled", "false"),
            ("VisibilityTimeout", "30"),
        ];
        assert_eq!(shown, expected.map(|(name, value)| (name, value.to_owned())).into());
        let fifo = QueueAttributes::defaults(true).shown(&facts(), &all());
        assert_eq!(fifo.len(), 16);
        assert_eq!(fifo["DeduplicationScope"], "queue");
        assert_eq!(fifo["FifoThroughputLimit"], "perQueue");
        assert_eq!(fifo["ContentBasedDeduplication"], "false");
        assert_eq!(fifo["FifoQueue"], "true");
    }

    #[test]
    fn only_what_is_asked_for_is_shown() {
        let asked = QueueAttribute::asked_for(&["DelaySeconds".to_owned()]).unwrap();
        let shown = QueueAttributes::defaults(false).shown(&facts(), &asked);
        assert_eq!(shown, [("DelaySeconds", "0".to_owned())].into());
        let refused = QueueAttribute::asked_for(&["Foo".to_owned()]).unwrap_err();
        assert_eq!(refused.to_string(), "InvalidAttributeName: Unknown Attribute Foo.");
    }

    #[test]
    fn numbers_have_their_ranges() {
        let ranges = [
            ("DelaySeconds", ["0", "900"], ["-1", "901"]),
            ("MaximumMessageSize", ["1024", "1048576"], ["1023", "1048577"]),
            ("MessageRetentionPeriod", ["60", "1209600"], ["59", "1209601"]),
            ("ReceiveMessageWaitTimeSeconds", ["0", "20"], ["", "21"]),
            ("VisibilityTimeout", ["0", "43200"], [" 6", "43201"]),
            ("KmsDataKeyReusePeriodSeconds", ["60", "86400"], ["59", "86401"]),
        ];
        for (name, inside, outside) in ranges {
            for value in inside {
                assert!(changes(&[(name, value)], false).is_ok(), "{name} {value}");
            }
            for value in outside.into_iter().chain(["+5", "544.43", "x", "99999999999"]) {
                let refused = changes(&[(name, value)], false).unwrap_err();
                let text =
                    format!("InvalidAttributeValue: Invalid value for the parameter {name}.");
                assert_eq!(refused.to_string(), text, "{value:?}");
            }
        }
    }

    #[test]
    fn attributes_of_fifo_queues_are_unknown_to_others() {
        let refused = |name, value, is_fifo| {
            changes(&[(name, value)], is_fifo).map(drop).map_err(|error| error.to_string())
        };
        let unknown = |name| Err(format!("InvalidAttributeName: Unknown Attribute {name}."));
        assert_eq!(refused("FifoQueue", "false", false), unknown("FifoQueue"));
        assert_eq!(
            refused("ContentBasedDeduplication", "true", false),
            unknown("ContentBasedDeduplication")
        );
        assert_eq!(
            refused("DeduplicationScope", "queue", false),
            Err(
                "InvalidAttributeName: You can specify the DeduplicationScope only when FifoQueue \
                 is set to true."
                    .to_owned()
            )
        );
        assert_eq!(refused("QueueArn", "x", true), unknown("QueueArn"));
        assert_eq!(refused("All", "x", true), unknown("All"));
        assert_eq!(refused("FifoQueue", "True", true), Ok(()));
        assert_eq!(
            refused("FifoQueue", "false", true),
            Err("InvalidAttributeValue: Invalid value for the parameter FifoQueue. Reason: \
                 Modifying queue type is not supported."
                .to_owned())
        );
        assert!(refused("DeduplicationScope", "Queue", true).is_err());
    }

    #[test]
    fn throughput_per_group_needs_deduplication_per_group() {
        let fifo = QueueAttributes::defaults(true);
        let per_group = changes(&[("FifoThroughputLimit", "perMessageGroupId")], true).unwrap();
        assert!(fifo.with(&per_group).is_err());
        let scope = changes(&[("DeduplicationScope", "messageGroup")], true).unwrap();
        let scoped = fifo.with(&scope).unwrap();
        assert!(scoped.with(&per_group).is_ok());
    }

    #[test]
    fn one_kind_of_encryption_at_a_time() {
        let defaults = QueueAttributes::defaults(false);
        let kms = changes(&[("KmsMasterKeyId", "k")], false).unwrap();
        let sse = changes(&[("SqsManagedSseEnabled", "true")], false).unwrap();
        let by_sqs = defaults.with(&sse).unwrap();
        let by_kms = by_sqs.with(&kms).unwrap();
        assert!(!by_kms.sqs_managed_sse);
        assert_eq!(by_kms.shown(&facts(), &all())["KmsDataKeyReusePeriodSeconds"], "300");
        assert_eq!(
            by_kms.with(&sse).unwrap_err().to_string(),
            "InvalidAttributeName: You can use one type of server-side encryption (SSE) at one \
             time. You can either enable KMS SSE or SQS SSE."
        );
    }

    #[test]
    fn a_queue_is_the_one_asked_for_when_what_is_asked_for_is_equal() {
        let asked = changes(&[("DelaySeconds", "1"), ("VisibilityTimeout", "30")], false).unwrap();
        let queue = QueueAttributes::defaults(false);
        assert_eq!(queue.differs_from(&asked), Some(QueueAttribute::DelaySeconds));
        let queue = queue.with(&asked).unwrap();
        assert_eq!(queue.differs_from(&asked), None);
        assert_eq!(queue.differs_from(&QueueAttributeChanges::default()), None);
    }

    #[test]
    fn the_empty_text_takes_a_policy_away() {
        let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:a:1:d","maxReceiveCount":1}"#;
        let set = changes(&[("RedrivePolicy", policy), ("Policy", "{}")], false).unwrap();
        let queue = QueueAttributes::defaults(false).with(&set).unwrap();
        assert_eq!(queue.shown(&facts(), &all())["RedrivePolicy"], policy);
        let unset = changes(&[("RedrivePolicy", ""), ("Policy", "")], false).unwrap();
        assert_eq!(queue.with(&unset), Ok(QueueAttributes::defaults(false)));
        assert!(changes(&[("Policy", "[]")], false).is_err());
    }
}
