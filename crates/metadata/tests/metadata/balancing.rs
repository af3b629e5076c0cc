//! Plans that let brokers hold and lead about as much as each other.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use towpath_metadata::{BalancePlan, ElectionKind, Image, Reassignment, Reply, Request};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};

use crate::support::World;
use crate::upkeep::catch_up;

const RACKS: [&str; 3] = ["a", "b", "c"];

/// Brokers 1 to n in these racks, and a topic whose partitions lie on these of them.
fn world(racks: &[usize], partitions: &[Vec<i32>]) -> World {
    let mut world = World::unregistered(&[]);
    for (id, rack) in (1..).zip(racks) {
        world.start(id, |registration| registration.rack = Some(RACKS[*rack].to_owned()));
        world.beat(id);
    }
    let mut topic = world.topic("t");
    topic.assignments = (0..)
        .zip(partitions)
        .map(|(at, ids)| (PartitionIndex(at), ids.iter().map(|id| BrokerId(*id)).collect()))
        .collect();
    world.create(topic).unwrap();
    world
}

fn sizes(image: &Image) -> BTreeMap<TopicPartition, u64> {
    let sized = image.partitions().map(|(_, id, _)| (id, 100 * (id.partition.0 as u64 % 7)));
    sized.collect()
}

fn plan(world: &World) -> BalancePlan {
    world.image().balance_plan(&sizes(world.image()))
}

/// Does what a plan says, and waits until it is done.
fn carry_out(world: &mut World, plan: &BalancePlan) {
    let named = |id: TopicPartition| ("t".to_owned(), id.partition);
    let moves = plan.moves.iter().map(|planned| (planned.partition, &planned.to));
    let leaders = plan.leaders.iter().map(|planned| (planned.partition, &planned.replicas));
    let reassignments = moves
        .chain(leaders)
        .map(|(id, target)| Reassignment { partition: named(id), target: Some(target.clone()) });
    let reassignments = reassignments.collect();
    let reply = world.ask(Request::AlterReassignments {
        reassignments,
        factor_may_change: false,
        by_hand: false,
    });
    let Reply::AlteredReassignments(outcomes) = reply else { panic!("{reply:?}") };
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
    catch_up(world);
    assert_eq!(world.image().reassignment_count(), 0);
    world.ask(Request::ElectLeaders { kind: ElectionKind::Preferred, partitions: None });
}

fn racks_of(image: &Image, replicas: &[BrokerId]) -> usize {
    let racks = replicas.iter().filter_map(|id| image.broker(*id)?.rack.clone());
    racks.collect::<BTreeSet<_>>().len()
}

fn replica_counts(image: &Image, brokers: usize) -> Vec<usize> {
    (1i32..).take(brokers).map(|id| image.load(BrokerId(id)).replicas).collect()
}

fn layouts() -> impl Strategy<Value = (Vec<usize>, Vec<Vec<i32>>)> {
    (2i32..7, 1usize..4).prop_flat_map(|(brokers, factor)| {
        let factor = factor.min(brokers as usize);
        let racks = prop::collection::vec(0usize..3, brokers as usize);
        let ids: Vec<i32> = (1..=brokers).collect();
        let replicas = prop::sample::subsequence(ids, factor).prop_shuffle();
        (racks, prop::collection::vec(replicas, 1..30))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn plans_end_keep_racks_and_need_no_second_one((racks, partitions) in layouts()) {
        let mut world = world(&racks, &partitions);
        let before = world.image().clone();
        let plan = plan(&world);
        prop_assert_eq!(&plan, &before.balance_plan(&sizes(&before)), "the same again");
        for planned in &plan.moves {
            let distinct: BTreeSet<_> = planned.to.iter().collect();
            prop_assert_eq!(distinct.len(), planned.from.len());
            prop_assert!(racks_of(&before, &planned.from) <= racks_of(&before, &planned.to));
        }
        for planned in &plan.leaders {
            let state = before.partition(planned.partition).unwrap();
            let set = |ids: &[BrokerId]| ids.iter().copied().collect::<BTreeSet<_>>();
            prop_assert_eq!(set(&planned.replicas), set(&state.replicas), "nothing is copied");
        }
        carry_out(&mut world, &plan);
        let again = self::plan(&world);
        prop_assert!(again.is_empty(), "{:?} after {:?}", again, plan);
        let spread = |counts: &[usize]| counts.iter().max().unwrap() - counts.iter().min().unwrap();
        let counts = replica_counts(&before, racks.len());
        let after = replica_counts(world.image(), racks.len());
        prop_assert!(spread(&after) <= spread(&counts).max(1), "{:?} to {:?}", counts, after);
    }

    #[test]
    fn without_racks_every_broker_holds_as_much_and_nothing_moves_twice(
        (racks, partitions) in layouts(),
    ) {
        let mut world = world(&vec![0; racks.len()], &partitions);
        let before = replica_counts(world.image(), racks.len());
        let plan = plan(&world);
        let moved: usize = plan.moves.iter().map(|planned| {
            planned.to.iter().filter(|id| !planned.from.contains(id)).count()
        }).sum();
        carry_out(&mut world, &plan);
        let after = replica_counts(world.image(), racks.len());
        let spread = after.iter().max().unwrap() - after.iter().min().unwrap();
        prop_assert!(spread <= 1, "{:?}", after);
        let needed: usize = before.iter().zip(&after).map(|(b, a)| b.saturating_sub(*a)).sum();
        prop_assert_eq!(moved, needed, "{:?} to {:?}", before, after);
    }
}

#[test]
fn leaders_are_spread_without_a_copy_where_that_is_enough() {
    let layout = vec![vec![1, 2, 3]; 6];
    let mut world = world(&[0, 1, 2], &layout);
    let plan = plan(&world);
    assert!(plan.moves.is_empty(), "{plan:?}");
    assert_eq!(plan.leaders.len(), 4);
    carry_out(&mut world, &plan);
    for id in 1..=3 {
        assert_eq!(world.image().load(BrokerId(id)).leaders, 2, "broker {id}");
    }
}

#[test]
fn the_smallest_partitions_move() {
    let world = world(&[0, 0], &[vec![1], vec![1], vec![1], vec![1]]);
    let plan = plan(&world);
    let moved: Vec<(i32, u64)> =
        plan.moves.iter().map(|planned| (planned.partition.partition.0, planned.bytes)).collect();
    assert_eq!(moved, [(0, 0), (1, 100)]);
}

#[test]
fn what_lies_on_a_broker_that_is_gone_is_left_alone() {
    let mut world = world(&[0, 0, 0], &vec![vec![1, 3]; 6]);
    world.hear_only(&[1, 2]);
    assert_eq!(plan(&world), BalancePlan::default());
}
