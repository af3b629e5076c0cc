//! DescribeLogDirs: what takes how much of which directory, and what of it is damaged: the latter in
//! a tagged field of ours, which other clients pass over.

use towpath_driver::{DamagedRange, VolumeIndex, VolumeStatus};
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
    let statuses = node.driver().volume_statuses();
    let missing = node.driver().missing_volumes();
    let paths = missing.iter().filter_map(|missing| missing.path.as_ref());
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    let open: Vec<(String, &VolumeStatus)> =
        statuses.iter().map(|status| (status.path.display().to_string(), status)).collect();
    let mut results: Vec<_> =
        open.iter().map(|(path, status)| result_of(path, status, &sizes)).collect();
    results.extend(paths.iter().map(|path| DescribeLogDirsResult {
        error_code: ErrorCode::KafkaStorageError.into(),
        log_dir: path,
        topics: Vec::new(),
        total_bytes: -1,
        usable_bytes: -1,
        is_cordoned: false,
    }));
    incoming.answer(&DescribeLogDirsResponse { results, ..Default::default() })
}

fn result_of<'a>(
    path: &'a str,
    status: &VolumeStatus,
    sizes: &'a Sizes,
) -> DescribeLogDirsResult<'a> {
    let is_here = |size: &&Size| size.volume == status.index;
    let topics = sizes.iter().map(|(name, partitions)| DescribeLogDirsTopic {
        name,
        partitions: partitions
            .iter()
            .filter(is_here)
            .map(|size| DescribeLogDirsPartition {
                partition_index: size.index,
                partition_size: as_i64(size.bytes),
                damaged_ranges: size.damage.iter().map(damaged_range).collect(),
                ..Default::default()
            })
            .collect(),
    });
    let has_failed = status.failure.is_some();
    let error = if has_failed { ErrorCode::KafkaStorageError } else { ErrorCode::None };
    DescribeLogDirsResult {
        error_code: error.into(),
        log_dir: path,
        topics: topics.filter(|topic| !topic.partitions.is_empty()).collect(),
        total_bytes: as_i64(status.space.total_bytes),
        usable_bytes: as_i64(status.space.free_bytes),
        is_cordoned: false,
    }
}

fn as_i64(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What a partition takes, and where.
struct Size {
    index: i32,
    volume: VolumeIndex,
    bytes: u64,
    damage: Vec<DamagedRange>,
}

/// Topics with the sizes of their partitions.
type Sizes = Vec<(String, Vec<Size>)>;

fn size(node: &Node, id: TopicPartition) -> Option<Size> {
    let driver = node.driver();
    let (volume, bytes) = (driver.volume_of(id)?, driver.size_bytes(id)?);
    Some(Size { index: id.partition.0, volume, bytes, damage: driver.damage(id) })
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
            size(node, TopicPartition { topic, partition: PartitionIndex(index) })
        });
        (name, sizes.collect())
    });
    sized.collect()
}

fn some(node: &Node, topics: &[DescribableLogDirTopic<'_>]) -> Sizes {
    let sized = topics.iter().map(|topic| {
        let sizes = topic.partitions.iter().filter_map(|index| {
            let id = node.driver().partition_of(topic.topic, PartitionIndex(*index))?;
            size(node, id)
        });
        (topic.topic.to_owned(), sizes.collect::<Vec<_>>())
    });
    sized.filter(|(_, partitions)| !partitions.is_empty()).collect()
}
