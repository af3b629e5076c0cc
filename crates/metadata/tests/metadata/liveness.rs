//! Heartbeats, fencing, orderly stops, and what a new controller begins with.

use towpath_metadata::{Record, RefusalKind, Reply, Request};
use towpath_model::{BrokerId, FoldRecord, StateMachine, Time};

use crate::support::{World, told};

fn fenced(world: &World) -> Vec<i32> {
    world.image().brokers().filter(|broker| broker.fenced).map(|broker| broker.id.0).collect()
}

#[test]
fn the_only_broker_goes_on_at_once_and_nobody_watches_it() {
    let mut world = World::unregistered(&[]);
    world.start(1, |_| {});
    assert!(fenced(&world).is_empty());
    world.create_named("t");
    assert_eq!(world.metadata.next_deadline(), None);
    world.fail_over();
    assert_eq!(world.metadata.next_deadline(), None);
    let beat = world.beat_as(1, |beat| beat.wants_shutdown = true).unwrap();
    assert!(beat.may_shut_down);
    assert_eq!(world.shown(), "1; 1; ", "it leads on when it is back");
}

#[test]
fn a_broker_is_unfenced_once_it_is_ready() {
    let mut world = World::cluster(&[1]);
    world.start(2, |_| {});
    assert_eq!(fenced(&world), [2]);
    assert!(world.beat_as(2, |beat| beat.is_ready = false).unwrap().is_fenced);
    assert!(!world.beat(2).is_fenced);
    let (records, _) = world.decide(Request::BrokerSilent(BrokerId(7)));
    assert!(records.is_empty());
}

#[test]
fn silence_is_fenced_after_a_session_and_sooner_when_the_port_refuses() {
    let mut world = World::cluster(&[1, 2, 3]);
    world.pass(999);
    assert!(fenced(&world).is_empty());
    world.beat(1);
    world.beat(2);
    world.pass(1);
    assert_eq!(fenced(&world), [3]);
    world.ask(Request::BrokerSilent(BrokerId(2)));
    world.pass(99);
    assert_eq!(fenced(&world), [3]);
    world.pass(1);
    assert_eq!(fenced(&world), [2, 3]);
    // A heartbeat takes the rumour back.
    world.ask(Request::BrokerSilent(BrokerId(1)));
    world.beat(1);
    world.pass(500);
    assert_eq!(fenced(&world), [2, 3]);
}

#[test]
fn heartbeats_are_not_logged() {
    let mut world = World::cluster(&[1, 2]);
    let logged = world.log.len();
    for _ in 0..10 {
        world.beat(1);
        world.beat(2);
        world.pass(100);
    }
    assert_eq!(world.log.len(), logged);
}

#[test]
fn a_new_controller_gives_everybody_a_full_session() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.pass(900);
    world.fail_over();
    world.pass(900);
    assert!(fenced(&world).is_empty());
    world.pass(100);
    assert_eq!(fenced(&world), [1, 2, 3]);
    assert_eq!(world.shown(), "-; 1 2 3; ", "all of them hold everything");
    world.beat(3);
    assert_eq!(world.shown(), "3; 3; 1 2");
}

#[test]
fn heartbeats_of_an_older_process_or_out_of_order_count_for_nothing() {
    let mut world = World::cluster(&[1, 2]);
    let old = world.epoch(2);
    world.start(2, |_| {});
    let refused = world.beat_as(2, |beat| beat.epoch = old).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::StaleBrokerEpoch);
    assert_eq!(fenced(&world), [2]);
    world.beat(2);
    world.pass(600);
    world.beat_as(2, |beat| beat.sequence = 0).unwrap();
    world.beat(1);
    world.pass(400);
    assert_eq!(fenced(&world), [2]);
    let refused = world.beat_as(9, |_| {}).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::BrokerIdNotRegistered);
}

#[test]
fn a_registration_that_is_repeated_is_the_same_one() {
    let mut world = World::cluster(&[1, 2]);
    let incarnation = world.image().broker(BrokerId(2)).unwrap().incarnation;
    let epoch = world.epoch(2);
    assert_eq!(world.start(2, |registration| registration.incarnation = incarnation), epoch);
    assert!(fenced(&world).is_empty());
}

