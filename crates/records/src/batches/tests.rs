use proptest::prelude::*;
use towpath_model::{Offset, Timestamp};

use super::*;
use crate::{BatchBuilder, Compression, set_base_offset};

fn batch(base_offset: i64, value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(0));
    builder.append(Timestamp(0), None, Some(value), []).expect("it fits");
    let mut batch = builder.build();
    set_base_offset(&mut batch, Offset(base_offset));
    batch
}

#[test]
fn whole_batches_are_walked_in_order() {
    let first = batch(10, b"a");
    let second = batch(11, b"bcd");
    let bytes = [&first[..], &second].concat();
    let mut batches = split_batches(&bytes);
    let walked: Vec<_> =
        batches.by_ref().map(|batch| (batch.header.base_offset(), batch.position)).collect();
    assert_eq!(walked, [(Offset(10), 0), (Offset(11), first.len())]);
    assert_eq!(batches.tail(), Tail::Clean);
    assert_eq!(batches.position(), bytes.len());
}

#[test]
fn a_cut_tail_is_told_wherever_it_is_cut() {
    let first = batch(0, b"a");
    let second = batch(1, b"b");
    let bytes = [&first[..], &second].concat();
    for cut in 1..second.len() {
        let mut batches = split_batches(&bytes[..first.len() + cut]);
        assert_eq!(batches.by_ref().count(), 1);
        let expected = (cut >= LENGTH_PREFIX_LEN).then_some(second.len());
        let tail = Tail::Partial { position: first.len(), found: cut, expected };
        assert_eq!(batches.tail(), tail);
    }
}

#[test]
fn damage_is_told_apart_from_a_cut_even_in_a_cut_header() {
    let mut bytes = batch(0, b"a");
    bytes[MAGIC_AT] = 0;
    let tail = Tail::Damaged { position: 0, error: HeaderError::UnsupportedMagic(0) };
    assert_eq!(split_batches(&bytes).tail(), tail);
    assert_eq!(split_batches(&bytes[..MAGIC_AT + 1]).tail(), tail);

    let zeros = [0; 40];
    let tail = Tail::Damaged { position: 0, error: HeaderError::InvalidLength(0) };
    assert_eq!(split_batches(&zeros).tail(), tail);
}

proptest! {
    #[test]
    fn any_bytes_are_walked_to_an_end(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| batch(0, value)).collect();
        for (index, byte) in flips {
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let mut batches = split_batches(&bytes);
        let walked: usize = batches.by_ref().map(|batch| batch.bytes.len()).sum();
        prop_assert_eq!(walked, batches.position());
        match batches.tail() {
            Tail::Clean => prop_assert_eq!(walked, bytes.len()),
            Tail::Partial { position, .. } | Tail::Damaged { position, .. } => {
                prop_assert_eq!(walked, position);
            }
        }
    }
}
