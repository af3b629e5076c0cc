//! Makes a new input out of known ones.

use fastrand::Rng;

/// Numbers that parsers stumble over, big-endian, as 1, 2, 4 and 8 bytes are cut from their end.
const EDGES: [i64; 12] = [
    0,
    1,
    -1,
    -2,
    i64::MIN,
    i64::MAX,
    i32::MAX as i64,
    i32::MIN as i64,
    i16::MAX as i64,
    i16::MIN as i64,
    0x7f,
    0x0100_0000,
];
/// Unsigned varints at their edges: the largest, one that is too long, one that never ends.
const VARINTS: [&[u8]; 4] =
    [&[0xff, 0xff, 0xff, 0xff, 0x0f], &[0x80, 0x80, 0x80, 0x80, 0x00], &[0xff; 10], &[0x80, 0x01]];
/// The longest input.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Mutates inputs, from a seed.
#[derive(Debug)]
pub struct Mutator {
    rng: Rng,
}

impl Mutator {
    /// The same seed and the same inputs give the same mutants.
    pub fn new(seed: u64) -> Mutator {
        Mutator { rng: Rng::with_seed(seed) }
    }

    /// A mutant of one of `known`, which must not be empty.
    pub fn mutant(&mut self, known: &[Vec<u8>]) -> Vec<u8> {
        // The newest ones lead further.
        let newest = known.len().saturating_sub(16);
        let index = match self.rng.bool() {
            true => self.rng.usize(newest..known.len()),
            false => self.rng.usize(..known.len()),
        };
        let mut input = known[index].clone();
        let changes = 1 << self.rng.u8(..4);
        for _ in 0..changes {
            self.change(&mut input, known);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, known: &[Vec<u8>]) {
        let at = self.rng.usize(..=input.len());
        let left = input.len() - at;
        match self.rng.u8(..10) {
            0 | 1 if 0 < left => input[at] ^= 1 << self.rng.u8(..8),
            2 if 0 < left => input[at] = self.rng.u8(..),
            3 if 0 < left => input[at] = input[at].wrapping_add(self.rng.u8(..16)).wrapping_sub(8),
            4 => {
                let width = [1, 2, 4, 8][self.rng.usize(..4)];
                let edge = EDGES[self.rng.usize(..EDGES.len())].to_be_bytes();
                overwrite(input, at, &edge[8 - width..]);
            }
            5 => overwrite(input, at, VARINTS[self.rng.usize(..VARINTS.len())]),
            6 => {
                let cut = self.rng.usize(..=left.min(32));
                input.drain(at..at + cut);
            }
            7 => {
                let more = self.rng.usize(..32);
                let bytes: Vec<u8> =
                    std::iter::repeat_with(|| self.rng.u8(..)).take(more).collect();
                input.splice(at..at, bytes);
            }
            8 => {
                let other = &known[self.rng.usize(..known.len())];
                let from = self.rng.usize(..=other.len());
                let to = (from + self.rng.usize(..64)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            _ => input.truncate(at),
        }
    }
}

fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    for (place, byte) in input[at..].iter_mut().zip(bytes) {
        *place = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_follow_from_the_seed_and_differ_from_their_parents() {
        let known = vec![vec![7; 40], Vec::new(), vec![1, 2, 3]];
        let mutants = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..200).map(|_| mutator.mutant(&known)).collect::<Vec<_>>()
        };
        assert_eq!(mutants(3), mutants(3));
        assert_ne!(mutants(3), mutants(4));
        assert!(100 < mutants(3).iter().filter(|mutant| !known.contains(mutant)).count());
    }
}
