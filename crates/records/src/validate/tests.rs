use proptest::prelude::*;
use towpath_model::{ProducerEpoch, ProducerId, Sequence};

use super::*;
use crate::header::renew_crc;
use crate::{BatchBuilder, InvalidBatchClass};

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn rules() -> ProduceRules {
    ProduceRules {
        batch_bytes_max: 1 << 20,
        plain_bytes_max: 4 << 20,
        record_bytes_max: usize::MAX,
        requires_keys: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: 3_600_000,
        now: NOW,
    }
}

fn batch(compression: Compression, keys: &[Option<&[u8]>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression, NOW);
    builder.set_producer(ProducerId(5), ProducerEpoch(0), Sequence(0));
    for key in keys {
        builder.append(NOW, *key, Some(b"value"), []).expect("it fits");
    }
    builder.build()
}

fn check(bytes: &[u8], rules: &ProduceRules) -> Result<Validated, InvalidBatch> {
    validate_produced(bytes, rules, &mut Scratch::new())
}

#[test]
fn a_good_batch_tells_its_size_in_the_clear_and_its_newest_record() {
    let mut builder = BatchBuilder::new(Compression::Zstd, NOW);
    for ahead in [0, 7, 7, 3] {
        builder.append(Timestamp(NOW.0 + ahead), None, Some(b"v"), []).expect("it fits");
    }
    let plain_bytes = builder.size_in_bytes() - HEADER_LEN;
    let validated = check(&builder.build(), &rules()).expect("it is good");
    assert_eq!(validated.max_timestamp, Timestamp(NOW.0 + 7));
    assert_eq!(validated.max_timestamp_offset_delta, Some(1));
    assert_eq!(validated.plain_bytes, plain_bytes);
}

#[test]
fn transactional_batches_are_refused_by_name() {
    let mut bytes = batch(Compression::None, &[None]);
    bytes[22] |= 1 << 4;
    renew_crc(&mut bytes);
    let refusal = check(&bytes, &rules()).expect_err("there are no transactions yet");
    assert_eq!(refusal, InvalidBatch::Transactional);
    assert_eq!(refusal.class(), InvalidBatchClass::Transactional);
}

#[test]
fn a_batch_that_unpacks_to_too_much_is_too_large() {
    let mut builder = BatchBuilder::new(Compression::Gzip, NOW);
    builder.append(NOW, None, Some(&vec![0; 5 << 20]), []).expect("it fits");
    let refusal = check(&builder.build(), &rules()).expect_err("5 MiB are more than 4");
    assert_eq!(refusal, InvalidBatch::PlainTooLarge { max: 4 << 20 });
    assert_eq!(refusal.class(), InvalidBatchClass::TooLarge);
}

#[test]
fn null_keys_are_listed_up_to_a_bound() {
    let rules = ProduceRules { requires_keys: true, ..rules() };
    let keys: Vec<Option<&[u8]>> = (0..3_000).map(|i| (i % 2 == 0).then_some(&b"k"[..])).collect();
    let refusal = check(&batch(Compression::Lz4, &keys), &rules).expect_err("half have no key");
    assert_eq!(refusal.class(), InvalidBatchClass::Invalid);
    let InvalidBatch::Records { count, records, has_timestamp_problem } = refusal else {
        panic!("{refusal}");
    };
    assert_eq!(count, 1_500);
    assert_eq!(records.len(), REPORTED_RECORDS_MAX);
    assert_eq!(records[1], InvalidRecord { index: 3, problem: RecordProblem::NullKey });
    assert!(!has_timestamp_problem);
}

#[test]
fn a_scratch_that_one_batch_made_large_is_given_back() {
    let mut scratch = Scratch::new();
    let mut builder = BatchBuilder::new(Compression::Gzip, NOW);
    builder.append(NOW, None, Some(&vec![0; 6 << 20]), []).expect("it fits");
    let rules = ProduceRules { plain_bytes_max: 8 << 20, ..rules() };
    validate_produced(&builder.build(), &rules, &mut scratch).expect("it is good");
    assert!(scratch.plain.capacity() > 6 << 20);
    validate_produced(&batch(Compression::Gzip, &[None]), &rules, &mut scratch).expect("good");
    assert!(scratch.plain.capacity() < 1 << 20);
}

#[test]
fn recompression_keeps_records_and_producer() {
    let mut scratch = Scratch::new();
    for source in Compression::ALL {
        for target in Compression::ALL {
            let original = batch(source, &[Some(b"a"), None]);
            let made = crate::recompress(&original, target, 1 << 20, &mut scratch).expect("good");
            let validated = check(&made, &rules()).expect("it is good");
            assert_eq!(validated.header.compression(), Ok(target));
            assert_eq!(validated.header.producer_id(), Some(ProducerId(5)));
            let back = crate::recompress(&made, source, 1 << 20, &mut scratch).expect("good");
            assert_eq!(back, original);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever a stranger sends under a right checksum ends in an answer, and what is accepted
    /// can be stamped and read.
    #[test]
    fn spoilt_batches_are_judged_without_a_panic(
        codec in 0..5_u8,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in 0..3_usize,
    ) {
        let compression = Compression::from_id(codec).expect("there are five");
        let mut bytes = batch(compression, &[Some(b"a"), None, Some(b"c")]);
        bytes.truncate(bytes.len() - cut);
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        renew_crc(&mut bytes);
        let mut scratch = Scratch::new();
        if let Ok(validated) = validate_produced(&bytes, &rules(), &mut scratch) {
            validated.stamp(&mut bytes, Offset(9), LeaderEpoch(1));
            let iter = crate::records(&bytes, 1 << 20, &mut scratch).expect("it was accepted");
            let header = *iter.header();
            check_crc(&header, &bytes).expect("stamping keeps it right");
            prop_assert_eq!(header.base_offset(), Offset(9));
            prop_assert!(iter.map(Result::unwrap).count() > 0);
        }
    }
}
