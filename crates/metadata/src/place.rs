//! Which brokers hold a new partition.

use std::collections::BTreeMap;

use towpath_model::BrokerId;

/// What a broker has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Partitions it leads.
    pub leaders: usize,
    /// Partitions whose first replica it holds, so that it is to lead them.
    pub preferred: usize,
    /// Replicas it holds.
    pub replicas: usize,
}

/// A broker that can hold partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeable {
    /// Where it stands.
    pub rack: Option<String>,
    /// Its number.
    pub id: BrokerId,
    /// What it has.
    pub load: Load,
}

/// Places partition after partition, each with what was placed before in mind.
///
/// Whoever is to lead least is to lead the next partition. Its followers stand in racks that it has not yet,
/// where there are any, and on those who hold least. Among equals the turn goes round a circle on
/// which each broker stands beside brokers of other racks.
#[derive(Debug, Clone)]
pub struct Placement {
    circle: Vec<Placeable>,
    /// Where on the circle the next partition begins among equals.
    turn: usize,
}

impl Placement {
    /// `start` is any number: topics with different ones begin at different brokers.
    #[must_use]
    pub fn new(brokers: Vec<Placeable>, start: u64) -> Placement {
        let circle = interleave_racks(brokers);
        let size = u64::try_from(circle.len()).unwrap_or(u64::MAX).max(1);
        let turn = usize::try_from(start % size).expect("smaller than a list's length");
        Placement { circle, turn }
    }

    /// The brokers with what they have now.
    #[must_use]
    pub fn into_placeable(self) -> Vec<Placeable> {
        self.circle
    }

    /// How many brokers there are.
    #[must_use]
    pub fn brokers(&self) -> usize {
        self.circle.len()
    }

    /// The replicas of one more partition, the leader first: as many as there are brokers, where
    /// `replication_factor` asks for more.
    pub fn place(&mut self, replication_factor: usize) -> Vec<BrokerId> {
        let size = self.circle.len();
        let first = (0..size).min_by_key(|at| {
            let Load { preferred, replicas, .. } = self.circle[*at].load;
            (preferred, replicas, (at + size - self.turn) % size)
        });
        let Some(first) = first.filter(|_| 0 < replication_factor) else { return Vec::new() };
        let mut chosen = vec![first];
        while chosen.len() < replication_factor.min(size) {
            let next = (0..size).filter(|at| !chosen.contains(at)).min_by_key(|at| {
                let broker = &self.circle[*at];
                let crowd =
                    chosen.iter().filter(|other| self.circle[**other].rack == broker.rack).count();
                (crowd, broker.load.replicas, (at + size - first) % size)
            });
            chosen.extend(next);
        }
        self.circle[first].load.preferred += 1;
        for at in &chosen {
            self.circle[*at].load.replicas += 1;
        }
        self.turn = (first + 1) % size;
        chosen.into_iter().map(|at| self.circle[at].id).collect()
    }

    /// Who should hold a replica beside `others`, and is none of `not`: a rack of its own, then the
    /// least load.
    pub(crate) fn one_more(&self, others: &[BrokerId], not: &[BrokerId]) -> Option<BrokerId> {
        let candidates = self.circle.iter().filter(|broker| !not.contains(&broker.id));
        let chosen = candidates.min_by_key(|broker| {
            let is_beside =
                |other: &&Placeable| others.contains(&other.id) && other.rack == broker.rack;
            (self.circle.iter().filter(is_beside).count(), broker.load.replicas, broker.id)
        });
        chosen.map(|broker| broker.id)
    }

    /// Takes note of a partition that is to have other replicas, and puts that one of them first
    /// which is to lead least, where that makes a difference.
    pub(crate) fn moved(&mut self, before: &[BrokerId], target: &mut [BrokerId]) {
        for id in before {
            self.adjust(*id, |load| load.replicas = load.replicas.saturating_sub(1));
        }
        for id in target.iter() {
            self.adjust(*id, |load| load.replicas += 1);
        }
        if let Some(first) = before.first() {
            self.adjust(*first, |load| load.preferred = load.preferred.saturating_sub(1));
        }
        let preferred = |id: &BrokerId| {
            let broker = self.circle.iter().find(|broker| broker.id == *id);
            broker.map_or(usize::MAX, |broker| broker.load.preferred)
        };
        let least = (0..target.len()).min_by_key(|at| preferred(&target[*at]));
        if let Some(least) = least.filter(|at| preferred(&target[*at]) < preferred(&target[0])) {
            target.swap(0, least);
        }
        if let Some(first) = target.first() {
            self.adjust(*first, |load| load.preferred += 1);
        }
    }

