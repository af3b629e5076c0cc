//! What follows from a queue's statistics: how fast it grows, how long its messages should be hidden, and
//! what somebody should know who wonders why it is slow.

use std::time::Duration;

use serde::Serialize;
use towpath_model::properties::{LimitPolicy, QueueConfig};
use towpath_queue::{TooShort, quantile};

use crate::app::App;

use super::look::{QueueStats, milliseconds, stats};

/// Statistics, and what follows from them.
#[derive(Debug, Serialize)]
pub(crate) struct ShownStats {
    #[serde(flatten)]
    stats: QueueStats,
    /// Messages in its dead-letter queue; null where it has none, or it cannot be asked.
    dead: Option<u64>,
    /// Messages by which it grows in one second; less than nothing when it shrinks.
    growth_per_second: f64,
    /// How long half of the messages took lately, 99 of 100, and 999 of 1,000, from receive to delete.
    processing_p50_ms: Option<u64>,
    processing_p99_ms: Option<u64>,
    processing_p999_ms: Option<u64>,
    limits: ShownLimits,
    /// In what time it reaches a limit if it grows as it does; null while it does not grow, or has no limit.
    time_to_limit_ms: Option<u64>,
    visibility_timeout_ms: u64,
    suggested_visibility_timeout_ms: Option<u64>,
    notices: Vec<Notice>,
}

/// How much it takes.
#[derive(Debug, Serialize)]
struct ShownLimits {
    messages: Option<u64>,
    bytes: Option<u64>,
    age_ms: Option<u64>,
    policy: &'static str,
}

impl ShownLimits {
    fn of(config: &QueueConfig) -> ShownLimits {
        ShownLimits {
            messages: config.limit_messages,
            bytes: config.limit_bytes,
            age_ms: config.limit_age.map(milliseconds),
            policy: match config.limit_policy {
                LimitPolicy::Reject => "reject",
                LimitPolicy::Sample => "sample",
                LimitPolicy::Block => "block",
            },
        }
    }
}

/// Something that should be known, or changed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Notice {
    code: &'static str,
    message: String,
}

impl ShownStats {
    pub(super) fn of(config: &QueueConfig, stats: QueueStats) -> ShownStats {
        let worked = stats.observed.recent.worked();
        let at = |per_mille| quantile(worked.processing.iter().copied(), per_mille);
        let ms = |per_mille| at(per_mille).map(milliseconds);
        let suggested = worked.suggested_visibility();
        let too_short = worked.is_too_short(config.visibility_timeout);
        let notices = [
            too_short.map(|why| visibility_notice(config, &stats, why, suggested)),
            ordering_notice(config, &stats),
            limit_notice(config, &stats),
        ];
        let growth = stats.observed.arrivals_per_second - stats.observed.served_per_second;
        ShownStats {
            dead: None,
            growth_per_second: growth,
            limits: ShownLimits::of(config),
            time_to_limit_ms: time_to_limit(config, &stats, growth),
            processing_p50_ms: ms(500),
            processing_p99_ms: ms(990),
            processing_p999_ms: ms(999),
            visibility_timeout_ms: milliseconds(config.visibility_timeout),
            suggested_visibility_timeout_ms: suggested.map(milliseconds),
            notices: notices.into_iter().flatten().collect(),
            stats,
        }
    }

    /// Says that a queue has more to do than it wants its partitions to, and gets no more of them.
    pub(super) fn look_at_growth(&mut self, config: &QueueConfig, partitions: u32) {
        self.notices.extend(growth_notice(config, &self.stats, partitions));
    }

    /// Asks the dead-letter queue how much is in it.
    pub(super) async fn look_for_dead_letters(&mut self, app: &App, config: &QueueConfig) {
        let Some(name) = &config.dead_letter_queue else { return };
        let Ok(queue) = app.queue(name.as_str()) else { return };
        self.dead = stats(app, &queue, None, true).await.ok().map(|stats| stats.depth());
    }
}

