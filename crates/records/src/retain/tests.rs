use proptest::prelude::*;
use towpath_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use super::*;
use crate::crc::check_crc;
use crate::{BatchBuilder, records, set_base_offset, set_leader_epoch, set_log_append_time};

const MAX: usize = 1 << 20;
const HORIZON: Timestamp = Timestamp(1_000_000);

/// Offset, timestamp, key, value.
type Plain = (i64, i64, Vec<u8>, Option<Vec<u8>>);

fn batch(codec: Compression, values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec, Timestamp(500));
    builder.set_producer(ProducerId(7), ProducerEpoch(2), Sequence(40));
    for (n, value) in (0_u8..).zip(values) {
        let headers: [(&[u8], Option<&[u8]>); 1] = [(b"h", None)];
        let at = Timestamp(500 + i64::from(n) * 10);
        builder.append(at, Some(&[b'k', n]), *value, headers).expect("it fits");
    }
    let mut batch = builder.build();
    set_base_offset(&mut batch, Offset(100));
    set_leader_epoch(&mut batch, LeaderEpoch(3));
    batch
}

fn contents(batch: &[u8]) -> (BatchHeader, Vec<Plain>) {
    let header = BatchHeader::parse(batch).expect("a header");
    assert!(check_crc(&header, batch).is_ok());
    assert_eq!(header.size_in_bytes(), batch.len());
    let mut scratch = Scratch::new();
    let iter = records(batch, MAX, &mut scratch).expect("it can be opened");
    let plain = iter.map(|record| {
        let record = record.expect("it is whole");
        assert_eq!(record.headers.len(), 1);
        let key = record.key.expect("a key").to_vec();
        let value = record.value.map(<[u8]>::to_vec);
        let offset = header.offset_of(record.offset_delta).0;
        (offset, header.timestamp_of(record.timestamp_delta).0, key, value)
    });
    (header, plain.collect())
}

fn keep(batch: &[u8], fates: &[Fate]) -> Remainder {
    let mut fates = fates.iter();
    let mut scratch = Scratch::new();
    retain(batch, MAX, HORIZON, &mut scratch, |_, _| *fates.next().expect("a fate per record"))
        .expect("the batch is sound")
}

