//! Which partition a key belongs to, exactly as Kafka's default partitioner has it: 32-bit
//! murmur2 of the key with Kafka's seed, its sign bit dropped, modulo the number of partitions.
//!
//! Every client and the HTTP edge must agree on it to the bit, or one key lives in two partitions.

use std::num::NonZeroU32;

use towpath_model::PartitionIndex;

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// The partition of a key in a topic that has `partitions` of them.
pub fn partition_of(key: &[u8], partitions: NonZeroU32) -> PartitionIndex {
    let positive = murmur2(key) & 0x7fff_ffff;
    PartitionIndex((positive % partitions) as i32)
}

/// 32-bit murmur2 with the seed Kafka uses. Clients that print it print it as an i32.
pub fn murmur2(bytes: &[u8]) -> u32 {
    // The length enters as an i32 in Java; keys do not come near its end.
    let mut hash = SEED ^ bytes.len() as u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut mixed = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        mixed = mixed.wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> SHIFT;
        mixed = mixed.wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (index, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * index);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Kafka's own `UtilsTest`.
    #[test]
    fn murmur2_has_the_values_that_java_computes() {
        for (key, hash) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            ("abc", 479470107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }

    #[test]
    fn the_sign_bit_is_dropped_before_the_modulo() {
        let partitions = NonZeroU32::new(10).expect("ten is not zero");
        let expected = (-973932308_i32 & i32::MAX) % 10;
        assert_eq!(partition_of(b"21", partitions), PartitionIndex(expected));
    }
}
