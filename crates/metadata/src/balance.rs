//! What to move so that brokers hold and lead about as much as each other.
//!
//! ```text
//! replicas    from whoever holds most to whoever holds least, while they differ by two or more
//! leaders     another replica of the same partition is preferred: nothing is copied
//! ```
//!
//! Each step makes two numbers that differ by two or more meet, so the steps come to an end, and from
//! there the next plan is empty. No partition is spread over fewer racks than before. Partitions that
//! are on the move, that nobody leads or that lie on a broker which is gone or drained are left alone:
//! others see to those.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use towpath_model::{BrokerId, TopicPartition};

use crate::image::Image;
use crate::topic::PartitionState;

/// Most replicas that one plan moves; the next plan goes on.
const MOVES_MAX: usize = 1_000;
/// Most partitions that one plan gives another preferred leader.
const LEADERS_MAX: usize = 10_000;

/// What to change so that brokers hold and lead about as much as each other. Empty where they do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BalancePlan {
    /// Partitions that somebody else is to lead, without a copy.
    pub leaders: Vec<PlannedLeader>,
    /// Partitions whose replicas are to move.
    pub moves: Vec<PlannedMove>,
}

/// A partition that somebody else is to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLeader {
    /// Which one.
    pub partition: TopicPartition,
    /// Who leads now.
    pub from: BrokerId,
    /// Its replicas; the first one is to lead.
    pub replicas: Vec<BrokerId>,
}

/// A partition whose replicas are to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMove {
    /// Which one.
    pub partition: TopicPartition,
    /// Its replicas now.
    pub from: Vec<BrokerId>,
    /// Its replicas then; the first one is to lead.
    pub to: Vec<BrokerId>,
    /// Bytes to be copied, as far as they are known.
    pub bytes: u64,
}

impl BalancePlan {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leaders.is_empty() && self.moves.is_empty()
    }
}

impl Image {
    /// What to change so that brokers hold and lead about as much as each other. `sizes` are bytes of
    /// one replica of each partition; small ones move first.
    #[must_use]
    pub fn balance_plan(&self, sizes: &BTreeMap<TopicPartition, u64>) -> BalancePlan {
        let mut draft = Draft::of(self, sizes);
        for _ in 0..MOVES_MAX {
            if !draft.move_a_replica() {
                break;
            }
        }
        for _ in 0..LEADERS_MAX {
            if !draft.prefer_another() {
                break;
            }
        }
        draft.plan(self)
    }
}

/// Where replicas would lie.
struct Draft<'s> {
    sizes: &'s BTreeMap<TopicPartition, u64>,
    /// Where brokers stand that can hold more.
    racks: BTreeMap<BrokerId, Option<String>>,
    /// Replicas of each partition that may move, the preferred leader first.
    replicas: BTreeMap<TopicPartition, Vec<BrokerId>>,
    /// How many replicas each broker holds, those that stay included.
    loads: BTreeMap<BrokerId, usize>,
    /// Partitions that may move, by who holds them; those with the fewest bytes first.
    held: BTreeMap<BrokerId, BTreeSet<(u64, TopicPartition)>>,
    /// How many partitions prefer each broker.
    preferred: BTreeMap<BrokerId, usize>,
    /// Partitions that may move, by whom they prefer.
    prefer: BTreeMap<BrokerId, BTreeSet<TopicPartition>>,
}

