//! Record batches: headers, records, compressed bytes, and the broker's judgement of them.

use towpath_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_records::{
    BatchBuilder, Compression, Decompressor, Fate, ProduceRules, Remainder, Scratch, Tail,
    TimestampType, crc, recompress, records, retain, split_batches, validate_produced,
};

use crate::shape::Shape;
use crate::target::Target;

/// The most bytes that a batch may have after decompression, here.
const PLAIN_BYTES_MAX: usize = 1 << 20;
/// What codecs may hold besides: windows and tables.
const CODEC_BYTES_MAX: usize = 24 << 20;
/// Where the checksum lies in a batch, and where the bytes begin that it covers.
const CHECKSUM: std::ops::Range<usize> = 17..21;

/// Consecutive batches, as in a file or a fetch answer, the checksum as it is.
pub(super) const BATCHES: Target = Target {
    name: "batches",
    seeds,
    run: walk,
    memory_max: CODEC_BYTES_MAX,
    waits_for_others: false,
};

/// `codec u8 │ compressed bytes`.
pub(super) const DECOMPRESSION: Target = Target {
    name: "decompression",
    seeds: compressed_seeds,
    run: decompress,
    memory_max: CODEC_BYTES_MAX,
    waits_for_others: false,
};

/// A produced batch, its length and checksum made right, so that the rest of it is reached.
pub(super) const PRODUCED: Target = Target {
    name: "produced",
    seeds,
    run: produced,
    memory_max: CODEC_BYTES_MAX,
    waits_for_others: false,
};

fn walk(bytes: &[u8]) -> Shape {
    let mut scratch = Scratch::new();
    let mut shape = Shape::default();
    let mut batches = split_batches(bytes);
    for batch in &mut batches {
        let header = batch.header;
        assert_eq!(batch.bytes.len(), header.size_in_bytes());
        let _ = (header.last_offset(), header.next_offset(), header.last_sequence());
        let _ = (header.producer_id(), header.timestamp_of(i64::MAX), header.offset_of(i32::MAX));
        let is_intact = batch.check_crc().is_ok();
        // The last batch says enough; all of them together would make every input new.
        shape = Shape::default().word(if is_intact { "intact" } else { "damaged" });
        // A compaction reads what recovery let pass, and must leave what can be read again.
        let left = retain(batch.bytes, PLAIN_BYTES_MAX, Timestamp(7), &mut scratch, |_, record| {
            if record.offset_delta % 2 == 0 { Fate::KeptUntilHorizon } else { Fate::Dropped }
        });
        if let Ok(Remainder::Changed(left)) = left {
            // Timestamps that are told from the horizon may take more bytes.
            let mut left =
                records(&left, 4 * PLAIN_BYTES_MAX, &mut scratch).expect("it is a batch");
            assert!(left.all(|record| record.is_ok()));
        }
        shape = match records(batch.bytes, PLAIN_BYTES_MAX, &mut scratch) {
            Err(error) => shape.error(&error),
            Ok(found) => read_records(found, shape),
        };
    }
    match batches.tail() {
        Tail::Clean => shape.word("clean"),
        Tail::Partial { expected, .. } => shape.word("partial").size(expected.is_some().into()),
        Tail::Damaged { error, .. } => shape.error(&error),
    }
}

fn read_records(found: towpath_records::RecordIter<'_>, shape: Shape) -> Shape {
    let mut count: usize = 0;
    for record in found {
        match record {
            Err(error) => return shape.error(&error),
            Ok(record) => {
                let names: usize = record.headers.map(|(name, _)| name.len()).sum();
                std::hint::black_box(names);
                count += 1;
            }
        }
    }
    shape.word("read").size(count)
}

fn decompress(input: &[u8]) -> Shape {
    let Some((codec, bytes)) = input.split_first() else { return Shape::default() };
    let codec = match Compression::from_id(codec % 6) {
        Ok(codec) => codec,
        Err(_) => return Shape::default().word("unknown"),
    };
    let mut plain = Vec::new();
    let result = Decompressor::new().decompress(codec, bytes, PLAIN_BYTES_MAX, &mut plain);
    assert!(plain.len() <= PLAIN_BYTES_MAX, "{} bytes are more than the cap", plain.len());
    let shape = Shape::default().word(codec.name());
    match result {
        Err(error) => shape.error(&error),
        Ok(_) => {
            let mut again = Vec::new();
            let mut packed = Vec::new();
            towpath_records::compression::compress(codec, &plain, &mut packed);
            let cap = PLAIN_BYTES_MAX;
            Decompressor::new().decompress(codec, &packed, cap, &mut again).expect("our own bytes");
            assert_eq!(again, plain, "{} loses bytes", codec.name());
            shape.word("plain").size(plain.len())
        }
    }
}

