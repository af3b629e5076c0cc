//! Series per group and partition: how far behind, how long until retention overtakes, what is lost.

use towpath_driver::{Cause, GroupLag, Lag};

use super::exposition::{Exposition, Kind, Number};
use super::survey::Survey;

/// A column of the table of lags.
struct Column {
    name: &'static str,
    help: &'static str,
    of: fn(&Lag) -> Option<Number>,
}

const COLUMNS: [Column; 6] = [
    Column {
        name: "towpath_group_lag_records",
        help: "Records that are there and that the group has not read",
        of: |lag| Some(lag.records.into()),
    },
    Column {
        name: "towpath_group_lag_seconds",
        help: "How long the first record that the group has not read has been in the log",
        of: |lag| lag.age_seconds().map(Number::from),
    },
    Column {
        name: "towpath_group_lag_bytes",
        help: "Bytes that the group has not read, about",
        of: |lag| Some(lag.bytes.into()),
    },
    Column {
        name: "towpath_group_retention_ratio",
        help: "The lag as a part of what retention allows by time or size, whichever is more",
        of: |lag| lag.rounded_ratio().map(Number::from),
    },
    Column {
        name: "towpath_group_time_to_loss_seconds",
        help: "Earliest time until retention may delete what the group has not read; absent: never",
        of: |lag| lag.seconds_to_loss().map(Number::from),
    },
    Column {
        name: "towpath_group_lost_records",
        help: "Records below the log start that the group had not read",
        of: |lag| Some(lag.lost_records.into()),
    },
];

pub(super) fn write(out: &mut Exposition, survey: &Survey) {
    let members: usize = survey.groups.iter().map(|group| group.members).sum();
    let lags = || survey.lags.rows.iter().filter_map(GroupLag::lag);
    let warned = lags().filter(|lag| lag.is_warned_of()).count();
    let worst = lags().filter_map(Lag::rounded_ratio).fold(0.0, f64::max);
    out.single("towpath_groups", Kind::Gauge, "Consumer groups", survey.groups.len());
    let help = "Members of all consumer groups";
    out.single("towpath_group_members", Kind::Gauge, help, members);
    let help = "Rebalances of all consumer groups that have begun";
    out.single("towpath_group_rebalances", Kind::Counter, help, survey.rebalances);
    let help = "Groups in partitions that have used up half of retention or more";
    out.single("towpath_group_lags_warned", Kind::Gauge, help, warned);
    let help = "The largest part of retention that any group has used up";
    out.single("towpath_group_retention_ratio_max", Kind::Gauge, help, worst);
    let help = "Groups in partitions without series here, because there are too many";
    out.single("towpath_group_lags_omitted", Kind::Gauge, help, survey.lags.omitted);

    let indexes: Vec<String> =
        survey.lags.rows.iter().map(|row| row.partition.0.to_string()).collect();
    for column in &COLUMNS {
        let mut family = out.family(column.name, Kind::Gauge, column.help);
        for (row, index) in survey.lags.rows.iter().zip(&indexes) {
            if let Some(value) = row.lag().and_then(column.of) {
                let labels =
                    [("group", &*row.group), ("topic", row.topic.as_str()), ("partition", index)];
                family.sample(&labels, value);
            }
        }
    }
    write_guard(out, survey);
}

fn write_guard(out: &mut Exposition, survey: &Survey) {
    let guard = &survey.guard;
    let help = "Records that were deleted before a group had read them";
    let mut lost = out.family("towpath_retention_lost_records", Kind::Counter, help);
    for cause in Cause::ALL {
        let records = guard.lost_records.get(&cause).copied().unwrap_or_default();
        lost.sample(&[("cause", cause.as_str())], records);
    }
    let help = "How often retention.guard has begun to hold records of a topic";
    out.single("towpath_retention_holds", Kind::Counter, help, guard.holds_begun);
    let help = "Bytes of expired records that retention.guard holds for groups";
    let mut held = out.family("towpath_retention_held_bytes", Kind::Gauge, help);
    let shown = |topic: &str| survey.topics.iter().any(|surveyed| surveyed.name == topic);
    for (topic, bytes) in guard.held_bytes.iter().filter(|(topic, _)| shown(topic.as_str())) {
        held.sample(&[("topic", topic.as_str())], *bytes);
    }
}
