//! `towpath group lag`: how far groups are behind, in records, seconds and as a part of retention,
//! and a check for scripts.
//!
//! Offsets come over the Kafka protocol; what it has no words for, from the broker's HTTP API.

use std::collections::BTreeMap;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{GroupDescription, Offset, TopicPartition};

use crate::broker_api::{self, BrokerApi, Loss};
use crate::complete;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::{Extent, Session};

/// Flags of `group lag`.
#[derive(Debug, Args)]
#[command(after_help = "Examples: towpath group lag reports --fail-if 'seconds>300'\n          \
    towpath group lag --fail-if 'ratio>=0.5'")]
pub(crate) struct LagArgs {
    /// The groups; all if none is named
    #[arg(add = ArgValueCompleter::new(complete::groups))]
    groups: Vec<String>,
    /// End with 5 if this holds for any one group: records, lost (together), seconds, ratio (of its
    /// worst partition), each with > or >= and a number
    #[arg(long, value_parser = parse_condition, value_name = "CONDITION")]
    fail_if: Option<Condition>,
    /// One line per group instead of one per partition
    #[arg(long)]
    sum: bool,
}

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Records,
    Lost,
    Seconds,
    Ratio,
}

/// A limit that must not be passed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Condition {
    quantity: Quantity,
    limit: f64,
    is_inclusive: bool,
}

impl Condition {
    fn holds(self, value: f64) -> bool {
        if self.is_inclusive { self.limit <= value } else { self.limit < value }
    }
}

fn parse_condition(text: &str) -> Result<Condition, String> {
    const QUANTITIES: [(&str, Quantity); 4] = [
        ("records", Quantity::Records),
        ("lost", Quantity::Lost),
        ("seconds", Quantity::Seconds),
        ("ratio", Quantity::Ratio),
    ];
    let invalid = || {
        format!("{text:?} is no condition: write records>N, lost>N, seconds>N or ratio>N, or >=")
    };
    let compact: String = text.split_whitespace().collect();
    let named =
        |(name, quantity): &(&str, Quantity)| Some((compact.strip_prefix(name)?, *quantity));
    let (rest, quantity) = QUANTITIES.iter().find_map(named).ok_or_else(invalid)?;
    let (limit, is_inclusive) = match rest.strip_prefix(">=") {
        Some(limit) => (limit, true),
        None => (rest.strip_prefix('>').ok_or_else(invalid)?, false),
    };
    let limit: f64 = limit.parse().map_err(|_| invalid())?;
    if limit.is_nan() { Err(invalid()) } else { Ok(Condition { quantity, limit, is_inclusive }) }
}

/// Where a group is in one partition.
#[derive(Debug, Clone)]
pub(super) struct LagRow {
    pub(super) place: TopicPartition,
    pub(super) committed: Option<Offset>,
    pub(super) extent: Option<Extent>,
    pub(super) member: Option<String>,
    /// What only the broker can tell; `None` when it was not asked or does not lead the partition.
    pub(super) told: Option<Told>,
}

/// What the broker tells beside the offsets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) seconds: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) seconds_to_loss: Option<u64>,
}

/// A group's lag, and what it has lost.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupLag {
    pub(super) rows: Vec<LagRow>,
    pub(super) losses: Vec<Loss>,
    /// Why the broker could not be asked for what only it can tell.
    pub(super) silence: Option<String>,
}

impl GroupLag {
    pub(super) fn records(&self) -> i64 {
        self.rows.iter().filter_map(LagRow::lag).sum()
    }

    pub(super) fn lost(&self) -> i64 {
        self.rows.iter().map(LagRow::lost).sum()
    }

    pub(super) fn seconds(&self) -> Option<f64> {
        self.told().filter_map(|told| told.seconds).reduce(f64::max)
    }

    pub(super) fn ratio(&self) -> Option<f64> {
        self.told().filter_map(|told| told.ratio).reduce(f64::max)
    }

    pub(super) fn seconds_to_loss(&self) -> Option<u64> {
        self.told().filter_map(|told| told.seconds_to_loss).min()
    }

