//! `java-*.bin` were written by kafka-clients 4.4.0 (`MemoryRecordsBuilder`), one per codec, with
//! the same five records; the last value is long in all but the uncompressed one.

use towpath_model::{ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_records::{BatchHeader, Compression, Scratch, crc, records};

const BASE: i64 = 1_700_000_000_000;

const BATCHES: [(Compression, &[u8], usize); 5] = [
    (Compression::None, include_bytes!("../fixtures/java-none.bin"), 300),
    (Compression::Gzip, include_bytes!("../fixtures/java-gzip.bin"), 70_000),
    (Compression::Snappy, include_bytes!("../fixtures/java-snappy.bin"), 70_000),
    (Compression::Lz4, include_bytes!("../fixtures/java-lz4.bin"), 70_000),
    (Compression::Zstd, include_bytes!("../fixtures/java-zstd.bin"), 70_000),
];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + (i % 23) as u8 + (i / 5_000 % 3) as u8).collect()
}

#[test]
fn headers_written_by_java_are_read() {
    for (compression, batch, _) in BATCHES {
        let header = BatchHeader::parse(batch).expect("it is a batch");
        crc::check_crc(&header, batch).expect("Java's checksum is ours");
        assert_eq!(header.compression(), Ok(compression));
        assert_eq!(header.record_count(), 5);
        assert_eq!(header.producer_id(), Some(ProducerId(4711)));
        assert_eq!(header.producer_epoch(), ProducerEpoch(3));
        assert_eq!(header.base_sequence(), Sequence(i32::MAX - 2));
        assert_eq!(header.last_sequence(), Sequence(1));
        assert_eq!(header.base_timestamp(), Timestamp(BASE));
        assert_eq!(header.max_timestamp(), Timestamp(BASE + 2));
    }
}

/// Timestamp delta, key, value.
type Expected<'a> = (i64, Option<&'a [u8]>, Option<&'a [u8]>);

#[test]
fn records_written_by_java_are_read_with_every_codec() {
    let mut scratch = Scratch::new();
    for (compression, batch, long) in BATCHES {
        let (long_key, long_value) = (pattern(if long < 1_000 { 40 } else { 600 }), pattern(long));
        let expected: [Expected<'_>; 5] = [
            (0, Some(b"k0"), Some(b"v0")),
            (2, None, Some(b"value-1")),
            (1, Some(b"tomb"), None),
            (0, Some(b""), Some(b"")),
            (-5, Some(&long_key), Some(&long_value)),
        ];
        let iter = records(batch, 100_000, &mut scratch).expect("it is a batch");
        let read: Vec<_> = iter.map(|record| record.expect("it is whole")).collect();
        assert_eq!(read.len(), 5);
        for (index, (record, (delta, key, value))) in read.iter().zip(expected).enumerate() {
            assert_eq!(record.offset_delta, index as i32);
            assert_eq!(record.timestamp_delta, delta);
            assert_eq!((record.key, record.value), (key, value), "{compression} {index}");
        }
        let headers: Vec<_> = read[1].headers.collect();
        let expected: [(&[u8], Option<&[u8]>); 3] =
            [(b"a", Some(b"1")), (b"a", None), (b"", Some(&[0, 255]))];
        assert_eq!(headers, expected);
        assert!(read[0].headers.is_empty());
    }
}
