//! A topic's configuration as the crates need it: plain values, already checked.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use super::Durability;
use super::property::{Property, elements};
use super::topic;
use crate::TopicName;

/// What happens to old records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Segments go by age and size.
    pub delete: bool,
    /// Only the newest record of each key stays, and a record without a key is refused.
    pub compact: bool,
}

/// In which codec records are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// As each batch was sent.
    Producer,
    /// Not compressed.
    Uncompressed,
    /// RFC 1952.
    Gzip,
    /// Snappy in Xerial frames.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

/// What retention does with records that a group has not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RetentionGuard {
    /// Deletes them, and says nothing.
    Off,
    /// Deletes them, and records which group lost what.
    #[default]
    Warn,
    /// Keeps them, as far as the bytes for it reach.
    Hold,
}

/// Whose clock a record's timestamp comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampSource {
    /// The producer's.
    CreateTime,
    /// The broker's, at the moment of appending.
    LogAppendTime,
}

/// The configuration in force for one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`.
    pub cleanup_policy: CleanupPolicy,
    /// `compression.type`.
    pub compression_type: CompressionType,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `durability`.
    pub durability: Durability,
    /// `flush.messages`, for relaxed topics; `None` leaves it to the operating system.
    pub flush_messages: Option<i64>,
    /// `flush.ms`, for relaxed topics; `None` leaves it to the operating system.
    pub flush_ms: Option<i64>,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `max.compaction.lag.ms`; `None` is never.
    pub max_compaction_lag_ms: Option<i64>,
    /// `max.decompressed.message.bytes`.
    pub max_decompressed_message_bytes: u32,
    /// `max.message.bytes`, header included.
    pub max_message_bytes: u32,
    /// `message.timestamp.after.max.ms`; `None` is without limit.
    pub message_timestamp_after_max_ms: Option<i64>,
    /// `message.timestamp.before.max.ms`; `None` is without limit.
    pub message_timestamp_before_max_ms: Option<i64>,
    /// `message.timestamp.type`.
    pub message_timestamp_type: TimestampSource,
    /// `min.cleanable.dirty.ratio`, 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`, at least 1; may exceed the number of replicas.
    pub min_insync_replicas: u32,
    /// `queue.enable`: each partition has a delivery log.
    pub queue_enable: bool,
    /// What else begins with `queue.`.
    pub queue: QueueConfig,
    /// `retention.bytes` of a partition; `None` is without limit.
    pub retention_bytes: Option<u64>,
    /// `retention.guard`.
    pub retention_guard: RetentionGuard,
    /// `retention.guard.max.bytes` of a topic.
    pub retention_guard_bytes_max: u64,
    /// `retention.ms`; `None` is for ever.
    pub retention_ms: Option<i64>,
    /// `segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u32,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.ms`, at least 1.
    pub segment_ms: i64,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
}

/// What becomes of sends at a limit of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitPolicy {
    /// They are refused.
    #[default]
    Reject,
    /// They are refused, and near the limit ever more of them.
    Sample,
    /// They wait for room.
    Block,
}

/// How the messages of a queue are delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// `queue.dead.letter.expired`.
    pub dead_letter_expired: bool,
    /// `queue.dead.letter.queue`.
    pub dead_letter_queue: Option<TopicName>,
    /// `queue.dead.letter.receives`; `None` is without limit.
    pub dead_letter_receives: Option<u32>,
    /// `queue.dedup.scope` is `group`.
    pub dedup_by_group: bool,
    /// `queue.dedup.partitions`; `None` is all.
    pub dedup_partitions: Option<NonZeroU32>,
    /// `queue.dedup.window.ms`.
    pub dedup_window: Duration,
    /// `queue.delay.ms`.
    pub delay: Duration,
    /// `queue.fifo`.
    pub fifo: bool,
    /// `queue.growth.after.ms`.
    pub growth_after: Duration,
    /// `queue.growth.rate`, messages per second and partition; at least 1.
    pub growth_rate: u32,
    /// It takes no more messages: a task moves out what is there, and then it is deleted. That is said by the task, and
    /// by no property.
    pub given_up: bool,
    /// `queue.in.flight.max`, at least 1.
    pub in_flight_max: u32,
    /// `queue.limit.age.ms`; `None` is without limit.
    pub limit_age: Option<Duration>,
    /// `queue.limit.bytes`; `None` is without limit.
    pub limit_bytes: Option<u64>,
    /// `queue.limit.messages`; `None` is without limit.
    pub limit_messages: Option<u64>,
    /// `queue.limit.policy`.
    pub limit_policy: LimitPolicy,
    /// `queue.message.retention.ms`; `None` is for ever.
    pub message_retention: Option<Duration>,
    /// `queue.only`: whoever is done with messages needs their records no more.
    pub only: bool,
    /// `queue.partitions.max`, at least 1.
    pub partitions_max: u32,
    /// `queue.retry.first.ms`.
    pub retry_first: Duration,
    /// `queue.retry.jitter.percent`, 100 at most.
    pub retry_jitter_percent: u32,
    /// `queue.retry.max.ms`.
    pub retry_max: Duration,
    /// `queue.visibility.timeout.ms`.
    pub visibility_timeout: Duration,
}

