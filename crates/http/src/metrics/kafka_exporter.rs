//! The names and labels of `kafka_exporter` (danielqsj), so that dashboards made for it work.
//!
//! Two values differ on purpose. The lag counts records that are there: a group whose offset lies
//! below the log start has lost the rest and will not read it. And the sum of committed offsets
//! leaves partitions out that have none, where the exporter adds −1 for each.

use std::collections::BTreeMap;

use towpath_driver::GroupLag;

use super::exposition::{Exposition, Kind, Number};
use super::survey::{Survey, SurveyedPartition};
use crate::limits::{METRIC_GROUPS_MAX, METRIC_LAGS_MAX};

/// A column of the table of partitions.
struct Column {
    name: &'static str,
    help: &'static str,
    of: fn(&SurveyedPartition) -> Option<Number>,
}

const COLUMNS: [Column; 7] = [
    Column {
        name: "kafka_topic_partition_current_offset",
        help: "First offset not yet committed",
        of: |partition| Some(partition.report.as_ref()?.position.high_watermark.0.into()),
    },
    Column {
        name: "kafka_topic_partition_oldest_offset",
        help: "First offset kept",
        of: |partition| Some(partition.report.as_ref()?.position.log_start_offset.0.into()),
    },
    Column {
        name: "kafka_topic_partition_leader",
        help: "The broker that leads",
        of: |partition| partition.leader.map(|leader| leader.0.into()),
    },
    Column {
        name: "kafka_topic_partition_leader_is_preferred",
        help: "1 when the first replica leads",
        of: |partition| Some(partition.is_led_by_preferred.into()),
    },
    Column {
        name: "kafka_topic_partition_replicas",
        help: "Replicas",
        of: |partition| Some(partition.replicas.into()),
    },
    Column {
        name: "kafka_topic_partition_in_sync_replica",
        help: "Replicas that are in sync",
        of: |partition| Some(partition.in_sync.into()),
    },
    Column {
        name: "kafka_topic_partition_under_replicated_partition",
        help: "1 when a replica is not in sync",
        of: |partition| Some((partition.in_sync < partition.replicas).into()),
    },
];

/// A group in a topic: offset and lag by partition, where it has any.
type ByPartition<'s> = BTreeMap<i32, &'s GroupLag>;

pub(super) fn write(out: &mut Exposition, survey: &Survey) {
    out.single("kafka_brokers", Kind::Gauge, "Brokers", survey.brokers.len());
    let mut info = out.family("kafka_broker_info", Kind::Gauge, "The brokers, each 1");
    for (id, address) in &survey.brokers {
        info.sample(&[("id", &id.0.to_string()), ("address", address)], 1_i64);
    }
    let mut family = out.family("kafka_topic_partitions", Kind::Gauge, "Partitions of a topic");
    for topic in &survey.topics {
        family.sample(&[("topic", &topic.name)], topic.partition_count);
    }
    for column in &COLUMNS {
        let mut family = out.family(column.name, Kind::Gauge, column.help);
        for topic in &survey.topics {
            for partition in &topic.partitions {
                let labels = [("topic", topic.name.as_str()), ("partition", &partition.index)];
                if let Some(value) = (column.of)(partition) {
                    family.sample(&labels, value);
                }
            }
        }
    }
    write_groups(out, survey);
}

fn write_groups(out: &mut Exposition, survey: &Survey) {
    let mut groups: BTreeMap<(&str, &str), ByPartition<'_>> = BTreeMap::new();
    for row in &survey.lags.rows {
        let partitions = groups.entry((&row.group, row.topic.as_str())).or_default();
        partitions.insert(row.partition.0, row);
    }
    let mut members = out.family("kafka_consumergroup_members", Kind::Gauge, "Members of a group");
    for group in survey.groups.iter().take(METRIC_GROUPS_MAX) {
        members.sample(&[("consumergroup", &*group.group)], group.members);
    }
    let help = "First offset that the group has not processed; -1 for none";
    per_partition(out, "kafka_consumergroup_current_offset", help, survey, &groups, |row| {
        Some(row.map_or(-1, |row| row.committed.0))
    });
    let help = "Records that are there and that the group has not read; -1 without an offset";
    per_partition(out, "kafka_consumergroup_lag", help, survey, &groups, |row| match row {
        None => Some(-1),
        Some(row) => row.lag().map(|lag| lag.records),
    });
    let mut sum = |name, help, of: fn(&GroupLag) -> i64| {
        let mut family = out.family(name, Kind::Gauge, help);
        for ((group, topic), partitions) in &groups {
            let total: i64 = partitions.values().map(|row| of(row)).sum();
            family.sample(&[("consumergroup", group), ("topic", topic)], total);
        }
    };
    let help = "First offsets that the group has not processed, summed over a topic";
    sum("kafka_consumergroup_current_offset_sum", help, |row| row.committed.0);
    let help = "Records that are there and that the group has not read, summed over a topic";
    sum("kafka_consumergroup_lag_sum", help, |row| row.lag().map_or(0, |lag| lag.records));
}

/// Like the exporter: every partition of a topic in which the group has an offset somewhere.
fn per_partition(
    out: &mut Exposition,
    name: &'static str,
    help: &str,
    survey: &Survey,
    groups: &BTreeMap<(&str, &str), ByPartition<'_>>,
    of: impl Fn(Option<&GroupLag>) -> Option<i64>,
) {
    let counts: BTreeMap<&str, usize> =
        survey.topics.iter().map(|topic| (topic.name.as_str(), topic.partitions.len())).collect();
    let mut family = out.family(name, Kind::Gauge, help);
    // Rows with an offset are bounded already; those without one are as far as there is room.
    let mut room = METRIC_LAGS_MAX;
    for ((group, topic), partitions) in groups {
        let count = counts.get(topic).copied().unwrap_or_default();
        let looked_through = if room == 0 { 0 } else { i32::try_from(count).unwrap_or(i32::MAX) };
        let others = partitions.range(looked_through..).map(|(index, _)| *index);
        for index in (0..looked_through).chain(others) {
            let row = partitions.get(&index).copied();
            if row.is_none() {
                if room == 0 {
                    continue;
                }
                room -= 1;
            }
            if let Some(value) = of(row) {
                let index = index.to_string();
                let labels = [("consumergroup", *group), ("topic", topic), ("partition", &index)];
                family.sample(&labels, value);
            }
        }
    }
}
