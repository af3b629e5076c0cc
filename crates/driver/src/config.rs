//! From a topic's and the broker's properties to what log and coordinator are told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_coordinator::groups::GroupsConfig;
use towpath_coordinator::publishers::PublishersConfig;
use towpath_log::{CompactionRules, LogConfig, Retention};
use towpath_model::TopicPartition;
use towpath_model::properties::{BrokerConfig, TopicConfig};
use towpath_queue::{DeliveryConfig, Limits, Retry};

/// Most bytes of protocol metadata that the members of one group may have together.
const GROUP_METADATA_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most groups in one partition of the internal topic.
const GROUPS_MAX: usize = 100_000;

/// Largest record of the internal topic: Kafka's default for a batch, less its headers.
const STATE_RECORD_BYTES_MAX: usize = 1024 * 1024;

/// Most HTTP publishers in one partition of their internal topic.
const PUBLISHERS_MAX: usize = 100_000;

/// How long an HTTP publisher's append may take before its fate is asked for.
const APPEND_TIMEOUT: Duration = Duration::from_secs(30);

/// How often old results of HTTP publishers are looked for.
const PUBLISHERS_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The configuration that was handed out last. Most partitions are kept alike, and those of one topic
/// are opened one after the other: they share what they are told, instead of 200 bytes each.
#[derive(Debug, Default)]
pub(crate) struct NewestConfig(Mutex<Option<Arc<TopicConfig>>>);

impl NewestConfig {
    /// The same configuration, shared if it was handed out last.
    pub(crate) fn shared(&self, config: TopicConfig) -> Arc<TopicConfig> {
        let mut newest = self.0.lock().expect("no panic holds a configuration");
        match &*newest {
            Some(known) if **known == config => Arc::clone(known),
            _ => Arc::clone(newest.insert(Arc::new(config))),
        }
    }
}

/// The largest segment of a topic that is a queue and nothing else: only sealed segments let settled messages go.
const QUEUE_SEGMENT_BYTES: u32 = 64 << 20;

/// Jitter spreads the rolls of a topic's partitions, and of topics that were created together.
pub(crate) fn log_config(config: &TopicConfig, id: TopicPartition) -> LogConfig {
    let folded = id.topic.0.iter().fold(u64::from(id.partition.0.unsigned_abs()), |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    let mut segment_ms = config.segment_ms_with_jitter(folded);
    if let (true, Some(lag)) = (config.cleanup_policy.compact, config.max_compaction_lag_ms) {
        // What lies in the active segment is not compacted.
        segment_ms = segment_ms.min(lag);
    }
    let queue_bytes_max = if config.is_queue_only() { QUEUE_SEGMENT_BYTES } else { u32::MAX };
    LogConfig {
        segment_bytes: config.segment_bytes.min(queue_bytes_max),
        segment_age: Duration::from_millis(segment_ms.unsigned_abs()),
        index_interval_bytes: config.index_interval_bytes,
    }
}

pub(crate) fn compaction_rules(config: &TopicConfig, broker: &BrokerConfig) -> CompactionRules {
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    CompactionRules {
        min_lag: ms(config.min_compaction_lag_ms),
        max_lag: config.max_compaction_lag_ms.map(ms),
        min_dirty_ratio: config.min_cleanable_dirty_ratio,
        tombstones_kept: ms(config.delete_retention_ms),
        key_bytes_max: broker.compaction_key_bytes_max,
    }
}

/// `None`: nothing expires.
pub(crate) fn retention(config: &TopicConfig) -> Option<Retention> {
    let time = config.retention_ms.map(|ms| Duration::from_millis(ms.unsigned_abs()));
    let is_limited = time.is_some() || config.retention_bytes.is_some();
    (config.cleanup_policy.delete && is_limited)
        .then_some(Retention { time, bytes: config.retention_bytes })
}

/// How much a whole queue takes.
pub(crate) fn limits(config: &TopicConfig) -> Limits {
    let queue = &config.queue;
    Limits {
        messages: queue.limit_messages,
        bytes: queue.limit_bytes,
        age: queue.limit_age,
        policy: queue.limit_policy,
    }
}

/// How deliveries of a queue are decided on.
pub(crate) fn delivery_config(config: &TopicConfig) -> DeliveryConfig {
    let queue = &config.queue;
    DeliveryConfig {
        is_fifo: queue.fifo,
        delay: queue.delay,
        retention: queue.message_retention,
        in_flight_max: queue.in_flight_max as usize,
        receives_max: queue.dead_letter_receives,
        dead_letter_queue: queue.dead_letter_queue.as_ref().map(|name| name.as_str().into()),
        expired_are_dead_letters: queue.dead_letter_expired,
        retry: Retry {
            first: queue.retry_first,
            max: queue.retry_max,
            jitter_percent: u8::try_from(queue.retry_jitter_percent).unwrap_or(100),
        },
        dedup_window: queue.dedup_window,
        dedup_by_group: queue.dedup_by_group,
    }
}

pub(crate) fn groups_config(broker: &BrokerConfig) -> GroupsConfig {
    GroupsConfig {
        initial_rebalance_delay: broker.group_initial_rebalance_delay,
        session_timeout_min: broker.group_session_timeout_min,
        session_timeout_max: broker.group_session_timeout_max,
        group_members_max: broker.group_members_max,
        group_metadata_bytes_max: GROUP_METADATA_BYTES_MAX,
        groups_max: GROUPS_MAX,
        offset_metadata_max: broker.offset_metadata_bytes_max,
        offsets_retention: Some(broker.offsets_retention),
        offsets_check_interval: broker.offsets_retention_check,
        record_bytes_max: STATE_RECORD_BYTES_MAX,
    }
}

pub(crate) fn publishers_config() -> PublishersConfig {
    PublishersConfig {
        publishers_max: PUBLISHERS_MAX,
        append_timeout: APPEND_TIMEOUT,
        check_interval: PUBLISHERS_CHECK_INTERVAL,
    }
}
