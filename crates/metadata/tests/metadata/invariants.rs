//! A few brokers that come, go and are slow, leaders that propose on the ground of what they knew,
//! operators that move replicas: whatever happens, every state follows the rules.

use std::collections::BTreeMap;

use proptest::prelude::*;
use towpath_metadata::{
    AlterPartitions, ElectionKind, Image, PartitionState, ProposedInSync, Reassignment, Record,
    Reply, Request,
};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};

use crate::support::{World, topic};

const BROKERS: std::ops::RangeInclusive<i32> = 1..=5;

#[derive(Debug, Clone)]
enum Step {
    Create { factor: i16, min: Option<u8> },
    Beat { id: i32, ready: bool, stops: bool },
    BeatAll { but: i32 },
    Start { id: i32, clean: bool, lost_power: bool },
    Silent(i32),
    Pass(u64),
    FailOver,
    Propose { partition: usize, keep: u8, stale: bool },
    Reassign { partition: usize, target: Option<Vec<i32>> },
    Elect { partition: usize, unclean: bool },
    SetMin { partition: usize, min: u8 },
    Drain { id: i32, drained: bool },
    Unregister(i32),
}

fn step() -> impl Strategy<Value = Step> {
    let target = prop::collection::btree_set(BROKERS, 1..4);
    let target = target.prop_map(|ids| ids.into_iter().collect::<Vec<_>>());
    prop_oneof![
        2 => (-1..4i16, prop::option::of(1..4u8)).prop_map(|(factor, min)| Step::Create { factor, min }),
        4 => (BROKERS, any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(id, ready, stops)| Step::Beat { id, ready, stops }),
        8 => (0..7i32).prop_map(|but| Step::BeatAll { but }),
        3 => (BROKERS, any::<bool>(), any::<bool>()).prop_map(|(id, clean, lost_power)| Step::Start { id, clean, lost_power }),
        1 => BROKERS.prop_map(Step::Silent),
        8 => prop_oneof![0..300u64, 300..1_200u64, Just(60_000)].prop_map(Step::Pass),
        1 => Just(Step::FailOver),
        10 => (0..4usize, any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(partition, keep, stale)| Step::Propose { partition, keep, stale }),
        2 => (0..4usize, prop::option::weighted(0.8, target)).prop_map(|(partition, target)| Step::Reassign { partition, target }),
        1 => (0..4usize, any::<bool>()).prop_map(|(partition, unclean)| Step::Elect { partition, unclean }),
        1 => (0..4usize, 1..4u8).prop_map(|(partition, min)| Step::SetMin { partition, min }),
        1 => (BROKERS, any::<bool>()).prop_map(|(id, drained)| Step::Drain { id, drained }),
        1 => BROKERS.prop_map(Step::Unregister),
    ]
}

fn nth(image: &Image, at: usize) -> Option<(String, TopicPartition, PartitionState)> {
    let all: Vec<_> = image.partitions().collect();
    let (topic, partition, state) = all.get(at % all.len().max(1))?;
    Some((topic.name.to_string(), *partition, (*state).clone()))
}

fn carry_out(world: &mut World, old: &mut BTreeMap<TopicPartition, PartitionState>, step: Step) {
    let is_known = |world: &World, id: i32| world.image().broker(BrokerId(id)).is_some();
    match step {
        Step::Create { factor, min } => {
            let name = format!("t{}", world.image().topic_count());
            let mut new = world.topic(&name);
            new.replication_factor = factor;
            new.configs = min
                .map(|min| ("min.insync.replicas".to_owned(), Some(min.to_string())))
                .into_iter()
                .collect();
            let _ = world.create(new);
        }
        Step::Beat { id, ready, stops } => {
            let _ = world.beat_as(id, |beat| {
                beat.is_ready = ready;
                beat.wants_shutdown = stops;
            });
        }
        Step::BeatAll { but } => BROKERS.filter(|id| *id != but).for_each(|id| {
            let _ = world.beat_as(id, |_| {});
        }),
        Step::Start { id, clean, lost_power } => {
            let epoch = world.image().broker(BrokerId(id)).map(|broker| broker.epoch);
            world.start(id, |registration| {
                registration.clean_since = epoch.filter(|_| clean);
                registration.lost_power = lost_power;
            });
        }
        Step::Silent(id) => {
            world.ask(Request::BrokerSilent(BrokerId(id)));
        }
        Step::Pass(milliseconds) => {
            world.pass(milliseconds);
        }
        Step::FailOver => world.fail_over(),
        Step::Propose { partition, keep, stale } => {
            let Some((_, id, state)) = nth(world.image(), partition) else { return };
            let state = old.get(&id).filter(|_| stale).cloned().unwrap_or(state);
            old.insert(id, state.clone());
            let Some(leader) = state.leader.filter(|leader| is_known(world, leader.0)) else {
                return;
            };
            let chosen = (0..)
                .zip(&state.replicas)
                .filter(|(bit, broker)| **broker == leader || keep >> bit & 1 == 1);
            let member = |(_, broker): (u8, &BrokerId)| {
                world.image().broker(*broker).map(|known| (*broker, known.epoch))
            };
            let change = ProposedInSync {
                partition: id,
                leader_epoch: state.leader_epoch,
                partition_epoch: state.partition_epoch,
                in_sync: chosen.filter_map(member).collect(),
            };
            let broker_epoch = world.epoch(leader.0);
            world.ask(Request::AlterPartitions(AlterPartitions {
                broker: leader,
                broker_epoch,
                changes: vec![change],
            }));
        }
        Step::Reassign { partition, target } => {
            let Some((name, id, _)) = nth(world.image(), partition) else { return };
            let target = target.map(|ids| ids.into_iter().map(BrokerId).collect());
            world.ask(Request::AlterReassignments {
                reassignments: vec![Reassignment { partition: (name, id.partition), target }],
                factor_may_change: true,
                by_hand: true,
            });
        }
        Step::Elect { partition, unclean } => {
            let Some((name, id, _)) = nth(world.image(), partition) else { return };
            let kind = if unclean { ElectionKind::Unclean } else { ElectionKind::Preferred };
            let partitions = Some(vec![(name, id.partition)]);
            world.ask(Request::ElectLeaders { kind, partitions });
        }
        Step::SetMin { partition, min } => {
            let Some((name, _, _)) = nth(world.image(), partition) else { return };
            let _ = world.set(topic(&name), "min.insync.replicas", &min.to_string());
        }
        Step::Drain { id, drained } => {
            world.ask(Request::DrainBroker { broker: BrokerId(id), drained });
        }
        Step::Unregister(id) => {
            world.ask(Request::UnregisterBroker(BrokerId(id)));
        }
    }
}

