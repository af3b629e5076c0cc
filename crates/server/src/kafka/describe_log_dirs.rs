//! DescribeLogDirs: what takes how much of which directory.

use towpath_model::{PartitionIndex, TopicPartition};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};

use super::{Handled, Incoming};
use crate::node::Node;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DescribeLogDirsRequest<'_> = incoming.decode()?;
    let sizes = match &request.topics {
        None => all(node),
        Some(topics) => some(node, topics),
    };
    let topics = sizes.iter().map(|(name, partitions)| DescribeLogDirsTopic {
        name,
        partitions: partitions
            .iter()
            .map(|(index, bytes)| DescribeLogDirsPartition {
                partition_index: *index,
                partition_size: i64::try_from(*bytes).unwrap_or(i64::MAX),
                ..Default::default()
            })
            .collect(),
    });
    let topics: Vec<_> = topics.collect();
    let space = node.driver().space();
    let as_bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let error = if node.driver().is_failed() || space.is_err() {
        ErrorCode::KafkaStorageError
    } else {
        ErrorCode::None
    };
    let log_dir = node.data_directory().display().to_string();
    let result = DescribeLogDirsResult {
        error_code: error.into(),
        log_dir: &log_dir,
        topics,
        total_bytes: space.as_ref().map_or(-1, |space| as_bytes(space.total_bytes)),
        usable_bytes: space.as_ref().map_or(-1, |space| as_bytes(space.free_bytes)),
        is_cordoned: false,
    };
    incoming.answer(&DescribeLogDirsResponse { results: vec![result], ..Default::default() })
}

/// Topics with the sizes of their partitions.
type Sizes = Vec<(String, Vec<(i32, u64)>)>;

fn all(node: &Node) -> Sizes {
    let topics: Vec<_> = {
        let image = node.driver().image();
        image.topics().map(|t| (t.name.to_string(), t.id, t.partitions.len())).collect()
    };
    let sized = topics.into_iter().map(|(name, topic, count)| {
        let sizes = (0i32..).take(count).filter_map(|index| {
            let id = TopicPartition { topic, partition: PartitionIndex(index) };
            Some((index, node.driver().size_bytes(id)?))
        });
        (name, sizes.collect())
    });
    sized.collect()
}

fn some(node: &Node, topics: &[DescribableLogDirTopic<'_>]) -> Sizes {
    let sized = topics.iter().map(|topic| {
        let sizes = topic.partitions.iter().filter_map(|index| {
            let id = node.driver().partition_of(topic.topic, PartitionIndex(*index))?;
            Some((*index, node.driver().size_bytes(id)?))
        });
        (topic.topic.to_owned(), sizes.collect::<Vec<_>>())
    });
    sized.filter(|(_, partitions)| !partitions.is_empty()).collect()
}
