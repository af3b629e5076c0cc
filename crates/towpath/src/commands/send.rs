//! `towpath send`: records from the command line or from standard input.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use futures_util::FutureExt;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
use towpath_client::{
    Acks, Compression, Delivered, DeliveryFuture, Error, Header, OutgoingRecord, PartitionIndex,
    Producer, ProducerConfig,
};

use crate::complete;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Format, Report, Table, write_out};
use crate::record_format::{RecordFormat, parse_record_format, parse_timestamp};
use crate::record_json::json_to_record;
use crate::session::Session;
use crate::units::{parse_duration, plural};

/// Flags of `send`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  towpath send orders '{\"id\":1}' -k cust-7 -H trace=abc
  seq 100 | towpath send numbers
  printf 'k1\\tv1\\n' | towpath send orders -f '%k\\t%v\\n'
  towpath read orders -o jsonl | towpath send copy --jsonl
  towpath send emails '{\"to\":\"ada\"}' --after 30s --priority 7 --ttl 1h")]
pub(crate) struct SendArgs {
    /// The topic
    #[arg(add = ArgValueCompleter::new(complete::topics))]
    topic: String,
    /// The values, one record each; without any, the lines of standard input
    values: Vec<String>,
    /// The key: records with the same key keep their order; the message group of a queue
    #[arg(short, long, visible_alias = "group")]
    key: Option<String>,
    /// A header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    #[command(flatten)]
    delivery: DeliveryFlags,
    /// The partition, when the key should not choose it
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// The timestamp: RFC 3339 or milliseconds
    #[arg(long, value_parser = parse_time)]
    timestamp: Option<i64>,
    /// The codec
    #[arg(long, value_enum, default_value = "none")]
    compression: Codec,
    /// When a record counts as sent
    #[arg(long, value_enum, default_value = "all")]
    acks: AcksWord,
    /// How lines of standard input are made: %k %v %p %T %h %t
    #[arg(short, long, value_parser = parse_record_format, value_name = "FORMAT", conflicts_with_all = ["values", "jsonl"])]
    format: Option<RecordFormat>,
    /// Lines of standard input are JSON objects, as `read -o jsonl` prints them
    #[arg(long, conflicts_with = "values")]
    jsonl: bool,
    /// With --jsonl: send to the partitions that the lines name
    #[arg(long, requires = "jsonl")]
    keep_partitions: bool,
    /// Send a record without a value: a deletion in a compacted topic
    #[arg(long, conflicts_with_all = ["values", "format", "jsonl"], requires = "key")]
    tombstone: bool,
}

/// How messages of a queue want to be delivered: ordinary headers, which any Kafka producer may set.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "In queues")]
struct DeliveryFlags {
    /// Not before this much time has passed
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    after: Option<Duration>,
    /// Worth nothing after this much time
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    ttl: Option<Duration>,
    /// 0 to 9, 4 is usual; higher ones are received first
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// Another message with this id, sent shortly before, makes this one a repeat that is not delivered
    #[arg(long, value_name = "ID")]
    dedup_id: Option<String>,
}