impl<'s> Draft<'s> {
    fn of(image: &Image, sizes: &'s BTreeMap<TopicPartition, u64>) -> Draft<'s> {
        let placeable = image.placeable();
        let mut draft = Draft {
            sizes,
            loads: placeable.iter().map(|broker| (broker.id, broker.load.replicas)).collect(),
            preferred: placeable.iter().map(|broker| (broker.id, broker.load.preferred)).collect(),
            held: placeable.iter().map(|broker| (broker.id, BTreeSet::new())).collect(),
            prefer: placeable.iter().map(|broker| (broker.id, BTreeSet::new())).collect(),
            racks: placeable.into_iter().map(|broker| (broker.id, broker.rack)).collect(),
            replicas: BTreeMap::new(),
        };
        for (_, partition, state) in image.partitions() {
            if draft.may_move(state) {
                draft.replicas.insert(partition, state.replicas.clone());
                let size = draft.size(partition);
                for broker in &state.replicas {
                    draft.held.entry(*broker).or_default().insert((size, partition));
                }
                draft.prefer.entry(state.replicas[0]).or_default().insert(partition);
            }
        }
        draft
    }

    fn may_move(&self, state: &PartitionState) -> bool {
        let is_there = |id: &BrokerId| self.racks.contains_key(id);
        !state.is_reassigning()
            && state.leader.is_some()
            && !state.replicas.is_empty()
            && state.replicas.iter().all(is_there)
    }

    fn size(&self, partition: TopicPartition) -> u64 {
        self.sizes.get(&partition).copied().unwrap_or(0)
    }

    /// Moves one replica, if two brokers differ by two or more and the one holds something that the
    /// other can take.
    fn move_a_replica(&mut self) -> bool {
        let found = pairs(&self.loads).find_map(|(from, to)| {
            let mut held = self.held[&from].iter().map(|(_, partition)| *partition);
            held.find(|partition| self.can_move(*partition, from, to)).map(|p| (p, from, to))
        });
        let Some((partition, from, to)) = found else { return false };
        let size = self.size(partition);
        let replicas = self.replicas.get_mut(&partition).expect("what is held may move");
        let at = replicas.iter().position(|id| *id == from).expect("held by it");
        replicas[at] = to;
        if at == 0 {
            self.preferred_moved(partition, from, to);
        }
        self.held.entry(from).or_default().remove(&(size, partition));
        self.held.entry(to).or_default().insert((size, partition));
        shift(&mut self.loads, from, to);
        true
    }

    fn can_move(&self, partition: TopicPartition, from: BrokerId, to: BrokerId) -> bool {
        let before = &self.replicas[&partition];
        if before.contains(&to) {
            return false;
        }
        let after = before.iter().map(|id| if *id == from { to } else { *id });
        self.racks_of(before.iter().copied()) <= self.racks_of(after)
    }

    fn racks_of(&self, brokers: impl Iterator<Item = BrokerId>) -> usize {
        brokers.map(|id| &self.racks[&id]).collect::<BTreeSet<_>>().len()
    }

    /// Lets one broker be preferred once less and another one once more, over partitions of brokers
    /// between them where they share none.
    fn prefer_another(&mut self) -> bool {
        let path = pairs(&self.preferred).find_map(|(from, to)| self.path(from, to));
        let Some(path) = path else { return false };
        for (partition, from, to) in path {
            let replicas = self.replicas.get_mut(&partition).expect("what is preferred may move");
            let at = replicas.iter().position(|id| *id == to).expect("it holds a replica");
            replicas.swap(0, at);
            self.preferred_moved(partition, from, to);
        }
        true
    }

    /// Partitions each of which can prefer the next broker on the way from one to another.
    fn path(
        &self,
        from: BrokerId,
        to: BrokerId,
    ) -> Option<Vec<(TopicPartition, BrokerId, BrokerId)>> {
        let mut came: BTreeMap<BrokerId, (TopicPartition, BrokerId)> = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            for partition in &self.prefer[&at] {
                for broker in &self.replicas[partition][1..] {
                    if *broker != from && !came.contains_key(broker) {
                        came.insert(*broker, (*partition, at));
                        next.push_back(*broker);
                    }
                }
                if came.contains_key(&to) {
                    break;
                }
            }
            if came.contains_key(&to) {
                break;
            }
        }
        let mut path = Vec::new();
        let mut at = to;
        while at != from {
            let (partition, before) = *came.get(&at)?;
            path.push((partition, before, at));
            at = before;
        }
        Some(path)
    }

    fn preferred_moved(&mut self, partition: TopicPartition, from: BrokerId, to: BrokerId) {
        self.prefer.entry(from).or_default().remove(&partition);
        self.prefer.entry(to).or_default().insert(partition);
        shift(&mut self.preferred, from, to);
    }

    /// What differs from the image.
    fn plan(self, image: &Image) -> BalancePlan {
        let mut plan = BalancePlan::default();
        for (partition, replicas) in &self.replicas {
            let Some(state) = image.partition(*partition) else { continue };
            let coming = replicas.iter().filter(|id| !state.replicas.contains(id)).count();
            if 0 < coming {
                plan.moves.push(PlannedMove {
                    partition: *partition,
                    from: state.replicas.clone(),
                    to: replicas.clone(),
                    bytes: self.size(*partition).saturating_mul(coming as u64),
                });
                continue;
            }
            let Some(from) = state.leader else { continue };
            let can_lead = from != replicas[0] && state.in_sync.contains(&replicas[0]);
            if can_lead || *replicas != state.replicas {
                let replicas = replicas.clone();
                plan.leaders.push(PlannedLeader { partition: *partition, from, replicas });
            }
        }
        plan
    }
}

fn shift(counts: &mut BTreeMap<BrokerId, usize>, from: BrokerId, to: BrokerId) {
    *counts.entry(from).or_default() -= 1;
    *counts.entry(to).or_default() += 1;
}

/// Brokers whose numbers differ by two or more, the larger one first; those that differ most first.
fn pairs(counts: &BTreeMap<BrokerId, usize>) -> impl Iterator<Item = (BrokerId, BrokerId)> {
    let mut order: Vec<(usize, BrokerId)> =
        counts.iter().map(|(id, count)| (*count, *id)).collect();
    order.sort_unstable();
    let descending = order.clone().into_iter().rev();
    descending.flat_map(move |(most, from)| {
        let ascending = order.clone().into_iter();
        ascending.take_while(move |(least, _)| least + 2 <= most).map(move |(_, to)| (from, to))
    })
}
