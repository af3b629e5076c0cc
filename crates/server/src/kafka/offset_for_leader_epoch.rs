//! OffsetForLeaderEpoch (KIP-101, KIP-279, KIP-320): where an epoch ended, so that a reader sees
//! whether what it has read was truncated.

use towpath_model::{LeaderEpoch, PartitionIndex};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: OffsetForLeaderEpochRequest<'_> = incoming.decode()?;
    let topics = request.topics.iter().map(|topic| OffsetForLeaderTopicResult {
        topic: topic.topic,
        partitions: topic.partitions.iter().map(|p| answer(node, topic.topic, p)).collect(),
    });
    let topics = topics.collect();
    incoming.answer(&OffsetForLeaderEpochResponse { topics, ..Default::default() })
}

fn answer(
    node: &Node,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> OffsetForLeaderEpochResponseEpochEndOffset {
    let result = end_offset(node, topic, asked);
    let (epoch, end) = result.ok().flatten().unwrap_or((-1, -1));
    OffsetForLeaderEpochResponseEpochEndOffset {
        error_code: result.err().unwrap_or(ErrorCode::None).into(),
        partition: asked.partition,
        leader_epoch: epoch,
        end_offset: end,
    }
}

fn end_offset(
    node: &Node,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(i32, i64)>, ErrorCode> {
    let driver = node.driver();
    let id = driver
        .partition_of(topic, PartitionIndex(asked.partition))
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let current = Some(asked.current_leader_epoch).filter(|epoch| 0 <= *epoch).map(LeaderEpoch);
    let found = driver.with_partition(id, |partition| {
        let leader = partition.leader().ok_or(ErrorCode::NotLeaderOrFollower)?;
        leader.check_epoch(current).map_err(errors::of_epoch_refusal)?;
        Ok::<_, ErrorCode>(leader.end_offset_of_epoch(LeaderEpoch(asked.leader_epoch)))
    });
    let found = found.ok_or(ErrorCode::NotLeaderOrFollower)??;
    Ok(found.map(|(epoch, end)| (epoch.0, end.0)))
}
