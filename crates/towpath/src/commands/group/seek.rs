//! `towpath group seek`: moves what a group has committed, and shows before and after first.

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgGroup, Args};
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{Committed, GroupDescription, Offset, TopicPartition};

use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::{Extent, Session, partitions_of};
use crate::units::plural;
use crate::when::{When, parse_when};

/// Flags of `group seek`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").required(true).args(["to", "by", "at"]))]
#[command(after_help = "Examples:
  towpath group seek reports --to earliest --dry-run
  towpath group seek reports --at 2026-11-29T08:00:00Z -t orders
  towpath group seek reports --by -100 --yes")]
pub(crate) struct SeekArgs {
    /// The group
    #[arg(add = ArgValueCompleter::new(complete::groups))]
    group: String,
    /// Only these topics; they need not be committed yet. All committed ones if none is named
    #[arg(short, long = "topic", add = ArgValueCompleter::new(complete::topics))]
    topics: Vec<String>,
    /// Only this partition
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// To a place: earliest, latest, offset:N, -15m, or a time
    #[arg(long, value_parser = parse_when, allow_hyphen_values = true, value_name = "WHEN")]
    to: Option<When>,
    /// By so many records, backwards if negative
    #[arg(long, allow_hyphen_values = true, value_name = "RECORDS")]
    by: Option<i64>,
    /// To the first record at or after a time: RFC 3339, -15m, @MILLISECONDS
    #[arg(long, value_parser = parse_when, allow_hyphen_values = true, value_name = "TIME")]
    at: Option<When>,
    /// Try although the group has live members; the server usually refuses
    #[arg(long)]
    force: bool,
}

/// Committing from outside works only while nobody is in the group.
pub(super) fn refuse_live_members(description: &GroupDescription) -> Outcome<()> {
    if description.members.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(description.members.len()).unwrap_or(i64::MAX);
    let message = format!("group {:?} has {}", description.group, plural(count, "live member"));
    Err(Failure::new(message)
        .with_help("stop its members first: they would commit over what is changed here")
        .with_try(format!("towpath group show {}", description.group)))
}

pub(crate) async fn run(session: &Session, args: &SeekArgs) -> Outcome {
    let description = session.admin.group(&args.group).await?;
    let committed = session.admin.group_offsets(&args.group).await?;
    if description.is_none() && committed.is_empty() && args.topics.is_empty() {
        return Err(session.unknown_group(&args.group).await);
    }
    if let Some(description) = description.filter(|_| !args.force) {
        refuse_live_members(&description)?;
    }
    let places = places(session, args, &committed).await?;
    let extents = session.extents(&places).await?;
    let before = |place: &TopicPartition| committed.get(place).map(|committed| committed.offset);
    let targets = targets(session, args, &places, &extents, before).await?;

    let columns = ["topic", "partition", "before", "after", "records", "lag_records"];
    let mut table = Table::new("offsets", &columns);
    let mut changes = BTreeMap::new();
    for place in &places {
        let (extent, after) = (extents[place], targets[place]);
        let before = before(place);
        table.row(vec![
            (*place.topic).into(),
            place.partition.0.into(),
            Cell::or_none(before.map(|offset| offset.0)),
            after.0.into(),
            before.map_or_else(Cell::none, |before| Cell::count(after - before)),
            Cell::count(extent.end - after),
        ]);
        if before != Some(after) {
            changes.insert(place.clone(), Committed::at(after));
        }
    }
    // The table comes first: it is what the question is about.
    session.print(&Report::new().table(table))?;
    if changes.is_empty() {
        session.say("nothing to change");
        return Ok(Exit::Ok);
    }
    let count = plural(i64::try_from(changes.len()).unwrap_or(i64::MAX), "partition");
    let what = format!("move group {} in {count}", args.group);
    if confirm(session, &what, &args.group)? == Decision::Go {
        session.admin.alter_group_offsets(&args.group, &changes).await?;
        session.say(format!("moved {}", args.group));
    }
    Ok(Exit::Ok)
}

async fn places(
    session: &Session,
    args: &SeekArgs,
    committed: &BTreeMap<TopicPartition, Committed>,
) -> Outcome<Vec<TopicPartition>> {
    let mut places: BTreeSet<TopicPartition> = BTreeSet::new();
    if args.topics.is_empty() {
        let topics = session.admin.topics().await?;
        let exists = |place: &&TopicPartition| {
            topics.get(&place.topic).is_some_and(|topic| topic.partition(place.partition).is_some())
        };
        places.extend(committed.keys().filter(exists).cloned());
    } else {
        let topics = session.topics(&args.topics).await?;
        places.extend(topics.iter().flat_map(|topic| partitions_of(topic)));
    }
    places.retain(|place| args.partition.is_none_or(|wanted| place.partition.0 == wanted));
    if places.is_empty() {
        let help = "name a topic with -t to give it a place in one";
        let message = format!("group {:?} has nothing committed there", args.group);
        return Err(Failure::new(message).with_help(help));
    }
    Ok(places.into_iter().collect())
}

/// Where each partition goes, within what is there.
async fn targets(
    session: &Session,
    args: &SeekArgs,
    places: &[TopicPartition],
    extents: &BTreeMap<TopicPartition, Extent>,
    before: impl Fn(&TopicPartition) -> Option<Offset>,
) -> Outcome<BTreeMap<TopicPartition, Offset>> {
    let mut targets = BTreeMap::new();
    if let Some(by) = args.by {
        for place in places {
            let from = before(place).unwrap_or(extents[place].start);
            targets.insert(place.clone(), Offset(from.0.saturating_add(by)));
        }
    } else {
        let when = args.to.or(args.at).unwrap_or(When::Latest);
        match when.spec() {
            Err(offset) => targets.extend(places.iter().map(|place| (place.clone(), offset))),
            Ok(spec) => {
                let wanted = places.iter().map(|place| (place.clone(), spec)).collect();
                let found = session.admin.list_offsets(&wanted).await?;
                for place in places {
                    // No record is that young: the end.
                    let at = found.get(place).map_or(extents[place].end, |found| found.offset);
                    targets.insert(place.clone(), at);
                }
            }
        }
    }
    for (place, target) in &mut targets {
        *target = (*target).clamp(extents[place].start, extents[place].end);
    }
    Ok(targets)
}
