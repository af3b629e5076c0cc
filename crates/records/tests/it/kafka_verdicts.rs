//! `kafka-4.4-verdicts.txt`: what the classes of Kafka 4.4.0's broker (`ProduceRequest`,
//! `UnifiedLog`'s checks, `LogValidator`) say to a batch under a topic's rules. Where it accepts,
//! the verdict has the new maximum timestamp and the header that goes into its log.

use towpath_model::{LeaderEpoch, Offset, Timestamp};
use towpath_records::{
    HEADER_LEN, InvalidBatch, InvalidBatchClass, ProduceRules, Scratch, TimestampType,
    validate_produced,
};

const VERDICTS: &str = include_str!("../fixtures/kafka-4.4-verdicts.txt");

/// Batches that Kafka accepts and we refuse; why is in the documentation of `validate`.
const STRICTER: [&str; 8] = [
    "transactional",
    "delete-horizon",
    "unknown-attribute",
    "log-append-time-from-producer",
    "producer-without-epoch",
    "trailing-byte",
    "body-byte-more",
    "offset-delta-wrong",
];

struct Case<'a> {
    name: &'a str,
    rules: ProduceRules,
    verdict: &'a str,
    batch: Vec<u8>,
}

#[test]
fn our_verdicts_are_those_of_kafka() {
    let mut scratch = Scratch::new();
    let cases: Vec<Case<'_>> =
        VERDICTS.lines().filter(|line| !line.starts_with('#')).map(parse).collect();
    assert!(80 < cases.len());
    for case in &cases {
        compare(case, &mut scratch);
    }
}

fn compare(case: &Case<'_>, scratch: &mut Scratch) {
    let ours = validate_produced(&case.batch, &case.rules, scratch);
    let name = case.name;
    let kind = name.split_once('-').expect("the codec comes first").1;
    let mut words = case.verdict.split(' ');
    match (words.next().expect("a verdict has a word"), ours) {
        ("OK", Ok(validated)) => {
            let max_timestamp = words.next().expect("the maximum timestamp follows");
            assert_eq!(validated.max_timestamp.to_string(), max_timestamp, "{name}");
            let mut stored = case.batch.clone();
            validated.stamp(&mut stored, Offset(1_000), LeaderEpoch(7));
            let header = words.next().expect("the stored header follows");
            assert_eq!(hex(&stored[..HEADER_LEN]), header, "{name}");
        }
        ("OK", Err(refusal)) => assert!(STRICTER.contains(&kind), "{name}: {refusal}"),
        (code, Err(refusal)) => {
            assert_eq!(code_of(refusal.class()), code, "{name}: {refusal}");
            let indexes: Vec<String> = match &refusal {
                InvalidBatch::Records { records, .. } => {
                    records.iter().map(|record| record.index.to_string()).collect()
                }
                // Kafka lists all records of a batch whose producer set LogAppendTime.
                InvalidBatch::LogAppendTime => return,
                _ => Vec::new(),
            };
            let theirs: Vec<&str> = words.filter(|word| word.parse::<i32>().is_ok()).collect();
            assert_eq!(indexes, theirs, "{name}");
        }
        (code, Ok(_)) => panic!("{name}: Kafka says {code}, we accept"),
    }
}

fn code_of(class: InvalidBatchClass) -> &'static str {
    match class {
        InvalidBatchClass::Corrupt => "CORRUPT_MESSAGE",
        InvalidBatchClass::Invalid => "INVALID_RECORD",
        InvalidBatchClass::Timestamp => "INVALID_TIMESTAMP",
        InvalidBatchClass::TooLarge => "MESSAGE_TOO_LARGE",
        InvalidBatchClass::UnsupportedCompression => "UNSUPPORTED_COMPRESSION_TYPE",
        InvalidBatchClass::Transactional => "(not served)",
    }
}

fn parse(line: &'static str) -> Case<'static> {
    let fields: Vec<&str> = line.split('|').collect();
    let [name, compacted, append_time, before, after, batch_max, record_max, now, verdict, batch] =
        fields[..]
    else {
        panic!("{line}");
    };
    let number = |text: &str| text.parse::<i64>().expect("a number");
    let rules = ProduceRules {
        batch_bytes_max: number(batch_max) as usize,
        plain_bytes_max: 1 << 20,
        record_bytes_max: number(record_max) as usize,
        requires_keys: compacted == "true",
        timestamp_type: if append_time == "true" {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        },
        timestamp_before_ms_max: number(before),
        timestamp_after_ms_max: number(after),
        now: Timestamp(number(now)),
    };
    Case { name, rules, verdict: with_better_codes(verdict), batch: unhex(batch) }
}

/// Kafka lets what its decompressors throw become an error of the server; we say whose it is.
fn with_better_codes(verdict: &str) -> &str {
    match verdict {
        "UNKNOWN_SERVER_ERROR KafkaException" => "INVALID_RECORD",
        "UNKNOWN_SERVER_ERROR IllegalArgumentException" => "UNSUPPORTED_COMPRESSION_TYPE",
        other => other,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