/// What holds of every state. `before` is what was there a step ago.
fn check(world: &World, before: &Image) -> Result<(), TestCaseError> {
    let image = world.image();
    let mut loads = BTreeMap::<BrokerId, (usize, usize)>::new();
    let mut moving = 0;
    for (topic, partition, state) in image.partitions() {
        let about = format!("{partition:?} {state:?}");
        let is_active = |id: &BrokerId| image.broker(*id).is_some_and(|broker| broker.is_active());
        for members in [&state.in_sync, &state.eligible, &state.adding, &state.removing] {
            prop_assert!(members.iter().all(|id| state.replicas.contains(id)), "{about}");
        }
        prop_assert!(state.eligible.iter().all(|id| !state.in_sync.contains(id)), "{about}");
        prop_assert!(state.adding.iter().all(|id| !state.removing.contains(id)), "{about}");
        prop_assert_eq!(state.replicas.len(), state.directories.len());
        let mut unique = state.replicas.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), state.replicas.len(), "{}", about);
        prop_assert!(!state.in_sync.is_empty(), "{about}");
        prop_assert!(!state.target().is_empty(), "{about}");
        if let Some(leader) = state.leader {
            prop_assert!(state.in_sync.contains(&leader) && is_active(&leader), "{about}");
            prop_assert!(state.in_sync.iter().all(is_active), "{about}");
            let stays = |id: &BrokerId| image.broker(*id).is_some_and(|broker| !broker.drained);
            let gives_way = !stays(&leader) && state.in_sync.iter().any(stays);
            prop_assert!(!gives_way, "a drained broker leads: {about}");
        } else {
            let candidates = state.in_sync.iter().chain(&state.eligible);
            prop_assert!(!candidates.into_iter().any(is_active), "nobody leads: {about}");
        }
        if image.min_in_sync(topic, state) <= state.in_sync.len() {
            prop_assert!(state.eligible.is_empty(), "{about}");
        }
        moving += usize::from(state.is_reassigning());
        for id in &state.replicas {
            loads.entry(*id).or_default().1 += 1;
        }
        if let Some(leader) = state.leader {
            loads.entry(leader).or_default().0 += 1;
        }
        if let Some(old) = before.partition(partition) {
            prop_assert!(old.leader_epoch <= state.leader_epoch, "{about}");
            prop_assert!(old.partition_epoch <= state.partition_epoch, "{about}");
            if old.leader != state.leader {
                prop_assert!(old.leader_epoch < state.leader_epoch, "{about}");
            }
            if old != state {
                prop_assert!(old.partition_epoch < state.partition_epoch, "{about}");
            }
        }
    }
    prop_assert_eq!(moving, image.reassignment_count());
    for id in BROKERS {
        let load = image.load(BrokerId(id));
        let counted = loads.get(&BrokerId(id)).copied().unwrap_or_default();
        prop_assert_eq!((load.leaders, load.replicas), counted);
    }
    for broker in image.brokers() {
        let known = before.broker(broker.id).filter(|old| old.incarnation == broker.incarnation);
        if let Some(old) = known {
            prop_assert_eq!(old.epoch, broker.epoch);
        } else {
            prop_assert!(before.brokers().all(|old| old.epoch < broker.epoch));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_state_follows_the_rules(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::cluster(&[1, 2, 3]);
        let mut old = BTreeMap::new();
        for step in steps {
            let before = world.image().clone();
            carry_out(&mut world, &mut old, step);
            check(&world, &before)?;
        }
        let mut folded = Image::new(BrokerId(1), Default::default());
        world.image().to_records().for_each(|record| folded.apply(&record));
        prop_assert_eq!(&folded, world.image());
        let replayed = world.replayed();
        prop_assert_eq!(replayed.image(), world.image());
    }
}

#[test]
fn a_snapshot_holds_everything() {
    let mut world = World::with_topic(&[1, 2, 3], &[("retention.ms", "5")]);
    world.ask(Request::NameCluster("c".to_owned()));
    world.ask(Request::SetFormatLevel(1));
    world.ask(Request::UnregisterBroker(BrokerId(3)));
    world.set(crate::support::broker(""), "log.retention.ms", "7").unwrap();
    let Reply::AllocatedProducerId(_) = world.ask(Request::AllocateProducerId) else { panic!() };
    let mut folded = Image::new(BrokerId(1), Default::default());
    for record in world.image().to_records() {
        folded.apply(&record);
    }
    let mut image = world.image().clone();
    let whole = Record::ProducerIdBlock { end: 1_000 };
    image.apply(&whole);
    assert_eq!(folded, image);
    let partition = TopicPartition { partition: PartitionIndex(0), ..world.partition_id() };
    assert!(folded.partition(partition).is_some());
}
