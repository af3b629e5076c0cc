//! Series per queue, summed over the partitions that this broker leads: the sum over all brokers is the
//! queue. Counters begin anew where a leadership does.
//!
//! What has a reason or a size as a label has as many series for each queue as there are reasons or sizes.

use std::collections::BTreeSet;

use towpath_model::properties::QueueConfig;
use towpath_queue::{
    DeadReason, Fill, Limits, Observed, RECEIVES_UP_TO, Return, Settlement, Stats,
};

use crate::queues::worked;

use super::exposition::{Exposition, Kind, Number, Sizes};
use super::survey::{Survey, SurveyedTopic};

/// A queue, as far as it is led here.
struct Queue<'s> {
    name: &'s str,
    config: &'s QueueConfig,
    /// By partition.
    led: Vec<&'s (Stats, Observed)>,
    fills: Vec<&'s (Fill, Limits)>,
    /// Messages that were sent and not taken.
    refused: u64,
}

impl Queue<'_> {
    fn sum(&self, of: impl Fn(&Stats) -> u64) -> u64 {
        self.led.iter().map(|(stats, _)| of(stats)).sum()
    }

    fn count(&self, of: impl Fn(&Observed) -> u64) -> u64 {
        self.led.iter().map(|(_, seen)| of(seen)).sum()
    }

    /// Zero where there is none.
    fn oldest(&self, of: impl Fn(&Stats) -> Option<std::time::Duration>) -> Number {
        let oldest = self.led.iter().filter_map(|(stats, _)| of(stats)).max();
        oldest.unwrap_or_default().as_secs_f64().into()
    }
}

