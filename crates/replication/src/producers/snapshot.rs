//! The producers of a partition as bytes, so that a restart replays only a tail. Framing and
//! checksum are the log's; these bytes are the payload. All numbers are big-endian.
//!
//! ```text
//! 0  version u8 = 1
//! 1  producers u32, then for each, by id in ascending order:
//!      0  id i64 ≥ 0        10  last used i64 (ms)     26  batches u8, 1..=5, then for each:
//!      8  epoch i16 ≥ 0     18  records i64 ≥ 1             0  base sequence i32 ≥ 0
//!                                                           4  last offset delta i32 ≥ 0
//!                                                           8  base offset i64 ≥ 0
//!                                                          16  timestamp i64 (ms)
//! ```

use thiserror::Error;
use towpath_model::{Now, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::{BATCHES_REMEMBERED, Producer, Producers, RememberedBatch};

const VERSION: u8 = 1;
const PRODUCER_LEN: usize = 27;
const BATCH_LEN: usize = 24;

/// Why bytes are not a snapshot of producers; the log is replayed from further back then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// Written by a later version.
    #[error("producer snapshot of version {0}, this program reads version 1")]
    Version(u8),
    /// Fewer bytes than they announce, or more.
    #[error("producer snapshot of the wrong length")]
    Length,
    /// A field with a value that is never written.
    #[error("producer snapshot with an impossible {0}")]
    Field(&'static str),
}

impl Producers {
    /// The bytes of a snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let most = PRODUCER_LEN + BATCHES_REMEMBERED * BATCH_LEN;
        let mut out = Vec::with_capacity(5 + self.producers.len() * most);
        out.push(VERSION);
        let count = u32::try_from(self.producers.len()).expect("`most` is a property of 31 bits");
        out.extend(count.to_be_bytes());
        for (id, producer) in &self.producers {
            out.extend(id.0.to_be_bytes());
            out.extend(producer.epoch.0.to_be_bytes());
            out.extend(producer.last_used.0.to_be_bytes());
            out.extend(producer.records.to_be_bytes());
            out.push(producer.batches.len() as u8);
            for batch in &producer.batches {
                out.extend(batch.base_sequence.0.to_be_bytes());
                out.extend(batch.last_offset_delta.to_be_bytes());
                out.extend(batch.base_offset.0.to_be_bytes());
                out.extend(batch.timestamp.0.to_be_bytes());
            }
        }
        out
    }

    /// Reads a snapshot; of more than `most` producers the idlest are forgotten.
    pub fn decode(bytes: &[u8], now: Now, most: usize) -> Result<Producers, SnapshotError> {
        let mut reader = Reader { bytes };
        match reader.take::<1>()? {
            [VERSION] => {}
            [version] => return Err(SnapshotError::Version(version)),
        }
        let mut producers = Producers::new(most);
        let mut previous = None;
        for _ in 0..u32::from_be_bytes(reader.take()?) {
            let (id, producer) = reader.producer(now)?;
            if previous.is_some_and(|previous| id <= previous) {
                return Err(SnapshotError::Field("order of producers"));
            }
            previous = Some(id);
            producers.producers.insert(id, producer);
        }
        if !reader.bytes.is_empty() {
            return Err(SnapshotError::Length);
        }
        producers.set_most(most);
        Ok(producers)
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(SnapshotError::Length)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn producer(&mut self, now: Now) -> Result<(ProducerId, Producer), SnapshotError> {
        let id = ProducerId(i64::from_be_bytes(self.take()?));
        let epoch = ProducerEpoch(i16::from_be_bytes(self.take()?));
        let last_used = Timestamp(i64::from_be_bytes(self.take()?));
        let records = i64::from_be_bytes(self.take()?);
        let [count] = self.take::<1>()?;
        if id.0 < 0 || epoch.0 < 0 {
            return Err(SnapshotError::Field("producer"));
        }
        if !(1..=BATCHES_REMEMBERED).contains(&usize::from(count)) {
            return Err(SnapshotError::Field("number of batches"));
        }
        let batches = (0..count).map(|_| self.batch()).collect::<Result<Vec<_>, _>>()?;
        let follow =
            |pair: &[RememberedBatch]| pair[0].last_sequence().advance(1) == pair[1].base_sequence;
        if !batches.windows(2).all(follow) {
            return Err(SnapshotError::Field("order of batches"));
        }
        if records < batches.iter().map(RememberedBatch::records).sum() {
            return Err(SnapshotError::Field("number of records"));
        }
        let last_used_time = now.time;
        Ok((id, Producer { epoch, batches, records, last_used, last_used_time }))
    }

    fn batch(&mut self) -> Result<RememberedBatch, SnapshotError> {
        let batch = RememberedBatch {
            base_sequence: Sequence(i32::from_be_bytes(self.take()?)),
            last_offset_delta: i32::from_be_bytes(self.take()?),
            base_offset: Offset(i64::from_be_bytes(self.take()?)),
            timestamp: Timestamp(i64::from_be_bytes(self.take()?)),
        };
        let is_position = 0 <= batch.base_sequence.0
            && 0 <= batch.last_offset_delta
            && 0 <= batch.base_offset.0
            && batch.base_offset.0 <= i64::MAX - batch.records();
        if is_position { Ok(batch) } else { Err(SnapshotError::Field("batch")) }
    }
}
