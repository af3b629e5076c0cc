//! Which brokers hold a new partition.

use towpath_model::{BrokerId, PartitionIndex};

/// A broker that can hold partitions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placeable {
    /// Where it stands.
    pub rack: Option<String>,
    /// Its number.
    pub id: BrokerId,
}

/// The replicas of one partition, the leader first. Partitions of a topic follow each other around
/// the circle of brokers, so that leaders are spread evenly; on the circle each broker stands beside
/// brokers of other racks, so that replicas are spread over racks. `start` is any number that
/// belongs to the topic: it makes topics of one partition begin at different brokers.
///
/// Gives as many replicas as there are brokers where `replication_factor` asks for more.
#[must_use]
pub fn place(
    partition: PartitionIndex,
    replication_factor: usize,
    brokers: &[Placeable],
    start: u64,
) -> Vec<BrokerId> {
    let circle = interleave_racks(brokers);
    let Some(size) = u64::try_from(circle.len()).ok().filter(|size| 0 < *size) else {
        return Vec::new();
    };
    let first = (start % size + u64::from(partition.0.unsigned_abs())) % size;
    circle
        .iter()
        .cycle()
        .skip(usize::try_from(first).expect("smaller than a slice's length"))
        .take(replication_factor.min(circle.len()))
        .copied()
        .collect()
}

/// One broker of each rack in turn; racks and brokers in ascending order.
fn interleave_racks(brokers: &[Placeable]) -> Vec<BrokerId> {
    let mut sorted = brokers.to_vec();
    sorted.sort();
    let mut turns: Vec<(usize, &Placeable)> = Vec::with_capacity(sorted.len());
    for broker in &sorted {
        let turn = turns.iter().filter(|(_, other)| other.rack == broker.rack).count();
        turns.push((turn, broker));
    }
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, broker)| broker.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(racks: &[(i32, &str)]) -> Vec<Placeable> {
        racks
            .iter()
            .map(|(id, rack)| Placeable { rack: Some((*rack).to_owned()), id: BrokerId(*id) })
            .collect()
    }

    fn placed(partition: i32, factor: usize, brokers: &[Placeable]) -> Vec<i32> {
        place(PartitionIndex(partition), factor, brokers, 0).into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn the_only_broker_holds_everything() {
        let one = brokers(&[(1, "a")]);
        assert_eq!(placed(0, 1, &one), [1]);
        assert_eq!(placed(7, 3, &one), [1]);
        assert!(placed(0, 1, &[]).is_empty());
    }

    #[test]
    fn leaders_go_round_and_replicas_leave_the_rack() {
        let four = brokers(&[(1, "a"), (2, "a"), (3, "b"), (4, "b")]);
        assert_eq!(placed(0, 2, &four), [1, 3]);
        assert_eq!(placed(1, 2, &four), [3, 2]);
        assert_eq!(placed(2, 2, &four), [2, 4]);
        assert_eq!(placed(3, 2, &four), [4, 1]);
    }
}
