//! What the controller does by itself.

use towpath_metadata::{Image, MorePartitions, Reassignment, RefusalKind, Reply, Request};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};

use crate::support::World;

/// Every leader finds everybody who is there in sync.
pub(crate) fn catch_up(world: &mut World) {
    let image = world.image().clone();
    for (_, partition, state) in image.partitions() {
        let Some(leader) = state.leader else { continue };
        let there = state.replicas.iter().filter_map(|id| image.broker(*id));
        let members = there.filter(|broker| broker.is_active());
        let in_sync: Vec<_> = members.map(|broker| (broker.id, broker.epoch)).collect();
        if in_sync.iter().map(|(id, _)| id).eq(&state.in_sync) {
            continue;
        }
        let change = towpath_metadata::ProposedInSync {
            partition,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            in_sync,
        };
        let reply = world.ask(Request::AlterPartitions(towpath_metadata::AlterPartitions {
            broker: leader,
            broker_epoch: image.broker(leader).unwrap().epoch,
            changes: vec![change],
        }));
        let Reply::AlteredPartitions(Ok(_)) = reply else { panic!("{reply:?}") };
    }
}

/// A minute in which these brokers are there.
fn live(world: &mut World, ids: &[i32], seconds: usize) {
    for _ in 0..2 * seconds {
        ids.iter().for_each(|id| {
            world.beat(*id);
        });
        catch_up(world);
        world.pass(500);
    }
}

fn loads(image: &Image, ids: &[i32]) -> Vec<(usize, usize)> {
    let load = |id: &i32| image.load(BrokerId(*id));
    ids.iter().map(load).map(|load| (load.leaders, load.replicas)).collect()
}

#[test]
fn topics_whose_replication_is_left_to_the_cluster_grow_with_it() {
    let mut world = World::cluster(&[1]);
    let mut topic = world.topic("t");
    topic.partitions = 2;
    world.create(topic).unwrap();
    let mut chosen = world.topic("chosen");
    chosen.replication_factor = 1;
    world.create(chosen).unwrap();
    let factor = |world: &World, name: &str| {
        let partitions = &world.image().topic(name).unwrap().partitions;
        partitions.iter().map(|state| state.in_sync.len()).collect::<Vec<_>>()
    };
    assert_eq!(factor(&world, "t"), [1, 1]);
    world.register(2);
    live(&mut world, &[1, 2], 10);
    assert_eq!(factor(&world, "t"), [2, 2]);
    assert_eq!(world.image().min_in_sync(world.image().topic("t").unwrap(), &world.state()), 2);
    world.register(3);
    world.register(4);
    live(&mut world, &[1, 2, 3, 4], 20);
    assert_eq!(factor(&world, "t"), [3, 3]);
    assert_eq!(factor(&world, "chosen"), [1]);
}

fn spread(ids: &[i32], partitions: i32) -> World {
    let mut world = World::cluster(ids);
    let mut topic = world.topic("t");
    topic.partitions = partitions;
    topic.replication_factor = 2;
    world.create(topic).unwrap();
    world
}

#[test]
fn a_drained_broker_is_emptied_in_small_steps_and_gets_nothing_new() {
    let mut world = spread(&[1, 2, 3], 30);
    let drain = |world: &mut World, id, drained| {
        let reply = world.ask(Request::DrainBroker { broker: BrokerId(id), drained });
        let Reply::DrainedBroker(result) = reply else { panic!() };
        result
    };
    drain(&mut world, 3, true).unwrap();
    world.beat(1);
    world.pass(0);
    for _ in 0..200 {
        live(&mut world, &[1, 2, 3], 1);
        assert!(world.image().reassignment_count() <= 8);
        if world.image().load(BrokerId(3)).replicas == 0 {
            break;
        }
    }
    assert_eq!(world.image().load(BrokerId(3)).replicas, 0);
    let mut more = world.topic("more");
    more.partitions = 6;
    world.create(more).unwrap();
    assert_eq!(world.image().load(BrokerId(3)).replicas, 0);
    drain(&mut world, 2, true).unwrap();
    assert_eq!(drain(&mut world, 1, true).unwrap_err().kind(), RefusalKind::InvalidRequest);
    assert_eq!(drain(&mut world, 9, true).unwrap_err().kind(), RefusalKind::BrokerIdNotRegistered);
    drain(&mut world, 2, false).unwrap();
    drain(&mut world, 3, false).unwrap();
    live(&mut world, &[1, 2, 3], 60);
    assert!(10 <= world.image().load(BrokerId(3)).replicas, "it takes load again");
}