impl DeliveryFlags {
    /// As the headers that `crates/queue/src/admission.rs` reads.
    fn headers(&self) -> impl Iterator<Item = Header> {
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let said = [
            ("towpath-deliver-after", self.after.map(milliseconds)),
            ("towpath-ttl", self.ttl.map(milliseconds)),
            ("towpath-priority", self.priority.map(|priority| priority.to_string())),
            ("towpath-dedup-id", self.dedup_id.clone()),
        ];
        let header = |(name, value): (&str, Option<String>)| {
            Some(Header { key: name.into(), value: Some(value?.into()) })
        };
        said.into_iter().filter_map(header)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AcksWord {
    /// When all in-sync replicas have it
    #[value(alias = "-1")]
    All,
    /// When the leader has it
    #[value(alias = "1")]
    Leader,
    /// At once
    #[value(alias = "0")]
    None,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_time(text: &str) -> Result<i64, String> {
    parse_timestamp(text).map(|timestamp| timestamp.0)
}

/// Up to so many records, each is told; beyond, partitions are.
const TOLD_ONE_BY_ONE: u64 = 10;
/// The longest line of standard input, in bytes: more than any topic takes by default.
const LINE_BYTES_MAX: usize = 64 << 20;

pub(crate) async fn run(session: &Session, args: SendArgs) -> Outcome {
    let mut outbox = Outbox::open(session, &args)?;
    if args.tombstone {
        outbox.put(OutgoingRecord { value: None, ..template(&args) }).await?;
    } else if args.values.is_empty() {
        send_lines(&mut outbox, &args).await?;
    } else {
        for value in &args.values {
            let record = OutgoingRecord { value: Some(value.clone().into()), ..template(&args) };
            outbox.put(record).await?;
        }
    }
    outbox.close().await
}

async fn send_lines(outbox: &mut Outbox<'_>, args: &SendArgs) -> Outcome<()> {
    if io::stdin().is_terminal() {
        outbox.session.say("one record per line; end with Ctrl-D");
    }
    let mut lines = BufReader::with_capacity(1 << 16, tokio::io::stdin());
    let mut number = 0_u64;
    while let Some(line) = next_line(&mut lines).await? {
        number += 1;
        let record =
            parse_line(args, &line).map_err(|why| Failure::new(format!("line {number}: {why}")))?;
        outbox.put(record).await?;
    }
    Ok(())
}

/// Records on their way, and what became of those before.
struct Outbox<'s> {
    session: &'s Session,
    /// `None` in a dry run: records are read and counted only.
    producer: Option<Producer>,
    sending: VecDeque<DeliveryFuture>,
    tally: Tally,
    skipped: i64,
}

impl<'s> Outbox<'s> {
    fn open(session: &'s Session, args: &SendArgs) -> Outcome<Outbox<'s>> {
        let producer = if session.global.dry_run {
            None
        } else {
            Some(Producer::new(session.cluster.clone(), producer_config(session, args))?)
        };
        let (sending, tally) = (VecDeque::new(), Tally::new(&args.topic));
        Ok(Outbox { session, producer, sending, tally, skipped: 0 })
    }

    async fn put(&mut self, record: OutgoingRecord) -> Outcome<()> {
        let Some(producer) = &self.producer else {
            self.skipped += 1;
            return Ok(());
        };
        let delivery = buffer(self.session, producer, record).await?;
        self.sending.push_back(delivery);
        // Settled ones are counted as they go, so that only the buffer bounds what is held. Looking
        // at the oldest alone keeps that cheap; it is settled first, or nearly.
        while let Some(told) = self.sending.front_mut().and_then(|oldest| oldest.now_or_never()) {
            self.sending.pop_front();
            self.tally.add(told)?;
        }
        Ok(())
    }

    async fn close(mut self) -> Outcome {
        let Some(producer) = self.producer.take() else {
            let records = plural(self.skipped, "record");
            self.session.say(format!("would send {records} to {}", self.tally.topic));
            return Ok(Exit::Ok);
        };
        // Each record tells its own failure below.
        let _ = producer.flush().await;
        for delivery in std::mem::take(&mut self.sending) {
            self.tally.add(delivery.await)?;
        }
        producer.close(self.session.global.timeout).await?;
        self.tally.print(self.session)
    }
}

async fn buffer(
    session: &Session,
    producer: &Producer,
    record: OutgoingRecord,
) -> Outcome<DeliveryFuture> {
    let topic = record.topic.clone();
    match producer.send(record).await {
        Ok(delivery) => Ok(delivery),
        Err(Error::UnknownTopic { .. }) => Err(session.unknown_topic(&topic).await),
        Err(error) => Err(error.into()),
    }
}

fn producer_config(session: &Session, args: &SendArgs) -> ProducerConfig {
    let acks = match args.acks {
        AcksWord::All => Acks::All,
        AcksWord::Leader => Acks::Leader,
        AcksWord::None => Acks::None,
    };
    let defaults = ProducerConfig::default();
    ProducerConfig {
        acks,
        is_idempotent: acks == Acks::All,
        compression: match args.compression {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip,
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        },
        request_timeout: session.global.timeout,
        delivery_timeout: session.global.timeout + defaults.linger,
        metadata_timeout: session.global.timeout,
        ..defaults
    }
}

fn template(args: &SendArgs) -> OutgoingRecord {
    let mut record = OutgoingRecord::new(args.topic.as_str(), "");
    record.key = args.key.clone().map(Into::into);
    record.partition = args.partition.map(PartitionIndex);
    record.timestamp = args.timestamp.map(towpath_client::Timestamp);
    let header = |(name, value): &(String, String)| Header {
        key: name.as_str().into(),
        value: Some(value.clone().into()),
    };
    record.headers = args.headers.iter().map(header).chain(args.delivery.headers()).collect();
    record
}

fn parse_line(args: &SendArgs, line: &[u8]) -> Result<OutgoingRecord, String> {
    let mut record = template(args);
    if args.jsonl {
        json_to_record(line, &mut record, args.keep_partitions)?;
    } else if let Some(format) = &args.format {
        format.read(line, &mut record)?;
    } else {
        record.value = Some(line.to_vec().into());
    }
    Ok(record)
}

/// The next line without its newline; `None` at the end.
async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> Outcome<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let available = lines.fill_buf().await?;
        if available.is_empty() {
            return Ok((!line.is_empty()).then_some(line));
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&available[..newline.unwrap_or(available.len())]);
        let used = newline.map_or(available.len(), |at| at + 1);
        lines.consume(used);
        if LINE_BYTES_MAX < line.len() {
            return Err(Failure::new(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
        }
        if newline.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Some(line));
        }
    }
}

/// What became of the records.
struct Tally {
    topic: String,
    count: u64,
    first: Vec<Delivered>,
    partitions: BTreeMap<PartitionIndex, Span>,
}

#[derive(Clone, Copy)]
struct Span {
    count: u64,
    first: Option<i64>,
    last: Option<i64>,
}

impl Tally {
    fn new(topic: &str) -> Tally {
        Tally { topic: topic.to_owned(), count: 0, first: Vec::new(), partitions: BTreeMap::new() }
    }

