//! `towpath read`: a range of records, and then the end. With a group, it goes on where the group
//! had committed, and commits what it printed.

use std::collections::BTreeMap;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{
    Committed, Error, ErrorCode, FetchConfig, GroupConfig, GroupConsumer, Isolation, Offset,
    OffsetReset, Reader, Record, TopicPartition,
};

use crate::complete;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, write_out};
use crate::record_format::{RecordFormat, parse_record_format};
use crate::record_json::record_to_json;
use crate::session::{Session, partitions_of};
use crate::when::{When, parse_when};

/// Flags of `read`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  towpath read orders --from -1h -n 20
  towpath read orders --from offset:100 --to offset:200 -f '%o %k %v\\n'
  towpath read orders --group reports")]
pub(crate) struct ReadArgs {
    /// The topic
    #[arg(add = ArgValueCompleter::new(complete::topics))]
    topic: String,
    /// Where to begin: earliest, latest, offset:N, -15m, or a time in RFC 3339
    #[arg(long, default_value = "earliest", value_parser = parse_when, allow_hyphen_values = true, value_name = "WHEN")]
    from: When,
    /// Where to end, exclusively, in the same words
    #[arg(long, default_value = "latest", value_parser = parse_when, allow_hyphen_values = true, value_name = "WHEN")]
    to: When,
    /// Stop after so many records
    #[arg(short = 'n', long = "count", value_name = "N")]
    count: Option<u64>,
    /// This partition only
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Read as a member of this group, and commit what was printed
    #[arg(short, long, conflicts_with_all = ["partition", "from", "to"], add = ArgValueCompleter::new(complete::groups))]
    group: Option<String>,
    /// How to print: %k %v %t %p %o %T %h
    #[arg(short, long, value_parser = parse_record_format, value_name = "FORMAT")]
    format: Option<RecordFormat>,
    /// Leave out records of transactions that were aborted or are still open
    #[arg(long)]
    committed: bool,
}

pub(crate) async fn run(session: &Session, args: ReadArgs) -> Outcome {
    let topic = session.topic(&args.topic).await?;
    let mut partitions = partitions_of(&topic);
    if let Some(wanted) = args.partition {
        partitions.retain(|place| place.partition.0 == wanted);
        if partitions.is_empty() {
            let (topic, count) = (args.topic.clone(), topic.partitions.len());
            let error = towpath_client::Error::UnknownPartition { topic, partition: wanted, count };
            return Err(error.into());
        }
    }
    let mut printer = Printer::new(session, args.format.clone(), args.count)?;
    match &args.group {
        Some(group) => read_as_group(session, group, &partitions, &mut printer).await?,
        None => read_range(session, &args, &partitions, &mut printer).await?,
    }
    printer.end()?;
    Ok(Exit::Ok)
}

fn fetch_config(is_committed: bool) -> FetchConfig {
    let isolation =
        if is_committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    FetchConfig { isolation, poll_records_max: 1000, ..FetchConfig::default() }
}

async fn read_range(
    session: &Session,
    args: &ReadArgs,
    partitions: &[TopicPartition],
    printer: &mut Printer,
) -> Outcome<()> {
    let (from, to) = (args.from.bound(), args.to.bound());
    let fetch = fetch_config(args.committed);
    let mut reader = Reader::open(&session.cluster, partitions, from, to, fetch).await?;
    while printer.wants_more() {
        let next = match reader.next(session.global.timeout).await {
            Ok(next) => next,
            Err(error) => return Err(explained(session, error, None).await),
        };
        match next {
            None => break,
            Some(records) if records.is_empty() => {
                let message = format!("no records came within {:?}", session.global.timeout);
                return Err(Failure::new(message));
            }
            Some(records) => _ = printer.print(&records)?,
        }
    }
    Ok(())
}

/// Reads up to where the partitions ended when it began, and commits behind the last record that
/// was printed.
async fn read_as_group(
    session: &Session,
    group: &str,
    partitions: &[TopicPartition],
    printer: &mut Printer,
) -> Outcome<()> {
    let ends = session.extents(partitions).await?;
    let topics = partitions.first().map(|place| place.topic.clone());
    let config = GroupConfig {
        reset: OffsetReset::Earliest,
        fetch: fetch_config(false),
        ..GroupConfig::new(group, topics)
    };
    let mut member = GroupConsumer::new(session.cluster.clone(), config)?;
    let started = tokio::time::Instant::now();
    let mut printed: BTreeMap<TopicPartition, Committed> = BTreeMap::new();
    while printer.wants_more() && !has_reached(&member, &ends) {
        let records = match member.poll(std::time::Duration::from_millis(500)).await {
            Ok(records) => records,
            Err(error) => {
                // What was printed until then is read; the damage is for its owner to pass.
                if !session.global.dry_run {
                    member.commit_offsets(printed).await?;
                }
                member.close().await?;
                return Err(explained(session, error, Some(group)).await);
            }
        };
        if member.assignment().is_empty() && session.global.timeout < started.elapsed() {
            let message = format!("group {group:?} gave this reader no partition");
            let help = "its members hold all of them; `towpath group show` lists them";
            return Err(Failure::new(message).with_help(help));
        }
        let count = printer.print(&records)?;
        for record in records.iter().take(count) {
            let place = TopicPartition { topic: record.topic.clone(), partition: record.partition };
            printed.insert(place, Committed::at(record.offset.next()));
        }
    }
    if !session.global.dry_run {
        member.commit_offsets(printed).await?;
    }
    member.close().await?;
    Ok(())
}

