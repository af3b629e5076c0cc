//! Produce: record batches into partitions, acknowledged when they are as safe as was asked for.
//!
//! Every partition's batch is appended before anything is awaited, so that the batches of one
//! connection keep their order; then all acknowledgements are awaited together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use towpath_model::properties::TopicConfig;
use towpath_model::{PartitionIndex, TopicPartition, Uuid};
use towpath_protocol::messages::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceResponse,
};
use towpath_protocol::{Blob, ErrorCode};
use towpath_records::{BatchHeader, Compression, InvalidBatch, RecordProblem};
use towpath_replication::Acks;

use super::{Answered, Handled, Incoming, Unanswerable, errors, topic_id, wire_id};
use crate::node::Node;
use crate::publish::{Acknowledged, Appended, PublishError};

/// The first version that may carry zstd (KIP-110).
const ZSTD_SINCE: i16 = 7;

/// A topic as the request names it: by name up to version 12, by id after that.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TopicRef {
    name: String,
    id: Uuid,
}

/// Where a partition's batch lies in the frame; `None`: null records.
type Batches = BTreeMap<TopicRef, BTreeMap<i32, Option<Range<usize>>>>;

/// What became of one partition.
struct Outcome {
    index: i32,
    error: ErrorCode,
    acknowledged: Option<Acknowledged>,
    message: Option<String>,
    record_errors: Vec<(i32, String)>,
}

impl Outcome {
    fn refused(index: i32, error: ErrorCode, message: Option<String>) -> Outcome {
        Outcome { index, error, acknowledged: None, message, record_errors: Vec::new() }
    }
}

pub(super) async fn handle(node: &Node, mut incoming: Incoming) -> Handled {
    let (acks, timeout, batches) = read(&incoming)?;
    let mut answers = Vec::new();
    for (topic, partitions) in batches {
        let mut appended = Vec::new();
        match acks {
            Some(acks) => {
                let found = find(node, &topic);
                for (index, range) in partitions {
                    let outcome = append(node, &mut incoming, &found, &topic, index, range, acks);
                    appended.push((index, outcome));
                }
            }
            None => appended.extend(partitions.into_keys().map(|index| {
                let refused = Outcome::refused(index, ErrorCode::InvalidRequiredAcks, None);
                (index, Err(refused))
            })),
        }
        answers.push((topic, appended));
    }
    let mut topics = Vec::with_capacity(answers.len());
    for (topic, appended) in answers {
        let mut outcomes = Vec::with_capacity(appended.len());
        for (index, appended) in appended {
            outcomes.push(conclude(node, &topic, index, appended, timeout).await);
        }
        topics.push((topic, outcomes));
    }
    if acks == Some(Acks::None) {
        return without_answer(&topics);
    }
    answer(&incoming, &topics)
}

fn read(incoming: &Incoming) -> Result<(Option<Acks>, Duration, Batches), Unanswerable> {
    let request: ProduceRequest<'_> = incoming.decode()?;
    let frame_start = incoming.frame.as_ptr() as usize;
    let mut batches = Batches::new();
    for topic in &request.topic_data {
        let reference = TopicRef { name: topic.name.to_owned(), id: topic_id(topic.topic_id) };
        let partitions = batches.entry(reference).or_default();
        for partition in &topic.partition_data {
            let range = partition.records.and_then(|blob| match blob {
                Blob::Bytes(bytes) => {
                    let start = bytes.as_ptr() as usize - frame_start;
                    Some(start..start + bytes.len())
                }
                Blob::Region { .. } => None,
            });
            // As in Kafka, the last data for a partition wins.
            partitions.insert(partition.index, range);
        }
    }
    let acks = match request.acks {
        -1 => Some(Acks::All),
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        _ => None,
    };
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    Ok((acks, timeout, batches))
}

/// The topic a batch is for, looked up once per request.
struct Found {
    id: Uuid,
    partitions: usize,
    config: Arc<TopicConfig>,
}

fn find(node: &Node, topic: &TopicRef) -> Result<Found, ErrorCode> {
    let image = node.driver().image();
    let found = if topic.name.is_empty() {
        image.topic_by_id(topic.id).ok_or(ErrorCode::UnknownTopicId)?
    } else {
        image.topic(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition)?
    };
    if found.internal {
        return Err(ErrorCode::InvalidTopicException);
    }
    let config = Arc::new(image.effective_config(found));
    Ok(Found { id: found.id, partitions: found.partitions.len(), config })
}

fn append(
    node: &Node,
    incoming: &mut Incoming,
    found: &Result<Found, ErrorCode>,
    topic: &TopicRef,
    index: i32,
    range: Option<Range<usize>>,
    acks: Acks,
) -> Result<Appended, Outcome> {
    let refused = |error, message| Err(Outcome::refused(index, error, message));
    let found = match found {
        Ok(found) => found,
        Err(error) => return refused(*error, None),
    };
    if usize::try_from(index).is_ok_and(|index| found.partitions <= index) || index < 0 {
        return refused(ErrorCode::UnknownTopicOrPartition, None);
    }
    let version = incoming.version;
    let Some(batch) = range.map(|range| &mut incoming.frame[range]).filter(|b| !b.is_empty())
    else {
        return refused(ErrorCode::InvalidRecord, Some("there are no records".to_owned()));
    };
    let codec = BatchHeader::parse(batch).ok().and_then(|header| header.compression().ok());
    if version < ZSTD_SINCE && codec == Some(Compression::Zstd) {
        return refused(ErrorCode::UnsupportedCompressionType, None);
    }
    let id = TopicPartition { topic: found.id, partition: PartitionIndex(index) };
    node.append(id, &found.config, batch, acks)
        .map_err(|error| explain(index, &topic_name(node, topic), &error))
}

