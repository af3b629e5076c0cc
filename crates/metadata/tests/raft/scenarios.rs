//! What the seeds may come by too seldom, each on its own.

use std::collections::BTreeSet;

use towpath_metadata::raft::{
    BadMessage, Body, Consensus, LogIndex, MemberChange, MemberId, Membership, MembershipChange,
    Message, Raft, RaftStart, Refusal, Rejection, Role, Settings, Snapshot, Term, Vote,
};

use crate::cluster::Cluster;

/// A driver may hand its member to another thread.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Raft>();
};

fn elected(mut cluster: Cluster<Raft>) -> Cluster<Raft> {
    for _ in 0..200 {
        cluster.tick();
        if cluster.leader().is_some() {
            cluster.ticks(10);
            return cluster;
        }
    }
    panic!("nobody is elected in good weather");
}

fn change(cluster: &mut Cluster<Raft>, change: MemberChange) {
    cluster.change(MembershipChange::Simple(vec![change])).expect("nothing is pending");
    cluster.ticks(20);
}

fn commit_one(cluster: &mut Cluster<Raft>) -> LogIndex {
    let leader = cluster.leader().expect("somebody leads");
    let proposed = cluster.propose(leader).expect("the leader takes it");
    cluster.ticks(20);
    assert_eq!(cluster.checker.is_committed(proposed.index, proposed.term), Some(true));
    proposed.index
}

#[test]
fn a_cluster_of_one_grows_to_three_voters() {
    let mut cluster = elected(Cluster::calm(1, 1, 2));
    commit_one(&mut cluster);
    for slot in [1, 2] {
        let member = cluster.nodes[slot].me;
        change(&mut cluster, MemberChange::AddLearner(member));
        change(&mut cluster, MemberChange::AddVoter(member));
    }
    let index = commit_one(&mut cluster);
    for node in &cluster.nodes {
        assert_eq!(node.state.membership.voters.len(), 3);
        assert_eq!(node.state.applied, index);
    }
}

#[test]
fn a_member_added_after_the_snapshot_was_taken_gets_it_nevertheless() {
    let mut cluster = elected(Cluster::calm(2, 3, 1));
    commit_one(&mut cluster);
    for slot in 0..3 {
        cluster.compact(slot);
    }
    let joins = cluster.nodes[3].me;
    change(&mut cluster, MemberChange::AddLearner(joins));
    commit_one(&mut cluster);
    assert_eq!(cluster.nodes[3].state, cluster.checker.newest_state());
    assert!(cluster.nodes[3].disk.snapshot.as_ref().is_some_and(|s| !s.membership.contains(joins)));
}

#[test]
fn a_leader_that_removes_itself_lets_another_lead() {
    let mut cluster = elected(Cluster::calm(3, 3, 0));
    let old = cluster.leader().expect("elected");
    let me = cluster.nodes[old].me;
    change(&mut cluster, MemberChange::Remove(me));
    let role =
        |cluster: &Cluster<Raft>| cluster.nodes[old].core.as_ref().map(|core| core.status().role);
    assert_eq!(role(&cluster), Some(Role::Follower));
    cluster.ticks(60);
    assert_ne!(cluster.leader().expect("one of the other two"), old);
    commit_one(&mut cluster);
    assert_eq!(role(&cluster), Some(Role::Follower));
}

#[test]
fn a_joint_change_replaces_all_voters_and_leaves_by_itself() {
    let mut cluster = elected(Cluster::calm(4, 2, 2));
    let (old, new): (Vec<MemberId>, Vec<MemberId>) = (
        cluster.nodes[..2].iter().map(|n| n.me).collect(),
        cluster.nodes[2..].iter().map(|n| n.me).collect(),
    );
    let wanted: BTreeSet<MemberId> = new.iter().copied().collect();
    let learners: BTreeSet<MemberId> = old.iter().copied().collect();
    let now = cluster.checker.newest_state().membership;
    cluster.change(now.change_to(&wanted, &learners)).expect("nothing is pending");
    cluster.ticks(150);
    let then = Membership { voters: wanted, learners, ..Membership::default() };
    assert_eq!(cluster.checker.newest_state().membership, then);
    assert!(2 <= cluster.leader().expect("one of the new voters"));
    commit_one(&mut cluster);
    assert!(cluster.nodes.iter().all(|node| node.state.membership == then));
}

