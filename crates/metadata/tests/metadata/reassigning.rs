//! Moving replicas.

use towpath_metadata::{RefusalKind, Reply, Request};
use towpath_model::{BrokerId, Uuid};

use crate::support::World;

fn replicas(world: &World) -> Vec<i32> {
    world.state().replicas.iter().map(|id| id.0).collect()
}

/// `t` on 1, 2 and 3, in a cluster of five.
fn five() -> World {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.register(4);
    world.register(5);
    world
}

#[test]
fn replicas_move_when_all_that_stay_are_in_sync() {
    let mut world = five();
    world.reassign(Some(&[4, 5, 1])).unwrap();
    assert_eq!(replicas(&world), [4, 5, 1, 2, 3]);
    assert_eq!(world.image().reassignment_count(), 1);
    assert_eq!(world.state().settled_replicas(), 3);
    world.propose(&[1, 2, 3, 4]).unwrap();
    assert_eq!(replicas(&world), [4, 5, 1, 2, 3]);
    let epoch = world.state().leader_epoch;
    let answered = world.propose(&[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(answered, world.state());
    assert_eq!(replicas(&world), [4, 5, 1]);
    assert_eq!(world.shown(), "1; 4 5 1; ");
    assert!(epoch < world.state().leader_epoch, "those that are gone find out");
    assert_eq!(world.image().reassignment_count(), 0);
    assert_eq!(world.state().directories.len(), 3);
    assert_eq!(world.state().directory_of(BrokerId(5)), crate::support::directory(5));
}

#[test]
fn a_leader_that_goes_hands_over_at_the_end() {
    let mut world = five();
    world.reassign(Some(&[4, 5])).unwrap();
    world.propose(&[1, 4, 5]).unwrap();
    assert_eq!(world.shown(), "4; 4 5; ");
}

#[test]
fn a_reassignment_can_be_taken_back() {
    let mut world = five();
    assert_eq!(world.reassign(None).unwrap_err().kind(), RefusalKind::NoReassignmentInProgress);
    world.reassign(Some(&[4, 5, 1])).unwrap();
    world.propose(&[1, 2, 4]).unwrap();
    world.reassign(None).unwrap();
    assert_eq!(world.shown(), "1; 1 2; ");
    let mut sorted = replicas(&world);
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 2, 3]);
    assert!(!world.state().is_reassigning());
}

#[test]
fn a_reassignment_that_only_new_replicas_carry_cannot_be_taken_back() {
    let mut world = five();
    world.set(crate::support::topic("t"), "min.insync.replicas", "1").unwrap();
    world.reassign(Some(&[4, 5])).unwrap();
    world.propose(&[1, 4]).unwrap();
    world.hear_only(&[4, 5]);
    assert_eq!(world.shown(), "4; 4; ");
    assert_eq!(world.reassign(None).unwrap_err().kind(), RefusalKind::InvalidReplicaAssignment);
}

/// What is committed by the first replica and one that comes must not be left to the first alone.
#[test]
fn taking_back_leaves_as_many_in_sync_as_records_were_promised() {
    let mut world = five();
    world.reassign(Some(&[4, 1, 2])).unwrap();
    world.propose(&[1, 4]).unwrap();
    assert_eq!(world.reassign(None).unwrap_err().kind(), RefusalKind::InvalidReplicaAssignment);
    world.propose(&[1, 3, 4]).unwrap();
    world.reassign(None).unwrap();
    assert_eq!(world.shown(), "1; 1 3; ");
}

#[test]
fn another_target_replaces_the_first_one() {
    let mut world = five();
    world.reassign(Some(&[4, 1, 2])).unwrap();
    world.reassign(Some(&[4, 5, 1])).unwrap();
    let state = world.state();
    assert_eq!(replicas(&world), [4, 5, 1, 2, 3]);
    assert_eq!(state.adding, [BrokerId(4), BrokerId(5)]);
    assert_eq!(state.removing, [BrokerId(2), BrokerId(3)]);
    world.reassign(Some(&[1, 2, 3])).unwrap();
    assert_eq!(replicas(&world), [1, 2, 3]);
}

#[test]
fn bad_targets_are_refused() {
    let mut world = five();
    let mut kind = |target: &[i32]| world.reassign(Some(target)).unwrap_err().kind();
    assert_eq!(kind(&[]), RefusalKind::InvalidReplicaAssignment);
    assert_eq!(kind(&[1, 1]), RefusalKind::InvalidReplicaAssignment);
    assert_eq!(kind(&[1, 9]), RefusalKind::InvalidReplicaAssignment);
}

/// Growing from one replica asks nothing of the second one before it has everything.
#[test]
fn a_copy_that_is_coming_does_not_count() {
    let mut world = World::with_topic(&[1], &[("min.insync.replicas", "2")]);
    world.register(2);
    let min = |world: &World| {
        world.image().min_in_sync(world.image().topic("t").unwrap(), &world.state())
    };
    assert_eq!(min(&world), 1);
    world.reassign(Some(&[1, 2])).unwrap();
    assert_eq!(min(&world), 1);
    world.propose(&[1, 2]).unwrap();
    assert_eq!(min(&world), 2);
}

#[test]
fn a_broker_says_where_it_has_put_a_replica() {
    let mut world = World::with_topic(&[1, 2], &[]);
    let extra = Uuid([77; 16]);
    let old = world.image().broker(BrokerId(2)).unwrap().directories.clone();
    world.start(2, |registration| registration.directories = [old, vec![extra]].concat());
    world.beat(2);
    world.propose(&[1, 2]).unwrap();
    let epoch = world.epoch(2);
    let partition = world.partition_id();
    let mut assign = |directory| {
        let directories = vec![(partition, directory)];
        let request = Request::AssignDirectories { broker: BrokerId(2), epoch, directories };
        let Reply::AssignedDirectories(result) = world.ask(request) else { panic!() };
        result
    };
    assert_eq!(assign(Uuid([78; 16])).unwrap_err().kind(), RefusalKind::InvalidRequest);
    assign(extra).unwrap();
    assert_eq!(world.state().directory_of(BrokerId(2)), extra);
    world.beat_as(2, |beat| beat.offline = vec![extra]).unwrap();
    assert_eq!(world.shown(), "1; 1; 2");
}
