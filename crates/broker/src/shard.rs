//! Which partition a request belongs to. Routes, and nothing else.

use towpath_coordinator::groups;
use towpath_coordinator::publishers::{self, Publisher};
use towpath_model::PartitionIndex;

/// Kafka's own name for the topic that holds groups and their offsets.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The topic that holds the results of HTTP publishers.
pub const PUBLISHERS_TOPIC: &str = "__towpath_publishers";

/// The partition of [`OFFSETS_TOPIC`] whose leader coordinates `group`.
pub fn group_partition(group: &str, partitions: i32) -> PartitionIndex {
    PartitionIndex(groups::group_partition(group, partitions))
}

/// The partition of [`PUBLISHERS_TOPIC`] that serialises `publisher`.
pub fn publisher_partition(publisher: &Publisher, partitions: i32) -> PartitionIndex {
    PartitionIndex(publishers::publisher_partition(publisher, partitions))
}