#[test]
fn leadership_moves_within_a_few_ticks_when_it_is_handed_over() {
    let mut cluster = elected(Cluster::calm(5, 3, 0));
    let from = cluster.leader().expect("elected");
    let to = (from + 1) % 3;
    let target = cluster.nodes[to].me;
    let core = cluster.nodes[from].core.as_mut().expect("it is up");
    core.transfer_leadership(target).expect("a voter");
    assert_eq!(core.propose(vec![1]), Err(Refusal::Transferring));
    cluster.ticks(5);
    assert_eq!(cluster.leader(), Some(to));
    let stranger = MemberId::from_number(99).expect("not 0");
    let core = cluster.nodes[to].core.as_mut().expect("it is up");
    assert_eq!(core.transfer_leadership(stranger), Err(Refusal::NotAVoter { member: stranger }));
}

#[test]
fn a_follower_refuses_and_names_the_leader() {
    let mut cluster = elected(Cluster::calm(6, 3, 0));
    let leader = cluster.leader().expect("elected");
    let leads = Some(cluster.nodes[leader].me);
    let core = cluster.nodes[(leader + 1) % 3].core.as_mut().expect("it is up");
    assert_eq!(core.propose(vec![1]), Err(Refusal::NotLeader { leader: leads }));
    assert_eq!(core.read_index(1), Err(Refusal::NotLeader { leader: leads }));
    let core = cluster.nodes[leader].core.as_mut().expect("it is up");
    assert_eq!(core.propose(Vec::new()), Err(Refusal::CommandSize { bytes: 0 }));
    let one = core.change_membership(MembershipChange::Simple(Vec::new()));
    assert!(one.is_ok());
    assert_eq!(core.change_membership(MembershipChange::LeaveJoint), Err(Refusal::ChangePending));
}

#[test]
fn a_minority_confirms_no_read_and_its_leader_steps_down() {
    let mut cluster = elected(Cluster::calm(7, 3, 0));
    let leader = cluster.leader().expect("elected");
    for slot in (0..3).filter(|&slot| slot != leader) {
        cluster.crash(slot);
    }
    let read_before = cluster.checker.events.get("read confirmed").copied();
    cluster.read(leader);
    cluster.ticks(40);
    assert_eq!(cluster.checker.events.get("read confirmed").copied(), read_before);
    assert_eq!(cluster.leader(), None);
}

fn settings() -> Settings {
    Settings {
        election_ticks: 10,
        heartbeat_ticks: 2,
        unapplied_entries_max: 8,
        trailing_entries: 0,
    }
}

fn member(number: u64) -> MemberId {
    MemberId::from_number(number).expect("not 0")
}

/// A lone voter with a learner, that has just begun.
fn lone_voter() -> Raft {
    let membership = Membership {
        voters: [member(1)].into(),
        learners: [member(2)].into(),
        ..Membership::default()
    };
    let snapshot = Snapshot { index: LogIndex(5), term: Term(3), membership, data: vec![1] };
    Raft::start(RaftStart {
        me: member(1),
        vote: Vote { term: Term(3), ..Vote::default() },
        first_voters: None,
        snapshot: Some(snapshot),
        entries: Vec::new(),
        commit: LogIndex(0),
        applied: LogIndex(5),
        settings: settings(),
        seed: 1,
    })
    .expect("a start")
}

#[test]
fn a_lone_voter_says_nothing_before_its_vote_is_durable() {
    let mut raft = lone_voter();
    while raft.status().role != Role::Leader {
        raft.tick();
    }
    raft.propose(vec![7]).expect("it leads");
    let first = raft.take_ready().expect("it leads");
    assert_eq!(
        first.vote,
        Some(Vote { term: Term(4), voted_for: Some(member(1)), ..Vote::default() })
    );
    assert_eq!(first.messages, []);
    assert!(!first.messages_after_persist.is_empty(), "the learner is asked where it is");
    assert_eq!(first.committed, []);
    for _ in 0..2 {
        raft.tick();
    }
    let second = raft.take_ready().expect("a heartbeat");
    assert_eq!(second.messages, []);
    raft.persisted(first.number);
    raft.persisted(second.number);
    let third = raft.take_ready().expect("what is durable is committed");
    assert_eq!(third.committed.len(), 2);
}

#[test]
fn proposals_stop_when_too_much_is_not_applied() {
    let mut raft = lone_voter();
    while raft.status().role != Role::Leader {
        raft.tick();
    }
    let accepted = (0..20).take_while(|_| raft.propose(vec![7]).is_ok()).count();
    assert_eq!(accepted, 7, "eight with the entry that a leader begins with");
    assert_eq!(raft.propose(vec![7]), Err(Refusal::Backlogged));
    let ready = raft.take_ready().expect("entries");
    raft.persisted(ready.number);
    let ready = raft.take_ready().expect("they are committed");
    raft.applied(ready.committed.last().expect("some").index);
    raft.propose(vec![7]).expect("there is room again");
}

