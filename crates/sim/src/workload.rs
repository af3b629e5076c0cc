//! What clients send: batches of idempotent producers, of all sizes and codecs, with clocks that
//! are mostly right.
//!
//! The shapes that matter are drawn often enough to meet every fault: one small record, a batch
//! that spans sectors, now and then one that is synced on its own because it is large.

use towpath_model::{ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_records::{BatchBuilder, Compression};

use crate::rng::Rng;

/// One idempotent producer of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    /// Its id.
    pub id: ProducerId,
    /// Its incarnation.
    pub epoch: ProducerEpoch,
    /// Sequence of the record it sends next.
    pub next: Sequence,
}

impl Producer {
    /// A producer that has sent nothing yet.
    #[must_use]
    pub fn new(id: i64) -> Producer {
        Producer { id: ProducerId(id), epoch: ProducerEpoch(0), next: Sequence(0) }
    }
}

/// A batch as a client sends it: base offset 0, no leader epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The records' timestamps, in order.
    pub timestamps: Vec<Timestamp>,
}

/// How large the batches are.
#[derive(Debug, Clone, Copy)]
pub struct BatchShape {
    /// Records, at most.
    pub records_max: u64,
    /// Bytes of a usual value, at most.
    pub value_bytes_max: u64,
    /// Batches with a large value, in ten thousand.
    pub large_per_10_000: u64,
    /// Bytes of a large value.
    pub large_value_bytes: u64,
    /// Records without a value, in percent.
    pub tombstones_percent: u64,
}

/// Draws the next batch of `producer` and moves its sequence on.
pub fn draw_batch(
    rng: &mut Rng,
    producer: &mut Producer,
    shape: BatchShape,
    wall: Timestamp,
) -> Drawn {
    let compression = rng.weighted(&[
        (80, Compression::None),
        (10, Compression::Lz4),
        (4, Compression::Snappy),
        (3, Compression::Zstd),
        (3, Compression::Gzip),
    ]);
    let records = if rng.percent(40) { 1 } else { rng.between(1, shape.records_max) };
    let large_at = (rng.below(10_000) < shape.large_per_10_000).then(|| rng.below(records));
    let mut builder = BatchBuilder::new(compression, wall);
    builder.set_producer(producer.id, producer.epoch, producer.next);
    let mut timestamps = Vec::new();
    for at in 0..records {
        let timestamp = draw_timestamp(rng, wall);
        let len = match large_at {
            Some(large_at) if large_at == at => shape.large_value_bytes,
            _ => rng.between(0, shape.value_bytes_max),
        };
        let mut value = vec![0; len as usize];
        // Noise at the front makes batches differ, and the rest compresses.
        let noisy = value.len().min(64);
        rng.fill(&mut value[..noisy]);
        let key = rng.below(8).to_be_bytes();
        let key = rng.percent(90).then_some(key.as_slice());
        let value = rng.percent(100 - shape.tombstones_percent).then_some(value.as_slice());
        builder
            .append(timestamp, key, value, [])
            .expect("a few records near the base timestamp fit a batch");
        timestamps.push(timestamp);
    }
    producer.next = producer.next.advance(records as i32);
    Drawn { bytes: builder.build(), timestamps }
}

/// Mostly now, often out of order, sometimes from a client whose clock is plain wrong.
fn draw_timestamp(rng: &mut Rng, wall: Timestamp) -> Timestamp {
    const DAY_MS: i64 = 86_400_000;
    match rng.below(100) {
        0 => Timestamp(wall.0 + 3650 * DAY_MS),
        1 => Timestamp(wall.0 - 3650 * DAY_MS),
        2..30 => Timestamp(wall.0 - rng.below(5_000) as i64),
        _ => wall,
    }
}

#[cfg(test)]
mod tests {
    use towpath_records::BatchHeader;

    use super::*;

    #[test]
    fn sequences_of_a_producer_follow_each_other() {
        let mut rng = Rng::new(1);
        let mut producer = Producer::new(7);
        let shape = BatchShape {
            records_max: 5,
            value_bytes_max: 100,
            large_per_10_000: 500,
            large_value_bytes: 10_000,
            tombstones_percent: 3,
        };
        let mut expected = 0;
        for _ in 0..200 {
            let drawn = draw_batch(&mut rng, &mut producer, shape, Timestamp(1_000_000));
            let header = BatchHeader::parse(&drawn.bytes).unwrap();
            assert_eq!(header.size_in_bytes(), drawn.bytes.len());
            assert_eq!(header.producer_id(), Some(ProducerId(7)));
            assert_eq!(header.base_sequence(), Sequence(expected));
            assert_eq!(header.record_count() as usize, drawn.timestamps.len());
            assert_eq!(Some(&header.max_timestamp()), drawn.timestamps.iter().max());
            expected += header.record_count();
        }
        assert_eq!(producer.next, Sequence(expected));
    }
}
