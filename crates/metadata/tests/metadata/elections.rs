//! Who leads and who is in sync, above all where Kafka has once lost records.

use towpath_metadata::{ElectionKind, RefusalKind, Reply, Request};
use towpath_model::{BrokerId, LeaderEpoch};

use crate::support::{World, broker, topic};

const RELAXED: &[(&str, &str)] = &[("durability", "relaxed")];

#[test]
fn the_next_in_sync_replica_leads_when_the_leader_falls_silent() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    assert_eq!(world.shown(), "1; 1 2 3; ");
    world.hear_only(&[2, 3]);
    assert_eq!(world.shown(), "2; 2 3; ");
    assert_eq!(world.state().leader_epoch, LeaderEpoch(1));
    // Back, it is in sync when its new leader says so, and leads by preference only.
    world.beat(1);
    assert_eq!(world.shown(), "2; 2 3; ");
    world.propose(&[1, 2, 3]).unwrap();
    assert_eq!(world.shown(), "2; 1 2 3; ");
    assert_eq!(world.state().leader_epoch, LeaderEpoch(1), "in-sync sets begin no epoch");
}

/// KIP-966, "last replica standing": the one that left last while too few stayed has everything.
#[test]
fn kip_966_an_eligible_replica_leads_when_the_last_one_in_sync_dies() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.hear_only(&[1, 2]);
    assert_eq!(world.shown(), "1; 1 2; ", "two suffice, so nobody is eligible");
    world.propose(&[1]).unwrap();
    assert_eq!(world.shown(), "1; 1; 2");
    world.hear_only(&[2, 3]);
    // 3 lacks what was committed after it left.
    assert_eq!(world.shown(), "2; 2; 1");
    assert!(!world.state().unclean);
    world.propose(&[2, 3]).unwrap();
    assert_eq!(world.shown(), "2; 2 3; ", "the high watermark moves again, without 1");
}

#[test]
fn nobody_leads_rather_than_one_who_may_lack_records() {
    let mut world = World::with_topic(&[1, 2, 3], &[("min.insync.replicas", "1")]);
    world.propose(&[1]).unwrap();
    assert_eq!(world.shown(), "1; 1; ");
    world.hear_only(&[2, 3]);
    assert_eq!(world.shown(), "-; 1; ");
    let refused = world.elect(ElectionKind::Preferred).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::PreferredLeaderNotAvailable);
    world.beat(1);
    assert_eq!(world.shown(), "1; 1; ");
    assert_eq!(world.state().leader_epoch, LeaderEpoch(2), "of the same leader, anew");
}

#[test]
fn an_operator_may_accept_the_loss() {
    let mut world = World::with_topic(&[1, 2, 3], &[("min.insync.replicas", "1")]);
    assert_eq!(
        world.elect(ElectionKind::Unclean).unwrap_err().kind(),
        RefusalKind::ElectionNotNeeded
    );
    world.propose(&[1]).unwrap();
    world.hear_only(&[2, 3]);
    world.elect(ElectionKind::Unclean).unwrap();
    assert_eq!(world.shown(), "2; 2; ");
    assert!(world.state().unclean);
    world.propose(&[2, 3]).unwrap();
    assert!(world.state().unclean, "until the next election");
    world.hear_only(&[3]);
    assert_eq!(world.shown(), "3; 3; ");
    assert!(!world.state().unclean);
}

#[test]
fn a_topic_may_accept_the_loss_beforehand() {
    let mut world = World::with_topic(&[1, 2], &[("min.insync.replicas", "1")]);
    world.propose(&[1]).unwrap();
    world.hear_only(&[2]);
    assert_eq!(world.shown(), "-; 1; ");
    world.set(topic("t"), "unclean.leader.election.enable", "true").unwrap();
    world.pass(0);
    assert_eq!(world.shown(), "2; 2; ");
    assert!(world.state().unclean);
}

/// A replica that cannot read all of its records neither leads nor counts, as long as somebody else
/// has them.
#[test]
fn a_doubted_replica_counts_for_nothing_unless_it_is_the_last() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    let doubt = |world: &mut World, id: i32| {
        let (broker, epoch, partition) = (BrokerId(id), world.epoch(id), world.partition_id());
        let request = Request::DoubtReplicas { broker, epoch, partitions: vec![partition] };
        let Reply::DoubtedReplicas(Ok(mut answers)) = world.ask(request) else { panic!() };
        answers.remove(0).1.map_err(|refusal| refusal.kind())
    };
    doubt(&mut world, 1).unwrap();
    assert_eq!(world.shown(), "2; 2 3; ");
    doubt(&mut world, 3).unwrap();
    assert_eq!(world.shown(), "2; 2; ", "not eligible either, although too few are in sync");
    assert_eq!(doubt(&mut world, 2), Err(RefusalKind::IneligibleReplica));
    assert_eq!(world.shown(), "2; 2; ");
    world.propose(&[1, 2]).unwrap();
    assert_eq!(world.shown(), "2; 1 2; ", "copied anew, it counts again");
    let request = Request::DoubtReplicas {
        broker: BrokerId(1),
        epoch: world.epoch(1) - 1,
        partitions: vec![world.partition_id()],
    };
    assert!(matches!(world.ask(request), Reply::DoubtedReplicas(Err(_))));
}

