//! Honest clients that go on meanwhile, and a look at the broker's memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::kafka::KafkaConnection;
use crate::{Addresses, BrokerProcess, Cost, http};

/// How much the broker's own memory may grow, whatever strangers send.
const GROWTH_MAX: u64 = 64 << 20;
/// How long an honest client may wait for one of its requests, at worst. Well under a second is
/// meant and printed; the bound only tells a client that is shut out from a busy machine.
const HONEST_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often each honest client must have been served, at least.
const SERVED_MIN: usize = 5;
/// Between two requests of an honest client.
const HONEST_PAUSE: Duration = Duration::from_millis(20);
/// Between two looks at the memory.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
const TOPIC: &str = "honest";

/// An honest Kafka client, an honest HTTP client and a look at the broker's memory, until
/// [`Watch::end`].
#[derive(Debug)]
pub struct Watch {
    ends: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    before: u64,
    honest: Vec<(&'static str, JoinHandle<Result<Vec<Duration>>>)>,
    memory: JoinHandle<()>,
}

/// What held while strangers did their worst.
#[derive(Debug)]
pub struct Calm {
    /// What the broker's own memory grew by at most, in bytes.
    pub grown: u64,
    /// How long each honest client waited for each of its requests, in ascending order.
    pub waited: Vec<(&'static str, Vec<Duration>)>,
}

impl Watch {
    /// Begins.
    pub fn begin(broker: &BrokerProcess) -> Result<Watch> {
        let ends = Arc::new(AtomicBool::new(false));
        let peak = Arc::new(AtomicU64::new(0));
        let Addresses { kafka, http } = broker.addresses;
        let mut kafka = KafkaConnection::open(kafka)?;
        kafka.create_topic(TOPIC, 1, &[])?;
        // What a broker takes for its first requests is no growth.
        publish_over_kafka(&mut kafka)?;
        publish_over_http(http)?;
        let before = broker.cost()?.anonymous_bytes;
        let memory = thread::spawn({
            let (ends, peak, pid) = (Arc::clone(&ends), Arc::clone(&peak), broker.pid());
            move || {
                while !ends.load(Ordering::Relaxed) {
                    let Ok(cost) = Cost::of(pid) else { return };
                    peak.fetch_max(cost.anonymous_bytes, Ordering::Relaxed);
                    thread::sleep(LOOK_PAUSE);
                }
            }
        });
        let over_kafka = {
            let ends = Arc::clone(&ends);
            thread::spawn(move || be_honest(&ends, || publish_over_kafka(&mut kafka)))
        };
        let over_http = {
            let ends = Arc::clone(&ends);
            thread::spawn(move || be_honest(&ends, || publish_over_http(http)))
        };
        let honest = vec![("kafka", over_kafka), ("http", over_http)];
        Ok(Watch { ends, peak, before, honest, memory })
    }

    /// Ends, once every honest client has been served a few times, and fails unless all was well.
    pub fn end(self, broker: &mut BrokerProcess) -> Result<Calm> {
        self.ends.store(true, Ordering::Relaxed);
        let mut waited = Vec::new();
        for (name, client) in self.honest {
            let ended = client.join().ok().context("an honest client panicked")?;
            let mut times = ended.with_context(|| {
                format!("the honest {name} client was not served; the log:\n{}", broker.log())
            })?;
            times.sort_unstable();
            waited.push((name, times));
        }
        self.memory.join().ok().context("the look at the memory panicked")?;
        broker.check_running()?;
        let log = broker.log();
        ensure!(!log.contains("panicked") && !log.contains("overflowed its stack"), "{log}");
        let grown = self.peak.load(Ordering::Relaxed).saturating_sub(self.before);
        let calm = Calm { grown, waited };
        ensure!(calm.longest() < HONEST_WAIT_MAX, "an honest client waited too long: {calm}");
        ensure!(grown < GROWTH_MAX, "memory grew too much: {calm}");
        Ok(calm)
    }
}

impl Calm {
    fn longest(&self) -> Duration {
        self.waited.iter().filter_map(|(_, times)| times.last()).max().copied().unwrap_or_default()
    }
}

impl fmt::Display for Calm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory grew by {} KiB", self.grown >> 10)?;
        for (name, times) in &self.waited {
            let at = |percent: usize| times.get(times.len() * percent / 100).copied();
            let (half, most) = (at(50).unwrap_or_default(), at(99).unwrap_or_default());
            let longest = times.last().copied().unwrap_or_default();
            write!(
                f,
                "; honest {name}: {} requests, p50 {half:?}, p99 {most:?}, max {longest:?}",
                times.len()
            )?;
        }
        Ok(())
    }
}

/// Does it again and again until told to end, and at least a few times. Returns how long each took.
fn be_honest(ends: &AtomicBool, mut publish: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    let mut waited = Vec::new();
    while !ends.load(Ordering::Relaxed) || waited.len() <= SERVED_MIN {
        let began = Instant::now();
        publish()?;
        waited.push(began.elapsed());
        thread::sleep(HONEST_PAUSE);
    }
    Ok(waited)
}

/// Publishes, and reads back.
fn publish_over_kafka(kafka: &mut KafkaConnection) -> Result<()> {
    let value = Instant::now().elapsed().as_nanos().to_string().into_bytes();
    let offset = kafka.produce(TOPIC, 0, &[&value])?;
    let (records, _) = kafka.read_all(TOPIC, 0, offset)?;
    let found = records.iter().find(|record| record.offset == offset);
    ensure!(found.and_then(|record| record.value.as_ref()) == Some(&value), "another record");
    Ok(())
}

fn publish_over_http(address: std::net::SocketAddr) -> Result<()> {
    let answer = http::post(address, "/topics/honest/messages", &json!({ "value": "http" }))?;
    let published = answer.success()?;
    ensure!(published.get("offset").is_some(), "no offset: {published}");
    Ok(())
}