fn visibility_notice(
    config: &QueueConfig,
    stats: &QueueStats,
    why: TooShort,
    suggested: Option<Duration>,
) -> Notice {
    let configured = config.visibility_timeout.as_secs_f64();
    let recent = &stats.observed.recent;
    let deletes: u64 = recent.processing_ms.values().sum();
    let what = match why {
        TooShort::LateDeletes => format!(
            "{} of {deletes} messages were deleted after their lease had ended: somebody else may have \
             worked them as well",
            recent.late_deletes
        ),
        TooShort::NoMargin => "one message in a thousand takes nearly as long, or longer, to be \
             worked, and no receiver extends its leases"
            .to_owned(),
    };
    let fitting = suggested.filter(|fitting| config.visibility_timeout < *fitting);
    let advice = fitting.map_or_else(
        || "let receivers extend their leases while they work".to_owned(),
        |fitting| {
            let ms = milliseconds(fitting);
            format!(
                "set visibility_timeout_ms to {ms} (half as much again as 999 of 1,000 messages take), or \
                 let receivers extend their leases while they work"
            )
        },
    );
    Notice {
        code: "VISIBILITY_TIMEOUT_TOO_SHORT",
        message: format!("the visibility timeout of {configured} s is too short: {what}; {advice}"),
    }
}

/// Receivers wait although messages do, because of their order.
fn ordering_notice(config: &QueueConfig, stats: &QueueStats) -> Option<Notice> {
    let QueueStats { ready, receivers, held_groups, ready_groups, .. } = stats;
    let is_capped = config.fifo && 0 < *ready && 0 < *receivers && *ready_groups == 0;
    is_capped.then(|| Notice {
        code: "ORDER_LIMITS_RECEIVERS",
        message: format!(
            "{receivers} receivers wait although {ready} messages do: a message group is worked by one \
             receiver at a time, and only {held_groups} groups have messages that are worked now; more \
             receivers do not help, more message groups do"
        ),
    })
}

/// It would get more partitions if it might.
fn growth_notice(config: &QueueConfig, stats: &QueueStats, partitions: u32) -> Option<Notice> {
    let observed = &stats.observed;
    let rate = observed.arrivals_per_second.max(observed.served_per_second);
    let of_one = rate / f64::from(partitions);
    let is_held_back = config.may_grow() && config.partitions_max <= partitions;
    (is_held_back && f64::from(config.growth_rate) < of_one).then(|| Notice {
        code: "PARTITIONS_AT_MAX",
        message: format!(
            "each of {partitions} partitions has {of_one:.0} messages per second, more than growth_rate={}, and the \
             queue gets no more than partitions_max={}: raise that, or growth_rate if they keep up",
            config.growth_rate, config.partitions_max
        ),
    })
}

