//! Load and measure brokers: Towpath alone, or Towpath and Kafka in one interleaved run.
//!
//! ```text
//!   main       which rows, in which order; what is finished is kept and not measured again
//!   row        a row of the table: its samples A B B A …, ratios pair by pair, what must hold
//!   rows/      one file per workload
//!   broker     either product as a process: pinned, fed with the same topics, asked for its CPU time
//!   load, open_loop, reader    the clients, which speak the protocol raw and are the same for both
//!   http, sqs  clients of queues, as raw
//!   peer/      other work queues as processes, and clients for them
//!   machine    where it runs and how quiet it was
//!   report     the tables
//!   costs      what a request costs in instructions, allocations and system calls: `costs …`
//! ```
//!
//! What surprises: the figures that count are the broker's CPU time and ratios between neighbouring
//! samples. Wall-clock figures mean something on an idle machine only, so each pair tells how busy
//! the machine was with other things meanwhile.

mod batch;
mod broker;
mod costs;
mod http;
mod java;
mod load;
mod machine;
mod open_loop;
mod peer;
mod reader;
mod report;
mod row;
mod rows;
mod sqs;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::broker::{Kind, Lab, Pair};
use crate::row::{Finished, Plan};

/// Measures Towpath, and Kafka beside it.
#[derive(Debug, Parser)]
struct Arguments {
    /// The optimised broker
    #[arg(long)]
    towpath: PathBuf,
    /// Class path of Kafka with its tools; without it Towpath is measured alone
    #[arg(long)]
    kafka: Option<String>,
    /// Class path of ElasticMQ, for the rows beside it
    #[arg(long)]
    elasticmq: Option<String>,
    /// RabbitMQ and NATS are installed, as Debian has them: measure them too
    #[arg(long)]
    peers: bool,
    /// What is measured, for the report
    #[arg(long, default_value = "unknown")]
    commit: String,
    /// Where finished rows and the report are kept
    #[arg(long)]
    keep: PathBuf,
    /// Where the brokers keep their data
    #[arg(long)]
    data: PathBuf,
    /// Few and short samples: shows that everything works, and no more
    #[arg(long)]
    quick: bool,
    /// Measure rows again that were finished before
    #[arg(long)]
    again: bool,
    /// All rows, the optional ones too
    #[arg(long)]
    all: bool,
    /// Name the rows and end
    #[arg(long)]
    list: bool,
    /// Pairs of samples per row
    #[arg(long)]
    pairs: Option<usize>,
    /// Milliseconds that one load runs
    #[arg(long)]
    span: Option<u64>,
    /// Also write the report here, as NAME.md and NAME.json
    #[arg(long)]
    save: Option<PathBuf>,
    /// The rows to measure; none: those of the default set
    rows: Vec<String>,
}

fn main() -> Result<()> {
    if std::env::args().nth(1).is_some_and(|first| first == "costs") {
        return costs::run(std::env::args().skip(2));
    }
    let arguments = Arguments::parse();
    // What our own client has to say, where a row uses it: RUST_LOG=debug.
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let rows = rows::all();
    if arguments.list {
        for row in &rows {
            println!("{:12} {}", row.id, row.title);
        }
        return Ok(());
    }
    for id in &arguments.rows {
        ensure!(rows.iter().any(|row| row.id == id), "no row {id}; --list names them");
    }
    let plan = Plan {
        is_quick: arguments.quick,
        pairs: arguments.pairs.unwrap_or(if arguments.quick { 1 } else { 5 }).max(1),
        span: Duration::from_millis(
            arguments.span.unwrap_or(if arguments.quick { 700 } else { 2_500 }).max(1),
        ),
        kinds: if arguments.kafka.is_some() { Kind::BOTH.to_vec() } else { vec![Kind::Towpath] },
    };
    let lab = Lab::new(
        &arguments.towpath,
        arguments.kafka.as_deref(),
        arguments.elasticmq.as_deref(),
        arguments.peers,
        &arguments.data,
    )?;
    std::fs::create_dir_all(&arguments.keep)
        .with_context(|| format!("create {}", arguments.keep.display()))?;
    machine::take_priority();
    machine::pin(machine::CLIENT_CPU)?;

    let mut pair: Option<Pair> = None;
    let (mut finished, mut failed) = (Vec::new(), Vec::new());
    for row in &rows {
        let is_named = arguments.rows.iter().any(|id| row.id == id);
        let is_default = arguments.rows.is_empty() && (arguments.all || !row.is_optional);
        let kept = Finished::load(&arguments.keep, row, &arguments.commit);
        if !is_named && !is_default {
            finished.extend(kept);
            continue;
        }
        if let Some(kept) = kept.filter(|_| !arguments.again) {
            println!("── {}: finished before", row.id);
            finished.push(kept);
            continue;
        }
        println!("── {}: {}", row.id, row.title);
        match row::measure(row, &lab, &mut pair, &plan, &arguments.commit) {
            Ok(done) => {
                done.save(&arguments.keep)?;
                println!("{}", report::table(row, &done));
                finished.push(done);
            }
            Err(error) => {
                // The others are measured all the same, on brokers that nothing has gone wrong in.
                println!("FAILED {}: {error:#}\n", row.id);
                failed.push(row.id);
                pair = None;
            }
        }
    }
    drop(pair);
    let surroundings = machine::describe(&arguments.data, &arguments.commit);
    report::write(&arguments.keep.join("report"), &rows, &finished, &surroundings)?;
    if let Some(save) = &arguments.save {
        report::write(save, &rows, &finished, &surroundings)?;
    }
    println!("{}", report::summary(&rows, &finished));
    ensure!(failed.is_empty(), "rows that failed: {}", failed.join(", "));
    Ok(())
}
