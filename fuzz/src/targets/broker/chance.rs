//! Values for the fields of a request, chosen by the bytes of an input.
//!
//! A byte that changes changes one field. Where the bytes end, everything has the value that gets a
//! request furthest: names that exist, one element per array.

use std::collections::VecDeque;
use std::sync::LazyLock;

use towpath_model::{ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_protocol::{Blob, Uuid};
use towpath_records::{BatchBuilder, Compression};

use super::node::{GROUP, TOPIC};

/// Text that means something somewhere.
const WORDS: [&str; 32] = [
    TOPIC,
    GROUP,
    "",
    "another",
    "__consumer_offsets",
    "__cluster_metadata",
    "1",
    "0",
    "-1",
    "consumer",
    "range",
    "cleanup.policy",
    "compact",
    "compact,delete",
    "retention.ms",
    "segment.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.guard",
    "hold",
    "log.retention.bytes",
    "disk.high.watermark.bytes",
    "message.timestamp.type",
    "LogAppendTime",
    "durability",
    "relaxed",
    "9223372036854775807",
    "gr\u{f6}\u{df}e \u{1f6a3}",
    "..",
    "../../etc/passwd",
    "a/b",
    "a-name-of-more-than-two-hundred-and-forty-nine-characters-which-is-the-most-that-a-topic-may-\
     have-because-a-directory-carries-it-together-with-a-number-and-file-systems-allow-two-hundred-\
     and-fifty-five-bytes-for-the-name-of-a-file-or-directory-and-no-more-than-that",
];

/// Numbers at which something changes.
const NUMBERS: [i64; 20] = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    -3,
    -4,
    -5,
    100,
    6_000,
    1 << 20,
    i8::MAX as i64,
    i16::MAX as i64,
    i32::MAX as i64,
    i64::MAX,
    i16::MIN as i64,
    i32::MIN as i64,
    i64::MIN,
    1_700_000_000_000,
];

/// Something that the bytes of an input can make, with only the fields that a version has.
pub(super) trait Sample {
    /// Makes one.
    fn sample(chance: &mut Chance, version: i16) -> Self;
}

/// Reads choices off an input.
pub(super) struct Chance {
    choices: VecDeque<u8>,
    /// The id of [`TOPIC`].
    topic_id: Uuid,
}

impl Chance {
    pub(super) fn new(choices: &[u8], topic_id: Uuid) -> Chance {
        Chance { choices: choices.iter().copied().collect(), topic_id }
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.choices.pop_front().unwrap_or(0)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// What is left, as it is.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        self.choices.drain(..).collect()
    }

    pub(super) fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    pub(super) fn is_null(&mut self) -> bool {
        self.below(4) == 3
    }

    pub(super) fn i64(&mut self) -> i64 {
        match self.byte() {
            at @ ..128 => NUMBERS[usize::from(at) % NUMBERS.len()],
            small @ 128..224 => i64::from(small) - 128,
            _ => i64::from_be_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    pub(super) fn uuid(&mut self) -> Uuid {
        match self.below(4) {
            0 | 1 => self.topic_id,
            2 => Uuid::ZERO,
            _ => Uuid([self.byte(); 16]),
        }
    }

    pub(super) fn string(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }

    pub(super) fn bytes(&mut self) -> &'static [u8] {
        match self.below(4) {
            0 => b"\0\x01\0\0",
            1 => b"",
            _ => self.string().as_bytes(),
        }
    }

    pub(super) fn records(&mut self) -> Blob<'static> {
        static BATCHES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(batches);
        Blob::Bytes(&BATCHES[self.below(BATCHES.len())])
    }

    pub(super) fn array<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = [1, 2, 0, 5][self.below(4)];
        (0..count).map(|_| element(self)).collect()
    }
}

/// Batches that are taken, and some that are not.
fn batches() -> Vec<Vec<u8>> {
    let wall = Timestamp(1_700_000_000_000);
    let batch = |compression, producer: Option<(i64, i16, i32)>| {
        let mut batch = BatchBuilder::new(compression, wall);
        if let Some((id, epoch, sequence)) = producer {
            batch.set_producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
        }
        for index in 0..3_u8 {
            let header: (&[u8], Option<&[u8]>) = (b"name", None);
            batch.append(wall, Some(&[index]), Some(&[7; 40]), [header]).expect("it is small");
        }
        batch.build()
    };
    let mut all: Vec<Vec<u8>> = Compression::ALL.map(|codec| batch(codec, None)).into();
    for producer in [(0, 0, 0), (0, 0, 3), (0, 0, 9), (0, 1, 0), (7, 0, 5), (-2, -1, -1)] {
        all.push(batch(Compression::None, Some(producer)));
    }
    let whole = batch(Compression::Zstd, None);
    all.push([&whole[..], &whole].concat());
    all.push(whole[..whole.len() - 5].to_vec());
    all.push(Vec::new());
    let mut changed = whole;
    changed[70] ^= 1;
    all.push(changed);
    all
}
