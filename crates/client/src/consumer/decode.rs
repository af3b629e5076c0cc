//! Fetched bytes into records: checks sums, decompresses, and leaves out what readers must not see.
//!
//! A fetch answers with whole batches from the one that holds the wanted offset, so earlier records
//! may come along; and its last batch may be cut off. Control batches take up offsets but are not
//! for applications. Under read-committed the records of aborted transactions are left out as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use towpath_model::{Offset, Timestamp};
use towpath_protocol::messages::AbortedTransaction;
use towpath_records::{Batch, Scratch, Tail, records, split_batches};

use super::offsets::Isolation;
use crate::error::{Error, Result};
use crate::record::{Header, Record, TopicPartition};

/// The most that one batch may hold in the clear: beyond it, somebody is up to no good.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// What a stretch of a partition holds.
#[derive(Debug)]
pub(super) struct Stretch {
    /// The records at or after the wanted offset.
    pub(super) records: Vec<Record>,
    /// Where the next fetch continues.
    pub(super) next_offset: Offset,
    /// Damage behind those records.
    pub(super) damage: Option<Error>,
}

/// Reads the records of `bytes` that are at or after `position`.
pub(super) fn read_stretch(
    partition: &TopicPartition,
    position: Offset,
    bytes: &[u8],
    aborted: &[AbortedTransaction],
    isolation: Isolation,
    scratch: &mut Scratch,
) -> Stretch {
    let mut stretch = Stretch { records: Vec::new(), next_offset: position, damage: None };
    let mut aborts = Aborts::new(aborted, isolation);
    let mut batches = split_batches(bytes);
    for batch in &mut batches {
        let is_hidden = aborts.hides(&batch);
        let outcome = if is_hidden || batch.header.is_control() {
            Ok(())
        } else {
            read_batch(partition, position, &batch, scratch, &mut stretch.records)
        };
        if let Err(error) = outcome {
            stretch.damage = Some(error);
            return stretch;
        }
        stretch.next_offset = stretch.next_offset.max(batch.header.next_offset());
    }
    match batches.tail() {
        Tail::Damaged { error, .. } => {
            stretch.damage = Some(unreadable(partition, stretch.next_offset, &error.to_string()));
        }
        // A first batch that does not fit was sent whole by the broker (KIP-74), so nothing at all
        // means that the answer itself is broken.
        Tail::Partial { found, .. }
            if stretch.next_offset == position && batches.position() == 0 =>
        {
            let cause = format!("only {found} bytes of it were sent");
            stretch.damage = Some(unreadable(partition, position, &cause));
        }
        Tail::Partial { .. } | Tail::Clean => {}
    }
    stretch
}

fn read_batch(
    partition: &TopicPartition,
    position: Offset,
    batch: &Batch<'_>,
    scratch: &mut Scratch,
    out: &mut Vec<Record>,
) -> Result<()> {
    let header = &batch.header;
    if header.last_offset() < position {
        return Ok(());
    }
    let broken = |cause: &dyn std::fmt::Display| {
        unreadable(partition, header.base_offset(), &cause.to_string())
    };
    batch.check_crc().map_err(|error| broken(&error))?;
    let records = records(batch.bytes, BATCH_BYTES_MAX, scratch).map_err(|error| broken(&error))?;
    for record in records {
        let record = record.map_err(|error| broken(&error))?;
        let offset = header.offset_of(record.offset_delta);
        if offset < position {
            continue;
        }
        let header_of = |(key, value): (&[u8], Option<&[u8]>)| Header {
            key: String::from_utf8_lossy(key).into(),
            value: value.map(Bytes::copy_from_slice),
        };
        out.push(Record {
            topic: Arc::clone(&partition.topic),
            partition: partition.partition,
            offset,
            timestamp: Timestamp(header.timestamp_of(record.timestamp_delta).0),
            leader_epoch: (header.leader_epoch().0 >= 0).then_some(header.leader_epoch()),
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: record.headers.map(header_of).collect(),
        });
    }
    Ok(())
}

fn unreadable(partition: &TopicPartition, offset: Offset, cause: &str) -> Error {
    Error::UnreadableBatch {
        topic: partition.topic.to_string(),
        partition: partition.partition.0,
        offset: offset.0,
        cause: cause.to_owned(),
    }
}

/// Which producers are inside an aborted transaction at the place that was reached.
struct Aborts {
    /// Not yet reached; the nearest last.
    ahead: Vec<AbortedTransaction>,
    inside: BTreeSet<i64>,
    isolation: Isolation,
}

impl Aborts {
    fn new(aborted: &[AbortedTransaction], isolation: Isolation) -> Aborts {
        let mut ahead = aborted.to_vec();
        ahead.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        Aborts { ahead, inside: BTreeSet::new(), isolation }
    }

    /// Whether the batch belongs to an aborted transaction; to be asked batch by batch.
    fn hides(&mut self, batch: &Batch<'_>) -> bool {
        if self.isolation == Isolation::ReadUncommitted {
            return false;
        }
        let last = batch.header.last_offset().0;
        while let Some(next) = self.ahead.pop_if(|next| next.first_offset <= last) {
            self.inside.insert(next.producer_id);
        }
        let Some(producer) = batch.header.producer_id().filter(|_| batch.header.is_transactional())
        else {
            return false;
        };
        if batch.header.is_control() {
            // Either marker ends the producer's transaction; a next one has an entry of its own.
            self.inside.remove(&producer.0);
            return false;
        }
        self.inside.contains(&producer.0)
    }
}

#[cfg(test)]
mod tests {
    use towpath_records::{BatchBuilder, Compression};

    use super::*;

    fn batch(base: i64, values: &[&str]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Compression::Lz4, Timestamp(1000));
        builder.set_base_offset(Offset(base));
        for value in values {
            builder
                .append(Timestamp(1000), None, Some(value.as_bytes()), std::iter::empty())
                .unwrap();
        }
        builder.build()
    }

    fn read(position: i64, bytes: &[u8]) -> Stretch {
        let partition = TopicPartition::new("t", 0);
        let mut scratch = Scratch::new();
        read_stretch(
            &partition,
            Offset(position),
            bytes,
            &[],
            Isolation::ReadUncommitted,
            &mut scratch,
        )
    }

    #[test]
    fn records_before_the_position_are_left_out() {
        let bytes = [batch(10, &["a", "b", "c"]), batch(13, &["d"])].concat();
        let stretch = read(11, &bytes);
        let got: Vec<_> = stretch
            .records
            .iter()
            .map(|r| (r.offset.0, String::from_utf8_lossy(r.value.as_ref().unwrap()).into_owned()))
            .collect();
        assert_eq!(got, [(11, "b".into()), (12, "c".into()), (13, "d".into())]);
        assert_eq!(stretch.next_offset, Offset(14));
        assert!(stretch.damage.is_none());
    }

    #[test]
    fn a_cut_off_last_batch_is_fetched_again() {
        let mut bytes = [batch(0, &["a"]), batch(1, &["b", "c"])].concat();
        bytes.truncate(bytes.len() - 3);
        let stretch = read(0, &bytes);
        assert_eq!((stretch.records.len(), stretch.next_offset), (1, Offset(1)));
        assert!(stretch.damage.is_none());
    }

    #[test]
    fn damage_is_told_after_the_records_before_it() {
        let mut bytes = [batch(0, &["a"]), batch(1, &["b"])].concat();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let stretch = read(0, &bytes);
        assert_eq!((stretch.records.len(), stretch.next_offset), (1, Offset(1)));
        assert!(matches!(stretch.damage, Some(Error::UnreadableBatch { offset: 1, .. })));
    }
}
