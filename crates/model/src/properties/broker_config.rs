//! A broker's own limits as the crates need them: plain values, already checked. What topics
//! inherit from the broker is not here but in [`super::TopicConfig`].

use std::collections::BTreeMap;
use std::time::Duration;

use super::property::{InvalidValue, Property};
use super::{broker, brokers};
use crate::BrokerId;

/// The limits in force on one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerConfig {
    /// `node.id`, or where only that is given, `broker.id`; at least 0.
    pub node_id: BrokerId,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
    /// `num.partitions`, at least 1.
    pub num_partitions: i32,
    /// `default.replication.factor`, at least 1; `None` where nobody chose one.
    pub default_replication_factor: Option<i16>,
    /// `topics.max`.
    pub topics_max: usize,
    /// `partitions.max`.
    pub partitions_max: usize,
    /// `topic.partitions.max`.
    pub topic_partitions_max: usize,
    /// `request.partitions.max`.
    pub request_partitions_max: usize,
    /// `connections.max.idle.ms`.
    pub connections_idle_max: Duration,
    /// `max.connections`.
    pub connections_max: usize,
    /// `max.connections.per.ip`.
    pub connections_per_ip_max: usize,
    /// `socket.request.max.bytes`.
    pub request_bytes_max: usize,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_sessions_max: usize,
    /// `max.request.partition.size.limit`.
    pub described_partitions_max: usize,
    /// `group.initial.rebalance.delay.ms`.
    pub group_initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`; not above the maximum.
    pub group_session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`.
    pub group_session_timeout_max: Duration,
    /// `group.max.size`.
    pub group_members_max: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes`.
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check: Duration,
    /// `offsets.topic.num.partitions`.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.segment.bytes`.
    pub offsets_topic_segment_bytes: u32,
    /// `log.retention.check.interval.ms`.
    pub retention_check: Duration,
    /// `log.cleaner.backoff.ms`.
    pub compaction_backoff: Duration,
    /// `log.cleaner.io.max.bytes.per.second`; `None` is without limit.
    pub compaction_bytes_per_second_max: Option<u64>,
    /// `log.scrub.interval.ms`; `None` is never.
    pub scrub_interval: Option<Duration>,
    /// `log.scrub.io.max.bytes.per.second`, at least 1.
    pub scrub_bytes_per_second_max: u64,
    /// `log.cleaner.dedupe.buffer.size`.
    pub compaction_key_bytes_max: usize,
    /// `producer.id.expiration.ms`.
    pub producer_idle_max: Duration,
    /// `producer.ids.per.partition.max`.
    pub producers_per_partition_max: usize,
    /// `replica.lag.time.max.ms`.
    pub replica_stall_max: Duration,
    /// `disk.low.watermark.bytes`, `disk.low.watermark.percent`: the smaller one counts.
    pub disk_low_watermark: DiskShare,
    /// `disk.high.watermark.bytes`, `disk.high.watermark.percent`: the smaller one counts.
    pub disk_high_watermark: DiskShare,
    /// `disk.reserve.bytes`.
    pub disk_reserve_bytes: u64,
    /// `broker.session.timeout.ms`.
    pub broker_session_timeout: Duration,
    /// `broker.replacement.delay.ms`.
    pub broker_replacement_delay: Duration,
    /// `leader.replication.throttled.rate`, in bytes a second.
    pub leader_throttled_rate: u64,
    /// `follower.replication.throttled.rate`, in bytes a second.
    pub follower_throttled_rate: u64,
    /// `reassignment.max.bytes.per.second`, at least 1.
    pub reassignment_rate: u64,
    /// `auto.leader.rebalance.enable`.
    pub leader_rebalance: bool,
    /// `leader.imbalance.check.interval.seconds`.
    pub leader_imbalance_check: Duration,
}

/// A part of a file system: a number of bytes, on small ones a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskShare {
    /// Bytes, on file systems that are large enough.
    pub bytes: u64,
    /// Hundredths of the file system, where these are fewer bytes.
    pub percent: u32,
}

