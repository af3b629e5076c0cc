//! Who in a group reads what. Pure: members and partition counts in, assignments out.
//!
//! The leader of a classic group runs one of these. The results of `range` and `roundrobin` equal
//! those of Kafka's assignors of the same name, since members written in other languages may lead
//! the next round. `cooperative-sticky` moves as little as balance allows, and hands a partition
//! to a new owner only after its old owner has given it up: within one round nobody both holds it
//! and gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::record::TopicPartition;

/// The strategies this client can lead, and offers to its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignor {
    /// Per topic, consecutive partitions to each member.
    Range,
    /// Partitions one by one, around the members.
    RoundRobin,
    /// Balanced, and close to the previous round; partitions move in two rounds.
    CooperativeSticky,
}

/// One member as the group's leader sees it.
#[derive(Debug, Clone, Default)]
pub struct MemberSubscription {
    /// The member's id.
    pub member_id: Arc<str>,
    /// Its static identity, if it has one; members sort by it, so that a restart changes nothing.
    pub instance_id: Option<Arc<str>>,
    /// The topics it wants.
    pub topics: BTreeSet<Arc<str>>,
    /// What it still holds from its last round.
    pub owned: Vec<TopicPartition>,
    /// The generation in which it got `owned`; −1 when unknown.
    pub generation: i32,
}

/// Partitions by member id.
pub type Assignments = BTreeMap<Arc<str>, Vec<TopicPartition>>;

impl Assignor {
    /// Its name in the group protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The assignor of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Assignor> {
        [Assignor::Range, Assignor::RoundRobin, Assignor::CooperativeSticky]
            .into_iter()
            .find(|assignor| assignor.name() == name)
    }

    /// Whether members keep their partitions while they rejoin (KIP-429).
    #[must_use]
    pub fn is_cooperative(self) -> bool {
        self == Assignor::CooperativeSticky
    }

    /// Assigns every partition of every subscribed topic that exists.
    #[must_use]
    pub fn assign(
        self,
        members: &[MemberSubscription],
        partition_counts: &BTreeMap<Arc<str>, i32>,
    ) -> Assignments {
        let mut members: Vec<&MemberSubscription> = members.iter().collect();
        // Static members first and by their lasting name, the others by member id, as Kafka sorts.
        members
            .sort_by_key(|m| (m.instance_id.is_none(), m.instance_id.clone(), m.member_id.clone()));
        match self {
            Assignor::Range => range(&members, partition_counts),
            Assignor::RoundRobin => round_robin(&members, partition_counts),
            Assignor::CooperativeSticky => cooperative_sticky(&members, partition_counts),
        }
    }
}

fn nobody_has_anything(members: &[&MemberSubscription]) -> Assignments {
    members.iter().map(|m| (m.member_id.clone(), Vec::new())).collect()
}

/// Topics that somebody wants and that exist, with their partition counts.
fn wanted_topics(
    members: &[&MemberSubscription],
    partition_counts: &BTreeMap<Arc<str>, i32>,
) -> Vec<(Arc<str>, i32)> {
    let wanted: BTreeSet<&Arc<str>> = members.iter().flat_map(|m| &m.topics).collect();
    wanted
        .into_iter()
        .filter_map(|topic| Some((topic.clone(), *partition_counts.get(topic)?)))
        .collect()
}

fn range(members: &[&MemberSubscription], counts: &BTreeMap<Arc<str>, i32>) -> Assignments {
    let mut assignments = nobody_has_anything(members);
    for (topic, count) in wanted_topics(members, counts) {
        let takers: Vec<_> = members.iter().filter(|m| m.topics.contains(&topic)).collect();
        let takers_count = i32::try_from(takers.len()).expect("a group has fewer members");
        let (share, rest) = (count / takers_count, count % takers_count);
        let mut next = 0;
        for (at, taker) in (0..takers_count).zip(&takers) {
            let end = next + share + i32::from(at < rest);
            let mine = assignments.entry(taker.member_id.clone()).or_default();
            mine.extend((next..end).map(|p| TopicPartition::new(topic.clone(), p)));
            next = end;
        }
    }
    assignments
}

fn round_robin(members: &[&MemberSubscription], counts: &BTreeMap<Arc<str>, i32>) -> Assignments {
    let mut assignments = nobody_has_anything(members);
    let mut turn = 0;
    for (topic, count) in wanted_topics(members, counts) {
        for partition in 0..count {
            // Somebody wants the topic, so the search ends within one round.
            while !members[turn % members.len()].topics.contains(&topic) {
                turn += 1;
            }
            let taker = &members[turn % members.len()].member_id;
            let mine = assignments.entry(taker.clone()).or_default();
            mine.push(TopicPartition::new(topic.clone(), partition));
            turn += 1;
        }
    }
    assignments
}

