//! Whatever the bytes are, decoding ends, does not panic, and takes no more memory than the bytes
//! justify.

use towpath_protocol::messages::*;
use towpath_protocol::{Decoder, Message, decode_exact};

use crate::support::chance::{Chance, Sample};
use crate::support::encode;
use crate::support::memory::peak_of;
use crate::support::samples::{elements, every_message};

/// What the documentation of `Decoder` promises, in bytes.
fn memory_limit(input: &[u8]) -> usize {
    64 * input.len() + 64 * 1024
}

/// Decodes and looks at the memory it took. Whether the bytes were a message is the answer.
fn is_message<'a, M: Message<'a>>(version: i16, input: &'a [u8]) -> bool {
    let ((result, charged), peak) = peak_of(|| {
        let mut d = Decoder::new(input);
        let result = M::decode(version, &mut d);
        (result.is_ok_and(|_| d.remaining() == 0), d.memory_charged())
    });
    let name = M::NAME;
    assert!(charged <= memory_limit(input), "{name} {version}: charged {charged} for {input:?}");
    assert!(peak <= charged, "{name} {version}: took {peak}, was charged {charged}, for {input:?}");
    result
}

macro_rules! survives_truncation {
    ($($message:ident)*) => {
        $(
            for version in <$message>::VERSIONS {
                for seed in 0..4 {
                    let message = <$message>::sample(&mut Chance::small(seed), version);
                    let bytes = encode(&message, version).expect("a sample is valid");
                    for len in 0..bytes.len() {
                        assert!(!is_message::<$message>(version, &bytes[..len]));
                    }
                    assert!(is_message::<$message>(version, &bytes));
                }
            }
        )*
    };
}

#[test]
fn no_beginning_of_a_message_is_a_message() {
    every_message!(survives_truncation);
}

macro_rules! survives_flips {
    ($($message:ident)*) => {
        $(
            for version in <$message>::VERSIONS {
                let mut chance = Chance::small(version as u64);
                for _ in 0..4 {
                    let message = <$message>::sample(&mut chance, version);
                    let mut bytes = encode(&message, version).expect("a sample is valid").to_vec();
                    for i in 0..bytes.len() {
                        let flipped = 1 << chance.below(8);
                        bytes[i] ^= flipped;
                        if is_message::<$message>(version, &bytes) {
                            stays_the_same::<$message>(version, &bytes);
                        }
                        bytes[i] ^= flipped;
                    }
                }
            }
        )*
    };
}

/// What decodes can be encoded, though not always to the same bytes: unknown tags fall out, true is
/// one.
fn stays_the_same<'a, M: Message<'a>>(version: i16, bytes: &'a [u8]) {
    let message: M = decode_exact(version, bytes).expect("it decoded before");
    let error = encode(&message, version).err();
    assert_eq!(error, None, "{} {version}: {bytes:?}", M::NAME);
}

#[test]
fn a_flipped_bit_is_another_message_or_an_error() {
    every_message!(survives_flips);
}

macro_rules! survives_noise {
    ($($message:ident)*) => {
        $(
            for version in <$message>::VERSIONS {
                let mut chance = Chance::small(0x7017 ^ version as u64);
                for _ in 0..150 {
                    is_message::<$message>(version, &noise(&mut chance));
                }
            }
        )*
    };
}

/// Bytes of the kinds that lengths and counts are made of.
fn noise(chance: &mut Chance) -> Vec<u8> {
    let len = chance.below(150);
    let kinds = chance.below(5);
    (0..len)
        .map(|_| match chance.below(1 + kinds) {
            0 => chance.next() as u8,
            1 => 0,
            2 => 0xff,
            3 => 0x7f,
            _ => chance.below(4) as u8,
        })
        .collect()
}

#[test]
fn noise_takes_no_more_than_its_size_justifies() {
    every_message!(survives_noise);
}

macro_rules! five_bytes {
    ($($message:ident)*) => {
        $(
            for version in <$message>::VERSIONS {
                for input in [
                    [0xff, 0xff, 0xff, 0xff, 0x0f],
                    [0xff, 0xff, 0xff, 0xff, 0x07],
                    [0x7f, 0xff, 0xff, 0xff, 0x7f],
                    [0x00, 0x0f, 0xff, 0xff, 0xff],
                    [0x00, 0x00, 0x7f, 0xff, 0xff],
                    [0x00, 0xff, 0xff, 0xff, 0x0f],
                    [0x01, 0xff, 0xff, 0xff, 0x0f],
                ] {
                    let (_, peak) = peak_of(|| is_message::<$message>(version, &input));
                    assert!(peak <= 4096, "{} {version}: {peak} for {input:?}", <$message>::NAME);
                }
            }
        )*
    };
}

/// `MetadataRequest` 12 with `ff ff ff ff 0f` makes a decoder that trusts counts ask for 309 GB.
#[test]
fn five_bytes_cannot_ask_for_memory() {
    every_message!(five_bytes);
}

/// Otherwise a message could be refused for its memory though its counts are honest.
#[test]
fn no_struct_takes_more_memory_than_its_bytes_pay_for() {
    for (name, size, size_min) in elements() {
        assert!(size <= 64 * size_min, "{name}: {size} bytes of memory for {size_min} on the wire");
    }
    assert!(size_of::<&str>() <= 64);
}