impl DiskShare {
    /// Bytes of a file system with `total_bytes`.
    #[must_use]
    pub fn of(self, total_bytes: u64) -> u64 {
        let share = u128::from(total_bytes) * u128::from(self.percent) / 100;
        self.bytes.min(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

impl BrokerConfig {
    /// Checks what an operator wrote, every property of it (the topics' defaults too), and fills
    /// in the rest. The first refusal, by name of the property, is returned.
    pub fn from_overrides(
        overrides: &BTreeMap<String, String>,
    ) -> Result<BrokerConfig, InvalidValue> {
        for (name, value) in overrides {
            let property = broker(name).ok_or_else(|| InvalidValue {
                property: name.clone(),
                value: value.clone(),
                allowed: "there is no broker property of this name".to_owned(),
            })?;
            property.check(value)?;
        }
        let config =
            BrokerConfig::resolve(|property| overrides.get(property.name).map(String::as_str));
        if config.group_session_timeout_max < config.group_session_timeout_min {
            return Err(InvalidValue {
                property: "group.min.session.timeout.ms".to_owned(),
                value: config.group_session_timeout_min.as_millis().to_string(),
                allowed: "Value must be no more than group.max.session.timeout.ms".to_owned(),
            });
        }
        let ids = ["node.id", "broker.id"].map(|name| id_given(overrides.get(name)));
        if let [Some(node), Some(older)] = ids
            && node != older
        {
            return Err(InvalidValue {
                property: "node.id".to_owned(),
                value: node.to_string(),
                allowed: format!(
                    "You must set `node.id` to the same value as `broker.id` ({older})"
                ),
            });
        }
        Ok(config)
    }

    /// The configuration in which each property has the value that `value_of` names, and its
    /// registered default where that names none or one that this version does not take.
    pub fn resolve<'v>(value_of: impl Fn(&'static Property) -> Option<&'v str>) -> BrokerConfig {
        let read = Reader { value_of };
        let older = || id_given(read.given("broker.id")).map(BrokerId);
        BrokerConfig {
            node_id: id_given(read.given("node.id"))
                .map(BrokerId)
                .or_else(older)
                .unwrap_or_else(|| BrokerId(read.int("node.id"))),
            auto_create_topics: read.boolean("auto.create.topics.enable"),
            delete_topics: read.boolean("delete.topic.enable"),
            num_partitions: read.int("num.partitions"),
            default_replication_factor: read
                .given("default.replication.factor")
                .map(|factor| factor.parse().unwrap_or(i16::MAX)),
            topics_max: read.size("topics.max"),
            partitions_max: read.size("partitions.max"),
            topic_partitions_max: read.size("topic.partitions.max"),
            request_partitions_max: read.size("request.partitions.max"),
            connections_idle_max: read.milliseconds("connections.max.idle.ms"),
            connections_max: read.size("max.connections"),
            connections_per_ip_max: read.size("max.connections.per.ip"),
            request_bytes_max: read.size("socket.request.max.bytes"),
            fetch_bytes_max: read.size("fetch.max.bytes"),
            fetch_sessions_max: read.size("max.incremental.fetch.session.cache.slots"),
            described_partitions_max: read.size("max.request.partition.size.limit"),
            group_initial_rebalance_delay: read.milliseconds("group.initial.rebalance.delay.ms"),
            group_session_timeout_min: read.milliseconds("group.min.session.timeout.ms"),
            group_session_timeout_max: read.milliseconds("group.max.session.timeout.ms"),
            group_members_max: read.size("group.max.size"),
            offset_metadata_bytes_max: read.size("offset.metadata.max.bytes"),
            offsets_retention: read.milliseconds("offsets.retention.minutes") * 60_000,
            offsets_retention_check: read.milliseconds("offsets.retention.check.interval.ms"),
            offsets_topic_partitions: read.int("offsets.topic.num.partitions"),
            offsets_topic_segment_bytes: read.int("offsets.topic.segment.bytes").unsigned_abs(),
            retention_check: read.milliseconds("log.retention.check.interval.ms"),
            compaction_backoff: read.milliseconds("log.cleaner.backoff.ms"),
            compaction_bytes_per_second_max: read.rate("log.cleaner.io.max.bytes.per.second"),
            scrub_interval: read.milliseconds_or_never("log.scrub.interval.ms"),
            scrub_bytes_per_second_max: read.bytes("log.scrub.io.max.bytes.per.second"),
            compaction_key_bytes_max: read.long_size("log.cleaner.dedupe.buffer.size"),
            producer_idle_max: read.milliseconds("producer.id.expiration.ms"),
            producers_per_partition_max: read.size("producer.ids.per.partition.max"),
            replica_stall_max: read.milliseconds("replica.lag.time.max.ms"),
            disk_low_watermark: read
                .share("disk.low.watermark.bytes", "disk.low.watermark.percent"),
            disk_high_watermark: read
                .share("disk.high.watermark.bytes", "disk.high.watermark.percent"),
            disk_reserve_bytes: read.bytes("disk.reserve.bytes"),
            broker_session_timeout: read.milliseconds("broker.session.timeout.ms"),
            broker_replacement_delay: read.milliseconds("broker.replacement.delay.ms"),
            leader_throttled_rate: read.bytes("leader.replication.throttled.rate"),
            follower_throttled_rate: read.bytes("follower.replication.throttled.rate"),
            reassignment_rate: read.bytes("reassignment.max.bytes.per.second"),
            leader_rebalance: read.boolean("auto.leader.rebalance.enable"),
            leader_imbalance_check: read.milliseconds("leader.imbalance.check.interval.seconds")
                * 1_000,
        }
    }

    /// The names of the properties that can be altered while the broker runs.
    pub fn live() -> impl Iterator<Item = &'static str> {
        brokers()
            .iter()
            .filter(|property| property.change == super::Change::Live)
            .map(|property| property.name)
    }
}