fn cooperative_sticky(
    members: &[&MemberSubscription],
    counts: &BTreeMap<Arc<str>, i32>,
) -> Assignments {
    let owners = rightful_owners(members, counts);
    let mut assignments = nobody_has_anything(members);
    for (partition, owner) in &owners {
        assignments.entry(owner.clone()).or_default().push(partition.clone());
    }

    let unowned = wanted_topics(members, counts)
        .into_iter()
        .flat_map(|(topic, count)| {
            (0..count).map(move |partition| TopicPartition::new(topic.clone(), partition))
        })
        .filter(|partition| !owners.contains_key(partition));
    for partition in unowned {
        let taker = least_loaded(members, &assignments, &partition.topic);
        assignments.entry(taker).or_default().push(partition);
    }
    balance(members, &mut assignments);

    // The first half of a move takes the partition from its owner; the owner's rejoin brings the
    // second half.
    for (member, mine) in &mut assignments {
        mine.retain(|partition| owners.get(partition).is_none_or(|owner| owner == member));
        mine.sort();
    }
    assignments
}

/// Each owned partition with the one member whose claim is the newest and still wanted; a claim
/// that two members make in the same generation is nobody's.
fn rightful_owners(
    members: &[&MemberSubscription],
    counts: &BTreeMap<Arc<str>, i32>,
) -> BTreeMap<TopicPartition, Arc<str>> {
    let mut claims: BTreeMap<TopicPartition, (i32, Option<Arc<str>>)> = BTreeMap::new();
    for member in members {
        for partition in &member.owned {
            let exists = counts.get(&partition.topic).is_some_and(|n| partition.partition.0 < *n);
            if !exists || !member.topics.contains(&partition.topic) {
                continue;
            }
            let claim = (member.generation, Some(member.member_id.clone()));
            match claims.get_mut(partition) {
                None => _ = claims.insert(partition.clone(), claim),
                Some(held) if held.0 < member.generation => *held = claim,
                Some(held) if held.0 == member.generation => held.1 = None,
                Some(_) => {}
            }
        }
    }
    claims.into_iter().filter_map(|(partition, (_, owner))| Some((partition, owner?))).collect()
}

fn least_loaded(
    members: &[&MemberSubscription],
    assignments: &Assignments,
    topic: &Arc<str>,
) -> Arc<str> {
    let takers = members.iter().filter(|m| m.topics.contains(topic));
    takers
        .min_by_key(|m| assignments.get(&m.member_id).map_or(0, Vec::len))
        .map(|m| m.member_id.clone())
        .expect("only topics that a member wants are handed out")
}

/// Moves single partitions from the fullest to the emptiest member until no move helps. Each move
/// shrinks the sum of squared loads, so the loop ends.
fn balance(members: &[&MemberSubscription], assignments: &mut Assignments) {
    while let Some((from, to, at)) = helpful_move(members, assignments) {
        let moved = assignments.entry(from).or_default().remove(at);
        assignments.entry(to).or_default().push(moved);
    }
}

