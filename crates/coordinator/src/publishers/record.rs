//! The changes of state of publishers, and their bytes in `__towpath_publishers`.
//!
//! ```text
//! key    u8 kind 1 │ 16 topic id │ i16 length, name │ i32 partition       intent
//!        u8 kind 2 │ 16 topic id │ i16 length, name │ u8 slot             result
//! value  u8 version 1 │ i64 number │ i64 sequence │ i64 producer id │ i16 producer epoch
//!        │ i32 producer sequence │ i64 at │ u8 appended? (0 not known, 1 no)          intent
//!        u8 version 1 │ i64 number │ i64 sequence │ i32 partition │ i64 offset
//!        │ i64 timestamp │ i64 at                                                     result
//! ```
//!
//! The topic is compacted, and the keys are chosen so that what compaction keeps is the state: the
//! last intent per partition, and the last 100 results.

use towpath_model::{
    FoldError, FoldRecord, KeyValue, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence,
    Time, Timestamp,
};

use super::RESULTS_KEPT;
use super::request::{Intent, Published, Publisher};
use crate::cursor::{Reader, put_string};

/// One change of [`super::Publishers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An append is about to be tried, or (`is_refuted`) it is known not to have happened.
    Intended {
        /// Who.
        publisher: Publisher,
        /// What.
        intent: Intent,
        /// When it was decided.
        at: Timestamp,
        /// Whether the record is known not to be in the partition.
        is_refuted: bool,
    },
    /// An append has happened.
    Finished {
        /// Who.
        publisher: Publisher,
        /// Number of the attempt.
        number: u64,
        /// The caller's sequence.
        sequence: i64,
        /// Where it is.
        published: Published,
        /// When that became known.
        at: Timestamp,
    },
    /// The last intent of a partition is forgotten.
    IntentRemoved {
        /// Who.
        publisher: Publisher,
        /// Of which partition.
        partition: PartitionIndex,
    },
    /// A result is forgotten.
    ResultRemoved {
        /// Who.
        publisher: Publisher,
        /// In which of the slots.
        slot: u8,
    },
    /// Not logged: this process appends until then, so nobody needs to ask about it.
    InFlight {
        /// Who.
        publisher: Publisher,
        /// Until when.
        until: Time,
    },
    /// Not logged: when old results are looked for next.
    CheckAt(Time),
}

const KEY_INTENT: u8 = 1;
const KEY_RESULT: u8 = 2;
const VALUE_VERSION: u8 = 1;

/// The slot of attempt `number`: results overwrite each other in a circle.
pub(super) fn slot(number: u64) -> u8 {
    u8::try_from(number % RESULTS_KEPT).expect("fewer slots than a byte holds")
}

const _: () = assert!(RESULTS_KEPT <= 256);

fn key(kind: u8, publisher: &Publisher, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(publisher.topic.0);
    put_string(&mut out, Some(&publisher.name));
    out.extend(rest);
    out
}

fn intent_value(intent: &Intent, at: Timestamp, is_refuted: bool) -> Vec<u8> {
    let mut out = vec![VALUE_VERSION];
    out.extend(intent.number.to_be_bytes());
    out.extend(intent.sequence.to_be_bytes());
    out.extend(intent.producer_id.0.to_be_bytes());
    out.extend(intent.producer_epoch.0.to_be_bytes());
    out.extend(intent.producer_sequence.0.to_be_bytes());
    out.extend(at.0.to_be_bytes());
    out.push(is_refuted.into());
    out
}

fn result_value(number: u64, sequence: i64, published: &Published, at: Timestamp) -> Vec<u8> {
    let mut out = vec![VALUE_VERSION];
    out.extend(number.to_be_bytes());
    out.extend(sequence.to_be_bytes());
    out.extend(published.partition.0.to_be_bytes());
    out.extend(published.offset.0.to_be_bytes());
    out.extend(published.timestamp.0.to_be_bytes());
    out.extend(at.0.to_be_bytes());
    out
}

impl FoldRecord for Record {
    fn encode(&self) -> Option<KeyValue> {
        let intent_key = |publisher: &Publisher, partition: &PartitionIndex| {
            key(KEY_INTENT, publisher, &partition.0.to_be_bytes())
        };
        match self {
            Record::Intended { publisher, intent, at, is_refuted } => Some(KeyValue {
                key: intent_key(publisher, &intent.partition),
                value: Some(intent_value(intent, *at, *is_refuted)),
            }),
            Record::Finished { publisher, number, sequence, published, at } => Some(KeyValue {
                key: key(KEY_RESULT, publisher, &[slot(*number)]),
                value: Some(result_value(*number, *sequence, published, *at)),
            }),
            Record::IntentRemoved { publisher, partition } => {
                Some(KeyValue { key: intent_key(publisher, partition), value: None })
            }
            Record::ResultRemoved { publisher, slot } => {
                Some(KeyValue { key: key(KEY_RESULT, publisher, &[*slot]), value: None })
            }
            Record::InFlight { .. } | Record::CheckAt(_) => None,
        }
    }

    fn is_logged(&self) -> bool {
        !matches!(self, Record::InFlight { .. } | Record::CheckAt(_))
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, FoldError> {
        let mut key = Reader::new(key, "key of a publisher record");
        let kind = key.u8()?;
        if kind != KEY_INTENT && kind != KEY_RESULT {
            return Ok(None);
        }
        let topic = key.uuid()?;
        let name = key.string()?;
        let publisher = Publisher { topic, name: key.required(name)? };
        let mut input = Reader::new(value.unwrap_or_default(), "publisher record");
        if value.is_some() && input.u8()? != VALUE_VERSION {
            return Err(input.error("version is not known"));
        }
        let record = match (kind, value) {
            (KEY_INTENT, None) => {
                Record::IntentRemoved { publisher, partition: PartitionIndex(key.i32()?) }
            }
            (KEY_INTENT, Some(_)) => {
                decode_intent(publisher, PartitionIndex(key.i32()?), &mut input)?
            }
            (_, None) => Record::ResultRemoved { publisher, slot: key.u8()? },
            (_, Some(_)) => decode_result(publisher, &mut input)?,
        };
        Ok(Some(record))
    }
}

fn decode_intent(
    publisher: Publisher,
    partition: PartitionIndex,
    input: &mut Reader<'_>,
) -> Result<Record, FoldError> {
    let intent = Intent {
        number: input.i64()?.cast_unsigned(),
        sequence: input.i64()?,
        partition,
        producer_id: ProducerId(input.i64()?),
        producer_epoch: ProducerEpoch(input.i16()?),
        producer_sequence: Sequence(input.i32()?),
    };
    let at = Timestamp(input.i64()?);
    let is_refuted = input.u8()? != 0;
    Ok(Record::Intended { publisher, intent, at, is_refuted })
}

fn decode_result(publisher: Publisher, input: &mut Reader<'_>) -> Result<Record, FoldError> {
    let number = input.i64()?.cast_unsigned();
    let sequence = input.i64()?;
    let published = Published {
        partition: PartitionIndex(input.i32()?),
        offset: Offset(input.i64()?),
        timestamp: Timestamp(input.i64()?),
    };
    let at = Timestamp(input.i64()?);
    Ok(Record::Finished { publisher, number, sequence, published, at })
}
