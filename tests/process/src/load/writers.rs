//! Writers: idempotent producers of our client, one after the other or for the whole campaign.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::task::JoinSet;
use towpath_client::{
    Cluster, Compression, Delivered, DeliveryFuture, Error, OnFull, OutgoingRecord, Producer,
    ProducerConfig,
};

use super::{
    EVENTS, EVENTS_PARTITIONS, Load, Manners, ORDERS, ORDERS_PARTITIONS, Unanswered, is_passing,
};
use crate::history::{Fate, Stamp};

/// How many records a writer that does not last sends before it ends.
const SHORT_LIFE_RECORDS: std::ops::Range<u64> = 50..3_000;
/// How long a writer may take to deliver its last records, the broker being up and down.
const CLOSE_PATIENCE: Duration = Duration::from_secs(60);

/// Runs one writer after the other until writing ends.
pub(crate) async fn run(load: Arc<Load>, seed: u64, lasts: bool) {
    let mut rng = Rng::with_seed(seed);
    while load.is_writing() {
        if let Err(error) = write(&load, &mut rng, lasts).await {
            // A broker that is down is no failure; only being refused for ever is.
            if !is_passing(&error) {
                load.fail(format!("a writer ended: {error}"));
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn write(load: &Arc<Load>, rng: &mut Rng, lasts: bool) -> Result<(), Error> {
    let config = load.client_config().map_err(|e| Error::InvalidArgument(e.to_string()))?;
    let cluster = Cluster::connect(config).await?;
    let codec = Compression::ALL[rng.usize(..Compression::ALL.len())];
    let producer = Producer::new(cluster, producer_config(load.manners, codec, rng))?;
    let writer = load.writers().new_writer();
    let life = if lasts { u64::MAX } else { rng.u64(SHORT_LIFE_RECORDS) };

    let mut told = JoinSet::new();
    let mut sent = 0;
    while load.is_writing() && sent < life {
        let may_send = load.may_send().await;
        let mut burst = Vec::new();
        for _ in 0..rng.usize(1..40) {
            let (topic, partitions) = match rng.u8(..4) {
                0 => (EVENTS, EVENTS_PARTITIONS),
                _ => (ORDERS, ORDERS_PARTITIONS),
            };
            let partition = rng.i32(0..partitions);
            let stamp = load.sending(topic, writer, partition);
            let value = stamp.to_value(rng.usize(..400));
            let way =
                OnItsWay { counted: Unanswered::count(load), topic, stamp, sent: Instant::now() };
            match producer.send(OutgoingRecord::new(topic, value).partition(partition)).await {
                Ok(delivery) => burst.push((way, delivery)),
                Err(error) => {
                    let is_refused = !is_passing(&error);
                    way.answered(&Err(error.clone()));
                    if is_refused {
                        load.fail(format!("{topic} {stamp} was not even taken: {error}"));
                        return Ok(());
                    }
                }
            }
            sent += 1;
        }
        told.spawn(tell(burst));
        drop(may_send);
        tokio::time::sleep(load.pause_max.mul_f64(rng.f64())).await;
        while told.try_join_next().is_some() {}
    }

    // One in four ends as a crash would end it: what was not answered stays unknown.
    let is_orderly = lasts || load.manners == Manners::Default;
    if is_orderly || rng.u8(..4) != 0 {
        producer.close(CLOSE_PATIENCE).await?;
    } else {
        drop(producer);
    }
    while told.join_next().await.is_some() {}
    Ok(())
}

fn producer_config(manners: Manners, codec: Compression, rng: &mut Rng) -> ProducerConfig {
    if manners == Manners::Default {
        return ProducerConfig { compression: codec, ..ProducerConfig::default() };
    }
    ProducerConfig {
        compression: codec,
        linger: Duration::from_millis(rng.u64(..8)),
        batch_bytes: 1 << rng.u32(10..16),
        buffer_bytes: 1 << 20,
        on_full: OnFull::Block(Duration::from_secs(60)),
        request_timeout: Duration::from_secs(10),
        delivery_timeout: Duration::from_secs(120),
        may_create_topics: false,
        ..ProducerConfig::default()
    }
}

/// A record whose writer has no answer yet, and may never have one.
pub(super) struct OnItsWay {
    pub(super) counted: Unanswered,
    pub(super) topic: &'static str,
    pub(super) stamp: Stamp,
    pub(super) sent: Instant,
}

impl OnItsWay {
    pub(super) fn answered(self, answer: &Result<Delivered, Error>) {
        let load = &self.counted.load;
        load.told(self.topic, self.stamp, fate_of(answer), self.sent);
        if let Err(error) = answer {
            load.gave_up(|| format!("{} {}: {error}", self.topic, self.stamp));
        }
    }
}

/// Waits for the answers of a burst and notes them.
async fn tell(burst: Vec<(OnItsWay, DeliveryFuture)>) {
    for (record, delivery) in burst {
        record.answered(&delivery.await);
    }
}

fn fate_of(answer: &Result<Delivered, Error>) -> Fate {
    match answer {
        Ok(Delivered { partition, offset: Some(offset), .. }) => {
            Fate::Acked { partition: partition.0, offset: offset.0 }
        }
        Err(Error::BufferFull { .. } | Error::RecordTooLarge { .. }) => Fate::Refused,
        Err(Error::Refused { code, .. }) if !code.is_retriable() => Fate::Refused,
        // An acknowledged record without an offset is one that the broker had before.
        Ok(_) | Err(_) => Fate::Unknown,
    }
}
