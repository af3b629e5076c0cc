//! Produce: record batches into partitions, acknowledged when they are as safe as was asked for.
//!
//! Every partition's batch is appended before anything is awaited, so that the batches of one
//! connection keep their order; then all acknowledgements are awaited together.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use towpath_model::properties::TopicConfig;
use towpath_model::{PartitionIndex, TopicPartition, Uuid};
use towpath_protocol::messages::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    ProduceResponseLeaderIdAndEpoch, ProduceResponseNodeEndpoint, TopicProduceResponse,
};
use towpath_protocol::{Blob, ErrorCode};
use towpath_records::{BatchHeader, Compression, InvalidBatch, RecordProblem};
use towpath_replication::Acks;

use super::brokers::LeaderHints;
use super::{
    Answer, Answered, Handled, Incoming, Unanswerable, answered, errors, topic_id, wire_id,
};
use crate::node::Node;
use crate::plain_memory::PlainTurn;
use crate::publish::{Acknowledged, Appended, PublishError};

/// The first version that may carry zstd (KIP-110).
const ZSTD_SINCE: i16 = 7;

/// From this version on the answer names the leader that the client should have asked (KIP-951).
const LEADER_SINCE: i16 = 10;

/// A topic as the request names it: by name up to version 12, by id after that.
#[derive(Debug)]
struct TopicRef {
    name: String,
    id: Uuid,
}

/// A request, as far as it is not the batches themselves.
struct Asked {
    acks: Option<Acks>,
    timeout: Duration,
    topics: Vec<TopicRef>,
    /// Ordered by topic.
    parts: Vec<Part>,
}

/// Data for one partition.
struct Part {
    /// Which of the topics.
    topic: usize,
    index: i32,
    /// Where the batch lies in the frame; `None`: null records.
    range: Option<Range<usize>>,
}

/// A partition's data after the first step.
enum Begun {
    /// In the log; acknowledged later.
    Pending(i32, Appended),
    Settled(Outcome),
}

impl Begun {
    fn outcome(&self) -> Option<&Outcome> {
        match self {
            Begun::Pending(..) => None,
            Begun::Settled(outcome) => Some(outcome),
        }
    }
}

/// What became of one partition.
struct Outcome {
    index: i32,
    error: ErrorCode,
    acknowledged: Option<Acknowledged>,
    message: Option<String>,
    record_errors: Vec<(i32, String)>,
}

impl Outcome {
    fn acknowledged(index: i32, acknowledged: Acknowledged) -> Outcome {
        let acknowledged = Some(acknowledged);
        let (error, message, record_errors) = (ErrorCode::None, None, Vec::new());
        Outcome { index, error, acknowledged, message, record_errors }
    }

    fn refused(index: i32, error: ErrorCode, message: Option<String>) -> Outcome {
        Outcome { index, error, acknowledged: None, message, record_errors: Vec::new() }
    }
}

/// Appends every batch at once. Where that fulfils what was asked for, the answer is there too, and
/// nothing is kept for a wait.
pub(super) fn begin(node: &Arc<Node>, mut incoming: Incoming) -> Answer {
    let asked = match read(&incoming) {
        Ok(asked) => asked,
        Err(Unanswerable(why)) => return Answer::Now(Answered::Close(why)),
    };
    let mut begun = Vec::with_capacity(asked.parts.len());
    if !append_all(node, &mut incoming, &asked, &mut begun, None) {
        return begin_in_turn(node, incoming, asked, begun);
    }
    // The batches are in the log: their memory is not needed while they become durable.
    incoming.frame = BytesMut::new();
    if begun.iter().all(|begun| begun.outcome().is_some()) {
        let outcomes = begun.iter().filter_map(Begun::outcome);
        return Answer::Now(answered(conclude(node, &incoming, &asked, outcomes)));
    }
    let node = Arc::clone(node);
    Answer::Later(Box::pin(async move { acknowledge(&node, &incoming, &asked, begun).await }), None)
}

/// Appends the rest as soon as the memory for large batches is free. Waits in a task of its own: the
/// connection's may stand still when the turn comes. It lives as long as those before it use theirs.
fn begin_in_turn(
    node: &Arc<Node>,
    mut incoming: Incoming,
    asked: Asked,
    mut begun: Vec<Begun>,
) -> Answer {
    let node = Arc::clone(node);
    let appending = {
        let node = Arc::clone(&node);
        async move {
            loop {
                let turn = node.plain_turn().await;
                let append = || append_all(&node, &mut incoming, &asked, &mut begun, Some(turn));
                if node.guarded(append) {
                    break;
                }
            }
            incoming.frame = BytesMut::new();
            (incoming, asked, begun)
        }
    };
    let appending = tokio::spawn(appending);
    let outcomes = async move {
        match appending.await {
            Ok((incoming, asked, begun)) => acknowledge(&node, &incoming, &asked, begun).await,
            Err(_) => Answered::Close("the broker is stopping".to_owned()),
        }
    };
    Answer::InOrder(Box::pin(outcomes), None)
}

