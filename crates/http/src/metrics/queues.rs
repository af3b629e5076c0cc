//! Series per queue, summed over the partitions that this broker leads: the sum over all brokers is the
//! queue.

use towpath_queue::Stats;

use super::exposition::{Exposition, Kind, Number};
use super::survey::{Survey, SurveyedTopic};

/// A column of the table of queues.
struct Column {
    name: &'static str,
    help: &'static str,
    of: fn(&[&Stats]) -> Number,
}

const COLUMNS: [Column; 7] = [
    Column {
        name: "towpath_queue_ready_messages",
        help: "Messages of a queue that can be received, or wait for an earlier one of their group",
        of: |stats| sum(stats, |stats| stats.ready),
    },
    Column {
        name: "towpath_queue_in_flight_messages",
        help: "Messages of a queue that receivers hold",
        of: |stats| sum(stats, |stats| stats.in_flight),
    },
    Column {
        name: "towpath_queue_delayed_messages",
        help: "Messages of a queue that are not delivered yet",
        of: |stats| sum(stats, |stats| stats.delayed),
    },
    Column {
        name: "towpath_queue_moving_messages",
        help: "Messages on their way to another queue, such as dead letters",
        of: |stats| sum(stats, |stats| stats.moving),
    },
    Column {
        name: "towpath_queue_waiting_receivers",
        help: "Receivers that wait for messages of a queue",
        of: |stats| sum(stats, |stats| stats.receivers),
    },
    Column {
        name: "towpath_queue_oldest_waiting_seconds",
        help: "Age of the oldest message of a queue that nobody holds",
        of: |stats| oldest(stats, |stats| stats.oldest_waiting),
    },
    Column {
        name: "towpath_queue_oldest_seconds",
        help: "Age of the oldest message of a queue",
        of: |stats| oldest(stats, |stats| stats.oldest),
    },
];

fn sum(stats: &[&Stats], of: fn(&Stats) -> u64) -> Number {
    stats.iter().map(|stats| of(stats)).sum::<u64>().into()
}

/// Zero where there is none.
fn oldest(stats: &[&Stats], of: fn(&Stats) -> Option<std::time::Duration>) -> Number {
    let oldest = stats.iter().filter_map(|stats| of(stats)).max();
    oldest.unwrap_or_default().as_secs_f64().into()
}

pub(super) fn write(out: &mut Exposition, survey: &Survey) {
    let led = |topic: &'_ SurveyedTopic| -> Vec<Stats> {
        topic.partitions.iter().filter_map(|partition| partition.deliveries).collect()
    };
    let queues: Vec<(&str, Vec<Stats>)> =
        survey.topics.iter().map(|topic| (topic.name.as_str(), led(topic))).collect();
    let queues: Vec<_> = queues.iter().filter(|(_, stats)| !stats.is_empty()).collect();
    for column in &COLUMNS {
        let mut family = out.family(column.name, Kind::Gauge, column.help);
        for (name, stats) in &queues {
            let stats: Vec<&Stats> = stats.iter().collect();
            family.sample(&[("queue", name)], (column.of)(&stats));
        }
    }
}
