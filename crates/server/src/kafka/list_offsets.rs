//! ListOffsets: offsets by place or time.

use std::collections::BTreeMap;

use towpath_driver::{FetchRefusal, OffsetAnswer, OffsetQuery};
use towpath_model::{LeaderEpoch, PartitionIndex, Timestamp};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};

use super::{Handled, Incoming, errors};
use crate::node::Node;

/// From this version on a new leader can say that it does not know the answer yet (KIP-207).
const NOT_AVAILABLE_SINCE: i16 = 5;
/// From this version on answers carry the record's leader epoch.
const EPOCH_SINCE: i16 = 4;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: ListOffsetsRequest<'_> = incoming.decode()?;
    let stable_only = request.isolation_level == 1;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let (version, asked) = (incoming.version, &topic.partitions);
        let partitions = answer_topic(node, version, topic.name, asked, stable_only).await;
        topics.push(ListOffsetsTopicResponse { name: topic.name, partitions });
    }
    incoming.answer(&ListOffsetsResponse { topics, ..Default::default() })
}

async fn answer_topic(
    node: &Node,
    version: i16,
    topic: &str,
    asked: &[ListOffsetsPartition],
    stable_only: bool,
) -> Vec<ListOffsetsPartitionResponse> {
    let mut times: BTreeMap<i32, usize> = BTreeMap::new();
    for partition in asked {
        *times.entry(partition.partition_index).or_default() += 1;
    }
    let mut answers = Vec::with_capacity(times.len());
    for partition in asked {
        let Some(count) = times.remove(&partition.partition_index) else { continue };
        answers.push(if 1 < count {
            refused(partition, ErrorCode::InvalidRequest)
        } else {
            answer(node, version, topic, partition, stable_only).await
        });
    }
    answers
}

/// What a special timestamp asks for; `None`: something that never exists without tiered storage.
fn query(version: i16, timestamp: i64) -> Result<Option<OffsetQuery>, ErrorCode> {
    match timestamp {
        -1 => Ok(Some(OffsetQuery::Latest)),
        -2 => Ok(Some(OffsetQuery::Earliest)),
        -3 if 7 <= version => Ok(Some(OffsetQuery::MaxTimestamp)),
        -4 if 8 <= version => Ok(Some(OffsetQuery::Earliest)),
        -5 if 9 <= version => Ok(None),
        -6 if 11 <= version => Ok(None),
        time if 0 <= time => Ok(Some(OffsetQuery::AtOrAfter(Timestamp(time)))),
        _ => Err(ErrorCode::UnsupportedVersion),
    }
}

async fn answer(
    node: &Node,
    version: i16,
    topic: &str,
    asked: &ListOffsetsPartition,
    stable_only: bool,
) -> ListOffsetsPartitionResponse {
    let driver = node.driver();
    let Some(id) = driver.partition_of(topic, PartitionIndex(asked.partition_index)) else {
        return refused(asked, ErrorCode::UnknownTopicOrPartition);
    };
    let query = match query(version, asked.timestamp) {
        Ok(query) => query,
        Err(error) => return refused(asked, error),
    };
    let epoch = Some(asked.current_leader_epoch).filter(|epoch| 0 <= *epoch).map(LeaderEpoch);
    let found = match query {
        Some(query) => node.find_offset(id, epoch, stable_only, query).await,
        None => driver.position(id, epoch).map(|_| None),
    };
    match found {
        Err(FetchRefusal::NotAvailable) if version < NOT_AVAILABLE_SINCE => {
            refused(asked, ErrorCode::LeaderNotAvailable)
        }
        Err(refusal) => refused(asked, errors::of_fetch_refusal(&refusal)),
        Ok(None) => refused(asked, ErrorCode::None),
        Ok(Some(OffsetAnswer { offset, timestamp, leader_epoch })) => {
            ListOffsetsPartitionResponse {
                partition_index: asked.partition_index,
                timestamp: timestamp.map_or(-1, |timestamp| timestamp.0),
                offset: offset.0,
                leader_epoch: if EPOCH_SINCE <= version { leader_epoch.0 } else { -1 },
                ..Default::default()
            }
        }
    }
}

fn refused(asked: &ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        error_code: error.into(),
        ..Default::default()
    }
}