async fn acknowledge(
    node: &Node,
    incoming: &Incoming,
    asked: &Asked,
    begun: Vec<Begun>,
) -> Answered {
    let mut outcomes = Vec::with_capacity(begun.len());
    for (part, begun) in asked.parts.iter().zip(begun) {
        outcomes.push(wait(node, asked, part, begun).await);
    }
    answered(conclude(node, incoming, asked, outcomes.iter()))
}

fn read(incoming: &Incoming) -> Result<Asked, Unanswerable> {
    let request: ProduceRequest<'_> = incoming.decode()?;
    let frame_start = incoming.frame.as_ptr() as usize;
    let count = request.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
    let mut parts = Vec::with_capacity(count);
    for (at, topic) in request.topic_data.iter().enumerate() {
        for partition in &topic.partition_data {
            let range = partition.records.and_then(|blob| match blob {
                Blob::Bytes(bytes) => {
                    let start = bytes.as_ptr() as usize - frame_start;
                    Some(start..start + bytes.len())
                }
                Blob::Region { .. } => None,
            });
            parts.push(Part { topic: at, index: partition.index, range });
        }
    }
    if 1 < parts.len() {
        let key = |part: &Part| {
            let topic = &request.topic_data[part.topic];
            (topic.name, topic.topic_id, part.index)
        };
        // As in Kafka, the last data for a partition wins: the sort keeps the order of equals.
        parts.sort_by(|a, b| key(b).cmp(&key(a)));
        parts.reverse();
        parts.dedup_by(|later, kept| key(later) == key(kept));
    }
    let mut topics: Vec<TopicRef> = Vec::with_capacity(request.topic_data.len().min(count));
    for part in &mut parts {
        let topic = &request.topic_data[part.topic];
        let id = topic_id(topic.topic_id);
        if topics.last().is_none_or(|last| last.name != topic.name || last.id != id) {
            topics.push(TopicRef { name: topic.name.to_owned(), id });
        }
        part.topic = topics.len() - 1;
    }
    let acks = match request.acks {
        -1 => Some(Acks::All),
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        _ => None,
    };
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    Ok(Asked { acks, timeout, topics, parts })
}

/// Appends every batch that is not begun yet. `false`: the next one needs the memory for large
/// batches, which others use. A `turn` is for the first one.
fn append_all(
    node: &Node,
    incoming: &mut Incoming,
    asked: &Asked,
    begun: &mut Vec<Begun>,
    mut turn: Option<PlainTurn>,
) -> bool {
    let mut found: Option<(usize, Result<Found, ErrorCode>)> = None;
    for part in &asked.parts[begun.len()..] {
        let Some(acks) = asked.acks else {
            let refused = Outcome::refused(part.index, ErrorCode::InvalidRequiredAcks, None);
            begun.push(Begun::Settled(refused));
            continue;
        };
        let topic = &asked.topics[part.topic];
        if found.as_ref().is_none_or(|(at, _)| *at != part.topic) {
            found = Some((part.topic, find(node, topic)));
        }
        let found = &found.as_ref().expect("just looked up").1;
        begun.push(match append(node, incoming, found, topic, part, acks, turn.take()) {
            Ok(appended) if appended.is_pending() => Begun::Pending(part.index, appended),
            Ok(appended) => Begun::Settled(Outcome::acknowledged(part.index, appended.settled())),
            Err(NotAppended::Refused(outcome)) => Begun::Settled(outcome),
            Err(NotAppended::NotYet) => return false,
        });
    }
    true
}

/// Why a batch is not in the log.
enum NotAppended {
    Refused(Outcome),
    /// It needs the memory for large batches.
    NotYet,
}

/// The topic a batch is for, looked up once per request.
struct Found {
    id: Uuid,
    partitions: usize,
    config: TopicConfig,
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
    let config = image.effective_config(found);
    Ok(Found { id: found.id, partitions: found.partitions.len(), config })
}

