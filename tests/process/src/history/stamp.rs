//! The value of a record that tells who sent it: nothing in it is left to trust.
//!
//! ```text
//!   w7 s1042 ~~~~…     writer, its sequence, and letters that follow from both
//! ```

/// Who sent a record, and as which one of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The writer: one producer, from its start to its end.
    pub writer: u32,
    /// The writer's counter in this topic, from 0 without gaps.
    pub sequence: u64,
}

impl Stamp {
    /// The record's value, with `padding` letters behind the stamp.
    pub fn to_value(self, padding: usize) -> Vec<u8> {
        let mut value = self.to_string().into_bytes();
        value.push(b' ');
        value.extend((0..padding).map(|index| self.letter(index)));
        value
    }

    /// Reads a value back; `None` when it is not exactly what [`Stamp::to_value`] makes.
    pub fn of_value(value: &[u8]) -> Option<Stamp> {
        let text = std::str::from_utf8(value).ok()?;
        let mut words = text.splitn(3, ' ');
        let writer = words.next()?.strip_prefix('w')?.parse().ok()?;
        let sequence = words.next()?.strip_prefix('s')?.parse().ok()?;
        let stamp = Stamp { writer, sequence };
        let padding = words.next()?.as_bytes();
        let is_ours = padding.iter().enumerate().all(|(i, letter)| *letter == stamp.letter(i));
        is_ours.then_some(stamp)
    }

    /// Runs of the same letter, so that codecs have something to do.
    fn letter(self, index: usize) -> u8 {
        let mixed = (u64::from(self.writer) << 40 ^ self.sequence ^ (index as u64 / 7))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        b'a' + (mixed >> 32) as u8 % 26
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "w{} s{}", self.writer, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_and_a_damaged_one_is_not() {
        let stamp = Stamp { writer: 7, sequence: 1042 };
        for padding in [0, 1, 100] {
            let value = stamp.to_value(padding);
            assert_eq!(Stamp::of_value(&value), Some(stamp));
            for index in 0..value.len() {
                let mut damaged = value.clone();
                damaged[index] ^= 0x40;
                assert_ne!(Stamp::of_value(&damaged), Some(stamp), "byte {index} is not looked at");
            }
        }
    }
}
