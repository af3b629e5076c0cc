//! What follows from a queue's statistics: how fast it grows, how long its messages should be hidden, and
//! what somebody should know who wonders why it is slow.

use std::time::Duration;

use serde::Serialize;
use towpath_model::properties::QueueConfig;
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
    visibility_timeout_ms: u64,
    suggested_visibility_timeout_ms: Option<u64>,
    notices: Vec<Notice>,
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
        ];
        ShownStats {
            dead: None,
            growth_per_second: stats.observed.arrivals_per_second
                - stats.observed.served_per_second,
            processing_p50_ms: ms(500),
            processing_p99_ms: ms(990),
            processing_p999_ms: ms(999),
            visibility_timeout_ms: milliseconds(config.visibility_timeout),
            suggested_visibility_timeout_ms: suggested.map(milliseconds),
            notices: notices.into_iter().flatten().collect(),
            stats,
        }
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
    fn order_is_named_when_it_keeps_receivers_waiting() {
        let config = config(true, Duration::from_secs(30));
        let capped = QueueStats { ready: 7, receivers: 3, held_groups: 1, ..QueueStats::default() };
        let shown = ShownStats::of(&config, capped.clone());
        assert_eq!(shown.notices[0].code, "ORDER_LIMITS_RECEIVERS");
        let idle = QueueStats { ready: 0, ..capped };
        assert_eq!(ShownStats::of(&config, idle).notices, []);
    }
}
