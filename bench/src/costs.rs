//! What one request costs in instructions, allocations and system calls: figures that no other
//! process disturbs, so that a limit on them can be strict.
//!
//! A broker runs under callgrind, or strace, and gets some requests, one after the other. Then the
//! same again with twice as many: the difference is what the requests alone have cost.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use towpath_process::kafka::KafkaConnection;

use crate::batch::Batch;
use crate::rows::{OwnWorker, SqsWorker};
use crate::sqs;
use crate::wire::{FETCH_VERSION, check_produced, fetch_frame, fetched, number, produce_frame};

/// Valgrind makes a start some fifty times slower.
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(120);
const TOPIC: &str = "costs";

/// By how much a figure may be larger than the baseline, which is taken on an idle machine. A broker
/// wakes up more often per request on a busy one: the same program took up to 12 % more instructions
/// there. How often a synced request reads and writes depends on how far its round and its answer
/// overlap.
const SLACK_INSTRUCTIONS: f64 = 0.2;
const SLACK_ALLOCATIONS: f64 = 0.25;
/// The same, as a part of what takes hundreds of them: three requests one after the other, with their wake-ups.
const SLACK_MANY_ALLOCATIONS: f64 = 0.005;
const SLACK_SYSTEM_CALLS: f64 = 0.25;

/// Counts what requests cost, and compares with a baseline.
#[derive(Debug, Parser)]
struct Arguments {
    /// The optimised broker
    #[arg(long)]
    towpath: PathBuf,
    /// What requests may cost
    #[arg(long)]
    baseline: PathBuf,
    /// Write the baseline anew
    #[arg(long)]
    update: bool,
    /// Keep callgrind's profiles here, for `callgrind_annotate`
    #[arg(long)]
    profiles: Option<PathBuf>,
}

/// Cost per request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cost {
    instructions: f64,
    allocations: f64,
    /// Reads, writes and syncs; not how threads wait for each other, which differs by chance.
    system_calls: f64,
}

type Costs = BTreeMap<String, Cost>;

struct Scenario {
    name: &'static str,
    work: Work,
    requests: u32,
}

/// What is asked of a broker.
#[derive(Clone, Copy)]
enum Work {
    Produce {
        durability: &'static str,
        batch_bytes: usize,
    },
    /// Of batches of so many bytes.
    Fetch {
        batch_bytes: usize,
    },
    /// Messages are sent, received and deleted, a hundred at a time: a request is all three.
    OwnQueue,
    /// The same by SQS, one message at a time.
    Sqs,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "produce, one 1 KB record, page cache",
        work: Work::Produce { durability: "relaxed", batch_bytes: 0 },
        requests: 1_000,
    },
    Scenario {
        name: "produce, one 1 KB record, synced",
        work: Work::Produce { durability: "synced", batch_bytes: 0 },
        requests: 500,
    },
    Scenario {
        name: "produce, 64 KiB batch, page cache",
        work: Work::Produce { durability: "relaxed", batch_bytes: 64 << 10 },
        requests: 200,
    },
    Scenario { name: "fetch, 64 KiB", work: Work::Fetch { batch_bytes: 16 << 10 }, requests: 500 },
    Scenario {
        name: "queue, send, receive and delete a hundred",
        work: Work::OwnQueue,
        requests: 50,
    },
    Scenario { name: "queue, the same of one by SQS", work: Work::Sqs, requests: 100 },
];

/// Batches in the topic that is fetched from.
const FETCHED_BATCHES: u32 = 64;

/// Measures every scenario; `arguments` are those after `costs`.
pub(crate) fn run(arguments: impl Iterator<Item = String>) -> Result<()> {
    let program = ["towpath-bench costs".to_owned()];
    let arguments = Arguments::parse_from(program.into_iter().chain(arguments));
    let mut costs = Costs::new();
    for scenario in &SCENARIOS {
        let cost = scenario.measure(&arguments)?;
        println!(
            "{:38} {:>8.0} instructions {:>6.1} allocations {:>5.2} system calls",
            scenario.name, cost.instructions, cost.allocations, cost.system_calls
        );
        costs.insert(scenario.name.to_owned(), cost);
    }
    if arguments.update {
        fs::write(&arguments.baseline, serde_json::to_string_pretty(&costs)? + "\n")?;
        return Ok(());
    }
    let text = fs::read_to_string(&arguments.baseline)
        .with_context(|| format!("read {}", arguments.baseline.display()))?;
    let problems = worse(&costs, &serde_json::from_str(&text)?);
    for problem in &problems {
        println!("{problem}");
    }
    ensure!(
        problems.is_empty(),
        "requests cost more than {} allows; where that is worth it: cargo xtask costs --update",
        arguments.baseline.display()
    );
    Ok(())
}