/// A leader that was away during a change proposes on the ground of what was before (KIP-497).
#[test]
fn kip_497_a_proposal_on_an_older_state_is_refused() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    let before = world.state();
    let members = [(1, world.epoch(1)), (2, world.epoch(2))];
    world.propose(&[1, 3]).unwrap();
    let refused = world.propose_on(&before, &members).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::InvalidUpdateVersion);
    assert_eq!(world.shown(), "1; 1 3; ");

    let led_by_1 = world.state();
    world.hear_only(&[2, 3]);
    world.beat(1);
    let refused = world.propose_on(&led_by_1, &members).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::FencedLeaderEpoch);
}

/// KAFKA-14139, KIP-903: a replica was judged in sync, lost its disk's tail in a restart, and was
/// then let in.
#[test]
fn kip_903_a_member_that_has_started_anew_since_it_was_judged_is_refused() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.propose(&[1, 3]).unwrap();
    let judged = [(1, world.epoch(1)), (2, world.epoch(2)), (3, world.epoch(3))];
    world.register(2);
    let state = world.state();
    let refused = world.propose_on(&state, &judged).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::IneligibleReplica);
    world.propose(&[1, 2, 3]).unwrap();
    assert_eq!(world.shown(), "1; 1 2 3; ");
}

/// A leader gives a refused proposal up, so nobody may take it up later: a copy of it that is late,
/// when the member that was fenced is not any more.
#[test]
fn a_proposal_that_was_refused_is_refused_again() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.hear_only(&[1, 2]);
    let state = world.state();
    let judged = [(1, world.epoch(1)), (2, world.epoch(2)), (3, world.epoch(3))];
    let refused = world.propose_on(&state, &judged).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::IneligibleReplica);
    world.beat(3);
    let refused = world.propose_on(&state, &judged).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::InvalidUpdateVersion);
    world.propose(&[1, 2, 3]).unwrap();
}

#[test]
fn members_that_cannot_be_in_sync_are_refused() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.hear_only(&[1, 2]);
    let mut kind = |members: &[i32]| world.propose(members).unwrap_err().kind();
    assert_eq!(kind(&[1, 2, 3]), RefusalKind::IneligibleReplica);
    assert_eq!(kind(&[2]), RefusalKind::InvalidRequest, "the leader is missing");
    assert_eq!(kind(&[1, 1]), RefusalKind::InvalidRequest);
    world.register(4);
    assert_eq!(world.propose(&[1, 4]).unwrap_err().kind(), RefusalKind::InvalidRequest);
}

/// A start begins a new epoch even where nobody else could lead (KIP-966).
#[test]
fn the_last_in_sync_replica_stays_so_over_a_restart_and_leads_a_new_epoch() {
    let mut world = World::with_topic(&[1, 2], &[("min.insync.replicas", "1")]);
    world.propose(&[1]).unwrap();
    let epoch = world.state().leader_epoch;
    world.start(1, |_| {});
    assert_eq!(world.shown(), "-; 1; ");
    world.beat(1);
    assert_eq!(world.shown(), "1; 1; ");
    assert!(epoch < world.state().leader_epoch);
}

#[test]
fn a_start_leaves_leaderships_and_in_sync_sets_at_once() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    let clean_since = Some(world.epoch(1));
    world.start(1, |registration| registration.clean_since = clean_since);
    assert_eq!(world.shown(), "2; 2 3; ");
    assert!(world.image().broker(BrokerId(1)).unwrap().fenced);
}

#[test]
fn a_synced_topic_keeps_a_place_that_a_power_cut_costs_in_a_relaxed_one() {
    for (configs, eligible) in [(&[][..], "2"), (RELAXED, "")] {
        let mut world = World::with_topic(&[1, 2], configs);
        world.start(2, |_| {});
        assert_eq!(world.shown(), format!("1; 1; {eligible}"), "{configs:?}");
        // A process that was killed has lost nothing: its machine holds what it wrote.
        let mut world = World::with_topic(&[1, 2], configs);
        world.start(2, |registration| registration.lost_power = false);
        assert_eq!(world.shown(), "1; 1; 2", "{configs:?}");
        let mut world = World::with_topic(&[1, 2], configs);
        let epoch = world.epoch(2);
        world.start(2, |registration| registration.clean_since = Some(epoch));
        assert_eq!(world.shown(), "1; 1; 2", "{configs:?}");
    }
}

