//! Batches for tests, with the header fields that matter here.

use towpath_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_records::{BatchBuilder, BatchHeader, Compression, set_base_offset, set_leader_epoch};

/// The header of a batch as a producer sends it; `producer` is id, epoch, base sequence.
pub(crate) fn sent(records: u32, producer: Option<(i64, i16, i32)>) -> BatchHeader {
    header(records, producer, None)
}

/// The header of a batch as it is in the log.
pub(crate) fn stored(
    records: u32,
    producer: Option<(i64, i16, i32)>,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
) -> BatchHeader {
    header(records, producer, Some((base_offset, leader_epoch)))
}

fn header(
    records: u32,
    producer: Option<(i64, i16, i32)>,
    place: Option<(Offset, LeaderEpoch)>,
) -> BatchHeader {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(1_000));
    if let Some((id, epoch, sequence)) = producer {
        builder.set_producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    }
    for _ in 0..records {
        builder.append(Timestamp(1_000), None, Some(b"v"), []).expect("a small record fits");
    }
    let mut bytes = builder.build();
    if let Some((base_offset, leader_epoch)) = place {
        set_base_offset(&mut bytes, base_offset);
        set_leader_epoch(&mut bytes, leader_epoch);
    }
    BatchHeader::parse(&bytes).expect("what the builder builds can be parsed")
}