/// What is more than the baseline allows.
fn worse(costs: &Costs, baseline: &Costs) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, cost) in costs {
        let Some(allowed) = baseline.get(name) else {
            problems.push(format!("{name}: not in the baseline"));
            continue;
        };
        let slack_allocations = SLACK_ALLOCATIONS.max(allowed.allocations * SLACK_MANY_ALLOCATIONS);
        let figures = [
            ("instructions", cost.instructions, allowed.instructions * (1.0 + SLACK_INSTRUCTIONS)),
            ("allocations", cost.allocations, allowed.allocations + slack_allocations),
            ("system calls", cost.system_calls, allowed.system_calls * (1.0 + SLACK_SYSTEM_CALLS)),
        ];
        for (what, found, most) in figures {
            if most < found {
                problems.push(format!("{name}: {found:.2} {what}, allowed are {most:.2}"));
            }
        }
    }
    problems
}

impl Scenario {
    fn measure(&self, arguments: &Arguments) -> Result<Cost> {
        let towpath = &arguments.towpath;
        let instructions = |requests| self.under(Tool::Callgrind, towpath, requests);
        let (once, twice) = (instructions(self.requests)?, instructions(2 * self.requests)?);
        if let Some(profiles) = &arguments.profiles {
            fs::create_dir_all(profiles)?;
            let name = self.name.replace([',', ' '], "-");
            fs::write(profiles.join(name), &twice.profile)?;
        }
        let calls = |requests| self.under(Tool::Strace, towpath, requests);
        let (calls_once, calls_twice) = (calls(self.requests)?, calls(2 * self.requests)?);
        let per_request = |once: &Counts, twice: &Counts, what: &str| {
            let of = |counts: &Counts| counts.figures.get(what).copied().unwrap_or(0.0);
            (of(twice) - of(once)) / f64::from(self.requests)
        };
        Ok(Cost {
            instructions: per_request(&once, &twice, INSTRUCTIONS),
            allocations: per_request(&once, &twice, ALLOCATIONS),
            system_calls: per_request(&calls_once, &calls_twice, SYSTEM_CALLS),
        })
    }

    fn under(&self, tool: Tool, towpath: &Path, requests: u32) -> Result<Counts> {
        let home = TempDir::with_prefix("towpath-costs-")?;
        let mut broker = Watched::start(tool, towpath, home.path())?;
        match self.work {
            Work::Produce { durability, batch_bytes } => {
                produce(broker.address, durability, batch_bytes, requests)?;
            }
            Work::Fetch { batch_bytes } => fetch(broker.address, batch_bytes, requests)?,
            Work::OwnQueue => cycles(requests, OwnWorker::create(broker.http), OwnWorker::cycle)?,
            Work::Sqs => cycles(requests, SqsWorker::create(broker.http), SqsWorker::cycle)?,
        }
        broker.stop()?;
        tool.read(&home.path().join("counts"))
    }
}

fn produce(address: SocketAddr, durability: &str, batch_bytes: usize, requests: u32) -> Result<()> {
    let mut connection = KafkaConnection::open(address)?;
    connection.create_topic(TOPIC, 1, &[("durability", durability)])?;
    let batch = Batch::filled(batch_bytes)?;
    let mut frame = produce_frame(TOPIC, 0, &batch.bytes)?;
    for at in 0..requests {
        number(&mut frame, i32::try_from(at)?);
        connection.send(&frame)?;
        check_produced(&connection.receive()?)?;
    }
    Ok(())
}

