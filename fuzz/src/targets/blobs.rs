//! Bytes inside requests that clients agree on among themselves, and that we read all the same; and
//! what a stranger's first bytes look like to our client and to our server.

use towpath_client::recognise;
use towpath_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use towpath_protocol::{decode_versioned, encode_versioned};
use towpath_server::Stranger;

use crate::shape::Shape;
use crate::target::Target;

/// `which u8 │ bytes`.
pub(super) const BLOBS: Target =
    Target { name: "blobs", seeds, run: read, memory_max: 1 << 20, waits_for_others: false };

fn read(input: &[u8]) -> Shape {
    let Some((which, bytes)) = input.split_first() else { return Shape::default() };
    let shape = Shape::default().exact(i16::from(which % 4));
    match which % 4 {
        0 => match decode_versioned::<ConsumerProtocolSubscription<'_>>(bytes) {
            Err(error) => shape.error(&error),
            Ok((version, message)) => {
                let again = encode_versioned(version, &message).expect("it was decoded");
                shape.exact(version).size(again.len()).size(message.topics.len())
            }
        },
        1 => match decode_versioned::<ConsumerProtocolAssignment<'_>>(bytes) {
            Err(error) => shape.error(&error),
            Ok((version, message)) => {
                let again = encode_versioned(version, &message).expect("it was decoded");
                shape.exact(version).size(again.len())
            }
        },
        2 => shape.word(&format!("{:?}", recognise(bytes))),
        _ => {
            let stranger = Stranger::of(bytes);
            let answered = usize::from(!stranger.answer().is_empty());
            shape.word(&format!("{stranger:?}")).size(answered)
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![2, 0x15, 3, 1, 0, 2, 2, 0x46], b"\x02HTTP/1.1 400 Bad".to_vec()];
    seeds.extend([b"\x03GET / HTTP/1.1".to_vec(), b"\x03\x16\x03\x01".to_vec(), vec![3, 0xff]]);
    for version in 0..=3 {
        let subscription = ConsumerProtocolSubscription {
            topics: vec!["orders", "events"],
            user_data: Some(&[1, 2, 3]),
            ..ConsumerProtocolSubscription::default()
        };
        let assignment = ConsumerProtocolAssignment::default();
        let bytes = [
            encode_versioned(version, &subscription).ok(),
            encode_versioned(version, &assignment).ok(),
        ];
        for (which, bytes) in (0..).zip(bytes) {
            seeds.extend(bytes.map(|bytes| [&[which], &bytes[..]].concat()));
        }
    }
    seeds
}
