//! What a member may begin with, and what it is told when its disk lies.

use towpath_metadata::raft::{
    BadStart, Body, Consensus, Entry, LogIndex, MemberChange, MemberId, Membership,
    MembershipChange, Message, Payload, Raft, RaftStart, Settings, Snapshot, Term, Vote,
};

fn member(number: u64) -> MemberId {
    MemberId::from_number(number).expect("not 0")
}

fn entry(index: u64, term: u64, payload: Payload) -> Entry {
    Entry { index: LogIndex(index), term: Term(term), payload }
}

fn command(index: u64, term: u64) -> Entry {
    entry(index, term, Payload::Command(vec![1]))
}

fn first() -> Entry {
    let voters = [member(1), member(2), member(3)].into();
    entry(1, 1, Payload::Membership(MembershipChange::Initial(voters)))
}

fn start(entries: Vec<Entry>) -> RaftStart {
    RaftStart {
        me: member(1),
        vote: Vote { term: Term(9), voted_for: Some(member(2)), ..Vote::default() },
        first_voters: None,
        snapshot: None,
        entries,
        commit: LogIndex(0),
        applied: LogIndex(0),
        settings: Settings {
            election_ticks: 10,
            heartbeat_ticks: 2,
            unapplied_entries_max: 100,
            trailing_entries: 0,
        },
        seed: 1,
    }
}

fn error(start: RaftStart) -> BadStart {
    match Raft::start(start) {
        Ok(_) => panic!("it starts"),
        Err(error) => error,
    }
}

#[test]
fn a_membership_change_that_another_follows_is_known_to_be_committed() {
    let enter = MembershipChange::EnterJoint {
        changes: vec![MemberChange::AddVoter(member(4)), MemberChange::Remove(member(2))],
        auto_leave: true,
    };
    let entries = vec![
        first(),
        command(2, 2),
        entry(3, 2, Payload::Membership(enter)),
        command(4, 3),
        entry(5, 3, Payload::Membership(MembershipChange::LeaveJoint)),
        command(6, 3),
    ];
    let mut raft = Raft::start(start(entries)).expect("a start");
    assert_eq!(raft.status().commit, LogIndex(3));
    let ready = raft.take_ready().expect("they are durable and committed");
    assert_eq!(ready.committed.len(), 3);
    assert!(raft.status().membership.is_joint());
}

#[test]
fn the_first_entry_is_committed_from_the_beginning() {
    let mut fresh = start(Vec::new());
    fresh.vote = Vote::default();
    fresh.first_voters = Some([member(1)].into());
    let mut raft = Raft::start(fresh).expect("a start");
    let ready = raft.take_ready().expect("the first entry");
    assert!(ready.must_sync);
    assert_eq!((ready.append.len(), ready.committed.len()), (1, 0));
    raft.persisted(ready.number);
    let ready = raft.take_ready().expect("it is durable");
    assert_eq!(ready.committed.len(), 1);
    assert!(raft.status().membership.is_voter(member(1)));

    let raft = Raft::start(start(vec![first()])).expect("a start");
    assert_eq!(raft.status().commit, LogIndex(1));
}

/// Whom a member of this log votes for, when member 3 asks in `term`.
fn votes_for(log_term: u64, term: u64) -> Option<MemberId> {
    let mut raft = Raft::start(start(vec![first(), command(2, log_term)])).expect("a start");
    let body = Body::Vote {
        pre: false,
        transfer: false,
        last_index: LogIndex(2),
        last_term: Term(log_term),
        commit: LogIndex(1),
        commit_term: Term(1),
    };
    let message = Message { from: member(3), to: member(1), term: Term(term), body };
    raft.receive(message).expect("a good message");
    raft.take_ready().and_then(|ready| ready.vote).and_then(|vote| vote.voted_for)
}

#[test]
fn the_vote_is_kept_for_its_own_term_only() {
    assert_eq!(votes_for(9, 9), Some(member(2)), "as it did before");
    assert_eq!(votes_for(9, 10), Some(member(3)));
    assert_eq!(votes_for(12, 12), Some(member(3)), "the log is of a later term than the vote");
}