fn topic_name(node: &Node, topic: &TopicRef) -> String {
    if !topic.name.is_empty() {
        return topic.name.clone();
    }
    let image = node.driver().image();
    image.topic_by_id(topic.id).map_or_else(|| topic.id.to_string(), |topic| topic.name.to_string())
}

async fn conclude(
    node: &Node,
    topic: &TopicRef,
    index: i32,
    appended: Result<Appended, Outcome>,
    timeout: Duration,
) -> Outcome {
    let appended = match appended {
        Ok(appended) => appended,
        Err(outcome) => return outcome,
    };
    match node.acknowledged(appended, timeout).await {
        Ok(acknowledged) => Outcome {
            index,
            error: ErrorCode::None,
            acknowledged: Some(acknowledged),
            message: None,
            record_errors: Vec::new(),
        },
        Err(error) => explain(index, &topic_name(node, topic), &error),
    }
}

/// Most record errors that the summary spells out, as in Kafka.
const SPELLED_OUT_MAX: usize = 3;

fn explain(index: i32, topic: &str, error: &PublishError) -> Outcome {
    let code = errors::of_publish_error(error);
    let PublishError::Invalid(InvalidBatch::Records { count, records, has_timestamp_problem }) =
        error
    else {
        return Outcome::refused(index, code, Some(error.to_string()));
    };
    let text = |problem: RecordProblem, at: i32| match problem {
        RecordProblem::NullKey => format!(
            "Compacted topic cannot accept message without key in topic partition {topic}-{index}"
        ),
        RecordProblem::Timestamp { timestamp, earliest, latest } => format!(
            "Timestamp {timestamp} of message with offset {at} is out of range. \
             The timestamp should be within [{earliest}, {latest}]"
        ),
    };
    let record_errors: Vec<(i32, String)> =
        records.iter().map(|record| (record.index, text(record.problem, record.index))).collect();
    let message = if *has_timestamp_problem {
        "One or more records have been rejected due to invalid timestamp".to_owned()
    } else {
        let shown: Vec<String> = record_errors
            .iter()
            .take(SPELLED_OUT_MAX)
            .map(|(at, text)| format!("RecordError(batchIndex={at}, message='{text}')"))
            .collect();
        format!(
            "One or more records have been rejected due to {count} record errors in total, and \
             only showing the first three errors at most: [{}]",
            shown.join(", ")
        )
    };
    Outcome { index, error: code, acknowledged: None, message: Some(message), record_errors }
}

/// With `acks=0` there is no answer; an error ends the connection, so that the client notices.
fn without_answer(topics: &[(TopicRef, Vec<Outcome>)]) -> Handled {
    let failed = topics
        .iter()
        .flat_map(|(topic, outcomes)| outcomes.iter().map(move |outcome| (topic, outcome)))
        .find(|(_, outcome)| outcome.error != ErrorCode::None);
    Ok(match failed {
        None => Answered::Nothing,
        Some((topic, outcome)) => Answered::Close(format!(
            "a produce request with acks=0 failed for {}-{}: {}",
            topic.name,
            outcome.index,
            outcome.error.name()
        )),
    })
}

fn answer(incoming: &Incoming, topics: &[(TopicRef, Vec<Outcome>)]) -> Handled {
    let responses = topics
        .iter()
        .map(|(topic, outcomes)| TopicProduceResponse {
            name: &topic.name,
            topic_id: wire_id(topic.id),
            partition_responses: outcomes.iter().map(partition_answer).collect(),
        })
        .collect();
    incoming.answer(&ProduceResponse { responses, ..Default::default() })
}

fn partition_answer(outcome: &Outcome) -> PartitionProduceResponse<'_> {
    let acknowledged = outcome.acknowledged;
    let append_time = acknowledged.and_then(|acknowledged| acknowledged.append_time);
    PartitionProduceResponse {
        index: outcome.index,
        error_code: outcome.error.into(),
        base_offset: acknowledged.map_or(-1, |acknowledged| acknowledged.base_offset.0),
        log_append_time_ms: append_time.map_or(-1, |time| time.0),
        log_start_offset: acknowledged.map_or(-1, |acknowledged| acknowledged.log_start_offset.0),
        record_errors: outcome
            .record_errors
            .iter()
            .map(|(batch_index, message)| BatchIndexAndErrorMessage {
                batch_index: *batch_index,
                batch_index_error_message: Some(message),
            })
            .collect(),
        error_message: outcome.message.as_deref(),
        ..Default::default()
    }
}
