//! `towpath topic trim`: deletes the oldest records.

use std::collections::BTreeMap;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{Offset, TopicPartition};

use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::{Session, partitions_of};
use crate::units::plural;
use crate::when::{When, parse_when};

/// Flags of `topic trim`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath topic trim orders --before -1d")]
pub(crate) struct TrimArgs {
    /// The topic
    #[arg(add = ArgValueCompleter::new(complete::topics))]
    topic: String,
    /// Up to where, exclusively: latest, offset:N, -1d, or a time in RFC 3339
    #[arg(long, value_parser = parse_when, allow_hyphen_values = true, value_name = "WHEN")]
    before: When,
    /// This partition only
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
}

pub(crate) async fn run(session: &Session, args: &TrimArgs) -> Outcome {
    let topic = session.topic(&args.topic).await?;
    let mut places = partitions_of(&topic);
    places.retain(|place| args.partition.is_none_or(|wanted| place.partition.0 == wanted));
    if places.is_empty() {
        return Err(Failure::new(format!("topic {:?} has no such partition", args.topic)));
    }
    let extents = session.extents(&places).await?;
    let targets: BTreeMap<TopicPartition, Offset> = match args.before.spec() {
        Err(offset) => places.iter().map(|place| (place.clone(), offset)).collect(),
        Ok(spec) => {
            let wanted = places.iter().map(|place| (place.clone(), spec)).collect();
            let found = session.admin.list_offsets(&wanted).await?;
            let target = |place: &TopicPartition| {
                // No record is that young: everything goes.
                found.get(place).map_or(extents[place].end, |found| found.offset)
            };
            places.iter().map(|place| (place.clone(), target(place))).collect()
        }
    };
    let columns = ["topic", "partition", "start_before", "start", "records_deleted"];
    let mut table = Table::new("trimmed", &columns);
    let mut orders = BTreeMap::new();
    let mut total = 0;
    for (place, target) in targets {
        let extent = extents[&place];
        let target = target.clamp(extent.start, extent.end);
        let records = target - extent.start;
        total += records;
        table.row(vec![
            (*place.topic).into(),
            place.partition.0.into(),
            extent.start.0.into(),
            target.0.into(),
            Cell::count(records),
        ]);
        if 0 < records {
            orders.insert(place, Some(target));
        }
    }
    if orders.is_empty() {
        session.say("nothing lies before that");
    } else {
        let what = format!(
            "delete {} of {} before {}",
            plural(total, "record"),
            args.topic,
            args.before.words()
        );
        if confirm(session, &what, &args.topic)? == Decision::Go {
            session.admin.delete_records(&orders).await?;
        }
    }
    session.print(&Report::new().table(table))?;
    Ok(Exit::Ok)
}
