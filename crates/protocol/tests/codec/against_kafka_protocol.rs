//! Another implementation reads what we write, and writes the same bytes again.
//!
//! The `kafka-protocol` crate is generated from the same schemas by other hands. For every message
//! and version that both know, our bytes must decode there, leave nothing over, and encode to the
//! same bytes.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::messages::consumer_protocol_assignment as assignment;
use kafka_protocol::messages::consumer_protocol_subscription as subscription;
use kafka_protocol::protocol::{Decodable, Encodable, Message as TheirMessage};
use towpath_protocol::messages::*;
use towpath_protocol::{Message, decode_exact};

use crate::support::chance::{Chance, Sample};
use crate::support::encode;
use crate::support::samples::every_api_message;

const SAMPLES: u64 = 200;

/// What they write after having read `bytes`.
fn through_theirs<T: TheirMessage + Decodable + Encodable>(
    name: &str,
    version: i16,
    bytes: &Bytes,
) -> Bytes {
    let mut input = bytes.clone();
    let message = T::decode(&mut input, version)
        .unwrap_or_else(|error| panic!("{name} {version}: they refuse {bytes:?}: {error}"));
    assert!(input.is_empty(), "{name} {version}: they leave {} bytes", input.len());
    let mut output = BytesMut::new();
    message
        .encode(&mut output, version)
        .unwrap_or_else(|error| panic!("{name} {version}: they cannot write it again: {error}"));
    output.freeze()
}

macro_rules! agree {
    ($message:ident, $theirs:ty) => {
        let known = <$theirs as TheirMessage>::VERSIONS;
        for version in <$message>::VERSIONS {
            if version < known.min || known.max < version {
                continue;
            }
            for seed in 0..SAMPLES {
                let message = <$message>::sample(&mut Chance::new(seed), version);
                let bytes = encode(&message, version).expect("a sample is valid");
                let name = <$message>::NAME;
                let again = through_theirs::<$theirs>(name, version, &bytes);
                if again != bytes {
                    let back: Result<$message, _> = decode_exact(version, &again);
                    panic!(
                        "{name} {version} differs:\n{message:?}\n{back:?}\n{bytes:?}\n{again:?}"
                    );
                }
            }
        }
    };
}

macro_rules! all_agree {
    ($($message:ident)*) => {
        $( agree!($message, theirs::$message); )*
    };
}

#[test]
fn requests_and_responses_agree() {
    every_api_message!(all_agree);
}

macro_rules! defaults_agree {
    ($($message:ident)*) => {
        $(
            let known = <theirs::$message as TheirMessage>::VERSIONS;
            for version in <$message>::VERSIONS {
                if version < known.min || known.max < version {
                    continue;
                }
                let mut bytes = BytesMut::new();
                theirs::$message::default().encode(&mut bytes, version).expect("it is valid");
                let ours = encode(&<$message>::default(), version).expect("it is valid");
                assert_eq!(ours, bytes, "{} {version}", <$message>::NAME);
            }
        )*
    };
}

#[test]
fn defaults_agree() {
    every_api_message!(defaults_agree);
}

#[test]
fn headers_and_the_consumer_protocol_agree() {
    agree!(RequestHeader, theirs::RequestHeader);
    agree!(ResponseHeader, theirs::ResponseHeader);
    agree!(ConsumerProtocolSubscription, subscription::ConsumerProtocolSubscription);
    agree!(ConsumerProtocolAssignment, assignment::ConsumerProtocolAssignment);
}
