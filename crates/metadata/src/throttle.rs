//! Which replicas are fed no faster than somebody allows.
//!
//! ```text
//! in sync                                               ─▶ never held up
//! being added                                           ─▶ reassignment.max.bytes.per.second
//! named in leader.replication.throttled.replicas        ─▶ leader.replication.throttled.rate
//! named in follower.replication.throttled.replicas      ─▶ follower.replication.throttled.rate
//! ```
//!
//! The last two are Kafka's (KIP-73), and whoever moves replicas with Kafka's tools sets them. Several
//! may hold for one replica.

use towpath_model::properties::elements;
use towpath_model::{BrokerId, TopicPartition};

use crate::image::Image;

/// Which limits hold for what a leader sends to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttled {
    /// The replica is being added.
    pub is_added: bool,
    /// The topic names the leader.
    pub by_leader: bool,
    /// The topic names the replica.
    pub by_follower: bool,
}

impl Image {
    /// Which limits hold for what `leader` sends to `follower`; `None`: it is not held up.
    #[must_use]
    pub fn throttled(
        &self,
        partition: TopicPartition,
        leader: BrokerId,
        follower: BrokerId,
    ) -> Option<Throttled> {
        let state = self.partition(partition)?;
        if state.in_sync.contains(&follower) {
            return None;
        }
        let topic = self.topic_by_id(partition.topic)?;
        let names = |property: &str, broker: BrokerId| {
            let list = topic.overrides.get(property);
            list.is_some_and(|list| names(list, partition.partition.0, broker))
        };
        let throttled = Throttled {
            is_added: state.adding.contains(&follower),
            by_leader: names("leader.replication.throttled.replicas", leader),
            by_follower: names("follower.replication.throttled.replicas", follower),
        };
        (throttled != Throttled::default()).then_some(throttled)
    }
}

/// Whether a list of `PARTITION:BROKER` pairs, or `*`, names this one.
fn names(list: &str, partition: i32, broker: BrokerId) -> bool {
    let is_named = |element: &str| {
        let pair = element.split_once(':');
        pair.is_some_and(|(index, id)| index.parse() == Ok(partition) && id.parse() == Ok(broker.0))
    };
    list.trim() == "*" || elements(list).any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_replicas() {
        assert!(names("*", 3, BrokerId(1)));
        assert!(names("0:1, 3:1", 3, BrokerId(1)));
        assert!(!names("0:1,3:2", 3, BrokerId(1)));
        assert!(!names("", 3, BrokerId(1)));
    }
}
