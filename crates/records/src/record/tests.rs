use proptest::prelude::*;
use towpath_model::Timestamp;

use super::*;
use crate::{BatchBuilder, Compression};

const MAX: usize = 1 << 20;

fn one_record(value: Option<&[u8]>) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(5));
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"1")), (b"h", None)];
    builder.append(Timestamp(3), Some(b"key"), value, headers).expect("it fits");
    builder.build()
}

fn first_error(batch: &[u8]) -> Option<MalformedRecord> {
    let mut scratch = Scratch::new();
    let iter = records(batch, MAX, &mut scratch).expect("the batch can be opened");
    iter.filter_map(Result::err).next()
}

#[test]
fn a_record_lends_its_parts_from_the_batch() {
    let batch = one_record(None);
    let mut scratch = Scratch::new();
    let mut iter = records(&batch, MAX, &mut scratch).expect("it is a batch");
    let record = iter.next().expect("one record").expect("it is whole");
    assert_eq!(record.key, Some(&b"key"[..]));
    assert_eq!(record.value, None);
    assert_eq!(record.timestamp_delta, -2);
    assert_eq!(iter.header().timestamp_of(record.timestamp_delta), Timestamp(3));
    assert_eq!(record.headers.len(), 2);
    let headers: Vec<_> = record.headers.collect();
    assert_eq!(headers, [(&b"h"[..], Some(&b"1"[..])), (b"h", None)]);
    assert_eq!(record.body_bytes, batch.len() - HEADER_LEN - 1);
    assert!(iter.next().is_none());
}

/// length 61, attributes 62, timestamp delta 63, offset delta 64, key length 65, key 66..69,
/// value length 69, header count 70, header key length 71.
#[test]
fn each_broken_field_is_named() {
    let good = one_record(None);
    assert_eq!(first_error(&good), None);
    let edited = |at: usize, byte: u8| {
        let mut edited = good.clone();
        edited[at] = byte;
        first_error(&edited).expect("it was spoilt")
    };
    assert_eq!(edited(61, 1), MalformedRecord::InvalidLength(-1));
    assert_eq!(edited(61, 126), MalformedRecord::InvalidLength(63));
    assert_eq!(edited(61, 0), MalformedRecord::Field("attributes"));
    assert_eq!(edited(64, 2), MalformedRecord::OffsetDelta { found: 1, last: 0 });
    assert_eq!(edited(64, 1), MalformedRecord::OffsetDelta { found: -1, last: 0 });
    assert_eq!(edited(65, 3), MalformedRecord::NegativeLength("key", -2));
    assert_eq!(edited(65, 100), MalformedRecord::Field("key"));
    assert_eq!(edited(70, 1), MalformedRecord::NegativeLength("header count", -1));
    assert_eq!(edited(70, 2), MalformedRecord::TrailingBytes(3));
    assert_eq!(edited(70, 100), MalformedRecord::Field("header key"));
    assert_eq!(edited(71, 1), MalformedRecord::NegativeLength("header key", -1));
}

#[test]
fn the_count_must_be_what_is_there() {
    let mut fewer = one_record(Some(b"v"));
    fewer[60] = 0;
    assert!(matches!(first_error(&fewer), Some(MalformedRecord::TrailingBatchBytes(_))));
    let mut more = one_record(Some(b"v"));
    more[60] = 2;
    assert_eq!(first_error(&more), Some(MalformedRecord::Missing));
}

#[test]
fn a_batch_emptied_by_compaction_has_no_records_whatever_its_codec() {
    let mut batch = one_record(None);
    batch.truncate(HEADER_LEN);
    batch[8..12].copy_from_slice(&49_i32.to_be_bytes());
    batch[22] = Compression::Zstd.id();
    batch[60] = 0;
    let mut scratch = Scratch::new();
    assert_eq!(records(&batch, MAX, &mut scratch).expect("it is a batch").count(), 0);
}

type Header = (Vec<u8>, Option<Vec<u8>>);
type Written = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<Header>);

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn written() -> impl Strategy<Value = Written> {
    let header = (bytes(8), prop::option::of(bytes(8)));
    (
        -1_000_000_000_000..1_000_000_000_000_i64,
        prop::option::of(bytes(20)),
        prop::option::of(bytes(300)),
        prop::collection::vec(header, 0..4),
    )
}

proptest! {
    #[test]
    fn what_is_built_is_read_under_every_codec(
        written in prop::collection::vec(written(), 1..30),
    ) {
        let mut scratch = Scratch::new();
        for compression in Compression::ALL {
            let mut builder = BatchBuilder::new(compression, Timestamp(written[0].0));
            for (timestamp, key, value, headers) in &written {
                let headers = headers.iter().map(|(key, value)| (&key[..], value.as_deref()));
                builder
                    .append(Timestamp(*timestamp), key.as_deref(), value.as_deref(), headers)
                    .expect("it fits");
            }
            let size = builder.size_in_bytes();
            let batch = builder.build();
            if compression == Compression::None {
                prop_assert_eq!(batch.len(), size);
            }
            let iter = records(&batch, MAX, &mut scratch).expect("it is a batch");
            let header = *iter.header();
            crate::crc::check_crc(&header, &batch).expect("the checksum is right");
            let read: Vec<Written> = iter
                .map(|record| {
                    let record = record.expect("it is whole");
                    let headers = record
                        .headers
                        .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                        .collect();
                    (
                        header.timestamp_of(record.timestamp_delta).0,
                        record.key.map(<[u8]>::to_vec),
                        record.value.map(<[u8]>::to_vec),
                        headers,
                    )
                })
                .collect();
            prop_assert_eq!(&read, &written);
        }
    }

    #[test]
    fn spoilt_batches_neither_panic_nor_run_on(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let good = one_record(Some(b"some value"));
        let mut spoilt = good[..=cut.index(good.len() - 1)].to_vec();
        for (index, byte) in flips {
            let at = index.index(spoilt.len());
            spoilt[at] = byte;
        }
        let mut scratch = Scratch::new();
        if let Ok(iter) = records(&spoilt, MAX, &mut scratch) {
            prop_assert!(iter.count() <= spoilt.len());
        }
    }
}