/// A column of the table of queues.
struct Column {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: fn(&Queue<'_>) -> Number,
}

const COLUMNS: [Column; 19] = [
    Column {
        name: "towpath_queue_ready_messages",
        kind: Kind::Gauge,
        help: "Messages of a queue that can be received, or wait for an earlier one of their group",
        of: |queue| queue.sum(|stats| stats.ready).into(),
    },
    Column {
        name: "towpath_queue_in_flight_messages",
        kind: Kind::Gauge,
        help: "Messages of a queue that receivers hold",
        of: |queue| queue.sum(|stats| stats.in_flight).into(),
    },
    Column {
        name: "towpath_queue_delayed_messages",
        kind: Kind::Gauge,
        help: "Messages of a queue that are not delivered yet",
        of: |queue| queue.sum(|stats| stats.delayed).into(),
    },
    Column {
        name: "towpath_queue_moving_messages",
        kind: Kind::Gauge,
        help: "Messages on their way to another queue, such as dead letters",
        of: |queue| queue.sum(|stats| stats.moving).into(),
    },
    Column {
        name: "towpath_queue_unmovable_messages",
        kind: Kind::Gauge,
        help: "Messages that are ready or delayed because another queue, such as the dead-letter queue, does not take them",
        of: |queue| queue.sum(|stats| stats.unmovable).into(),
    },
    Column {
        name: "towpath_queue_ready_groups",
        kind: Kind::Gauge,
        help: "Message groups of a queue that can be received from now: so many receivers can work",
        of: |queue| queue.sum(|stats| stats.ready_groups).into(),
    },
    Column {
        name: "towpath_queue_waiting_receivers",
        kind: Kind::Gauge,
        help: "Receivers that wait for messages of a queue",
        of: |queue| queue.sum(|stats| stats.receivers).into(),
    },
    Column {
        name: "towpath_queue_oldest_waiting_seconds",
        kind: Kind::Gauge,
        help: "Age of the oldest message of a queue that can be received",
        of: |queue| queue.oldest(|stats| stats.oldest_waiting),
    },
    Column {
        name: "towpath_queue_oldest_seconds",
        kind: Kind::Gauge,
        help: "Age of the oldest message of a queue",
        of: |queue| queue.oldest(|stats| stats.oldest),
    },
    Column {
        name: "towpath_queue_in_messages",
        kind: Kind::Counter,
        help: "Messages that came to a queue, without those that repeat others",
        of: |queue| queue.count(|seen| seen.admitted).into(),
    },
    Column {
        name: "towpath_queue_bytes",
        kind: Kind::Gauge,
        help: "Bytes of the messages of a queue that are there, about",
        of: |queue| queue.fills.iter().map(|(fill, _)| fill.bytes).sum::<u64>().into(),
    },
    Column {
        name: "towpath_queue_limit_ratio",
        kind: Kind::Gauge,
        help: "How much of a queue's limits its fullest partition uses up: 1 is full, 0 without limit",
        of: |queue| {
            let full = queue.fills.iter().map(|(fill, share)| share.full_per_mille(fill)).max();
            (full.unwrap_or(0) as f64 / 1_000.0).into()
        },
    },
    Column {
        name: "towpath_queue_refused_messages",
        kind: Kind::Counter,
        help: "Messages that a queue did not take because of a limit, each try counted",
        of: |queue| queue.refused.into(),
    },
    Column {
        name: "towpath_queue_duplicate_messages",
        kind: Kind::Counter,
        help: "Messages that repeat others, and are not delivered",
        of: |queue| queue.count(|seen| seen.duplicates).into(),
    },
    Column {
        name: "towpath_queue_received_messages",
        kind: Kind::Counter,
        help: "Messages of a queue that were handed out, each time counted",
        of: |queue| queue.count(|seen| seen.received).into(),
    },
    Column {
        name: "towpath_queue_late_deletes",
        kind: Kind::Counter,
        help: "Messages of a queue that were deleted after their lease had ended",
        of: |queue| queue.count(|seen| seen.always.late_deletes).into(),
    },
    Column {
        name: "towpath_queue_extended_leases",
        kind: Kind::Counter,
        help: "Times that a receiver of a queue prolonged a lease",
        of: |queue| queue.count(|seen| seen.always.extended).into(),
    },
    Column {
        name: "towpath_queue_visibility_timeout_seconds",
        kind: Kind::Gauge,
        help: "How long a received message of a queue is hidden, as it is configured",
        of: |queue| queue.config.visibility_timeout.as_secs_f64().into(),
    },
    Column {
        name: "towpath_queue_suggested_visibility_timeout_seconds",
        kind: Kind::Gauge,
        help: "What that should be, from how long work took lately; 0 while that is not known",
        of: |queue| {
            let fitting = worked(queue.led.iter().map(|(_, seen)| seen)).suggested_visibility();
            fitting.unwrap_or_default().as_secs_f64().into()
        },
    },
];

pub(super) fn write(out: &mut Exposition, survey: &Survey) {
    let queues: Vec<Queue<'_>> = led_here(survey);
    for column in &COLUMNS {
        let mut family = out.family(column.name, column.kind, column.help);
        for queue in &queues {
            family.sample(&[("queue", queue.name)], (column.of)(queue));
        }
    }
    write_dead(out, survey, &queues);
    write_reasons(out, &queues);
    write_sizes(out, &queues);
}

fn led_here(survey: &Survey) -> Vec<Queue<'_>> {
    let queues = survey.topics.iter().filter_map(queue);
    queues.filter(|queue| !queue.led.is_empty()).collect()
}

fn queue(topic: &SurveyedTopic) -> Option<Queue<'_>> {
    let led = topic.partitions.iter().filter_map(|each| each.deliveries.as_ref()).collect();
    let fills = topic.partitions.iter().filter_map(|each| each.fill.as_ref()).collect();
    let reports = topic.partitions.iter().filter_map(|each| each.report.as_ref());
    let refused = reports.map(|report| report.traffic.records_refused).sum();
    Some(Queue { name: &topic.name, config: topic.queue.as_ref()?, led, fills, refused })
}

