//! Registration, leader epochs after a restart, producer ids, the format level.

use towpath_metadata::{FORMAT_LEVEL, Metadata, PRODUCER_IDS_PER_BLOCK, Reply, Request};
use towpath_model::{BrokerId, LeaderEpoch, Now, ProducerId, StateMachine, Token};

use crate::support::{World, told};

fn leader_epoch(world: &World) -> LeaderEpoch {
    world.image().topic("t").unwrap().partitions[0].leader_epoch
}

#[test]
fn an_orderly_stop_keeps_the_leader_epoch() {
    let mut world = World::unregistered(&[]);
    let first = world.register(1);
    world.create_named("t");
    let second = world.register_after(1, Some(first));
    assert!(first < second);
    assert_eq!(leader_epoch(&world), LeaderEpoch(0));
}

#[test]
fn a_crash_raises_the_leader_epoch_and_an_old_marker_does_not_help() {
    let mut world = World::unregistered(&[]);
    let first = world.register(1);
    world.create_named("t");
    world.register_after(1, None);
    assert_eq!(leader_epoch(&world), LeaderEpoch(1));
    // The marker of the first process is still on the disk; the second one crashed.
    world.register_after(1, Some(first));
    assert_eq!(leader_epoch(&world), LeaderEpoch(2));
    let partition = &world.image().topic("t").unwrap().partitions[0];
    assert_eq!(partition.partition_epoch, 2);
}

#[test]
fn another_brokers_crash_leaves_my_partitions_alone() {
    let mut world = World::new();
    world.create_named("t");
    world.register(2);
    world.register(2);
    assert_eq!(leader_epoch(&world), LeaderEpoch(0));
    assert_eq!(world.image().broker_count(), 2);
}

fn allocate(metadata: &mut Metadata) -> (i64, bool) {
    let decision = metadata.decide(Now::default(), Token(0), Request::AllocateProducerId);
    for record in &decision.records {
        metadata.apply(record);
    }
    let Reply::AllocatedProducerId(ProducerId(id)) = decision.replies[0].1 else { panic!() };
    (id, 1 < decision.records.len())
}

#[test]
fn producer_ids_come_from_blocks_and_a_restart_skips_the_rest() {
    let mut world = World::new();
    for expected in 0..3 {
        let reply = world.ask(Request::AllocateProducerId);
        assert_eq!(reply, Reply::AllocatedProducerId(ProducerId(expected)));
    }
    let mut restarted = world.replayed();
    assert_eq!(allocate(&mut restarted), (PRODUCER_IDS_PER_BLOCK, true));
    assert_eq!(allocate(&mut restarted), (PRODUCER_IDS_PER_BLOCK + 1, false));

    let logged = (0..2 * PRODUCER_IDS_PER_BLOCK).filter(|_| allocate(&mut restarted).1).count();
    assert_eq!(logged, 2, "one record for a thousand ids");
}

#[test]
fn the_format_level_only_rises_to_what_this_program_knows() {
    let mut world = World::new();
    let mut set = |level| {
        let Reply::FormatLevelSet(result) = world.ask(Request::SetFormatLevel(level)) else {
            panic!()
        };
        told(result)
    };
    assert!(set(FORMAT_LEVEL + 1).starts_with("UnsupportedVersion"));
    assert_eq!(set(FORMAT_LEVEL), FORMAT_LEVEL.to_string());
    assert!(set(0).starts_with("UnsupportedVersion"));
    assert_eq!(world.image().format_level(), FORMAT_LEVEL);
    assert!(world.metadata.next_deadline().is_none());
}

#[test]
fn the_format_level_rises_when_every_broker_reads_the_next_one_and_keeps_older_programs_out() {
    let mut world = World::cluster(&[1]);
    let raised = |registration: &mut towpath_metadata::Registration| registration.format_level = 2;
    world.start(1, raised);
    world.start(2, raised);
    world.start(3, |_| {});
    let set = |world: &mut World, level| {
        let reply = world.ask(Request::SetFormatLevel(level));
        let Reply::FormatLevelSet(result) = reply else { panic!("{reply:?}") };
        told(result)
    };
    assert_eq!(world.image().format_level_max(), (1, Some(BrokerId(3))));
    let refused = set(&mut world, 2);
    assert!(refused.contains("broker 3 runs a program"), "{refused}");
    world.start(3, raised);
    assert_eq!(set(&mut world, 2), "2");
    assert_eq!(world.image().format_level(), 2);
    assert_eq!(world.compacted().image().format_level(), 2);
    let registration = towpath_metadata::Registration {
        id: BrokerId(3),
        incarnation: world.draw(),
        directories: vec![crate::support::directory(3)],
        format_level: 1,
        ..Default::default()
    };
    let reply = world.ask(Request::RegisterBroker(registration));
    let Reply::RegisteredBroker(Err(refusal)) = reply else { panic!("{reply:?}") };
    assert!(refusal.to_string().contains("reads levels up to 1 only"), "{refusal}");
}