    fn adjust(&mut self, id: BrokerId, change: impl Fn(&mut Load)) {
        self.circle
            .iter_mut()
            .filter(|broker| broker.id == id)
            .for_each(|broker| change(&mut broker.load));
    }

    /// Those with the most and the least replicas.
    pub(crate) fn extremes(&self) -> Option<(&Placeable, &Placeable)> {
        let key = |broker: &&Placeable| (broker.load.replicas, broker.id);
        Some((self.circle.iter().max_by_key(key)?, self.circle.iter().min_by_key(key)?))
    }

    /// In how many racks these stand.
    pub(crate) fn racks(&self, brokers: &[BrokerId]) -> usize {
        let racks = self.circle.iter().filter(|broker| brokers.contains(&broker.id));
        racks.map(|broker| (&broker.rack, ())).collect::<BTreeMap<_, _>>().len()
    }
}

/// One broker of each rack in turn; racks and brokers in ascending order.
fn interleave_racks(mut brokers: Vec<Placeable>) -> Vec<Placeable> {
    brokers.sort_by(|one, other| (&one.rack, one.id).cmp(&(&other.rack, other.id)));
    let mut turns: Vec<(usize, Placeable)> = Vec::with_capacity(brokers.len());
    for broker in brokers {
        let turn = turns.iter().filter(|(_, other)| other.rack == broker.rack).count();
        turns.push((turn, broker));
    }
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, broker)| broker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(racks: &[(i32, &str)]) -> Vec<Placeable> {
        let broker = |(id, rack): &(i32, &str)| Placeable {
            rack: Some((*rack).to_owned()),
            id: BrokerId(*id),
            load: Load::default(),
        };
        racks.iter().map(broker).collect()
    }

    fn placed(placement: &mut Placement, factor: usize) -> Vec<i32> {
        placement.place(factor).into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn the_only_broker_holds_everything() {
        let mut one = Placement::new(brokers(&[(1, "a")]), 7);
        assert_eq!(placed(&mut one, 1), [1]);
        assert_eq!(placed(&mut one, 3), [1]);
        assert!(placed(&mut Placement::new(Vec::new(), 7), 1).is_empty());
    }

    #[test]
    fn leaders_go_round_and_replicas_leave_the_rack() {
        let mut four = Placement::new(brokers(&[(1, "a"), (2, "a"), (3, "b"), (4, "b")]), 0);
        assert_eq!(placed(&mut four, 2), [1, 3]);
        assert_eq!(placed(&mut four, 2), [2, 4]);
        assert_eq!(placed(&mut four, 2), [4, 1]);
        assert_eq!(placed(&mut four, 2), [3, 2]);
    }

    #[test]
    fn a_broker_that_has_nothing_comes_first() {
        let mut three = brokers(&[(1, "a"), (2, "a"), (3, "a")]);
        three[0].load = Load { leaders: 5, preferred: 5, replicas: 5 };
        three[1].load = Load { leaders: 5, preferred: 5, replicas: 7 };
        let mut placement = Placement::new(three, 0);
        assert_eq!(placed(&mut placement, 2), [3, 1]);
        assert_eq!(placement.one_more(&[BrokerId(3)], &[BrokerId(3)]), Some(BrokerId(1)));
    }

    #[test]
    fn many_partitions_are_spread_evenly() {
        let racks = [(1, "a"), (2, "b"), (3, "c"), (4, "a"), (5, "b"), (6, "c")];
        let mut six = Placement::new(brokers(&racks), 3);
        for _ in 0..60 {
            let replicas = six.place(3);
            assert_eq!(six.racks(&replicas), 3, "{replicas:?}");
        }
        for broker in &six.circle {
            assert_eq!(broker.load.preferred, 10);
            assert!((28..=32).contains(&broker.load.replicas), "{broker:?}");
        }
    }
}