#[test]
fn a_follower_takes_no_more_than_it_can_apply() {
    let entry = |index| towpath_metadata::raft::Entry {
        index: LogIndex(index),
        term: Term(4),
        payload: towpath_metadata::raft::Payload::Command(vec![1]),
    };
    let mut raft = lone_voter();
    let append = |prev: u64, prev_term, commit| Message {
        from: member(2),
        to: member(1),
        term: Term(4),
        body: Body::Append {
            prev_index: LogIndex(prev),
            prev_term: Term(prev_term),
            commit: LogIndex(commit),
            entries: (prev + 1..36).map(entry).collect(),
        },
    };
    raft.receive(append(5, 3, 30)).expect("a good message");
    assert_eq!(raft.status().last_index, LogIndex(13));
    assert_eq!(raft.status().commit, LogIndex(13));
    raft.receive(append(13, 4, 13)).expect("a good message");
    assert_eq!(raft.status().last_index, LogIndex(35), "what is not committed is no backlog");
}

#[test]
fn a_crowd_of_reads_shares_a_round() {
    let mut cluster = elected(Cluster::calm(8, 3, 0));
    commit_one(&mut cluster);
    let leader = cluster.leader().expect("elected");
    let core = cluster.nodes[leader].core.as_mut().expect("it is up");
    while core.take_ready().map(|ready| core.persisted(ready.number)).is_some() {}
    for context in 0..1000 {
        core.read_index(context).expect("it leads");
    }
    let mut heartbeats = 0;
    while let Some(ready) = core.take_ready() {
        heartbeats += ready.messages.len();
        core.persisted(ready.number);
    }
    assert_eq!(heartbeats, 2, "one round to two followers");
}

#[test]
fn an_answer_for_entries_that_the_leader_never_had_commits_nothing() {
    let mut cluster = elected(Cluster::calm(9, 3, 0));
    commit_one(&mut cluster);
    let leader = cluster.leader().expect("elected");
    let from = cluster.nodes[(leader + 1) % 3].me;
    let core = cluster.nodes[leader].core.as_mut().expect("it is up");
    let status = core.status();
    let last = status.last_index;
    let body = Body::AppendReply { index: last.next(), commit: LogIndex(0), rejected: None };
    let message = Message { from, to: status.me, term: status.term, body };
    assert_eq!(
        core.receive(message),
        Err(BadMessage::BeyondTheLeadersLog { index: last.next(), last })
    );
    assert_eq!(core.status().progress[&from].matched, last);
}

#[test]
fn a_member_whose_driver_takes_nothing_keeps_few_messages() {
    let mut raft = lone_voter();
    let heartbeat = Message {
        from: member(2),
        to: member(1),
        term: Term(4),
        body: Body::Heartbeat { commit: LogIndex(5), context: Vec::new() },
    };
    for _ in 0..40_000 {
        raft.receive(heartbeat.clone()).expect("a good message");
    }
    let ready = raft.take_ready().expect("answers");
    assert!(ready.messages.len() + ready.messages_after_persist.len() <= 16_384);
}

#[test]
fn a_snapshot_has_the_members_of_its_own_index() {
    let mut raft = lone_voter();
    while raft.status().role != Role::Leader {
        raft.tick();
    }
    let add = MembershipChange::Simple(vec![MemberChange::AddLearner(member(3))]);
    let begun = raft.take_ready().expect("its first entry");
    raft.persisted(begun.number);
    let committed = raft.take_ready().expect("it is committed").committed;
    raft.applied(committed[0].index);
    let added = raft.change_membership(add).expect("nothing is pending").index;
    while let Some(ready) = raft.take_ready() {
        raft.persisted(ready.number);
    }
    assert!(raft.status().membership.contains(member(3)));
    raft.compact(added.before(), vec![2]);

    let rejected = Some(Rejection { hint_index: LogIndex(0), hint_term: Term(0) });
    let body = Body::AppendReply { index: LogIndex(5), commit: LogIndex(0), rejected };
    let message = Message { from: member(2), to: member(1), term: Term(4), body };
    raft.receive(message).expect("a good message");
    let ready = raft.take_ready().expect("a snapshot");
    let snapshot = ready.messages.iter().find_map(|message| match &message.body {
        Body::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    let snapshot = snapshot.expect("the entries are gone");
    assert_eq!(snapshot.index, added.before());
    assert!(!snapshot.membership.contains(member(3)), "it was added later");
}