impl QueueConfig {
    /// Whether a queue gets more partitions by itself. Messages in order, and those of producers whose consumers read the
    /// topic as a log, keep the partition of their key.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.only && !self.fifo
    }

    /// Whether the queue may be full.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limit_messages.is_some() || self.limit_bytes.is_some() || self.limit_age.is_some()
    }
}

impl TopicConfig {
    /// Whether records go once every subscription is done with their messages.
    #[must_use]
    pub fn is_queue_only(&self) -> bool {
        self.queue_enable && self.queue.only
    }

    /// Whether it gets more partitions by itself.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.queue_enable && self.queue.may_grow()
    }

    /// The configuration in which each property has the value that `value_of` names, and its
    /// registered default where that names none or one that this version does not take (a newer
    /// version may have logged it).
    pub fn resolve<'v>(
        value_of: impl Fn(&'static Property) -> Option<Cow<'v, str>>,
    ) -> TopicConfig {
        let read = Reader { value_of };
        TopicConfig {
            cleanup_policy: read.cleanup_policy(),
            compression_type: read.compression_type(),
            delete_retention_ms: read.long("delete.retention.ms"),
            durability: match read.text("durability").as_ref() {
                "relaxed" => Durability::Relaxed,
                _ => Durability::Synced,
            },
            flush_messages: read.bound("flush.messages"),
            flush_ms: read.bound("flush.ms"),
            index_interval_bytes: read.int("index.interval.bytes"),
            max_compaction_lag_ms: read.bound("max.compaction.lag.ms"),
            max_decompressed_message_bytes: read.int("max.decompressed.message.bytes"),
            max_message_bytes: read.int("max.message.bytes"),
            message_timestamp_after_max_ms: read.bound("message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms: read.bound("message.timestamp.before.max.ms"),
            message_timestamp_type: match read.text("message.timestamp.type").as_ref() {
                "LogAppendTime" => TimestampSource::LogAppendTime,
                _ => TimestampSource::CreateTime,
            },
            min_cleanable_dirty_ratio: read.fraction("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms: read.long("min.compaction.lag.ms"),
            min_insync_replicas: read.int("min.insync.replicas"),
            queue_enable: read.flag("queue.enable"),
            queue: read.queue(),
            retention_bytes: u64::try_from(read.long("retention.bytes")).ok(),
            retention_guard: match read.text("retention.guard").as_ref() {
                "off" => RetentionGuard::Off,
                "hold" => RetentionGuard::Hold,
                _ => RetentionGuard::Warn,
            },
            retention_guard_bytes_max: read.long("retention.guard.max.bytes").unsigned_abs(),
            retention_ms: Some(read.long("retention.ms")).filter(|ms| 0 <= *ms),
            segment_bytes: read.int("segment.bytes"),
            segment_index_bytes: read.int("segment.index.bytes"),
            segment_jitter_ms: read.long("segment.jitter.ms"),
            segment_ms: read.long("segment.ms"),
            unclean_leader_election: read.flag("unclean.leader.election.enable"),
        }
    }

    /// The age in milliseconds at which a segment ends: `segment_ms` less a jitter that `seed`
    /// picks, so that partitions (each with its own seed) do not all begin new files at once.
    /// At least 1.
    #[must_use]
    pub fn segment_ms_with_jitter(&self, seed: u64) -> i64 {
        let most = self.segment_jitter_ms.min(self.segment_ms - 1);
        match u64::try_from(most) {
            Ok(0) | Err(_) => self.segment_ms,
            Ok(most) => self.segment_ms - (seed % (most + 1)) as i64,
        }
    }
}

impl Default for TopicConfig {
    /// What a topic has when nobody configured anything.
    fn default() -> TopicConfig {
        TopicConfig::resolve(|_| None)
    }
}

struct Reader<F> {
    value_of: F,
}

impl<'v, F: Fn(&'static Property) -> Option<Cow<'v, str>>> Reader<F> {
    fn text(&self, name: &'static str) -> Cow<'v, str> {
        let property = topic(name).expect("this file names registered properties only");
        (self.value_of)(property)
            .filter(|value| property.check(value).is_ok())
            .unwrap_or(Cow::Borrowed(property.default.unwrap_or_default()))
    }

    fn flag(&self, name: &'static str) -> bool {
        self.text(name).trim().eq_ignore_ascii_case("true")
    }

    fn long(&self, name: &'static str) -> i64 {
        self.text(name).trim().parse().expect("a checked value or a default is a number")
    }

    /// A bound that is none when it is the largest number there is.
    fn bound(&self, name: &'static str) -> Option<i64> {
        Some(self.long(name)).filter(|bound| *bound < i64::MAX)
    }

    fn int(&self, name: &'static str) -> u32 {
        u32::try_from(self.long(name)).expect("the registry takes no negative value for it")
    }

    fn duration(&self, name: &'static str) -> Duration {
        Duration::from_millis(self.long(name).unsigned_abs())
    }

    /// A bound that is none when it is negative.
    fn limit(&self, name: &'static str) -> Option<u64> {
        u64::try_from(self.long(name)).ok()
    }

    fn queue(&self) -> QueueConfig {
        let dead_letter_receives = Some(self.int("queue.dead.letter.receives"));
        let retention = "queue.message.retention.ms";
        QueueConfig {
            dead_letter_expired: self.flag("queue.dead.letter.expired"),
            dead_letter_queue: TopicName::new(self.text("queue.dead.letter.queue").trim()).ok(),
            dead_letter_receives: dead_letter_receives.filter(|receives| 0 < *receives),
            dedup_by_group: self.text("queue.dedup.scope") == "group",
            dedup_partitions: NonZeroU32::new(self.int("queue.dedup.partitions")),
            dedup_window: self.duration("queue.dedup.window.ms"),
            delay: self.duration("queue.delay.ms"),
            fifo: self.flag("queue.fifo"),
            growth_after: self.duration("queue.growth.after.ms"),
            growth_rate: self.int("queue.growth.rate"),
            given_up: false,
            in_flight_max: self.int("queue.in.flight.max"),
            only: self.flag("queue.only"),
            limit_age: self.limit("queue.limit.age.ms").map(Duration::from_millis),
            limit_bytes: self.limit("queue.limit.bytes"),
            limit_messages: self.limit("queue.limit.messages"),
            limit_policy: match &*self.text("queue.limit.policy") {
                "sample" => LimitPolicy::Sample,
                "block" => LimitPolicy::Block,
                _ => LimitPolicy::Reject,
            },
            message_retention: (0 <= self.long(retention)).then(|| self.duration(retention)),
            partitions_max: self.int("queue.partitions.max"),
            retry_first: self.duration("queue.retry.first.ms"),
            retry_jitter_percent: self.int("queue.retry.jitter.percent"),
            retry_max: self.duration("queue.retry.max.ms"),
            visibility_timeout: self.duration("queue.visibility.timeout.ms"),
        }
    }

    fn fraction(&self, name: &'static str) -> f64 {
        self.text(name).trim().parse().expect("a checked value or a default is a number")
    }

    fn cleanup_policy(&self) -> CleanupPolicy {
        let value = &self.text("cleanup.policy");
        CleanupPolicy {
            delete: elements(value).any(|policy| policy == "delete"),
            compact: elements(value).any(|policy| policy == "compact"),
        }
    }

    fn compression_type(&self) -> CompressionType {
        match self.text("compression.type").as_ref() {
            "uncompressed" => CompressionType::Uncompressed,
            "gzip" => CompressionType::Gzip,
            "snappy" => CompressionType::Snappy,
            "lz4" => CompressionType::Lz4,
            "zstd" => CompressionType::Zstd,
            _ => CompressionType::Producer,
        }
    }
}
