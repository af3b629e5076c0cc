//! Records that travel together, and how their fate is told.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::Instant;
use towpath_model::{Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_records::{BatchBuilder, BuilderRefusal, Compression};

use crate::error::{Error, Result};
use crate::record::OutgoingRecord;

/// Where a record ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset; `None` where the broker was not asked (acks=0) or no longer knows it.
    pub offset: Option<Offset>,
    /// Its timestamp: the producer's, or the broker's on a topic with LogAppendTime.
    pub timestamp: Timestamp,
}

/// Resolves when a record is acknowledged or given up. Dropping it changes nothing for the record.
#[derive(Debug)]
pub struct DeliveryFuture(pub(super) oneshot::Receiver<Result<Delivered>>);

impl Future for DeliveryFuture {
    type Output = Result<Delivered>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|told| told.unwrap_or(Err(Error::Closed)))
    }
}

/// What a record takes of memory beside its bytes: our struct, and the allocation of its reply. Without
/// it a buffer of tiny records would hold ten times its bound.
pub(super) const RECORD_OVERHEAD: usize = size_of::<Held>() + 64;

/// A record in the buffer, and who waits for it.
pub(super) struct Held {
    pub(super) record: OutgoingRecord,
    pub(super) timestamp: Timestamp,
    /// Upper bound of its size in a batch.
    pub(super) bytes: usize,
    pub(super) reply: oneshot::Sender<Result<Delivered>>,
}

/// An idempotent producer (KIP-98).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: ProducerId,
    pub(super) epoch: ProducerEpoch,
}

/// What makes an attempt recognisable to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) identity: Identity,
    pub(super) sequence: Sequence,
}

/// Records for one partition that are written together.
pub(super) struct Batch {
    /// Number of its first record among all ever buffered for this partition: its place in the
    /// order, whatever happens to stamps.
    pub(super) first: u64,
    pub(super) records: Vec<Held>,
    /// Upper bound of its size on the wire, uncompressed.
    pub(super) bytes: usize,
    pub(super) created: Instant,
    pub(super) attempts: u32,
    pub(super) stamp: Option<Stamp>,
    /// Whether an attempt went unanswered, so that the records may be in the log.
    pub(super) is_uncertain: bool,
}

impl Batch {
    pub(super) fn record_count(&self) -> i32 {
        i32::try_from(self.records.len())
            .expect("a batch's bytes are bounded far below 2^31 records")
    }

    /// What it takes of the buffer.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.records.iter().map(|held| held.bytes + RECORD_OVERHEAD).sum()
    }

    /// Its bytes on the wire.
    pub(super) fn encode(&self, compression: Compression) -> Result<Vec<u8>> {
        let base = self.records.first().map_or(Timestamp(0), |held| held.timestamp);
        let mut builder = BatchBuilder::new(compression, base);
        for held in &self.records {
            let record = &held.record;
            let headers = record.headers.iter().map(|h| (h.key.as_bytes(), h.value.as_deref()));
            builder
                .append(held.timestamp, record.key.as_deref(), record.value.as_deref(), headers)
                .map_err(|refusal| self.cannot_be_written(refusal))?;
        }
        if let Some(Stamp { identity, sequence }) = self.stamp {
            builder.set_producer(identity.id, identity.epoch, sequence);
        }
        Ok(builder.build())
    }

    fn cannot_be_written(&self, refusal: BuilderRefusal) -> Error {
        let topic = self.records.first().map_or("", |held| &held.record.topic);
        Error::InvalidArgument(format!("a record for topic {topic:?} cannot be written: {refusal}"))
    }

    /// Two halves of a batch that was too large for the broker; `None` when it has one record.
    pub(super) fn split(mut self) -> Option<(Batch, Batch)> {
        if self.records.len() < 2 {
            return None;
        }
        let second = self.records.split_off(self.records.len() / 2);
        let count = self.record_count();
        let bytes_of = |records: &[Held]| records.iter().map(|held| held.bytes).sum();
        let second = Batch {
            first: self.first + u64::from(count.unsigned_abs()),
            bytes: bytes_of(&second),
            records: second,
            created: self.created,
            attempts: self.attempts,
            stamp: self
                .stamp
                .map(|stamp| Stamp { sequence: stamp.sequence.advance(count), ..stamp }),
            is_uncertain: self.is_uncertain,
        };
        self.bytes = bytes_of(&self.records);
        Some((self, second))
    }

    /// Tells every record where it went.
    pub(super) fn deliver(
        self,
        partition: PartitionIndex,
        base_offset: Option<Offset>,
        append_time: Option<Timestamp>,
    ) {
        for (held, at) in self.records.into_iter().zip(0..) {
            let delivered = Delivered {
                partition,
                offset: base_offset.map(|base| base + at),
                timestamp: append_time.unwrap_or(held.timestamp),
            };
            // Nobody has to wait for a delivery.
            let _ = held.reply.send(Ok(delivered));
        }
    }

    /// Tells every record that it was given up.
    pub(super) fn give_up(self, error: &Error) {
        for held in self.records {
            // Nobody has to wait for a delivery.
            let _ = held.reply.send(Err(error.clone()));
        }
    }
}