    fn told(&self) -> impl Iterator<Item = Told> + '_ {
        self.rows.iter().filter_map(|row| row.told)
    }

    /// Whether the condition holds; `None`: nobody knows.
    fn meets(&self, condition: Condition) -> Option<bool> {
        let value = match condition.quantity {
            Quantity::Records => self.records() as f64,
            Quantity::Lost => self.lost() as f64,
            Quantity::Seconds => self.seconds().unwrap_or_default(),
            Quantity::Ratio => self.ratio().unwrap_or_default(),
        };
        let is_told = matches!(condition.quantity, Quantity::Seconds | Quantity::Ratio);
        (!is_told || self.silence.is_none()).then(|| condition.holds(value))
    }

    /// Puts what the broker tells in the place of what was looked up beside it: then all numbers of
    /// a row are of one moment.
    fn hear(&mut self, told: broker_api::GroupLag) {
        for lag in told.partitions {
            let place = TopicPartition::new(lag.topic.as_str(), lag.partition);
            let Some(row) = self.rows.iter_mut().find(|row| row.place == place) else { continue };
            let (Some(start), Some(end)) = (lag.log_start_offset, lag.high_watermark) else {
                continue;
            };
            row.committed = Some(Offset(lag.committed_offset));
            row.extent = Some(Extent { start: Offset(start), end: Offset(end) });
            row.told = Some(Told {
                seconds: lag.lag_seconds,
                ratio: lag.retention_ratio,
                seconds_to_loss: lag.time_to_loss_seconds,
            });
        }
        self.losses = told.losses;
    }
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
    api: &BrokerApi,
) -> Outcome<GroupLag> {
    let committed = session.admin.group_offsets(group).await?;
    let mut rows: BTreeMap<TopicPartition, LagRow> = BTreeMap::new();
    let mut row = |place: &TopicPartition, member: Option<&str>| {
        let row = rows.entry(place.clone()).or_insert_with(|| LagRow {
            place: place.clone(),
            committed: committed.get(place).map(|committed| committed.offset),
            extent: None,
            member: None,
            told: None,
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
    let mut lag = GroupLag { rows: rows.into_values().collect(), ..GroupLag::default() };
    match api.group_lag(group).await {
        Ok(told) => told.into_iter().for_each(|told| lag.hear(told)),
        Err(why) => lag.silence = Some(why),
    }
    Ok(lag)
}

/// Says once why seconds and forecasts are missing.
pub(super) fn explain_silence(session: &Session, silence: Option<&str>) {
    if let Some(why) = silence {
        session.say(format!("lag in seconds and the time to loss are not known: {why}"));
    }
}

/// What a group has lost, as a table.
pub(super) fn loss_table(losses: &[Loss]) -> Table {
    let columns = ["topic", "partition", "first_offset", "last_offset", "records", "cause", "at"];
    let mut table = Table::new("losses", &columns);
    for loss in losses {
        table.row(vec![
            loss.topic.as_str().into(),
            loss.partition.into(),
            loss.first_offset.into(),
            loss.last_offset.into(),
            Cell::count(loss.records),
            loss.cause.as_str().into(),
            loss.at.into(),
        ]);
    }
    table
}

pub(super) fn seconds(seconds: Option<f64>) -> Cell {
    seconds.map_or_else(Cell::none, Cell::seconds)
}

pub(super) fn ratio(ratio: Option<f64>) -> Cell {
    ratio.map_or_else(Cell::none, Cell::retention_ratio)
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
        "lag_seconds",
        "retention_ratio",
        "time_to_loss_seconds",
        "lost_records",
        "member",
    ];
    let mut table = Table::new("offsets", &columns);
    for (group, row) in rows {
        let told = row.told.unwrap_or_default();
        table.row(vec![
            group.into(),
            (*row.place.topic).into(),
            row.place.partition.0.into(),
            Cell::or_none(row.committed.map(|offset| offset.0)),
            Cell::or_none(row.extent.map(|extent| extent.end.0)),
            row.lag().map_or_else(Cell::none, Cell::count),
            seconds(told.seconds),
            ratio(told.ratio),
            seconds(told.seconds_to_loss.map(|left| left as f64)),
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
    let api = BrokerApi::of_any(session).await;
    let mut lags = Vec::new();
    for group in groups {
        let description = session.admin.group(&group).await?;
        let lag = group_lag(session, &group, description.as_ref(), &api).await?;
        if description.is_none() && lag.rows.is_empty() {
            return Err(session.unknown_group(&group).await);
        }
        lags.push((group, lag));
    }
    let silence = lags.iter().find_map(|(_, lag)| lag.silence.as_deref());
    if args.sum {
        session.print(&Report::new().table(sums(&lags)))?;
    } else {
        let rows = lags.iter().flat_map(|(group, lag)| {
            let rows = lag.rows.iter();
            rows.map(|row| (group.as_str(), row))
        });
        session.print(&Report::new().table(lag_table(rows)))?;
    }
    explain_silence(session, silence);
    let Some(condition) = args.fail_if else { return Ok(Exit::Ok) };
    let met: Vec<Option<bool>> = lags.iter().map(|(_, lag)| lag.meets(condition)).collect();
    if met.contains(&Some(true)) {
        return Ok(Exit::CheckHolds);
    }
    if met.contains(&None) {
        let why = silence.unwrap_or_default();
        return Err(Failure::new(format!("the condition cannot be judged: {why}")));
    }
    Ok(Exit::Ok)
}

fn sums(lags: &[(String, GroupLag)]) -> Table {
    let columns = [
        "group",
        "partitions",
        "lag_records",
        "lag_seconds",
        "retention_ratio",
        "time_to_loss_seconds",
        "lost_records",
    ];
    let mut table = Table::new("groups", &columns);
    for (group, lag) in lags {
        table.row(vec![
            group.as_str().into(),
            lag.rows.len().into(),
            Cell::count(lag.records()),
            seconds(lag.seconds()),
            ratio(lag.ratio()),
            seconds(lag.seconds_to_loss().map(|left| left as f64)),
            Cell::count(lag.lost()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_with_and_without_equality() {
        let condition =
            |quantity, limit, is_inclusive| Ok(Condition { quantity, limit, is_inclusive });
        assert_eq!(parse_condition("records>100"), condition(Quantity::Records, 100.0, false));
        assert_eq!(parse_condition(" seconds >= 2.5 "), condition(Quantity::Seconds, 2.5, true));
        assert_eq!(parse_condition("ratio>=0.5"), condition(Quantity::Ratio, 0.5, true));
        assert_eq!(parse_condition("lost>0"), condition(Quantity::Lost, 0.0, false));
        for text in ["bytes>5", "records<5", "records>", "records>x", "ratio>nan"] {
            assert!(parse_condition(text).is_err(), "{text}");
        }
        let at_most = |text: &str, value| !parse_condition(text).unwrap().holds(value);
        assert!(at_most("records>100", 100.0) && !at_most("records>=100", 100.0));
    }

    #[test]
    fn a_condition_on_what_nobody_knows_is_not_met_in_silence() {
        let told = Told { seconds: Some(9.0), ratio: Some(0.25), seconds_to_loss: Some(60) };
        let row = |told| LagRow {
            place: TopicPartition::new("t", 0),
            committed: Some(Offset(1)),
            extent: Some(Extent { start: Offset(0), end: Offset(5) }),
            member: None,
            told,
        };
        let meets = |lag: &GroupLag, text: &str| lag.meets(parse_condition(text).unwrap());
        let known = GroupLag { rows: vec![row(Some(told))], ..GroupLag::default() };
        assert_eq!(meets(&known, "seconds>5"), Some(true));
        assert_eq!(meets(&known, "ratio>0.5"), Some(false));
        let silence = Some("no HTTP".to_owned());
        let unknown = GroupLag { rows: vec![row(None)], silence, ..GroupLag::default() };
        assert_eq!(meets(&unknown, "seconds>5"), None);
        assert_eq!(meets(&unknown, "records>=4"), Some(true));
    }

    #[test]
    fn lag_counts_what_is_there_and_what_was_lost() {
        let extent = Some(Extent { start: Offset(10), end: Offset(30) });
        let row = |committed: Option<i64>| LagRow {
            place: TopicPartition::new("t", 0),
            committed: committed.map(Offset),
            extent,
            member: None,
            told: None,
        };
        assert_eq!((row(Some(25)).lag(), row(Some(25)).lost()), (Some(5), 0));
        assert_eq!((row(Some(4)).lag(), row(Some(4)).lost()), (Some(20), 6));
        assert_eq!((row(None).lag(), row(None).lost()), (Some(20), 0));
        assert_eq!(row(Some(99)).lag(), Some(0));
    }
}
