use std::io::Write;

use proptest::prelude::*;

use super::*;

const CAP: usize = 1 << 20;

fn packed(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(compression, bytes, &mut out);
    out
}

fn unpacked(
    compression: Compression,
    bytes: &[u8],
    cap: usize,
) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::new();
    Decompressor::new().decompress(compression, bytes, cap, &mut out)?;
    Ok(out)
}

/// Neither all the same nor noise, and longer than one block of any codec.
fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + (i % 23) as u8 + (i / 5_000 % 3) as u8).collect()
}

#[test]
fn every_codec_gives_back_what_it_took() {
    for compression in Compression::ALL {
        for len in [0, 1, 100, 32 << 10, (64 << 10) + 1, 300_000] {
            let plain = text(len);
            let packed = packed(compression, &plain);
            assert_eq!(unpacked(compression, &packed, len), Ok(plain), "{compression} {len}");
        }
    }
}

#[test]
fn the_cap_is_exact() {
    let plain = text(100_000);
    for compression in Compression::ALL {
        let packed = packed(compression, &plain);
        for cap in [0, 1, 50_000, 99_999] {
            let refusal = unpacked(compression, &packed, cap);
            assert_eq!(refusal, Err(CompressionError::TooLarge { cap }), "{compression}");
        }
    }
}

/// 100 MB of zeros in a few KB: the memory used stays near the cap.
#[test]
fn a_bomb_stops_at_the_cap() {
    let zeros = vec![0; 100 << 20];
    for compression in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let bomb = packed(compression, &zeros);
        assert!(bomb.len() < 1 << 20);
        let mut out = Vec::new();
        let refusal = Decompressor::new().decompress(compression, &bomb, CAP, &mut out);
        assert_eq!(refusal, Err(CompressionError::TooLarge { cap: CAP }), "{compression}");
        assert!(out.capacity() <= 2 * CAP, "{compression}: {}", out.capacity());
    }
}

#[test]
fn declared_sizes_reserve_nothing() {
    // 1 GiB of raw snappy, says the length in front of nothing.
    let lie = [0x80, 0x80, 0x80, 0x80, 0x04, 0];
    assert!(unpacked(Compression::Snappy, &lie, 2 << 30).is_err());

    let mut out = Vec::new();
    let mut frame = packed(Compression::Lz4, b"");
    frame.truncate(7);
    frame.extend([1, 0, 0, 0, 0xf0, 0, 0, 0, 0]);
    assert!(Decompressor::new().decompress(Compression::Lz4, &frame, 2 << 30, &mut out).is_err());
    assert!(out.capacity() < 1_000);
}

#[test]
fn truncated_data_is_refused_at_every_length() {
    let plain = text(3_000);
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let packed = packed(compression, &plain);
        for len in 0..packed.len() {
            // Xerial frames end wherever a block does; then the size shows the cut.
            let refusal = unpacked(compression, &packed[..len], CAP);
            assert!(refusal.is_err() || refusal == Ok(Vec::new()), "{compression} {len}");
        }
    }
}

#[test]
fn raw_snappy_is_read_as_well_as_framed() {
    let plain = text(40_000);
    let raw = snap::raw::Encoder::new().compress_vec(&plain).expect("it is small");
    assert_eq!(unpacked(Compression::Snappy, &raw, CAP), Ok(plain.clone()));

    let framed = packed(Compression::Snappy, &plain);
    assert_eq!(unpacked(Compression::Snappy, &framed, CAP), Ok(plain.clone()));
    let joined = [&framed[..], &framed].concat();
    assert_eq!(unpacked(Compression::Snappy, &joined, CAP), Ok([&plain[..], &plain].concat()));
}

#[test]
fn joined_gzip_members_and_zstd_frames_are_read_in_a_row() {
    for compression in [Compression::Gzip, Compression::Zstd] {
        let joined = [packed(compression, b"one "), packed(compression, b"two")].concat();
        assert_eq!(unpacked(compression, &joined, CAP), Ok(b"one two".to_vec()), "{compression}");
    }
}

#[test]
fn lz4_frames_of_every_shape_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    let plain = text(3 << 20);
    for block_size in
        [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB]
    {
        for flags in 0..8_u8 {
            let frame = FrameInfo::new()
                .block_size(block_size)
                .block_mode(BlockMode::Independent)
                .block_checksums(flags & 1 != 0)
                .content_checksum(flags & 2 != 0)
                .content_size((flags & 4 != 0).then_some(plain.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(frame, Vec::new());
            encoder.write_all(&plain).expect("a Vec takes all");
            let packed = encoder.finish().expect("a Vec takes all");
            assert_eq!(unpacked(Compression::Lz4, &packed, 3 << 20), Ok(plain.clone()));
        }
    }
}

#[test]
fn lz4_frames_that_java_cannot_read_are_refused() {
    use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};

    let linked = FrameInfo::new().block_mode(BlockMode::Linked);
    let mut encoder = FrameEncoder::with_frame_info(linked, Vec::new());
    encoder.write_all(&text(100)).expect("a Vec takes all");
    let packed_linked = encoder.finish().expect("a Vec takes all");
    let refusal = unpacked(Compression::Lz4, &packed_linked, CAP).expect_err("it is linked");
    assert!(refusal.to_string().contains("linked"), "{refusal}");

    let frame = packed(Compression::Lz4, b"one");
    let joined = [&frame[..], &frame].concat();
    let refusal = unpacked(Compression::Lz4, &joined, CAP).expect_err("it has two frames");
    assert!(refusal.to_string().contains("follow"), "{refusal}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_round_trip(plain in prop::collection::vec(any::<u8>(), 0..70_000)) {
        for compression in Compression::ALL {
            let packed = packed(compression, &plain);
            prop_assert_eq!(unpacked(compression, &packed, plain.len()), Ok(plain.clone()));
        }
    }

    /// One decompressor is used again after whatever happened to it.
    #[test]
    fn spoilt_bytes_neither_panic_nor_exceed_the_cap(
        len in 0..5_000_usize,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cap in 0..6_000_usize,
    ) {
        let mut decompressor = Decompressor::new();
        let mut out = Vec::new();
        for compression in Compression::ALL {
            let good = packed(compression, &text(len));
            let mut spoilt = good.clone();
            for (index, byte) in &flips {
                if !spoilt.is_empty() {
                    let at = index.index(spoilt.len());
                    spoilt[at] = *byte;
                }
            }
            if decompressor.decompress(compression, &spoilt, cap, &mut out).is_ok() {
                prop_assert!(out.len() <= cap);
            }
            decompressor.decompress(compression, &good, len, &mut out)
                .expect("good bytes are read after bad ones");
            prop_assert_eq!(&out, &text(len));
        }
    }

    #[test]
    fn noise_neither_panics_nor_exceeds_the_cap(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        cap in 0..2_000_usize,
    ) {
        for compression in Compression::ALL {
            if let Ok(plain) = unpacked(compression, &noise, cap) {
                prop_assert!(plain.len() <= cap);
            }
        }
    }
}
