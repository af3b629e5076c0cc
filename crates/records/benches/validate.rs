//! How long it takes to check a produced batch of 64 KiB (before compression), per codec.
//! `cargo bench -p towpath-records`; for a comparison, not a verdict: it prints medians.

#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use towpath_model::Timestamp;
use towpath_records::{
    BatchBuilder, Compression, ProduceRules, Scratch, TimestampType, validate_produced,
};

const ROUNDS: usize = 2_000;
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn main() {
    let rules = ProduceRules {
        batch_bytes_max: 1 << 20,
        plain_bytes_max: 4 << 20,
        record_bytes_max: usize::MAX,
        requires_keys: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: 3_600_000,
        now: NOW,
    };
    let mut scratch = Scratch::new();
    for value_bytes in [100, 1_000] {
        for compression in Compression::ALL {
            let batch = batch(compression, value_bytes);
            let mut times: Vec<_> = (0..ROUNDS)
                .map(|_| {
                    let start = Instant::now();
                    validate_produced(&batch, &rules, &mut scratch).expect("it is good");
                    start.elapsed()
                })
                .collect();
            times.sort();
            let median = times[ROUNDS / 2];
            println!(
                "{compression:>8}, values of {value_bytes:>5} bytes, {:>6} on the wire: {median:?}",
                batch.len()
            );
        }
    }
}

fn batch(compression: Compression, value_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression, NOW);
    let mut state = 1_u32;
    while builder.size_in_bytes() < 64 << 10 {
        let mut value = String::new();
        while value.len() < value_bytes {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            value.push_str(&format!("{{\"order\":{},\"state\":\"paid\"}}", state >> 16));
        }
        let key = (state >> 20).to_string();
        builder
            .append(NOW, Some(key.as_bytes()), Some(&value.as_bytes()[..value_bytes]), [])
            .expect("it fits");
    }
    builder.build()
}