#[test]
fn a_change_that_was_noted_is_known_to_be_committed() {
    let remove = MembershipChange::Simple(vec![MemberChange::Remove(member(2))]);
    let mut noted = start(vec![first(), entry(2, 2, Payload::Membership(remove)), command(3, 2)]);
    assert_eq!(Raft::start(noted.clone()).expect("a start").status().commit, LogIndex(1));
    noted.vote.change = LogIndex(2);
    let mut raft = Raft::start(noted.clone()).expect("a start");
    assert_eq!(raft.status().commit, LogIndex(2));
    raft.take_ready().expect("they are durable and committed");
    let status = raft.status();
    assert!(!status.membership.contains(member(2)) && status.is_membership_durable);
    noted.vote.change = LogIndex(4);
    assert!(matches!(error(noted), BadStart::Lost { .. }));
}

#[test]
fn a_change_is_durable_here_when_its_note_is() {
    let remove = MembershipChange::Simple(vec![MemberChange::Remove(member(2))]);
    let mut begun = start(vec![first(), entry(2, 2, Payload::Membership(remove))]);
    begun.commit = LogIndex(2);
    let mut raft = Raft::start(begun).expect("a start");
    let ready = raft.take_ready().expect("both are committed");
    assert_eq!(ready.vote.map(|vote| vote.change), Some(LogIndex(2)));
    assert!(!raft.status().is_membership_durable);
    raft.persisted(ready.number);
    assert!(raft.status().is_membership_durable);
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    for entries in [
        vec![command(2, 1)],
        vec![first(), command(3, 1)],
        vec![first(), command(2, 5), command(3, 4)],
        vec![first(), command(2, 0)],
        vec![first(), entry(2, 1, Payload::Command(Vec::new()))],
        vec![first(), command(2, 1 << 40)],
    ] {
        assert!(matches!(error(start(entries)), BadStart::Log { .. }));
    }
    let mut lost = start(vec![first()]);
    lost.commit = LogIndex(2);
    assert!(matches!(error(lost), BadStart::Lost { .. }));
    let mut lost = start(vec![first()]);
    lost.applied = LogIndex(2);
    assert!(matches!(error(lost), BadStart::Lost { .. }));
}

#[test]
fn a_snapshot_stands_for_the_entries_before_it() {
    let membership = Membership { voters: [member(1), member(5)].into(), ..Membership::default() };
    let snapshot = Snapshot { index: LogIndex(4), term: Term(2), membership, data: vec![1] };
    let mut with = start((3..8).map(|index| command(index, 2)).collect());
    with.snapshot = Some(snapshot.clone());
    with.applied = LogIndex(4);
    let raft = Raft::start(with.clone()).expect("entries that it covers are passed over");
    let status = raft.status();
    assert_eq!((status.snapshot_index, status.last_index), (LogIndex(4), LogIndex(7)));
    assert!(status.membership.is_voter(member(5)));

    with.applied = LogIndex(3);
    assert!(matches!(error(with.clone()), BadStart::Behind { .. }));
    with.snapshot = Some(Snapshot { membership: Membership::default(), ..snapshot });
    assert!(matches!(error(with), BadStart::Membership(_)));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let mut bad = start(vec![first()]);
    bad.settings.heartbeat_ticks = 10;
    assert!(matches!(error(bad), BadStart::Settings { .. }));
    let mut nobody = start(Vec::new());
    nobody.first_voters = Some([].into());
    assert!(matches!(error(nobody), BadStart::Membership(_)));
}

#[test]
fn payloads_come_back_from_their_bytes() {
    for payload in [Payload::Empty, Payload::Command(vec![1, 2, 3]), first().payload] {
        assert_eq!(Payload::decode(&payload.encode()), Ok(payload));
    }
    assert!(Payload::decode(&[]).is_err());
    assert!(Payload::decode(&[1, 1]).is_err(), "an empty command");
    assert!(Payload::decode(&[1, 0, 0]).is_err(), "one byte too many");
    assert!(Payload::decode(&[2, 0]).is_err(), "another version");
}
