//! `towpath group lag`: how many records a group has not read yet, and a check for scripts.

use std::collections::BTreeMap;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{GroupDescription, Offset, TopicPartition};

use crate::complete;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::{Extent, Session};

/// Flags of `group lag`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath group lag reports --fail-if 'records>1000'")]
pub(crate) struct LagArgs {
    /// The groups; all if none is named
    #[arg(add = ArgValueCompleter::new(complete::groups))]
    groups: Vec<String>,
    /// End with 5 if this holds for the records of any one group together: records>N, records>=N
    #[arg(long, value_parser = parse_condition, value_name = "CONDITION")]
    fail_if: Option<Condition>,
    /// One line per group instead of one per partition
    #[arg(long)]
    sum: bool,
}

/// A limit that must not be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition {
    /// The smallest lag at which it holds.
    records_min: i64,
}

fn parse_condition(text: &str) -> Result<Condition, String> {
    let invalid = || format!("{text:?} is no condition: write records>N or records>=N");
    let compact: String = text.split_whitespace().collect();
    let rest = compact.strip_prefix("records").ok_or_else(invalid)?;
    let (limit, is_inclusive) = match rest.strip_prefix(">=") {
        Some(limit) => (limit, true),
        None => (rest.strip_prefix('>').ok_or_else(invalid)?, false),
    };
    let limit: i64 = limit.parse().map_err(|_| invalid())?;
    Ok(Condition { records_min: if is_inclusive { limit } else { limit.saturating_add(1) } })
}

/// Where a group is in one partition.
#[derive(Debug, Clone)]
pub(super) struct LagRow {
    pub(super) place: TopicPartition,
    pub(super) committed: Option<Offset>,
    pub(super) extent: Option<Extent>,
    pub(super) member: Option<String>,
}

impl LagRow {
    /// Records between the committed offset and the end; without a commit, all that are there.
    pub(super) fn lag(&self) -> Option<i64> {
        let extent = self.extent?;
        let from = self.committed.unwrap_or(extent.start).max(extent.start);
        Some((extent.end - from).max(0))
    }

    /// Records that were deleted before the group had read them.
    fn lost(&self) -> i64 {
        match (self.committed, self.extent) {
            (Some(committed), Some(extent)) => (extent.start - committed).max(0),
            _ => 0,
        }
    }
}

/// Every partition in which the group has committed, or that one of its members holds.
pub(super) async fn group_lag(
    session: &Session,
    group: &str,
    description: Option<&GroupDescription>,
) -> Outcome<Vec<LagRow>> {
    let committed = session.admin.group_offsets(group).await?;
    let mut rows: BTreeMap<TopicPartition, LagRow> = BTreeMap::new();
    let mut row = |place: &TopicPartition, member: Option<&str>| {
        let row = rows.entry(place.clone()).or_insert_with(|| LagRow {
            place: place.clone(),
            committed: committed.get(place).map(|committed| committed.offset),
            extent: None,
            member: None,
        });
        row.member = member.map(str::to_owned).or(row.member.take());
    };
    committed.keys().for_each(|place| row(place, None));
    for member in description.iter().flat_map(|description| &description.members) {
        member.assignment.iter().for_each(|place| row(place, Some(&member.member_id)));
    }
    let topics = session.admin.topics().await?;
    // Offsets of topics that are gone stay with the group until they expire.
    let is_there = |place: &TopicPartition| {
        let partition = topics.get(&place.topic).and_then(|topic| topic.partition(place.partition));
        partition.is_some_and(|partition| partition.leader.is_some())
    };
    let places: Vec<_> = rows.keys().filter(|place| is_there(place)).cloned().collect();
    for (place, extent) in session.extents(&places).await? {
        if let Some(row) = rows.get_mut(&place) {
            row.extent = Some(extent);
        }
    }
    Ok(rows.into_values().collect())
}

/// The rows as a table, for this command and for `group show`.
pub(super) fn lag_table<'r>(rows: impl IntoIterator<Item = (&'r str, &'r LagRow)>) -> Table {
    let columns = [
        "group",
        "topic",
        "partition",
        "committed",
        "end_offset",
        "lag_records",
        "lost_records",
        "member",
    ];
    let mut table = Table::new("offsets", &columns);
    for (group, row) in rows {
        table.row(vec![
            group.into(),
            (*row.place.topic).into(),
            row.place.partition.0.into(),
            Cell::or_none(row.committed.map(|offset| offset.0)),
            Cell::or_none(row.extent.map(|extent| extent.end.0)),
            row.lag().map_or_else(Cell::none, Cell::count),
            Cell::count(row.lost()),
            Cell::or_none(row.member.clone()),
        ]);
    }
    table
}

pub(crate) async fn run(session: &Session, args: &LagArgs) -> Outcome {
    let groups = if args.groups.is_empty() {
        session.admin.groups().await?.into_iter().map(|group| group.group).collect()
    } else {
        args.groups.clone()
    };
    let mut lags = Vec::new();
    for group in groups {
        let description = session.admin.group(&group).await?;
        let rows = group_lag(session, &group, description.as_ref()).await?;
        if description.is_none() && rows.is_empty() {
            return Err(session.unknown_group(&group).await);
        }
        lags.push((group, rows));
    }
    let sum = |rows: &[LagRow]| rows.iter().filter_map(LagRow::lag).sum::<i64>();
    if args.sum {
        let mut table = Table::new("groups", &["group", "partitions", "lag_records"]);
        for (group, rows) in &lags {
            table.row(vec![group.as_str().into(), rows.len().into(), Cell::count(sum(rows))]);
        }
        session.print(&Report::new().table(table))?;
    } else {
        let rows =
            lags.iter().flat_map(|(group, rows)| rows.iter().map(|row| (group.as_str(), row)));
        session.print(&Report::new().table(lag_table(rows)))?;
    }
    let holds =
        |condition: Condition| lags.iter().any(|(_, rows)| condition.records_min <= sum(rows));
    Ok(if args.fail_if.is_some_and(holds) { Exit::CheckHolds } else { Exit::Ok })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_with_and_without_equality() {
        assert_eq!(parse_condition("records>100"), Ok(Condition { records_min: 101 }));
        assert_eq!(parse_condition(" records >= 100 "), Ok(Condition { records_min: 100 }));
        for text in ["seconds>5", "records<5", "records>", "records>x"] {
            assert!(parse_condition(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lag_counts_what_is_there_and_what_was_lost() {
        let extent = Some(Extent { start: Offset(10), end: Offset(30) });
        let row = |committed: Option<i64>| LagRow {
            place: TopicPartition::new("t", 0),
            committed: committed.map(Offset),
            extent,
            member: None,
        };
        assert_eq!((row(Some(25)).lag(), row(Some(25)).lost()), (Some(5), 0));
        assert_eq!((row(Some(4)).lag(), row(Some(4)).lost()), (Some(20), 6));
        assert_eq!((row(None).lag(), row(None).lost()), (Some(20), 0));
        assert_eq!(row(Some(99)).lag(), Some(0));
    }
}
