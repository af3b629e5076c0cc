//! DeleteRecords: moves a partition's start, durably, before it answers.

use towpath_driver::DeleteRecordsRefusal;
use towpath_model::{Offset, PartitionIndex};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use super::{Handled, Incoming};
use crate::node::Node;

/// "Everything that is committed."
const HIGH_WATERMARK: i64 = -1;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DeleteRecordsRequest<'_> = incoming.decode()?;
    let topics = request.topics.iter().map(|topic| DeleteRecordsTopicResult {
        name: topic.name,
        partitions: topic.partitions.iter().map(|p| delete(node, topic.name, p)).collect(),
    });
    incoming.answer(&DeleteRecordsResponse { topics: topics.collect(), ..Default::default() })
}

fn delete(
    node: &Node,
    topic: &str,
    asked: &DeleteRecordsPartition,
) -> DeleteRecordsPartitionResult {
    let result = try_delete(node, topic, asked);
    DeleteRecordsPartitionResult {
        partition_index: asked.partition_index,
        low_watermark: result.map_or(-1, |start| start.0),
        error_code: result.err().unwrap_or(ErrorCode::None).into(),
    }
}

fn try_delete(
    node: &Node,
    topic: &str,
    asked: &DeleteRecordsPartition,
) -> Result<Offset, ErrorCode> {
    let driver = node.driver();
    {
        let image = driver.image();
        let found = image.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if found.internal {
            return Err(ErrorCode::InvalidTopicException);
        }
        // A compacted topic says what is current per key; a cut start would say something else.
        if !image.effective_config(found).cleanup_policy.delete {
            return Err(ErrorCode::PolicyViolation);
        }
    }
    let id = driver
        .partition_of(topic, PartitionIndex(asked.partition_index))
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let before = match asked.offset {
        HIGH_WATERMARK => None,
        offset if offset < 0 => return Err(ErrorCode::OffsetOutOfRange),
        offset => Some(Offset(offset)),
    };
    driver.delete_records(id, before).map_err(|refusal| match refusal {
        DeleteRecordsRefusal::NotLeader => ErrorCode::NotLeaderOrFollower,
        DeleteRecordsRefusal::BeyondHighWatermark { .. } => ErrorCode::OffsetOutOfRange,
        DeleteRecordsRefusal::Stalled(_)
        | DeleteRecordsRefusal::Storage(_)
        | DeleteRecordsRefusal::Offline(_) => ErrorCode::KafkaStorageError,
    })
}