#[test]
fn two_brokers_cannot_have_one_number() {
    let mut world = World::cluster(&[1, 2]);
    let incarnation = world.draw();
    let second = towpath_metadata::Registration {
        id: BrokerId(2),
        incarnation,
        directories: vec![incarnation],
        ..Default::default()
    };
    let Reply::RegisteredBroker(refused) = world.ask(Request::RegisterBroker(second.clone()))
    else {
        panic!()
    };
    assert!(told(refused).starts_with("DuplicateBrokerRegistration"));
    // Once the first one is gone it is a new disk for the same broker.
    world.hear_only(&[1]);
    let Reply::RegisteredBroker(registered) = world.ask(Request::RegisterBroker(second)) else {
        panic!()
    };
    registered.unwrap();
}

#[test]
fn an_orderly_stop_hands_over_first() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    let stop = |beat: &mut towpath_metadata::Heartbeat| beat.wants_shutdown = true;
    assert!(!world.beat_as(1, stop).unwrap().may_shut_down);
    assert_eq!(world.shown(), "2; 2 3; ");
    assert!(!world.beat_as(1, stop).unwrap().may_shut_down, "the others do not know yet");
    world.beat(2);
    world.beat(3);
    let beat = world.beat_as(1, stop).unwrap();
    assert!(beat.may_shut_down && !beat.is_fenced);
    assert_eq!(world.propose(&[1, 2, 3]).unwrap_err().kind(), RefusalKind::IneligibleReplica);
    // A late heartbeat does not take it back; a new process does.
    world.beat(1);
    assert!(world.image().broker(BrokerId(1)).unwrap().in_controlled_shutdown);
    let epoch = world.epoch(1);
    world.register_after(1, Some(epoch));
    world.propose(&[1, 2, 3]).unwrap();
}

#[test]
fn many_partitions_are_settled_in_steps() {
    let mut world = World::configured(&[("topic.partitions.max", "20000")]);
    world.register(2);
    let mut topic = world.topic("t");
    topic.partitions = 9_000;
    topic.replication_factor = 2;
    world.create(topic).unwrap();
    world.ask(Request::BrokerSilent(BrokerId(2)));
    world.now.time = Time(200_000_000);
    let mut steps = Vec::new();
    while world.metadata.next_deadline().is_some_and(|at| at <= world.now.time) {
        let decision = world.metadata.expire(world.now);
        steps.push(decision.records.iter().filter(|record| record.is_logged()).count());
        for record in &decision.records {
            world.metadata.apply(record);
        }
        if steps.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(steps[..3], [4_001, 4_000, 1_000]);
    let partitions = &world.image().topic("t").unwrap().partitions;
    assert!(partitions.iter().all(|state| state.leader == Some(BrokerId(1))));
}

#[test]
fn the_first_name_of_the_cluster_stays() {
    let mut world = World::new();
    let mut name = |id: &str| {
        let Reply::NamedCluster(named) = world.ask(Request::NameCluster(id.to_owned())) else {
            panic!()
        };
        told(named)
    };
    assert!(name("").starts_with("InvalidRequest"));
    assert_eq!(name("first"), "\"first\"");
    assert_eq!(name("second"), "\"first\"");
    assert_eq!(world.replayed().image().cluster_id(), Some("first"));
    let named = Record::ClusterId("first".to_owned());
    assert_eq!(towpath_metadata::effect(&named), towpath_metadata::Effect::ClusterNamed);
}

#[test]
fn an_unregistered_broker_is_gone_and_its_epoch_is_not_used_again() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    let epoch = world.epoch(3);
    let Reply::UnregisteredBroker(done) = world.ask(Request::UnregisterBroker(BrokerId(3))) else {
        panic!()
    };
    done.unwrap();
    assert_eq!(world.shown(), "1; 1 2; ");
    assert!(epoch < world.register(3));
    let refused = |reply| match reply {
        Reply::UnregisteredBroker(Err(refusal)) => refusal.kind(),
        other => panic!("{other:?}"),
    };
    let reply = world.ask(Request::UnregisterBroker(BrokerId(9)));
    assert_eq!(refused(reply), RefusalKind::BrokerIdNotRegistered);
    let mut alone = World::new();
    let reply = alone.ask(Request::UnregisterBroker(BrokerId(1)));
    assert_eq!(refused(reply), RefusalKind::InvalidRequest);
}
