//! DeleteRecords: moves a partition's start, durably, and answers when the in-sync replicas have moved
//! theirs: whoever leads next keeps none of the records either.

use std::time::Duration;

use tokio::time::Instant;
use towpath_driver::{Condition, DeleteRecordsRefusal};
use towpath_model::{Offset, PartitionIndex, TopicPartition};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use super::{Handled, Incoming};
use crate::node::Node;

/// "Everything that is committed."
const HIGH_WATERMARK: i64 = -1;

/// A partition whose start has moved here, and to where.
type Begun = Result<(TopicPartition, Offset), ErrorCode>;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DeleteRecordsRequest<'_> = incoming.decode()?;
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = Instant::now() + timeout;
    // All begin before the first one is waited for.
    let begun = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|asked| begin(node, topic.name, asked)).collect::<Vec<Begun>>()
    });
    let begun: Vec<Vec<Begun>> = begun.collect();
    let mut topics = Vec::with_capacity(begun.len());
    for (topic, begun) in request.topics.iter().zip(begun) {
        let mut partitions = Vec::with_capacity(begun.len());
        for (asked, begun) in topic.partitions.iter().zip(begun) {
            partitions.push(finish(node, asked, begun, deadline).await);
        }
        topics.push(DeleteRecordsTopicResult { name: topic.name, partitions });
    }
    incoming.answer(&DeleteRecordsResponse { topics, ..Default::default() })
}

async fn finish(
    node: &Node,
    asked: &DeleteRecordsPartition,
    begun: Begun,
    deadline: Instant,
) -> DeleteRecordsPartitionResult {
    let result = match begun {
        Ok((id, start)) => until_followed(node, id, start, deadline).await,
        Err(error) => Err(error),
    };
    DeleteRecordsPartitionResult {
        partition_index: asked.partition_index,
        low_watermark: result.map_or(-1, |start| start.0),
        error_code: result.err().unwrap_or(ErrorCode::None).into(),
    }
}

/// Waits until the logs of all in-sync replicas start at `start` or later.
async fn until_followed(
    node: &Node,
    id: TopicPartition,
    start: Offset,
    deadline: Instant,
) -> Result<Offset, ErrorCode> {
    let (driver, condition) = (node.driver(), Condition::LogStarts(start));
    let mut wait = node.wait();
    if !driver.watch(id, wait.token(), condition)
        && tokio::time::timeout_at(deadline, wait.answer()).await.is_err()
    {
        driver.unwatch(id, wait.token(), condition);
        return Err(ErrorCode::RequestTimedOut);
    }
    // The wait also ends when the partition stops being led here.
    let low_watermark = driver.with_partition(id, |partition| partition.low_watermark());
    match low_watermark {
        Some(low_watermark) if start <= low_watermark => Ok(start),
        _ => Err(ErrorCode::NotLeaderOrFollower),
    }
}

fn begin(node: &Node, topic: &str, asked: &DeleteRecordsPartition) -> Begun {
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
    let start = driver.delete_records(id, before).map_err(|refusal| match refusal {
        DeleteRecordsRefusal::NotLeader => ErrorCode::NotLeaderOrFollower,
        DeleteRecordsRefusal::BeyondHighWatermark { .. } => ErrorCode::OffsetOutOfRange,
        DeleteRecordsRefusal::Stalled(_)
        | DeleteRecordsRefusal::Storage(_)
        | DeleteRecordsRefusal::Offline(_) => ErrorCode::KafkaStorageError,
    })?;
    Ok((id, start))
}