impl Default for BrokerConfig {
    /// What a broker has when nobody configured anything.
    fn default() -> BrokerConfig {
        BrokerConfig::resolve(|_| None)
    }
}

/// A broker's number; -1 is none.
fn id_given(value: Option<impl AsRef<str>>) -> Option<i32> {
    value?.as_ref().trim().parse().ok().filter(|id| 0 <= *id)
}

struct Reader<F> {
    value_of: F,
}

impl<'v, F: Fn(&'static Property) -> Option<&'v str>> Reader<F> {
    fn given(&self, name: &'static str) -> Option<&'v str> {
        let property = broker(name).expect("this file names registered properties only");
        (self.value_of)(property).map(str::trim).filter(|value| property.check(value).is_ok())
    }

    fn text(&self, name: &'static str) -> &'v str {
        let default = broker(name).and_then(|property| property.default);
        self.given(name).or(default).unwrap_or_default()
    }

    fn boolean(&self, name: &'static str) -> bool {
        self.text(name).eq_ignore_ascii_case("true")
    }

    fn int(&self, name: &'static str) -> i32 {
        self.text(name).parse().expect("a checked value or a default is a number")
    }

    /// A number that the registry bounds below by 0.
    fn size(&self, name: &'static str) -> usize {
        self.int(name).unsigned_abs() as usize
    }

    /// A long that the registry bounds below by 0.
    fn long_size(&self, name: &'static str) -> usize {
        let number: i64 =
            self.text(name).parse().expect("a checked value or a default is a number");
        usize::try_from(number).unwrap_or(usize::MAX)
    }

    /// At least 1 where there is a limit.
    fn rate(&self, name: &'static str) -> Option<u64> {
        let number: f64 =
            self.text(name).parse().expect("a checked value or a default is a number");
        (number < u64::MAX as f64).then_some((number as u64).max(1))
    }

    /// A number of 64 bits that the registry bounds below by 0.
    fn bytes(&self, name: &'static str) -> u64 {
        let number: i64 =
            self.text(name).parse().expect("a checked value or a default is a number");
        number.unsigned_abs()
    }

    fn share(&self, bytes: &'static str, percent: &'static str) -> DiskShare {
        DiskShare { bytes: self.bytes(bytes), percent: self.int(percent).unsigned_abs() }
    }

    /// -1 is never.
    fn milliseconds_or_never(&self, name: &'static str) -> Option<Duration> {
        let number: i64 =
            self.text(name).parse().expect("a checked value or a default is a number");
        u64::try_from(number).ok().map(Duration::from_millis)
    }

    fn milliseconds(&self, name: &'static str) -> Duration {
        let number: i64 =
            self.text(name).parse().expect("a checked value or a default is a number");
        Duration::from_millis(number.unsigned_abs())
    }
}
