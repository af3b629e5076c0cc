//! What operators ask about brokers, and order of them: states, drains, removals.

use towpath_metadata::{BrokerState, ElectionKind, Refusal, RefusalKind, Reply, Request, Stuck};
use towpath_model::{BrokerId, Timestamp};

use crate::support::{World, directory};

fn drain(world: &mut World, id: i32, drained: bool) -> Result<(), Refusal> {
    let reply = world.ask(Request::DrainBroker { broker: BrokerId(id), drained });
    let Reply::DrainedBroker(result) = reply else { panic!("{reply:?}") };
    result
}

fn remove(world: &mut World, id: i32) -> Result<(), Refusal> {
    let reply = world.ask(Request::RemoveBroker(BrokerId(id)));
    let Reply::RemovedBroker(result) = reply else { panic!("{reply:?}") };
    result
}

fn state(world: &World, id: i32) -> BrokerState {
    let image = world.image();
    image.state_of(image.broker(BrokerId(id)).unwrap())
}

#[test]
fn whoever_is_drained_leads_nothing_that_another_can_lead() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    let epoch = world.state().leader_epoch;
    drain(&mut world, 1, true).unwrap();
    assert_eq!(world.shown(), "2; 1 2 3; ", "in sync it stays");
    assert!(epoch < world.state().leader_epoch);
    assert_eq!(state(&world, 1), BrokerState::Draining);
    // An order to make it the leader again is not followed.
    let refused = world.elect(ElectionKind::Preferred).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::PreferredLeaderNotAvailable);
    drain(&mut world, 1, false).unwrap();
    assert_eq!((world.shown().as_str(), state(&world, 1)), ("2; 1 2 3; ", BrokerState::Live));
    world.elect(ElectionKind::Preferred).unwrap();
    assert_eq!(world.shown(), "1; 1 2 3; ");
}

#[test]
fn whoever_is_drained_leads_while_nobody_else_can() {
    let mut world = World::with_topic(&[1, 2], &[]);
    world.propose(&[1]).unwrap();
    drain(&mut world, 1, true).unwrap();
    assert_eq!(world.shown(), "1; 1; 2");
    world.propose(&[1, 2]).unwrap();
    assert_eq!(world.shown(), "2; 1 2; ");
}

#[test]
fn a_drain_says_which_topics_have_nowhere_to_go() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    drain(&mut world, 3, true).unwrap();
    let stuck = Stuck { topic: "t".to_owned(), replication_factor: 3, partitions: 1 };
    assert_eq!(world.image().stuck_on(BrokerId(3)), [stuck]);
    assert_eq!(world.image().stuck_on(BrokerId(4)), []);
    world.register(4);
    assert_eq!(world.image().stuck_on(BrokerId(3)), []);
}

#[test]
fn only_who_holds_nothing_and_is_not_needed_is_removed() {
    let mut world = World::with_topic(&[1, 2], &[]);
    world.register(3);
    let refused = remove(&mut world, 3).unwrap_err();
    assert_eq!(refused, Refusal::BrokerThere(BrokerId(3)), "it would be missed");
    drain(&mut world, 2, true).unwrap();
    let refused = remove(&mut world, 2).unwrap_err();
    assert!(refused.to_string().contains("holds 1 replica(s), among them of topic \"t\""));
    assert!(world.image().broker(BrokerId(2)).is_some());
    drain(&mut world, 3, true).unwrap();
    assert_eq!(state(&world, 3), BrokerState::Drained);
    remove(&mut world, 3).unwrap();
    assert_eq!(world.image().broker(BrokerId(3)), None);
    let refused = remove(&mut world, 3).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::BrokerIdNotRegistered);
}

#[test]
fn whoever_was_removed_does_not_come_back_with_its_directory() {
    let mut world = World::with_topic(&[1, 2], &[]);
    world.register(3);
    world.hear_only(&[1, 2]);
    let epoch = world.epoch(3);
    remove(&mut world, 3).unwrap();
    let again = towpath_metadata::Registration {
        id: BrokerId(3),
        incarnation: world.draw(),
        directories: vec![directory(3)],
        ..Default::default()
    };
    let reply = world.ask(Request::RegisterBroker(again.clone()));
    let Reply::RegisteredBroker(Err(refusal)) = reply else { panic!("{reply:?}") };
    assert_eq!(refusal, Refusal::BrokerRetired(BrokerId(3)));
    assert!(world.replayed().image().is_retired(BrokerId(3), directory(3)));
    assert!(world.compacted().image().is_retired(BrokerId(3), directory(3)));
    // With an empty one it does, and another broker has its own.
    let fresh = towpath_metadata::Registration { directories: vec![directory(9)], ..again };
    let reply = world.ask(Request::RegisterBroker(fresh));
    let Reply::RegisteredBroker(Ok(registered)) = reply else { panic!("{reply:?}") };
    assert!(epoch < registered);
}

#[test]
fn the_controller_knows_since_when_somebody_is_silent() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.now.wall = Timestamp(1_000_000);
    assert!(world.metadata.silent(world.now).is_empty());
    world.hear_only(&[1, 2]);
    assert_eq!(state(&world, 3), BrokerState::Fenced);
    let silent = world.metadata.silent(world.now);
    let since = silent.get(&BrokerId(3)).expect("it was not heard");
    assert_eq!(silent.len(), 1);
    assert!(*since <= world.now.wall, "{since:?}");
    world.beat(3);
    assert!(world.metadata.silent(world.now).is_empty());
}

#[test]
fn partitions_are_counted_by_what_they_lack() {
    let mut world = World::with_topic(&[1, 2, 3], &[("min.insync.replicas", "2")]);
    let counts = |world: &World| {
        let survey = world.image().survey();
        (survey.partitions, survey.offline, survey.under_replicated, survey.under_min_in_sync)
    };
    assert_eq!(counts(&world), (1, 0, 0, 0));
    world.propose(&[1, 2]).unwrap();
    assert_eq!(counts(&world), (1, 0, 1, 0));
    assert_eq!(world.image().survey().out_of_sync, [(BrokerId(3), 1)].into());
    world.propose(&[1]).unwrap();
    assert_eq!(counts(&world), (1, 0, 1, 1));
    world.hear_only(&[]);
    assert_eq!(counts(&world), (1, 1, 1, 1));
}
