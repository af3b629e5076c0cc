//! DescribeLogDirs: what takes how much of which directory, and what of it is damaged: the latter in
//! a tagged field of ours, which other clients pass over.

use towpath_driver::DamagedRange;
use towpath_model::{PartitionIndex, TopicPartition};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DescribableLogDirTopic, DescribeLogDirsDamagedRange, DescribeLogDirsPartition,
    DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
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
            .map(|(index, stored)| DescribeLogDirsPartition {
                partition_index: *index,
                partition_size: i64::try_from(stored.bytes).unwrap_or(i64::MAX),
                damaged_ranges: stored.damage.iter().map(damaged_range).collect(),
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

/// What one partition has on the disk.
struct Stored {
    bytes: u64,
    damage: Vec<DamagedRange>,
}

/// Topics with what their partitions have.
type Sizes = Vec<(String, Vec<(i32, Stored)>)>;

fn stored(node: &Node, id: TopicPartition) -> Option<Stored> {
    let bytes = node.driver().size_bytes(id)?;
    Some(Stored { bytes, damage: node.driver().damage(id) })
}

fn damaged_range(range: &DamagedRange) -> DescribeLogDirsDamagedRange {
    DescribeLogDirsDamagedRange {
        first_offset: range.offsets.start.0,
        end_offset: range.offsets.end.0,
    }
}

fn all(node: &Node) -> Sizes {
    let topics: Vec<_> = {
        let image = node.driver().image();
        image.topics().map(|t| (t.name.to_string(), t.id, t.partitions.len())).collect()
    };
    let sized = topics.into_iter().map(|(name, topic, count)| {
        let sizes = (0i32..).take(count).filter_map(|index| {
            let id = TopicPartition { topic, partition: PartitionIndex(index) };
            Some((index, stored(node, id)?))
        });
        (name, sizes.collect())
    });
    sized.collect()
}

fn some(node: &Node, topics: &[DescribableLogDirTopic<'_>]) -> Sizes {
    let sized = topics.iter().map(|topic| {
        let sizes = topic.partitions.iter().filter_map(|index| {
            let id = node.driver().partition_of(topic.topic, PartitionIndex(*index))?;
            Some((*index, stored(node, id)?))
        });
        (topic.topic.to_owned(), sizes.collect::<Vec<_>>())
    });
    sized.filter(|(_, partitions)| !partitions.is_empty()).collect()
}