fn fetch(address: SocketAddr, batch_bytes: usize, requests: u32) -> Result<()> {
    produce(address, "relaxed", batch_bytes, FETCHED_BATCHES)?;
    let mut connection = KafkaConnection::open(address)?;
    let records = Batch::filled(batch_bytes)?.records;
    let end = i64::from(FETCHED_BATCHES) * i64::try_from(records)?;
    let mut offset = 0;
    for _ in 0..requests {
        connection.send(&fetch_frame(TOPIC, 0, offset, 64 << 10)?)?;
        let answer = connection.receive()?;
        let next = fetched(&answer, offset)?.next_offset;
        ensure!(offset < next, "nothing fetched at {offset}, version {FETCH_VERSION}");
        offset = next % end;
    }
    Ok(())
}

/// A worker that goes round so many times.
fn cycles<W, F: Future<Output = Result<(W, u64)>>>(
    requests: u32,
    worker: impl Future<Output = Result<W>>,
    cycle: impl Fn(W) -> F,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut worker = worker.await?;
        for _ in 0..requests {
            worker = cycle(worker).await?.0;
        }
        Ok(())
    })
}

/// What a tool has counted.
#[derive(Debug)]
struct Counts {
    figures: BTreeMap<&'static str, f64>,
    /// What the tool wrote.
    profile: String,
}

const INSTRUCTIONS: &str = "instructions";
const ALLOCATIONS: &str = "allocations";
const SYSTEM_CALLS: &str = "system calls";

/// What the allocator is asked by.
const ALLOCATOR: [&str; 6] = [
    "mi_malloc",
    "mi_malloc_aligned",
    "mi_zalloc",
    "mi_zalloc_aligned",
    "mi_realloc",
    "mi_realloc_aligned",
];
/// What a request reads, writes and syncs with.
const COUNTED_CALLS: [&str; 12] = [
    "read",
    "pread64",
    "recvfrom",
    "recvmsg",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "sendto",
    "sendfile",
    "fdatasync",
    "fallocate",
];

#[derive(Clone, Copy)]
enum Tool {
    Callgrind,
    Strace,
}

impl Tool {
    fn command(self, towpath: &Path, counts: &Path) -> Command {
        let mut command = match self {
            Tool::Callgrind => {
                let mut command = Command::new("valgrind");
                let out = format!("--callgrind-out-file={}", counts.display());
                command.args(["--tool=callgrind", "--quiet", &out]);
                command
            }
            Tool::Strace => {
                let mut command = Command::new("strace");
                command.args(["-f", "-c", "-o"]).arg(counts);
                command
            }
        };
        command.arg(towpath);
        command
    }

    fn read(self, counts: &Path) -> Result<Counts> {
        let text =
            fs::read_to_string(counts).with_context(|| format!("read {}", counts.display()))?;
        let figures = match self {
            Tool::Callgrind => callgrind(&text)?,
            Tool::Strace => strace(&text),
        };
        Ok(Counts { figures, profile: text })
    }
}

/// Totals of a callgrind profile: its summary, and calls into the allocator from outside of it.
fn callgrind(text: &str) -> Result<BTreeMap<&'static str, f64>> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut caller, mut callee) = ("", "");
    let (mut instructions, mut allocations) = (None, 0.0);
    for line in text.lines() {
        let (key, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
        match key {
            "summary" | "totals" => instructions = value.trim().parse::<f64>().ok(),
            "fn" | "cfn" => {
                // A name is written once, behind its number.
                let (number, name) = value.split_once(' ').unwrap_or((value, ""));
                if !name.is_empty() {
                    // Recursion levels are told apart by an apostrophe.
                    names.insert(number, name.split('\'').next().unwrap_or(name));
                }
                let name = names.get(number).copied().unwrap_or_default();
                *(if key == "fn" { &mut caller } else { &mut callee }) = name;
            }
            "calls" if ALLOCATOR.contains(&callee) && !caller.starts_with("mi_") => {
                let count = value.split(' ').next().unwrap_or_default();
                allocations += count.parse::<f64>().unwrap_or(0.0);
            }
            _ => {}
        }
    }
    let instructions = instructions.context("a profile without a summary")?;
    ensure!(0.0 < allocations, "the profile shows no allocation: have the names changed?");
    Ok(BTreeMap::from([(INSTRUCTIONS, instructions), (ALLOCATIONS, allocations)]))
}