fn changed(remainder: Remainder) -> Vec<u8> {
    match remainder {
        Remainder::Changed(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

use Fate::{Dropped, Kept, KeptUntilHorizon};

#[test]
fn a_batch_that_keeps_everything_is_itself() {
    let whole = batch(Compression::Zstd, &[Some(b"a"), None]);
    assert_eq!(keep(&whole, &[Kept, Kept]), Remainder::Same);
    assert_eq!(keep(&whole, &[Dropped, Dropped]), Remainder::Nothing);
}

#[test]
fn the_header_survives_its_records() {
    for codec in Compression::ALL {
        let whole = batch(codec, &[Some(b"a"), Some(b"b"), Some(b"c")]);
        let (before, records) = contents(&whole);
        let (after, left) = contents(&changed(keep(&whole, &[Dropped, Kept, Dropped])));
        assert_eq!(left, records[1..2]);
        assert_eq!(after.base_offset(), before.base_offset());
        assert_eq!(after.last_offset(), before.last_offset());
        assert_eq!(after.leader_epoch(), before.leader_epoch());
        assert_eq!(after.producer_id(), before.producer_id());
        assert_eq!(after.last_sequence(), before.last_sequence());
        assert_eq!(after.compression(), Ok(codec));
        assert_eq!(after.max_timestamp(), Timestamp(510), "of the record that is left");
        assert_eq!(after.base_timestamp(), before.base_timestamp());
    }
}

#[test]
fn a_tombstone_gets_a_horizon_once_and_no_timestamp_moves() {
    let whole = batch(Compression::Lz4, &[Some(b"a"), None, Some(b"c")]);
    let (_, records) = contents(&whole);
    let first = changed(keep(&whole, &[Kept, KeptUntilHorizon, Kept]));
    let (header, left) = contents(&first);
    assert!(header.has_delete_horizon());
    assert_eq!(header.base_timestamp(), HORIZON);
    assert_eq!(left, records);
    assert_eq!(keep(&first, &[Kept, KeptUntilHorizon, Kept]), Remainder::Same);
    let mut scratch = Scratch::new();
    let later = retain(&first, MAX, Timestamp(9_000_000), &mut scratch, |_, record| {
        if record.offset_delta == 0 { Dropped } else { KeptUntilHorizon }
    });
    let (header, left) = contents(&changed(later.expect("sound")));
    assert_eq!((header.base_timestamp(), &left[..]), (HORIZON, &records[1..]));
}

#[test]
fn the_brokers_timestamp_is_kept() {
    let mut whole = batch(Compression::None, &[None, Some(b"b")]);
    set_log_append_time(&mut whole, Timestamp(777));
    let (header, left) = contents(&changed(keep(&whole, &[KeptUntilHorizon, Dropped])));
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!((left.len(), left[0].1), (1, 777));
}

#[test]
fn an_empty_batch_still_says_who_wrote_it() {
    let whole =
        changed(keep(&batch(Compression::Gzip, &[None, Some(b"b")]), &[KeptUntilHorizon, Kept]));
    let before = BatchHeader::parse(&whole).expect("a header");
    let empty = without_records(&before);
    let (header, left) = contents(&empty);
    assert_eq!((empty.len(), left), (HEADER_LEN, vec![]));
    assert_eq!(header.base_offset(), before.base_offset());
    assert_eq!(header.next_offset(), before.next_offset());
    assert_eq!(header.producer_id(), before.producer_id());
    assert_eq!(header.producer_epoch(), before.producer_epoch());
    assert_eq!(header.last_sequence(), before.last_sequence());
    assert_eq!(header.leader_epoch(), before.leader_epoch());
    assert!(!header.has_delete_horizon());
    assert_eq!(keep(&empty, &[]), Remainder::Same);
}

#[test]
fn what_cannot_be_read_is_an_error_and_loses_nothing() {
    let whole = batch(Compression::None, &[Some(b"a"), Some(b"b")]);
    let mut scratch = Scratch::new();
    let mut short = whole.clone();
    short.pop();
    assert!(retain(&short, MAX, HORIZON, &mut scratch, |_, _| Kept).is_err());
    let mut broken = whole;
    broken[HEADER_LEN] = 0x7f;
    assert!(matches!(
        retain(&broken, MAX, HORIZON, &mut scratch, |_, _| Dropped),
        Err(RetainError::Record(_))
    ));
}

proptest! {
    #[test]
    fn what_is_kept_is_what_was_there(
        codec in 0_u8..5,
        values in proptest::collection::vec(proptest::option::of(0_usize..40), 1..20),
        drops in proptest::collection::vec(any::<bool>(), 20),
        horizon in any::<i64>(),
    ) {
        let codec = Compression::from_id(codec).expect("five codecs");
        let bytes = [b'v'; 40];
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|len| len.map(|len| &bytes[..len])).collect();
        let whole = batch(codec, &values);
        let (_, before) = contents(&whole);
        let mut scratch = Scratch::new();
        let mut nth = 0;
        let left = retain(&whole, MAX, Timestamp(horizon), &mut scratch, |_, record| {
            nth += 1;
            match (drops[nth - 1], record.value) {
                (true, _) => Dropped,
                (false, None) => KeptUntilHorizon,
                (false, Some(_)) => Kept,
            }
        });
        let expected: Vec<Plain> =
            before.into_iter().zip(&drops).filter(|(_, drop)| !**drop).map(|(r, _)| r).collect();
        let found = match left.expect("the batch is sound") {
            Remainder::Same => contents(&whole).1,
            Remainder::Changed(bytes) => contents(&bytes).1,
            Remainder::Nothing => vec![],
        };
        prop_assert_eq!(found, expected);
    }
}