/// An error of a reader. Of damaged records it says which they are, and how to go on behind them.
pub(super) async fn explained(session: &Session, error: Error, group: Option<&str>) -> Failure {
    let Error::DamagedRecords { topic, partition, offset } = &error else { return error.into() };
    let dirs = session.admin.log_dirs(Some(topic)).await.unwrap_or_default();
    let stored = dirs.iter().flat_map(|dir| &dir.partitions);
    let mut ranges = stored
        .filter(|stored| stored.partition.partition.0 == *partition)
        .flat_map(|stored| &stored.damaged);
    let range = ranges.find(|range| range.start.0 <= *offset && *offset < range.end.0);
    let Some(range) = range else { return error.into() };
    let (start, end) = (range.start, range.end);
    let last = end.0 - 1;
    let message = format!(
        "the records {start} to {last} of {topic}-{partition} are damaged on the broker and cannot be \
         read; those around them can"
    );
    let go_on = match group {
        Some(group) => {
            format!("towpath group seek {group} -t {topic} -p {partition} --to offset:{end}")
        }
        None => format!("towpath read {topic} -p {partition} --from offset:{end}"),
    };
    Failure {
        code: ErrorCode::CorruptMessage.name().to_owned(),
        ..Failure::new(message).with_help("this goes on behind them").with_try(go_on)
    }
}

fn has_reached(
    member: &GroupConsumer,
    ends: &BTreeMap<TopicPartition, crate::session::Extent>,
) -> bool {
    let owned = member.assignment();
    let end = |place: &TopicPartition| ends.get(place).map_or(Offset::ZERO, |extent| extent.end);
    !owned.is_empty()
        && owned.iter().all(|place| member.position(place).is_some_and(|at| end(place) <= at))
}

/// Prints records in the caller's format, and knows when it is enough.
pub(crate) struct Printer {
    style: Style,
    left: Option<u64>,
    is_read: bool,
    /// Whether a JSON list was begun.
    has_begun: bool,
}

enum Style {
    Text(RecordFormat),
    Lines,
    /// One object around all records.
    Whole,
}

impl Printer {
    /// For a range.
    pub(crate) fn new(
        session: &Session,
        format: Option<RecordFormat>,
        count: Option<u64>,
    ) -> Outcome<Printer> {
        let style = match (format, session.global.output) {
            (Some(_), Some(Format::Json | Format::Jsonl)) => {
                return Err(Failure::usage("-f and -o json exclude each other"));
            }
            (Some(format), _) => Style::Text(format),
            (None, Some(Format::Json)) => Style::Whole,
            (None, Some(Format::Jsonl)) => Style::Lines,
            (None, Some(Format::Tsv)) => Style::Text(known_format(r"%t\t%p\t%o\t%T\t%k\t%v\n")?),
            (None, Some(Format::Table)) => Style::Text(known_format(r"%t-%p @ %o  %T  %k  %v\n")?),
            (None, None) => Style::Text(known_format(r"%v\n")?),
        };
        Ok(Printer { style, left: count, is_read: true, has_begun: false })
    }

    /// For something without an end: one object around everything would never be closed, and several
    /// topics must be told apart.
    pub(crate) fn for_tail(
        session: &Session,
        format: Option<RecordFormat>,
        count: Option<u64>,
        topic_count: usize,
    ) -> Outcome<Printer> {
        let is_plain = format.is_none() && session.global.output.is_none();
        let mut printer = Printer::new(session, format, count)?;
        if matches!(printer.style, Style::Whole) {
            printer.style = Style::Lines;
        } else if is_plain && 1 < topic_count {
            printer.style = Style::Text(known_format(r"%t\t%v\n")?);
        }
        Ok(printer)
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.is_read && self.left != Some(0)
    }

    /// Prints as many as are wanted, and returns how many that were.
    pub(crate) fn print(&mut self, records: &[Record]) -> Outcome<usize> {
        let mut out = Vec::new();
        let wanted = self.left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
        let records = &records[..records.len().min(wanted)];
        for record in records {
            match &self.style {
                Style::Text(format) => format.write(record, &mut out),
                Style::Lines => out.extend(format!("{}\n", record_to_json(record)).bytes()),
                Style::Whole => {
                    let before = if self.has_begun { ",\n" } else { "{\"records\": [\n" };
                    out.extend(format!("{before}{}", record_to_json(record)).bytes());
                    self.has_begun = true;
                }
            }
        }
        if let Some(left) = &mut self.left {
            *left -= records.len() as u64;
        }
        self.is_read = out.is_empty() || write_out(&out)?;
        Ok(records.len())
    }

    /// Closes what was begun.
    pub(crate) fn end(&self) -> Outcome<()> {
        if matches!(self.style, Style::Whole) {
            let rest = if self.has_begun { "\n]}\n" } else { "{\"records\": []}\n" };
            write_out(rest.as_bytes())?;
        }
        Ok(())
    }
}

fn known_format(text: &str) -> Outcome<RecordFormat> {
    parse_record_format(text).map_err(Failure::new)
}