fn append(
    node: &Node,
    incoming: &mut Incoming,
    found: &Result<Found, ErrorCode>,
    topic: &TopicRef,
    part: &Part,
    acks: Acks,
    turn: Option<PlainTurn>,
) -> Result<Appended, NotAppended> {
    let index = part.index;
    let refused =
        |error, message| Err(NotAppended::Refused(Outcome::refused(index, error, message)));
    let found = match found {
        Ok(found) => found,
        Err(error) => return refused(*error, None),
    };
    if usize::try_from(index).is_ok_and(|index| found.partitions <= index) || index < 0 {
        return refused(ErrorCode::UnknownTopicOrPartition, None);
    }
    let version = incoming.version;
    let range = part.range.clone();
    let Some(batch) = range.map(|range| &mut incoming.frame[range]).filter(|b| !b.is_empty())
    else {
        return refused(ErrorCode::InvalidRecord, Some("there are no records".to_owned()));
    };
    let codec = BatchHeader::parse(batch).ok().and_then(|header| header.compression().ok());
    if version < ZSTD_SINCE && codec == Some(Compression::Zstd) {
        return refused(ErrorCode::UnsupportedCompressionType, None);
    }
    let id = TopicPartition { topic: found.id, partition: PartitionIndex(index) };
    node.append_with(id, &found.config, batch, acks, turn).map_err(|error| match error {
        PublishError::PlainMemoryTaken => NotAppended::NotYet,
        error => NotAppended::Refused(explain(index, &topic_name(node, topic), &error)),
    })
}

fn place_of(node: &Node, topic: &TopicRef, index: i32) -> Option<TopicPartition> {
    let partition = PartitionIndex(index);
    if topic.name.is_empty() {
        return Some(TopicPartition { topic: topic.id, partition });
    }
    node.driver().partition_of(&topic.name, partition)
}

fn topic_name(node: &Node, topic: &TopicRef) -> String {
    if !topic.name.is_empty() {
        return topic.name.clone();
    }
    let image = node.driver().image();
    image.topic_by_id(topic.id).map_or_else(|| topic.id.to_string(), |topic| topic.name.to_string())
}

/// Waits until one batch is as safe as was asked for.
async fn wait(node: &Node, asked: &Asked, part: &Part, begun: Begun) -> Outcome {
    let (index, appended) = match begun {
        Begun::Pending(index, appended) => (index, appended),
        Begun::Settled(outcome) => return outcome,
    };
    match node.acknowledged(appended, asked.timeout).await {
        Ok(acknowledged) => Outcome::acknowledged(index, acknowledged),
        Err(error) => explain(index, &topic_name(node, &asked.topics[part.topic]), &error),
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

fn conclude<'o>(
    node: &Node,
    incoming: &Incoming,
    asked: &Asked,
    outcomes: impl Iterator<Item = &'o Outcome>,
) -> Handled {
    if asked.acks == Some(Acks::None) {
        return without_answer(asked, outcomes);
    }
    let mut hints = LeaderHints::new(node, &incoming.peer);
    let mut responses: Vec<TopicProduceResponse<'_>> = Vec::with_capacity(asked.topics.len());
    for (part, outcome) in asked.parts.iter().zip(outcomes) {
        if responses.len() <= part.topic {
            let topic = &asked.topics[part.topic];
            responses.push(TopicProduceResponse {
                name: &topic.name,
                topic_id: wire_id(topic.id),
                partition_responses: Vec::with_capacity(1),
            });
        }
        let mut response = partition_answer(outcome);
        if LEADER_SINCE <= incoming.version && outcome.error == ErrorCode::NotLeaderOrFollower {
            let id = place_of(node, &asked.topics[part.topic], part.index);
            let (leader_id, leader_epoch) = id.map_or((-1, -1), |id| hints.leader_of(id));
            response.current_leader = ProduceResponseLeaderIdAndEpoch { leader_id, leader_epoch };
        }
        responses[part.topic].partition_responses.push(response);
    }
    let endpoints = hints.endpoints().map(|(node_id, broker)| ProduceResponseNodeEndpoint {
        node_id,
        host: &broker.host,
        port: broker.port,
        rack: broker.rack.as_deref(),
    });
    let node_endpoints = endpoints.collect();
    incoming.answer(&ProduceResponse { responses, node_endpoints, ..Default::default() })
}

/// With `acks=0` there is no answer; an error ends the connection, so that the client notices.
fn without_answer<'o>(asked: &Asked, outcomes: impl Iterator<Item = &'o Outcome>) -> Handled {
    let mut all = asked.parts.iter().zip(outcomes);
    let failed = all.find(|(_, outcome)| outcome.error != ErrorCode::None);
    Ok(match failed {
        None => Answered::Nothing,
        Some((part, outcome)) => Answered::Close(format!(
            "a produce request with acks=0 failed for {}-{}: {}",
            asked.topics[part.topic].name,
            outcome.index,
            outcome.error.name()
        )),
    })
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