/// A broker that lost power, started, and stopped orderly before it had registered is not clean:
/// its mark names an older registration.
#[test]
fn an_old_mark_of_an_orderly_stop_is_no_mark() {
    let mut world = World::with_topic(&[1, 2], RELAXED);
    let first = world.epoch(2);
    world.register_after(2, Some(first));
    world.propose(&[1, 2]).unwrap();
    world.start(2, |registration| registration.clean_since = Some(first));
    assert_eq!(world.shown(), "1; 1; ");
}

#[test]
fn in_a_relaxed_topic_who_is_eligible_comes_before_the_last_one_that_lost_power() {
    let mut world = World::with_topic(&[1, 2], RELAXED);
    world.propose(&[1]).unwrap();
    world.hear_only(&[]);
    world.start(1, |_| {});
    assert_eq!(world.shown(), "-; 2; ");
    world.beat(1);
    assert_eq!(world.shown(), "-; 2; ");
    world.beat(2);
    assert_eq!(world.shown(), "2; 2; ");

    let mut world = World::with_topic(&[1, 2], RELAXED);
    world.hear_only(&[]);
    world.start(1, |_| {});
    world.start(2, |_| {});
    assert_eq!(world.shown(), "-; 2; ", "nobody has more than the last one");
}

#[test]
fn a_replica_whose_directory_is_gone_holds_nothing() {
    let other = towpath_model::Uuid([99; 16]);
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.hear_only(&[1, 3]);
    world.start(2, |registration| registration.directories = vec![other]);
    assert_eq!(world.shown(), "1; 1 3; ");
    assert_eq!(world.state().directory_of(BrokerId(2)), other);
    world.hear_only(&[1]);
    assert_eq!(world.shown(), "1; 1; 3");
    world.start(3, |registration| registration.directories = vec![other]);
    assert_eq!(world.shown(), "1; 1; ", "not eligible");
    world.hear_only(&[]);
    world.start(1, |registration| registration.directories = vec![other]);
    assert_eq!(world.shown(), "-; ; ", "nobody holds anything any more");
    world.hear_only(&[1, 2, 3]);
    assert_eq!(world.shown(), "-; ; ");
    world.elect(ElectionKind::Unclean).unwrap();
    assert_eq!(world.shown(), "1; 1; ");
}

#[test]
fn a_failed_directory_costs_the_replicas_in_it_their_place() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    let failed = crate::support::directory(1);
    world.beat_as(1, |beat| beat.offline = vec![failed]).unwrap();
    assert_eq!(world.shown(), "2; 2 3; ");
    assert_eq!(world.propose(&[1, 2, 3]).unwrap_err().kind(), RefusalKind::IneligibleReplica);
    world.beat(1);
    world.propose(&[1, 2, 3]).unwrap();
}

/// INV-M2: who was eligible under the higher minimum lacks what the lower one lets be committed.
#[test]
fn a_lower_minimum_ends_eligibility_in_the_same_decision() {
    for everywhere in [false, true] {
        let mut world = World::with_topic(&[1, 2], &[]);
        world.propose(&[1]).unwrap();
        assert_eq!(world.shown(), "1; 1; 2");
        let resource = if everywhere { broker("") } else { topic("t") };
        let epoch = world.state().partition_epoch;
        world.set(resource, "min.insync.replicas", "1").unwrap();
        assert_eq!(world.shown(), "1; 1; ");
        assert!(epoch < world.state().partition_epoch);
    }
    let mut world = World::with_topic(&[1, 2], &[]);
    world.propose(&[1]).unwrap();
    world.set(broker("1"), "min.insync.replicas", "1").unwrap();
    assert_eq!(world.shown(), "1; 1; 2", "one broker's own value does not count");
}

#[test]
fn the_preferred_leader_leads_when_an_operator_wants_it() {
    let mut world = World::with_topic(&[1, 2], &[]);
    world.hear_only(&[2]);
    world.beat(1);
    let refused = world.elect(ElectionKind::Preferred).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::PreferredLeaderNotAvailable);
    world.propose(&[1, 2]).unwrap();
    world.elect(ElectionKind::Preferred).unwrap();
    assert_eq!(world.shown(), "1; 1 2; ");
    let refused = world.elect(ElectionKind::Preferred).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::ElectionNotNeeded);
}

/// A refused proposal may be under way a second time, and its members be fit when it arrives: who
/// made it has to be able to end that.
#[test]
fn a_proposal_of_the_set_as_it_is_makes_older_ones_void() {
    let mut world = World::with_topic(&[1, 2, 3], &[]);
    world.propose(&[1, 3]).unwrap();
    let before = world.state();
    let larger = [(1, world.epoch(1)), (2, world.epoch(2)), (3, world.epoch(3))];
    let after = world.propose(&[1, 3]).unwrap();
    assert_eq!(world.state(), after);
    assert_eq!(after.partition_epoch, before.partition_epoch + 1);
    assert_eq!(world.shown(), "1; 1 3; ");
    let late = world.propose_on(&before, &larger).unwrap_err();
    assert_eq!(late.kind(), RefusalKind::InvalidUpdateVersion);
}