#[test]
fn a_broker_that_is_gone_for_long_is_replaced() {
    let mut world = spread(&[1, 2, 3], 6);
    live(&mut world, &[1, 2], 1700);
    assert_eq!(world.image().load(BrokerId(3)).replicas, 4, "it may come back");
    live(&mut world, &[1, 2], 420);
    assert_eq!(loads(world.image(), &[1, 2, 3]), [(3, 6), (3, 6), (0, 0)]);
    let states = &world.image().topic("t").unwrap().partitions;
    assert!(states.iter().all(|state| state.in_sync.len() == 2));
}

#[test]
fn a_new_broker_takes_load_by_itself() {
    let mut world = spread(&[1, 2], 12);
    world.register(3);
    live(&mut world, &[1, 2, 3], 330);
    for (leaders, replicas) in loads(world.image(), &[1, 2, 3]) {
        assert!((7..=9).contains(&replicas), "{replicas} replicas");
        assert!((2..=6).contains(&leaders), "{leaders} leaders");
    }
    assert_eq!(world.image().reassignment_count(), 0, "and there is an end to it");
    let logged = world.log.len();
    live(&mut world, &[1, 2, 3], 60);
    assert_eq!(world.log.len(), logged);
}

/// Tools that place replicas themselves would have their work undone.
#[test]
fn what_somebody_placed_stays_where_it_is() {
    let mut world = World::cluster(&[1, 2, 3]);
    let mut topic = world.topic("t");
    let on = |at, ids: &[i32]| (PartitionIndex(at), ids.iter().map(|id| BrokerId(*id)).collect());
    topic.assignments = (0..3).map(|at| on(at, &[2, 3])).collect();
    world.create(topic).unwrap();
    let more = MorePartitions {
        name: "t".to_owned(),
        count: 6,
        assignments: Some(vec![vec![BrokerId(2), BrokerId(3)]; 3]),
    };
    world.ask(Request::CreatePartitions { topics: vec![more], validate_only: false });
    let mut left = world.topic("left");
    left.partitions = 1;
    world.create(left).unwrap();
    live(&mut world, &[1, 2, 3], 60);
    let replicas = |world: &World| -> Vec<usize> {
        loads(world.image(), &[1, 2, 3]).iter().map(|(_, replicas)| *replicas).collect()
    };
    assert_eq!(replicas(&world), [1, 7, 7]);
    let plan = world.image().balance_plan(&std::collections::BTreeMap::new());
    assert!(!plan.is_empty(), "who asks for it gets it");

    // A topic that grows with the cluster stays as small as somebody made it.
    let partition = ("left".to_owned(), PartitionIndex(0));
    let target = Some(vec![BrokerId(1)]);
    world.ask(Request::AlterReassignments {
        reassignments: vec![Reassignment { partition, target }],
        factor_may_change: true,
        by_hand: true,
    });
    live(&mut world, &[1, 2, 3], 60);
    assert_eq!(replicas(&world), [1, 6, 6]);

    // It leaves a broker that has to be left.
    world.ask(Request::DrainBroker { broker: BrokerId(3), drained: true });
    live(&mut world, &[1, 2, 3], 60);
    assert_eq!(replicas(&world), [7, 6, 0]);
}

#[test]
fn leaders_come_back_to_the_first_replica_after_a_while() {
    let mut world = spread(&[1, 2], 8);
    live(&mut world, &[2], 3);
    assert_eq!(loads(world.image(), &[1, 2]), [(0, 8), (8, 8)]);
    live(&mut world, &[1, 2], 10);
    assert_eq!(loads(world.image(), &[1, 2]), [(0, 8), (8, 8)]);
    live(&mut world, &[1, 2], 300);
    assert_eq!(loads(world.image(), &[1, 2]), [(4, 8), (4, 8)]);
}

#[test]
fn new_partitions_avoid_who_is_not_there() {
    let mut world = World::cluster(&[1, 2, 3]);
    world.hear_only(&[1, 3]);
    world.start(4, |registration| registration.role = towpath_metadata::Role::Frontend);
    world.beat(4);
    let mut topic = world.topic("t");
    topic.partitions = 4;
    world.create(topic).unwrap();
    assert_eq!(loads(world.image(), &[1, 2, 3, 4]), [(2, 4), (0, 0), (2, 4), (0, 0)]);
    let mut wide = world.topic("wide");
    wide.replication_factor = 3;
    assert!(world.create(wide).unwrap_err().to_string().contains("only 2 broker(s)"));
    let id = world.image().topic("t").unwrap().id;
    let first = TopicPartition { topic: id, partition: PartitionIndex(0) };
    assert!(world.image().partition(first).unwrap().leader.is_some());
}
