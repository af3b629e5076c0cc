//! Chance values from a seed, biased towards the edges of the wire format.

use std::sync::LazyLock;

use towpath_protocol::{Blob, Uuid};

/// What text and bytes are cut from, so that samples live for ever without being owned.
static TEXT: LazyLock<String> = LazyLock::new(|| "orders-".repeat(3_000));
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..=u8::MAX).cycle().take(20_000).collect());

/// Something that chance can make, with only the fields that a version has.
pub(crate) trait Sample {
    /// Makes one.
    fn sample(chance: &mut Chance, version: i16) -> Self;
}

/// A generator of chance values (splitmix64). The same seed gives the same values.
pub(crate) struct Chance {
    state: u64,
    /// Whether text, bytes and arrays stay short.
    is_small: bool,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, is_small: false }
    }

    /// Makes short messages only, for tests that look at every byte of them.
    pub(crate) fn small(seed: u64) -> Self {
        Self { state: seed, is_small: true }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn is_null(&mut self) -> bool {
        self.below(3) == 0
    }

    /// Extremes, small numbers, anything.
    pub(crate) fn i64(&mut self) -> i64 {
        match self.below(8) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => -1,
            3 | 4 => self.below(300) as i64,
            _ => self.next() as i64,
        }
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        match self.below(3) {
            0 => Uuid::ZERO,
            _ => Uuid::from_u128(u128::from(self.next()) << 64 | u128::from(self.next())),
        }
    }

    pub(crate) fn string(&mut self) -> &'static str {
        match self.below(8) {
            0 => "",
            1 => "größe-µ-🚣",
            _ => &TEXT[..self.len()],
        }
    }

    pub(crate) fn bytes(&mut self) -> &'static [u8] {
        let len = self.len();
        &BYTES[..len]
    }

    pub(crate) fn records(&mut self) -> Blob<'static> {
        Blob::Bytes(self.bytes())
    }

    pub(crate) fn array<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = match self.below(10) {
            _ if self.is_small => self.below(3),
            0 => 0,
            1 => 5,
            _ => 1 + self.below(2),
        };
        (0..count).map(|_| element(self)).collect()
    }

    /// Around the places where a variable-length number takes one byte more.
    fn len(&mut self) -> usize {
        match self.below(40) {
            _ if self.is_small => self.below(6),
            0 => 125 + self.below(4),
            1 => 16_381 + self.below(4),
            _ => self.below(20),
        }
    }
}