/// How much there is of what is limited, and the limit, each with its name.
fn used(config: &QueueConfig, stats: &QueueStats) -> [(&'static str, u64, Option<u64>); 3] {
    let oldest = stats.oldest_waiting_ms.unwrap_or(0);
    [
        ("limit_messages", stats.depth(), config.limit_messages),
        ("limit_bytes", stats.bytes, config.limit_bytes),
        ("limit_age_ms", oldest, config.limit_age.map(milliseconds)),
    ]
}

/// From four fifths on, as `sample` has it.
fn limit_notice(config: &QueueConfig, stats: &QueueStats) -> Option<Notice> {
    let near = |(_, present, limit): &(&str, u64, Option<u64>)| {
        limit.is_some_and(|limit| limit.saturating_mul(4) <= present.saturating_mul(5))
    };
    let (name, present, limit) = used(config, stats).into_iter().find(near)?;
    let limit = limit.unwrap_or_default();
    let then = match config.limit_policy {
        LimitPolicy::Reject => "sends are refused there",
        LimitPolicy::Sample => "ever fewer sends are taken, and none there",
        LimitPolicy::Block => "sends wait for room there",
    };
    Some(Notice {
        code: "NEAR_LIMIT",
        message: format!(
            "{present} of {name}={limit} are used up, and {then}: let more receivers work, or raise it"
        ),
    })
}

fn time_to_limit(config: &QueueConfig, stats: &QueueStats, growth: f64) -> Option<u64> {
    let depth = stats.depth().max(1) as f64;
    let [messages, bytes, _] = used(config, stats);
    let left = |(_, present, limit): (&str, u64, Option<u64>), growth: f64| {
        Some(limit?.saturating_sub(present) as f64 / growth * 1_000.0)
    };
    let times = [left(messages, growth), left(bytes, growth * stats.bytes as f64 / depth)];
    let first = times.into_iter().flatten().filter(|ms| ms.is_finite()).min_by(f64::total_cmp)?;
    (0.0 < growth).then_some(first as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::observed::{QueueObserved, RecentWork};
    use towpath_model::properties::TopicConfig;

    fn config(fifo: bool, visibility: Duration) -> QueueConfig {
        let queue = TopicConfig::default().queue;
        QueueConfig { fifo, visibility_timeout: visibility, ..queue }
    }

    fn worked(processing_ms: [(&str, u64); 2], late_deletes: u64) -> QueueStats {
        let processing_ms = processing_ms.map(|(end, count)| (end.to_owned(), count)).into();
        let recent = RecentWork { processing_ms, late_deletes, ..RecentWork::default() };
        let observed = QueueObserved { recent, ..QueueObserved::default() };
        QueueStats { observed, ..QueueStats::default() }
    }

    #[test]
    fn late_deletes_are_a_verdict_with_a_number_to_set() {
        let config = config(false, Duration::from_secs(30));
        let shown = ShownStats::of(&config, worked([("9000", 900), ("81920", 100)], 100));
        assert_eq!(shown.processing_p999_ms, Some(81_920));
        assert_eq!(shown.suggested_visibility_timeout_ms, Some(123_000));
        let [notice] = &shown.notices[..] else { panic!("{shown:?}") };
        assert_eq!(notice.code, "VISIBILITY_TIMEOUT_TOO_SHORT");
        for part in ["30 s is too short", "100 of 1000 messages", "visibility_timeout_ms to 123000"]
        {
            assert!(notice.message.contains(part), "{}", notice.message);
        }
        let shown = ShownStats::of(&config, worked([("9000", 900), ("10000", 100)], 0));
        assert_eq!(shown.notices, []);
    }

    #[test]
    fn it_is_said_when_a_queue_will_be_full() {
        let queue = config(false, Duration::from_secs(30));
        let queue = QueueConfig { limit_messages: Some(1_000), limit_bytes: Some(20_000), ..queue };
        let observed = QueueObserved {
            arrivals_per_second: 15.0,
            served_per_second: 5.0,
            ..QueueObserved::default()
        };
        let stats = QueueStats { ready: 100, bytes: 10_000, observed, ..QueueStats::default() };
        // A hundred bytes each: ten thousand more are a hundred messages.
        let shown = ShownStats::of(&queue, stats.clone());
        assert_eq!((shown.time_to_limit_ms, shown.notices), (Some(10_000), vec![]));
        let near = QueueStats { bytes: 16_000, ..stats.clone() };
        assert_eq!(ShownStats::of(&queue, near).notices[0].code, "NEAR_LIMIT");
        let shrinking = QueueObserved { arrivals_per_second: 1.0, ..stats.observed.clone() };
        let stats = QueueStats { observed: shrinking, ..stats };
        assert_eq!(ShownStats::of(&queue, stats).time_to_limit_ms, None);
    }

    #[test]
    fn it_is_said_when_a_busy_queue_gets_no_more_partitions() {
        let queue = config(false, Duration::from_secs(30));
        let queue = QueueConfig { only: true, growth_rate: 100, partitions_max: 12, ..queue };
        let observed = QueueObserved { served_per_second: 1_300.0, ..QueueObserved::default() };
        let stats = QueueStats { observed, ..QueueStats::default() };
        let notice = growth_notice(&queue, &stats, 12).unwrap();
        assert_eq!(notice.code, "PARTITIONS_AT_MAX");
        assert!(notice.message.contains("108 messages per second"), "{}", notice.message);
        assert_eq!(
            (growth_notice(&queue, &stats, 11), growth_notice(&queue, &stats, 13)),
            (None, None)
        );
        let fifo = QueueConfig { fifo: true, ..queue };
        assert_eq!(growth_notice(&fifo, &stats, 12), None);
    }

    #[test]
    fn order_is_named_when_it_keeps_receivers_waiting() {
        let config = config(true, Duration::from_secs(30));
        let capped = QueueStats { ready: 7, receivers: 3, held_groups: 1, ..QueueStats::default() };
        let shown = ShownStats::of(&config, capped.clone());
        assert_eq!(shown.notices[0].code, "ORDER_LIMITS_RECEIVERS");
        let idle = QueueStats { ready: 0, ..capped };
        assert_eq!(ShownStats::of(&config, idle).notices, []);
    }
}
