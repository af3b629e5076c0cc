//! The one source of chance: everything that a run decides follows from its seed.
//!
//! Our own generator (xoshiro256++, seeded by SplitMix64) and not a library's, because a seed that
//! failed a year ago must still replay after every dependency update. Not for secrets.

/// A seeded generator. A clone goes on with the same numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of this seed. Neighbouring seeds have unrelated numbers.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Rng { state }
    }

    /// A generator of its own for one part of the run, so that a change in how many numbers that
    /// part draws leaves the others as they were.
    #[must_use]
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number in `0..bound`.
    ///
    /// # Panics
    /// When `bound` is 0: there is no such number.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(0 < bound);
        // The high half of a 128-bit product; its bias is below bound / 2^64.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`.
    ///
    /// # Panics
    /// When `high < low`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.draw(),
        }
    }

    /// An index of a collection of `len` things.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, each as likely as its weight.
    ///
    /// # Panics
    /// When all weights are 0.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let total = choices.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, choice) in choices {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("`at` was below the sum of the weights")
    }

    /// Fills `out` with noise.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        // Written down once: if these change, every recorded seed loses its meaning.
        let mut rng = Rng::new(42);
        let first: Vec<u64> = (0..4).map(|_| rng.draw()).collect();
        assert_eq!(
            first,
            [
                0xd076_4d4f_4476_689f,
                0x519e_4174_576f_3791,
                0xfbe0_7cfb_0c24_ed8c,
                0xb37d_9f60_0cd8_35b8
            ]
        );
        assert_ne!(Rng::new(1).draw(), Rng::new(2).draw());
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_all_of_it() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[rng.below(5) as usize] = true;
            assert!((3..=9).contains(&rng.between(3, 9)));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.between(4, 4), 4);
        rng.between(0, u64::MAX);
    }

    #[test]
    fn a_choice_without_weight_is_never_taken() {
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            assert_ne!(rng.weighted(&[(1, 'a'), (0, 'b'), (5, 'c')]), 'b');
        }
    }
}
