//! Strangers who mean harm, on a broker that serves honest clients meanwhile.
//!
//! ```text
//!   bombs       batches that decompress a thousandfold
//!   oversized   lengths and counts that are lies, and what is really too large
//!   frames      mutated Kafka requests of every API and version   ┐
//!   web         mutated HTTP requests                             ├ at the same time
//!   slow        connections that do nearly nothing, for long      ┘
//!   watch       honest clients, the broker's memory, its log
//! ```
//!
//! Passed: no crash, no panic in the log, memory within 64 MiB of where it was, every request of the
//! honest clients served, every slow connection closed at its deadline.

pub mod bombs;
pub mod frames;
pub mod oversized;
pub mod slow;
mod watch;
pub mod web;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::hostile::TOPIC;
use crate::kafka::KafkaConnection;
use crate::{BrokerProcess, Start, http};

pub use slow::raise_file_limit;
pub use watch::{Calm, Watch};

/// HTTP mutants per hundred Kafka frames.
const HTTP_PER_HUNDRED_FRAMES: u64 = 1;
/// How long the broker may take to give back all connections, once their peers are gone.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Files that the broker may hold beyond those before: it has opened segments meanwhile.
const FILES_MORE_MAX: usize = 300;

/// How much is to be thrown at the broker.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Mutated Kafka frames.
    pub frames: u64,
    /// Slow connections.
    pub slow: usize,
    /// Where chance starts.
    pub seed: u64,
}

/// What was thrown at it, and how it took it.
#[derive(Debug)]
pub struct Report {
    /// Bombs, all refused.
    pub bombs: usize,
    /// Things that were too large.
    pub oversized: usize,
    /// Frames and their connections.
    pub frames: frames::Outcome,
    /// HTTP requests.
    pub requests: u64,
    /// Slow connections.
    pub slow: slow::Outcome,
    /// What held meanwhile.
    pub calm: Calm,
    /// How long it took.
    pub took: Duration,
}

/// Starts a broker and attacks it.
pub fn run(plan: &Plan) -> Result<Report> {
    raise_file_limit()?;
    let began = Instant::now();
    let data = TempDir::with_prefix("towpath-attack-")?;
    let mut broker = Start::serve(&data.path().join("data")).ready()?;
    let mut kafka = KafkaConnection::open(broker.addresses.kafka)?;
    kafka.create_topic(TOPIC, 2, &[])?;
    slow::prepare(&broker)?;
    let files = broker.cost()?.open_files;
    let watch = Watch::begin(&broker)?;
    let attacked = attack(&broker, plan);
    let settled = attacked.and_then(|attacked| {
        settle(&broker, files)?;
        Ok(attacked)
    });
    let (bombs, oversized, frames, requests, slow) = settled
        .with_context(|| format!("seed {}; the broker's log:\n{}", plan.seed, tail(&broker)))?;
    kafka.topics().context("an honest connection that waited was closed")?;
    let calm = watch.end(&mut broker)?;
    let (status, _, log) = broker.terminate(Duration::from_secs(60))?;
    ensure!(status.success(), "the broker ended with {status}:\n{log}");
    Ok(Report { bombs, oversized, frames, requests, slow, calm, took: began.elapsed() })
}

type Attacked = (usize, usize, frames::Outcome, u64, slow::Outcome);

fn attack(broker: &BrokerProcess, plan: &Plan) -> Result<Attacked> {
    let addresses = broker.addresses;
    let bombs = bombs::attack(addresses.kafka)?;
    let oversized = oversized::attack(addresses.kafka)?;
    thread::scope(|scope| {
        let frames = scope.spawn(|| frames::attack(addresses.kafka, plan.seed, plan.frames));
        let requests = plan.frames * HTTP_PER_HUNDRED_FRAMES / 100;
        let web = scope.spawn(move || web::attack(addresses.http, plan.seed, requests));
        let slow = slow::attack(broker, plan.slow);
        let (Ok(frames), Ok(web)) = (frames.join(), web.join()) else {
            bail!("an attacker panicked");
        };
        Ok((bombs, oversized, frames?, web?, slow?))
    })
}

/// Waits until all connections of the attackers are gone, the unfinished ones included.
fn settle(broker: &BrokerProcess, files: usize) -> Result<()> {
    let deadline = Instant::now() + SETTLE_MAX;
    loop {
        let open = broker.cost()?.open_files;
        if open <= files + FILES_MORE_MAX {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{open} files are open, {files} were before");
        thread::sleep(Duration::from_millis(100));
    }
}

fn tail(broker: &BrokerProcess) -> String {
    let log = broker.log();
    let lines: Vec<&str> = log.lines().rev().take(20).collect();
    let healthy = http::get(broker.addresses.http, "/readyz?verbose").map(|answer| answer.status);
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    format!("{}\n/readyz: {healthy:?}", lines.join("\n"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { bombs, oversized, frames, requests, slow, calm, took } = self;
        writeln!(f, "attack: {bombs} bombs and {oversized} oversized things refused")?;
        writeln!(
            f,
            "  {} frames over {} connections, {requests} HTTP requests",
            frames.frames, frames.connections
        )?;
        writeln!(
            f,
            "  {} slow connections, the last closed after {:?}",
            slow.opened, slow.longest
        )?;
        write!(f, "  {calm}\n  took {took:?}")
    }
}
