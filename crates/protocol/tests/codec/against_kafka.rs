//! Writes samples of every message and version into a file, for Kafka's own classes to read.
//!
//! Reading them takes Java and Kafka's jars, so that half is a chore: `cargo xtask protocol compare
//! JAR...`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use towpath_protocol::Message;
use towpath_protocol::messages::*;

use crate::support::chance::{Chance, Sample};
use crate::support::encode;
use crate::support::samples::every_message;

const SAMPLES: u64 = 5;

macro_rules! write_samples {
    ($($message:ident)*) => {{
        let mut lines = String::new();
        $(
            for version in <$message>::VERSIONS {
                for seed in 0..SAMPLES {
                    let message = <$message>::sample(&mut Chance::new(1000 + seed), version);
                    let bytes = encode(&message, version).expect("a sample is valid");
                    line(<$message>::NAME, version, &bytes, &mut lines);
                }
            }
        )*
        lines
    }};
}

fn line(name: &str, version: i16, bytes: &[u8], lines: &mut String) {
    let _ = write!(lines, "{name} {version} ");
    for byte in bytes {
        let _ = write!(lines, "{byte:02x}");
    }
    lines.push('\n');
}

#[test]
fn samples_are_written_for_kafka_to_read() {
    let lines = every_message!(write_samples);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codec-samples.txt");
    fs::write(path, lines).expect("the target directory takes files");
}