    fn add(&mut self, told: towpath_client::Result<Delivered>) -> Outcome<()> {
        let delivered = told.map_err(|error| {
            let failure = Failure::from(error);
            match self.count {
                0 => failure,
                sent => failure.with_help(format!(
                    "{} before it arrived",
                    plural(i64::try_from(sent).unwrap_or(i64::MAX), "record")
                )),
            }
        })?;
        self.count += 1;
        if self.count <= TOLD_ONE_BY_ONE {
            self.first.push(delivered);
        }
        let offset = delivered.offset.map(|offset| offset.0);
        let span = self.partitions.entry(delivered.partition).or_insert(Span {
            count: 0,
            first: offset,
            last: offset,
        });
        span.count += 1;
        span.first = span.first.min(offset);
        span.last = span.last.max(offset);
        Ok(())
    }

    fn print(&self, session: &Session) -> Outcome {
        if let Some(format) = session.global.output.filter(|format| *format != Format::Table) {
            let text = self.report().render(format, false);
            write_out(text.as_bytes())?;
            return Ok(Exit::Ok);
        }
        if session.global.quiet {
            return Ok(Exit::Ok);
        }
        write_out(self.in_words().as_bytes())?;
        Ok(Exit::Ok)
    }

    fn report(&self) -> Report {
        if self.count <= TOLD_ONE_BY_ONE {
            let columns = ["topic", "partition", "offset", "timestamp"];
            let mut table = Table::new("sent", &columns);
            for delivered in &self.first {
                table.row(vec![
                    self.topic.as_str().into(),
                    delivered.partition.0.into(),
                    Cell::or_none(delivered.offset.map(|offset| offset.0)),
                    delivered.timestamp.0.into(),
                ]);
            }
            return Report::new().table(table);
        }
        let columns = ["topic", "partition", "records", "first_offset", "last_offset"];
        let mut table = Table::new("sent", &columns);
        for (partition, span) in &self.partitions {
            table.row(vec![
                self.topic.as_str().into(),
                partition.0.into(),
                span.count.into(),
                Cell::or_none(span.first),
                Cell::or_none(span.last),
            ]);
        }
        Report::new().table(table)
    }

    fn in_words(&self) -> String {
        let place = |partition: PartitionIndex| format!("{}-{partition}", self.topic);
        if self.count <= TOLD_ONE_BY_ONE {
            let line = |delivered: &Delivered| match delivered.offset {
                Some(offset) => format!("sent to {} @ {offset}\n", place(delivered.partition)),
                None => format!("sent to {}, unconfirmed\n", place(delivered.partition)),
            };
            return self.first.iter().map(line).collect();
        }
        let line = |(partition, span): (&PartitionIndex, &Span)| {
            let records = plural(i64::try_from(span.count).unwrap_or(i64::MAX), "record");
            match (span.first, span.last) {
                (Some(first), Some(last)) => {
                    format!("sent {records} to {} @ {first}..{last}\n", place(*partition))
                }
                _ => format!("sent {records} to {}, unconfirmed\n", place(*partition)),
            }
        };
        self.partitions.iter().map(line).collect()
    }
}