fn helpful_move(
    members: &[&MemberSubscription],
    assignments: &Assignments,
) -> Option<(Arc<str>, Arc<str>, usize)> {
    let mut by_load: Vec<(usize, &&MemberSubscription)> =
        members.iter().map(|m| (assignments[&m.member_id].len(), m)).collect();
    by_load.sort_by_key(|(load, _)| *load);
    for (load, full) in by_load.iter().rev() {
        for (other_load, empty) in &by_load {
            if *load <= other_load + 1 {
                break;
            }
            // The last one first: partitions that were kept lie in front of those handed out now.
            let held = &assignments[&full.member_id];
            if let Some(at) = held.iter().rposition(|p| empty.topics.contains(&p.topic)) {
                return Some((full.member_id.clone(), empty.member_id.clone(), at));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str]) -> MemberSubscription {
        MemberSubscription {
            member_id: id.into(),
            topics: topics.iter().map(|t| Arc::from(*t)).collect(),
            generation: -1,
            ..MemberSubscription::default()
        }
    }

    fn counts(counts: &[(&str, i32)]) -> BTreeMap<Arc<str>, i32> {
        counts.iter().map(|(topic, n)| (Arc::from(*topic), *n)).collect()
    }

    fn show(assignments: &Assignments) -> String {
        let member = |(id, mine): (&Arc<str>, &Vec<TopicPartition>)| {
            let mine: Vec<String> = mine.iter().map(ToString::to_string).collect();
            format!("{id}: {}", mine.join(" "))
        };
        assignments.iter().map(member).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn range_gives_the_rest_to_the_first_members_of_each_topic() {
        let members = [member("a", &["t", "u"]), member("b", &["t", "u"]), member("c", &["u"])];
        let got = Assignor::Range.assign(&members, &counts(&[("t", 3), ("u", 4), ("other", 9)]));
        assert_eq!(show(&got), "a: t-0 t-1 u-0 u-1; b: t-2 u-2; c: u-3");
    }

    #[test]
    fn round_robin_skips_members_that_do_not_want_a_topic() {
        let members = [member("a", &["t", "u"]), member("b", &["u"])];
        let got = Assignor::RoundRobin.assign(&members, &counts(&[("t", 2), ("u", 2)]));
        assert_eq!(show(&got), "a: t-0 t-1 u-1; b: u-0");
    }

    #[test]
    fn static_members_sort_by_their_lasting_name() {
        let mut first = member("zzz", &["t"]);
        first.instance_id = Some("1".into());
        let members = [member("aaa", &["t"]), first];
        let got = Assignor::Range.assign(&members, &counts(&[("t", 3)]));
        assert_eq!(show(&got), "aaa: t-2; zzz: t-0 t-1");
    }

    #[test]
    fn a_topic_that_does_not_exist_is_nobodys() {
        for assignor in [Assignor::Range, Assignor::RoundRobin, Assignor::CooperativeSticky] {
            let got = assignor.assign(&[member("a", &["gone"])], &counts(&[]));
            assert_eq!(show(&got), "a: ");
        }
    }

    #[test]
    fn a_new_member_gets_partitions_only_after_they_were_given_up() {
        let mut a = member("a", &["t"]);
        a.owned = (0..4).map(|p| TopicPartition::new("t", p)).collect();
        a.generation = 1;
        let mut b = member("b", &["t"]);
        let first =
            Assignor::CooperativeSticky.assign(&[a.clone(), b.clone()], &counts(&[("t", 4)]));
        assert_eq!(show(&first), "a: t-0 t-1; b: ");

        a.owned = first["a"].clone();
        a.generation = 2;
        b.generation = 2;
        let second = Assignor::CooperativeSticky.assign(&[a, b], &counts(&[("t", 4)]));
        assert_eq!(show(&second), "a: t-0 t-1; b: t-2 t-3");
    }

    #[test]
    fn an_older_claim_yields_and_equal_claims_cancel_out() {
        let mut a = member("a", &["t"]);
        a.owned = vec![TopicPartition::new("t", 0), TopicPartition::new("t", 1)];
        a.generation = 3;
        let mut b = member("b", &["t"]);
        b.owned = vec![TopicPartition::new("t", 0)];
        b.generation = 2;
        let counts = counts(&[("t", 2)]);
        let owners = rightful_owners(&[&a, &b], &counts);
        assert_eq!(owners.values().filter(|owner| ***owner == *"a").count(), 2);
        b.generation = 3;
        assert_eq!(rightful_owners(&[&a, &b], &counts).len(), 1);
    }

    /// Whatever a group looked like before, two rounds give everybody what they hold to the end,
    /// everything is assigned once, and loads differ by at most one.
    #[test]
    fn cooperative_rounds_settle_balanced_and_complete() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let partitions = random.i32(0..20);
            let counts = counts(&[("t", partitions)]);
            let mut members: Vec<_> =
                (0..random.usize(1..6)).map(|i| member(&format!("m{i}"), &["t"])).collect();
            for partition in 0..partitions {
                if random.bool() {
                    let at = random.usize(0..members.len());
                    members[at].owned.push(TopicPartition::new("t", partition));
                }
            }
            for round in 0..3 {
                let got = Assignor::CooperativeSticky.assign(&members, &counts);
                for member in &mut members {
                    member.owned = got[&member.member_id].clone();
                    member.generation = round;
                }
            }
            let loads: Vec<usize> = members.iter().map(|m| m.owned.len()).collect();
            assert_eq!(loads.iter().sum::<usize>(), partitions as usize);
            assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
            let all: BTreeSet<_> = members.iter().flat_map(|m| &m.owned).collect();
            assert_eq!(all.len(), partitions as usize);
        }
    }
}