/// Queues that are the dead-letter queue of another one.
fn write_dead(out: &mut Exposition, survey: &Survey, queues: &[Queue<'_>]) {
    let configs = survey.topics.iter().filter_map(|topic| topic.queue.as_ref());
    let dead = configs.filter_map(|config| config.dead_letter_queue.as_ref());
    let dead: BTreeSet<&str> = dead.map(|name| name.as_str()).collect();
    let help = "Messages in a queue that is another one's dead-letter queue";
    let mut family = out.family("towpath_queue_dead_messages", Kind::Gauge, help);
    for queue in queues.iter().filter(|queue| dead.contains(queue.name)) {
        let depth = |stats: &Stats| stats.ready + stats.in_flight + stats.delayed + stats.moving;
        family.sample(&[("queue", queue.name)], queue.sum(depth));
    }
}

fn write_reasons(out: &mut Exposition, queues: &[Queue<'_>]) {
    let help = "Messages of a queue that came back, by why";
    let mut family = out.family("towpath_queue_returned_messages", Kind::Counter, help);
    for queue in queues {
        for why in Return::ALL {
            let labels = [("queue", queue.name), ("reason", why.name())];
            family.sample(&labels, queue.count(|seen| seen.returned(why)));
        }
    }
    let help = "Messages of a queue that lie in another one now, by why";
    let mut family = out.family("towpath_queue_moved_messages", Kind::Counter, help);
    for queue in queues {
        for reason in DeadReason::ALL {
            let labels = [("queue", queue.name), ("reason", reason.name())];
            family.sample(&labels, queue.count(|seen| seen.moved(reason)));
        }
    }
    let help = "Messages that a queue is done with, by how";
    let mut family = out.family("towpath_queue_settled_messages", Kind::Counter, help);
    for queue in queues {
        for how in Settlement::ALL {
            let labels = [("queue", queue.name), ("how", how.name())];
            family.sample(&labels, queue.count(|seen| seen.settled(how)));
        }
    }
}

fn write_sizes(out: &mut Exposition, queues: &[Queue<'_>]) {
    let help = "From receiving a message to deleting it";
    let mut family = out.family("towpath_queue_processing_seconds", Kind::Histogram, help);
    for queue in queues {
        family.histogram(&[("queue", queue.name)], &processing(queue));
    }
    let help = "How often messages had been received when they were deleted";
    let mut family = out.family("towpath_queue_receives", Kind::Histogram, help);
    for queue in queues {
        family.histogram(&[("queue", queue.name)], &receives(queue));
    }
}

/// Bounds that are bounds of what was counted: from 16 ms to most of a day, each four times the one before.
fn processing(queue: &Queue<'_>) -> Sizes {
    let buckets: Vec<(u64, u64)> =
        queue.led.iter().flat_map(|(_, seen)| seen.always.processing.buckets()).collect();
    let below = |end: u64| {
        buckets.iter().filter(|(bound, _)| *bound <= end).map(|(_, count)| count).sum::<u64>()
    };
    let bound =
        |power: u32| (format!("{:?}", 4_f64.powf(power.into()) / 1_000.0), below(4_u64.pow(power)));
    let mut up_to: Vec<(String, u64)> = (2..=13).map(bound).collect();
    up_to.push(("+Inf".to_owned(), below(u64::MAX)));
    Sizes { up_to, sum: queue.count(|seen| seen.always.processing.sum_ms()) as f64 / 1_000.0 }
}

fn receives(queue: &Queue<'_>) -> Sizes {
    let (mut up_to, mut all) = (Vec::new(), 0);
    for at in 0..=RECEIVES_UP_TO.len() {
        all += queue.count(|seen| seen.receives[at]);
        let bound = RECEIVES_UP_TO.get(at).map_or("+Inf".to_owned(), |up_to| format!("{up_to}.0"));
        up_to.push((bound, all));
    }
    Sizes { up_to, sum: queue.count(|seen| seen.receives_sum) as f64 }
}
