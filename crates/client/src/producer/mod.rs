//! Sends records: chooses partitions, batches, compresses, retries, and never sends twice.
//!
//! ```text
//!   send ──▶ buffer (bounded) ──▶ batch per partition ──▶ request per leader ──▶ delivery
//! ```
//!
//! `send` returns once the record has a place in the buffer; the future that it returns resolves
//! when the broker has acknowledged the record. Records of one partition keep the order of their
//! sends, through retries as well.

mod accumulator;
mod batch;
mod config;
mod queue;
mod request;
mod sender;
mod verdict;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use towpath_model::Timestamp;

use self::accumulator::{Accumulator, Shared};
use self::batch::{Held, RECORD_OVERHEAD};
use self::queue::PartitionQueue;
use self::sender::Sender;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::image::Topic;
use crate::record::{OutgoingRecord, TopicPartition};

pub use self::batch::{Delivered, DeliveryFuture};
pub use self::config::{Acks, OnFull, ProducerConfig};

/// Sends records to any topics of one cluster. Dropping it abandons what is not delivered yet:
/// `close` waits for that.
pub struct Producer {
    cluster: Cluster,
    config: Arc<ProducerConfig>,
    shared: Arc<Shared>,
    sender: JoinHandle<()>,
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.sender.abort();
    }
}

impl Producer {
    /// A producer on this cluster.
    pub fn new(cluster: Cluster, config: ProducerConfig) -> Result<Producer> {
        config.check()?;
        let config = Arc::new(config);
        let shared = Arc::new(Shared {
            accumulator: Mutex::new(Accumulator::default()),
            wake: Notify::new(),
            progress: Notify::new(),
            room: Semaphore::new(config.buffer_bytes.min(Semaphore::MAX_PERMITS)),
        });
        let sender = Sender::new(cluster.clone(), config.clone(), shared.clone());
        Ok(Producer { cluster, config, shared, sender: tokio::spawn(sender.run()) })
    }

    /// Buffers a record. Waits for the topic's metadata and, if so configured, for room.
    pub async fn send(&self, record: OutgoingRecord) -> Result<DeliveryFuture> {
        let bytes = record.size_bound();
        let room = self.config.buffer_bytes.saturating_sub(RECORD_OVERHEAD);
        let limit = self.config.request_bytes_max.min(room);
        if limit < bytes {
            let topic = record.topic.to_string();
            return Err(Error::RecordTooLarge { topic, bytes, limit: Some(limit) });
        }
        let may_create = self.config.may_create_topics;
        let patience = self.config.metadata_timeout;
        let topic = self.cluster.topic(&record.topic, may_create, patience).await?;
        let topic = self.with_partition(topic, &record).await?;
        self.reserve(bytes + RECORD_OVERHEAD).await?;
        self.append(record, &topic, bytes)
    }

    /// Looks again when the caller names a partition that we have not heard of.
    async fn with_partition(
        &self,
        topic: Arc<Topic>,
        record: &OutgoingRecord,
    ) -> Result<Arc<Topic>> {
        let Some(index) = record.partition.filter(|index| topic.partition(*index).is_none()) else {
            return Ok(topic);
        };
        self.cluster.refresh(std::slice::from_ref(&record.topic)).await?;
        self.cluster.partition(&record.topic, index, self.config.metadata_timeout).await?;
        self.cluster.topic(&record.topic, false, self.config.metadata_timeout).await
    }

    /// Takes `bytes` of the buffer; they come back when the record is settled.
    async fn reserve(&self, bytes: usize) -> Result<()> {
        let full = || Error::BufferFull { buffer_bytes: self.config.buffer_bytes };
        let permits = u32::try_from(bytes).map_err(|_| full())?;
        if let Ok(room) = self.shared.room.try_acquire_many(permits) {
            room.forget();
            return Ok(());
        }
        let OnFull::Block(patience) = self.config.on_full else { return Err(full()) };
        let _hurry = Hurry::on(&self.shared);
        let deadline = Instant::now() + patience;
        match timeout_at(deadline, self.shared.room.acquire_many(permits)).await {
            Ok(Ok(room)) => room.forget(),
            Ok(Err(_)) => return Err(Error::Closed),
            Err(_) => return Err(full()),
        }
        Ok(())
    }

    fn append(
        &self,
        record: OutgoingRecord,
        topic: &Topic,
        bytes: usize,
    ) -> Result<DeliveryFuture> {
        let (reply, told) = oneshot::channel();
        let is_news = {
            let mut accumulator = self.shared.accumulator();
            let refusal = accumulator.is_closed.then_some(Error::Closed);
            if let Some(error) = accumulator.stopped.clone().or(refusal) {
                self.shared.room.add_permits(bytes + RECORD_OVERHEAD);
                return Err(error);
            }
            let batch_bytes = self.config.batch_bytes;
            let index = accumulator.choose_partition(&record, topic, bytes, batch_bytes);
            let partition = TopicPartition { topic: record.topic.clone(), partition: index };
            let timestamp = record.timestamp.unwrap_or_else(wall_clock);
            let held = Held { record, timestamp, bytes, reply };
            let queue = accumulator.partitions.entry(partition).or_default();
            queue.append(held, Instant::now(), batch_bytes)
        };
        if is_news {
            self.shared.wake.notify_one();
        }
        Ok(DeliveryFuture(told))
    }

    /// Waits until everything that was sent before is settled, without lingering.
    pub async fn flush(&self) -> Result<()> {
        let _hurry = Hurry::on(&self.shared);
        let targets: Vec<(TopicPartition, u64)> = {
            let accumulator = self.shared.accumulator();
            let buffered = |(partition, queue): (&TopicPartition, &PartitionQueue)| {
                (partition.clone(), queue.buffered())
            };
            accumulator.partitions.iter().map(buffered).collect()
        };
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            // Registered before the look, so that no progress is missed between the two.
            progress.as_mut().enable();
            {
                let accumulator = self.shared.accumulator();
                if let Some(error) = &accumulator.stopped {
                    return Err(error.clone());
                }
                let is_settled = |(partition, end): &(TopicPartition, u64)| {
                    accumulator.partitions.get(partition).is_none_or(|q| q.is_settled_before(*end))
                };
                if targets.iter().all(is_settled) {
                    return Ok(());
                }
            }
            progress.await;
        }
    }

    /// Refuses further records, delivers what is buffered for at most `patience`, and ends.
    pub async fn close(mut self, patience: Duration) -> Result<()> {
        self.shared.accumulator().is_closed = true;
        self.shared.wake.notify_one();
        match timeout_at(Instant::now() + patience, &mut self.sender).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::TimedOut {
                doing: "delivering what was buffered".to_owned(),
                after: patience,
            }),
        }
    }
}

/// While it lives, batches do not linger.
struct Hurry<'s>(&'s Shared);

impl Hurry<'_> {
    fn on(shared: &Shared) -> Hurry<'_> {
        shared.accumulator().hurried_by += 1;
        shared.wake.notify_one();
        Hurry(shared)
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.accumulator().hurried_by -= 1;
    }
}

/// Now, as records carry it.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