/// Calls that count, of a table whose fourth column is the count and whose last one is the name.
fn strace(text: &str) -> BTreeMap<&'static str, f64> {
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let counted = rows.filter(|row| row.last().is_some_and(|name| COUNTED_CALLS.contains(name)));
    let calls = counted.filter_map(|row| row.get(3)?.parse::<f64>().ok()).sum();
    BTreeMap::from([(SYSTEM_CALLS, calls)])
}

/// A broker under a tool; killed when dropped.
struct Watched {
    child: Child,
    address: SocketAddr,
    http: SocketAddr,
}

impl Watched {
    fn start(tool: Tool, towpath: &Path, home: &Path) -> Result<Watched> {
        let port = || -> Result<u16> {
            Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
        };
        let (kafka, http) = (port()?, port()?);
        let child = tool
            .command(towpath, &home.join("counts"))
            .args(["serve", "--kafka", &format!("127.0.0.1:{kafka}")])
            .args(["--http", &format!("127.0.0.1:{http}"), "--data"])
            .arg(home.join("data"))
            .env("TOWPATH_SQS_KEYS", sqs::KEYS)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("valgrind and strace are needed")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, kafka));
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, http));
        let mut watched = Watched { child, address, http };
        let begun = Instant::now();
        while KafkaConnection::open(address).and_then(|mut c| c.topics()).is_err() {
            if let Some(status) = watched.child.try_wait()? {
                bail!("the broker ended: {status}");
            }
            ensure!(begun.elapsed() < START_MAX, "the broker does not answer");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(watched)
    }

    /// Ends the broker in order: the tools write their counts at the end.
    fn stop(&mut self) -> Result<()> {
        let tool = Pid::from_raw(i32::try_from(self.child.id())?).context("a process id")?;
        // strace is a process beside the broker, valgrind is the broker.
        let broker = child_of(tool).unwrap_or(tool);
        kill_process(broker, Signal::TERM)?;
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(begun.elapsed() < STOP_MAX, "the broker does not stop");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn child_of(parent: Pid) -> Option<Pid> {
    let pid = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(broker) = Pid::from_raw(self.child.id().cast_signed()).and_then(child_of) {
            let _ = kill_process(broker, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_gives_its_summary_and_calls_into_the_allocator_from_outside() {
        let profile = "summary: 1000\nfn=(1) serve\ncfn=(2) mi_malloc_aligned\ncalls=3 7\n1 50\n\
                       fn=(2)\ncfn=(3) mi_malloc\ncalls=3 7\nfn=(4) other\ncfn=(2)\ncalls=2 7\n";
        let counts = callgrind(profile).unwrap();
        assert_eq!(counts[INSTRUCTIONS], 1000.0);
        assert_eq!(counts[ALLOCATIONS], 5.0);
        assert!(callgrind("summary: 1\n").is_err());
    }

    #[test]
    fn a_table_of_calls_gives_those_that_count() {
        let table = "% time seconds usecs/call calls errors syscall\n\
                     50.00 0.1 10 7 1 futex\n 9.86 0.059122 20 2901 writev\n\
                     9.86 0.059122 20 100 2 recvfrom\n100.00 0.2 10 3008 3 total\n";
        assert_eq!(strace(table)[SYSTEM_CALLS], 3001.0);
    }

    #[test]
    fn a_cost_above_the_baseline_is_named() {
        let cost = |instructions| Cost { instructions, allocations: 10.0, system_calls: 3.0 };
        let costs = |cost| Costs::from([("produce".to_owned(), cost)]);
        let baseline = costs(cost(1000.0));
        assert!(worse(&costs(cost(1199.0)), &baseline).is_empty());
        assert_eq!(worse(&costs(cost(1201.0)), &baseline).len(), 1);
        let more = Cost { allocations: 11.0, system_calls: 4.0, ..cost(1.0) };
        assert_eq!(worse(&costs(more), &baseline).len(), 2);
        assert_eq!(worse(&costs(cost(1.0)), &Costs::new()).len(), 1);
    }
}
