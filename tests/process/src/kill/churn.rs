//! Topics that are created, filled, and deleted, while the broker dies in the middle of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use fastrand::Rng;
use towpath_protocol::ErrorCode;

use crate::kafka::{KafkaConnection, Refused};
use crate::load::Load;

/// Topics that live at a time.
const LIVING_MAX: usize = 6;
/// Attempts, 10 ms apart, until somebody gives a broker up.
const ATTEMPTS_MAX: u32 = 3_000;

/// What must be there: living topics and the values that were acknowledged in them.
#[derive(Debug, Default)]
pub(super) struct Churned {
    /// By name; every value was acknowledged, in this order.
    pub(super) living: BTreeMap<String, Vec<Vec<u8>>>,
    /// Deleted for good.
    pub(super) deleted: BTreeSet<String>,
}

/// Creates, fills and deletes until writing ends.
pub(super) fn run(load: &Load, kafka: SocketAddr, seed: u64) -> Churned {
    let mut rng = Rng::with_seed(seed);
    let mut churned = Churned::default();
    let mut link = Link { kafka, connection: None };
    for number in 0.. {
        if !load.is_writing() {
            break;
        }
        if let Err(error) = link.step(&mut rng, number, &mut churned) {
            load.fail(format!("topics: {error:#}"));
            break;
        }
        thread::sleep(Duration::from_millis(rng.u64(5..60)));
    }
    churned
}

/// Compares with what is there.
pub(super) fn check(churned: &Churned, connection: &mut KafkaConnection) -> Result<u64> {
    let topics = connection.topics()?;
    if let Some(back) = churned.deleted.iter().find(|name| topics.contains(*name)) {
        bail!("INV-M1: topic {back} was deleted, and is there again");
    }
    for (name, values) in &churned.living {
        if !topics.contains(name) {
            bail!("INV-M1: topic {name} was created, and is not there");
        }
        let (records, _) = connection.read_all(name, 0, 0)?;
        let found: Vec<Vec<u8>> = records.into_iter().filter_map(|record| record.value).collect();
        // A batch whose answer was lost is repeated without idempotence, so it may be there twice.
        let mut expected = values.iter().peekable();
        for value in &found {
            if expected.peek() == Some(&value) {
                expected.next();
            }
        }
        if let Some(missing) = expected.next() {
            bail!("INV-R1: {name} has lost {}", String::from_utf8_lossy(missing));
        }
    }
    Ok(churned.living.len() as u64 + churned.deleted.len() as u64)
}

/// A connection that is dialled again whenever it breaks.
struct Link {
    kafka: SocketAddr,
    connection: Option<KafkaConnection>,
}

impl Link {
    fn step(&mut self, rng: &mut Rng, number: u64, churned: &mut Churned) -> Result<()> {
        if churned.living.len() < LIVING_MAX && rng.bool() {
            let name = format!("churn-{number}");
            let partitions = rng.i32(1..4);
            let done = ErrorCode::TopicAlreadyExists;
            self.retry(Some(done), |link| link.create_topic(&name, partitions, &[]))?;
            churned.living.insert(name, Vec::new());
            return Ok(());
        }
        let Some(name) = rng.choice(churned.living.keys()).cloned() else { return Ok(()) };
        if rng.u8(..3) != 0 {
            let value = format!("value {number}").into_bytes();
            self.retry(None, |link| link.produce(&name, 0, &[&value]).map(drop))?;
            churned.living.entry(name).or_default().push(value);
            return Ok(());
        }
        self.retry(Some(ErrorCode::UnknownTopicOrPartition), |link| link.delete_topic(&name))?;
        churned.living.remove(&name);
        churned.deleted.insert(name);
        Ok(())
    }

    /// Repeats `work` until the broker answers. `done` is the refusal of a repeat whose work was done
    /// by the attempt before, the answer of which was lost.
    fn retry(
        &mut self,
        done: Option<ErrorCode>,
        work: impl Fn(&mut KafkaConnection) -> Result<()>,
    ) -> Result<()> {
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            if self.connection.is_none() {
                self.connection = KafkaConnection::open(self.kafka).ok();
            }
            if let Some(connection) = &mut self.connection {
                match work(connection) {
                    Ok(()) => return Ok(()),
                    Err(error) => match error.downcast_ref::<Refused>() {
                        Some(Refused(code)) if Some(*code) == done => return Ok(()),
                        Some(Refused(code)) if !code.is_retriable() => return Err(error),
                        // A topic that was just created becomes writable a moment later.
                        Some(_) => last = Some(error),
                        None => {
                            self.connection = None;
                            last = Some(error);
                        }
                    },
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
        match last {
            Some(error) => Err(error.context("the broker does not come back")),
            None => bail!("the broker does not come back"),
        }
    }
}