fn produced(input: &[u8]) -> Shape {
    let mut batch = input.to_vec();
    if CHECKSUM.end < batch.len() {
        let length = (batch.len() - 12) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        let checksum = crc::crc32c(&batch[CHECKSUM.end..]);
        batch[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
    // The byte of the epoch's sign is not judged, so it can choose the topic's rules.
    let choice = input.get(12).copied().unwrap_or(0);
    let is_append_time = choice & 2 != 0;
    let rules = ProduceRules {
        batch_bytes_max: PLAIN_BYTES_MAX,
        plain_bytes_max: PLAIN_BYTES_MAX,
        record_bytes_max: PLAIN_BYTES_MAX / 2,
        requires_keys: choice & 1 != 0,
        timestamp_type: if is_append_time {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        },
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: 3_600_000,
        now: Timestamp(1_700_000_000_000),
    };
    let mut scratch = Scratch::new();
    let shape = Shape::default().exact(i16::from(choice & 3));
    let validated = match validate_produced(&batch, &rules, &mut scratch) {
        Err(error) => return shape.error(&error),
        Ok(validated) => validated,
    };
    validated.stamp(&mut batch, Offset(77), LeaderEpoch(3));
    let shape = shape.word("valid").size(validated.plain_bytes);
    // What was accepted is one batch that reads back whole, and can be compressed anew.
    let whole = split_batches(&batch).next().expect("a valid batch is one");
    assert_eq!(whole.bytes.len(), batch.len());
    whole.check_crc().expect("stamping keeps the checksum right");
    let read = records(&batch, PLAIN_BYTES_MAX, &mut scratch).expect("a valid batch has records");
    let count = read.filter(Result::is_ok).count();
    assert_eq!(count as i32, whole.header.record_count());
    let anew = recompress(&batch, Compression::Zstd, PLAIN_BYTES_MAX, &mut scratch)
        .expect("a valid batch can be compressed anew");
    let read = records(&anew, PLAIN_BYTES_MAX, &mut scratch).expect("and is one again");
    assert_eq!(read.filter(Result::is_ok).count(), count);
    shape.size(count)
}

/// A batch with everything in it: keys, nulls, headers.
pub(super) fn sample_batch(compression: Compression) -> Vec<u8> {
    let now = Timestamp(1_700_000_000_000);
    let mut batch = BatchBuilder::new(compression, now);
    batch.set_producer(ProducerId(5), ProducerEpoch(1), Sequence(40));
    for index in 0..8_u8 {
        let key = [index];
        let header: (&[u8], Option<&[u8]>) = (b"name", (index % 2 == 0).then_some(b"value"));
        let value = vec![index; usize::from(index) * 10];
        let value = (index != 3).then_some(&value[..]);
        let key = (index != 4).then_some(&key[..]);
        batch
            .append(Timestamp(now.0 + i64::from(index)), key, value, [header; 2])
            .expect("eight small records fit a batch");
    }
    batch.build()
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Compression::ALL.map(sample_batch).into();
    seeds.push(seeds.concat());
    seeds
}

fn compressed_seeds() -> Vec<Vec<u8>> {
    let plain: Vec<u8> = (0..2_000_u32).map(|n| (n / 7 % 251) as u8).collect();
    let contents = [&plain[..0], &plain[..10], &plain];
    let mut seeds = Vec::new();
    for codec in Compression::ALL {
        for content in contents {
            let mut seed = vec![codec.id()];
            towpath_records::compression::compress(codec, content, &mut seed);
            seeds.push(seed);
        }
    }
    // Raw snappy, as librdkafka sends it: length, then one literal.
    seeds.push(vec![Compression::Snappy.id(), 3, 8, b'a', b'b', b'c']);
    seeds
}
