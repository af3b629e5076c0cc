use super::*;
use crate::{Scratch, records};

#[test]
fn offsets_count_from_the_base_offset() {
    let mut builder = BatchBuilder::new(Compression::Gzip, Timestamp(0));
    builder.set_base_offset(Offset(40));
    for _ in 0..3 {
        builder.append(Timestamp(0), None, None, []).expect("it fits");
    }
    assert_eq!(builder.record_count(), 3);
    let batch = builder.build();
    let mut scratch = Scratch::new();
    let iter = records(&batch, 100, &mut scratch).expect("it is a batch");
    let header = *iter.header();
    let offsets: Vec<_> =
        iter.map(|record| header.offset_of(record.expect("it is whole").offset_delta)).collect();
    assert_eq!(offsets, [Offset(40), Offset(41), Offset(42)]);
    assert_eq!(header.next_offset(), Offset(43));
}

#[test]
fn a_timestamp_too_far_from_the_base_is_refused_and_changes_nothing() {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(i64::MAX));
    let refusal = builder.append(Timestamp(-2), None, None, []);
    assert_eq!(refusal, Err(BuilderRefusal::TimestampOutOfRange(Timestamp(-2))));
    assert!(builder.is_empty());
    assert_eq!(builder.size_in_bytes(), HEADER_LEN);
}

#[test]
fn records_without_timestamps_have_no_maximum() {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(-1));
    builder.append(Timestamp(-1), None, None, []).expect("it fits");
    let header = BatchHeader::parse(&builder.build()).expect("it is a batch");
    assert_eq!(header.max_timestamp(), Timestamp(-1));
    assert_eq!(header.producer_id(), None);
    assert_eq!(header.last_sequence(), Sequence(-1));
}
