use super::*;
use crate::{BatchBuilder, Compression};

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(1_000));
    builder.set_producer(ProducerId(7), ProducerEpoch(2), Sequence(i32::MAX - 1));
    for timestamp in [1_000, 1_005, 1_001] {
        builder.append(Timestamp(timestamp), Some(b"k"), Some(b"v"), []).expect("it fits");
    }
    builder.build()
}

fn parse(bytes: &[u8]) -> BatchHeader {
    BatchHeader::parse(bytes).expect("a batch of ours")
}

#[test]
fn a_header_tells_what_was_built() {
    let batch = batch();
    let header = parse(&batch);
    assert_eq!(header.size_in_bytes(), batch.len());
    assert_eq!(header.base_offset(), Offset(0));
    assert_eq!(header.last_offset(), Offset(2));
    assert_eq!(header.next_offset(), Offset(3));
    assert_eq!(header.record_count(), 3);
    assert_eq!(header.leader_epoch(), LeaderEpoch(-1));
    assert_eq!(header.base_timestamp(), Timestamp(1_000));
    assert_eq!(header.max_timestamp(), Timestamp(1_005));
    assert_eq!(header.producer_id(), Some(ProducerId(7)));
    assert_eq!(header.producer_epoch(), ProducerEpoch(2));
    assert_eq!(header.compression(), Ok(Compression::None));
    assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
    assert!(!header.is_transactional());
    assert!(!header.is_control());
    assert!(!header.has_delete_horizon());
    crc::check_crc(&header, &batch).expect("the checksum is right");
}

#[test]
fn the_last_sequence_wraps_to_zero() {
    assert_eq!(parse(&batch()).base_sequence(), Sequence(i32::MAX - 1));
    assert_eq!(parse(&batch()).last_sequence(), Sequence(0));
}

#[test]
fn place_and_leadership_are_set_without_a_new_checksum() {
    let mut batch = batch();
    let crc_before = parse(&batch).crc();
    set_base_offset(&mut batch, Offset(40));
    set_leader_epoch(&mut batch, LeaderEpoch(6));
    let header = parse(&batch);
    assert_eq!(header.base_offset(), Offset(40));
    assert_eq!(header.last_offset(), Offset(42));
    assert_eq!(header.leader_epoch(), LeaderEpoch(6));
    assert_eq!(header.crc(), crc_before);
    crc::check_crc(&header, &batch).expect("it does not cover them");
}

#[test]
fn log_append_time_replaces_every_timestamp_and_renews_the_checksum() {
    let mut batch = batch();
    set_log_append_time(&mut batch, Timestamp(9_000));
    let header = parse(&batch);
    crc::check_crc(&header, &batch).expect("it was renewed");
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.max_timestamp(), Timestamp(9_000));
    assert_eq!(header.base_timestamp(), Timestamp(1_000));
    assert_eq!(header.timestamp_of(1), Timestamp(9_000));
}

#[test]
fn bytes_that_start_no_batch_are_refused_by_name() {
    let good = batch();
    let edited = |at: usize, bytes: &[u8]| {
        let mut edited = good.clone();
        put(&mut edited, at, bytes);
        BatchHeader::parse(&edited).expect_err("it was spoilt")
    };
    assert_eq!(BatchHeader::parse(&good[..60]), Err(HeaderError::Truncated { found: 60 }));
    assert_eq!(edited(MAGIC_AT, &[1]), HeaderError::UnsupportedMagic(1));
    assert_eq!(edited(8, &48_i32.to_be_bytes()), HeaderError::InvalidLength(48));
    assert_eq!(edited(8, &(-1_i32).to_be_bytes()), HeaderError::InvalidLength(-1));
    assert_eq!(edited(23, &(-1_i32).to_be_bytes()), HeaderError::NegativeOffsetDelta(-1));
    assert_eq!(edited(57, &(-1_i32).to_be_bytes()), HeaderError::NegativeCount(-1));
    assert_eq!(
        edited(0, &(i64::MAX - 2).to_be_bytes()),
        HeaderError::OffsetOverflow { base: i64::MAX - 2, delta: 2 }
    );
}

#[test]
fn a_codec_without_a_name_is_told_by_its_number() {
    let mut batch = batch();
    batch[ATTRIBUTES_AT + 1] = 6;
    assert_eq!(parse(&batch).compression(), Err(6));
    batch[ATTRIBUTES_AT] = 1;
    assert_eq!(parse(&batch).unknown_attributes(), 0x100);
}
