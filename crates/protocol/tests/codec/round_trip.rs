//! What is encoded decodes to the same, for every message and version.

use std::fmt::Debug;

use towpath_protocol::messages::*;
use towpath_protocol::{Message, decode_exact};

use crate::support::chance::{Chance, Sample};
use crate::support::encode;
use crate::support::samples::every_message;

const SAMPLES: u64 = 40;

macro_rules! round_trips {
    ($($message:ident)*) => {
        $(
            for version in <$message>::VERSIONS {
                for seed in 0..SAMPLES {
                    let message = <$message>::sample(&mut Chance::new(seed), version);
                    let bytes = encode(&message, version).expect("a sample is valid");
                    comes_back::<$message>(&message, version, &bytes);
                }
            }
        )*
    };
}

fn comes_back<'a, M: Message<'a> + PartialEq + Debug>(message: &M, version: i16, bytes: &'a [u8]) {
    let back: M = decode_exact(version, bytes)
        .unwrap_or_else(|error| panic!("{} {version}: {error}: {message:?}", M::NAME));
    assert_eq!(back, *message, "{} {version}", M::NAME);
    assert_eq!(encode(&back, version).expect("it was valid"), bytes, "{} {version}", M::NAME);
}

#[test]
fn every_message_comes_back_in_every_version() {
    every_message!(round_trips);
}
