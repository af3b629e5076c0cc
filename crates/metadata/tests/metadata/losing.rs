//! Losses that an operator accepts.

use towpath_metadata::{AcceptedLoss, LossAcceptance, Refusal, RefusalKind, Reply, Request};
use towpath_model::{BrokerId, Offset, PartitionIndex, Timestamp};

use crate::support::World;

fn accept(
    world: &mut World,
    change: impl FnOnce(&mut LossAcceptance),
) -> Result<AcceptedLoss, Refusal> {
    let mut asked = LossAcceptance {
        partition: ("t".to_owned(), PartitionIndex(0)),
        partition_epoch: world.state().partition_epoch,
        leader: BrokerId(1),
        lost_from: Offset(40),
        resume_at: Offset(40),
        by: "ada".to_owned(),
        even_if_returning: false,
    };
    change(&mut asked);
    match world.ask(Request::AcceptLoss(asked)) {
        Reply::AcceptedLoss(result) => result,
        other => panic!("{other:?}"),
    }
}

/// `t` on 1 and 2: broker 1 fell behind, and then 2, which alone was in sync, went away.
fn led_by_nobody() -> World {
    let mut world = World::with_topic(&[1, 2], &[("min.insync.replicas", "1")]);
    world.beat(1);
    world.beat(2);
    world.hear_only(&[2]);
    assert_eq!(world.shown(), "2; 2; ");
    world.hear_only(&[1]);
    assert_eq!(world.shown(), "-; 2; ");
    world
}

#[test]
fn a_replica_that_may_come_back_is_waited_for_unless_the_operator_insists() {
    let mut world = led_by_nobody();
    let refused = accept(&mut world, |_| {}).unwrap_err();
    assert_eq!(refused, Refusal::MayReturn(BrokerId(2)));
    let epoch = world.state().leader_epoch;
    world.now.wall = Timestamp(77);
    let loss = accept(&mut world, |asked| asked.even_if_returning = true).unwrap();
    assert_eq!(world.shown(), "1; 1; ");
    assert!(world.state().unclean && epoch < world.state().leader_epoch);
    assert_eq!((loss.lost_from, loss.at, loss.by.as_str()), (Offset(40), Timestamp(77), "ada"));
    // On record for good: for the next controller, after a compaction, and without the topic.
    assert!(world.image().accepted_losses().eq([&loss]));
    assert!(world.compacted().image().accepted_losses().eq([&loss]));
    let again = accept(&mut world, |_| {}).unwrap_err();
    assert_eq!(again, Refusal::NothingLost { leader: BrokerId(1) });
    assert_eq!(world.image().resumes_at(world.partition_id()), Some(Offset(40)));
}

#[test]
fn a_broker_that_was_removed_is_not_waited_for() {
    let mut world = led_by_nobody();
    world.register(3);
    world.ask(Request::UnregisterBroker(BrokerId(2)));
    if world.image().broker(BrokerId(2)).is_some() {
        // It still counts as holding replicas: whose disk was replaced has lost them.
        world
            .start(2, |registration| registration.directories = vec![towpath_model::Uuid([9; 16])]);
    }
    assert_eq!(world.state().leader, None);
    accept(&mut world, |_| {}).unwrap();
    assert_eq!(world.state().leader, Some(BrokerId(1)));
    assert!(world.state().eligible.is_empty());
}

#[test]
fn what_makes_no_sense_or_rests_on_an_older_state_is_refused() {
    let mut world = led_by_nobody();
    let kind = |world: &mut World, change: fn(&mut LossAcceptance)| {
        accept(world, |asked| {
            asked.even_if_returning = true;
            change(asked);
        })
        .unwrap_err()
        .kind()
    };
    let before = world.state();
    assert_eq!(
        kind(&mut world, |asked| asked.partition_epoch -= 1),
        RefusalKind::InvalidUpdateVersion
    );
    assert_eq!(kind(&mut world, |asked| asked.by = " ".to_owned()), RefusalKind::InvalidRequest);
    assert_eq!(kind(&mut world, |asked| asked.resume_at = Offset(39)), RefusalKind::InvalidRequest);
    for nobody in [2, 9] {
        let refused = accept(&mut world, |asked| {
            asked.even_if_returning = true;
            asked.leader = BrokerId(nobody);
        });
        let kind = refused.unwrap_err().kind();
        assert_eq!(kind, RefusalKind::EligibleLeadersNotAvailable, "{nobody}");
    }
    assert_eq!(
        kind(&mut world, |asked| asked.partition.0 = "absent".to_owned()),
        RefusalKind::UnknownTopic
    );
    assert_eq!(world.state(), before);
}
