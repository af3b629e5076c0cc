//! Messages that no correct member sends: whatever comes, a member refuses it or lives with it.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use towpath_metadata::raft::{
    Body, Consensus, Entry, INDEX_MAX, LogIndex, MemberChange, MemberId, Membership,
    MembershipChange, Message, Payload, Raft, RaftStart, Rejection, Settings, Snapshot, TERM_MAX,
    Term, Vote,
};

fn member() -> impl Strategy<Value = MemberId> {
    (1u64..6).prop_map(|number| MemberId::from_number(number).expect("not 0"))
}

/// Mostly near to what a member has, sometimes out of all bounds.
fn index() -> impl Strategy<Value = LogIndex> {
    prop_oneof![
        20 => (0u64..14).prop_map(LogIndex),
        1 => Just(INDEX_MAX),
        1 => Just(LogIndex(INDEX_MAX.0 + 1)),
        1 => Just(LogIndex(u64::MAX)),
    ]
}

fn term() -> impl Strategy<Value = Term> {
    prop_oneof![
        30 => (0u64..9).prop_map(Term),
        1 => Just(TERM_MAX),
        1 => Just(Term(TERM_MAX.0 + 1)),
        1 => Just(Term(u64::MAX)),
    ]
}

fn change() -> impl Strategy<Value = MembershipChange> {
    let step = prop_oneof![
        member().prop_map(MemberChange::AddVoter),
        member().prop_map(MemberChange::AddLearner),
        member().prop_map(MemberChange::Remove),
    ];
    prop_oneof![
        btree_set(member(), 0..4).prop_map(MembershipChange::Initial),
        vec(step.clone(), 0..3).prop_map(MembershipChange::Simple),
        (vec(step, 0..4), any::<bool>())
            .prop_map(|(changes, auto_leave)| MembershipChange::EnterJoint { changes, auto_leave }),
        Just(MembershipChange::LeaveJoint),
    ]
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(Payload::Empty),
        vec(any::<u8>(), 0..3).prop_map(Payload::Command),
        change().prop_map(Payload::Membership),
    ]
}

/// Entries that follow `prev`, but for one in a few.
fn entries() -> impl Strategy<Value = Vec<(Term, Payload, u64)>> {
    let gap = prop_oneof![30 => Just(1u64), 1 => Just(0u64), 1 => Just(2u64)];
    vec((term(), payload(), gap), 0..5)
}

fn members() -> impl Strategy<Value = std::collections::BTreeSet<MemberId>> {
    btree_set(member(), 0..4)
}

fn membership() -> impl Strategy<Value = Membership> {
    (members(), members(), members(), members(), any::<bool>()).prop_map(
        |(voters, voters_outgoing, learners, learners_next, auto_leave)| {
            let simple = Membership { voters: voters.clone(), ..Membership::default() };
            let any = Membership { voters, voters_outgoing, learners, learners_next, auto_leave };
            if any.check().is_ok() { any } else { simple }
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    let context = prop_oneof![
        vec(any::<u8>(), 0..4),
        (0u64..4).prop_map(|round| round.to_be_bytes().to_vec()),
        Just(vec![0; 100])
    ];
    prop_oneof![
        1 => (any::<bool>(), any::<bool>(), index(), term(), index(), term()).prop_map(
            |(pre, transfer, last_index, last_term, commit, commit_term)| Body::Vote {
                pre,
                transfer,
                last_index,
                last_term,
                commit,
                commit_term
            }
        ),
        1 => (any::<bool>(), any::<bool>(), index(), term()).prop_map(
            |(pre, granted, commit, commit_term)| Body::VoteReply {
                pre,
                granted,
                commit,
                commit_term
            }
        ),
        4 => (index(), term(), index(), entries()).prop_map(
            |(prev_index, prev_term, commit, following)| {
                let mut last = prev_index;
                let mut last_term = prev_term;
                let entries = following.into_iter().map(|(term, payload, gap)| {
                    last = LogIndex(last.0.wrapping_add(gap));
                    last_term = last_term.max(term);
                    Entry { index: last, term: last_term, payload }
                });
                let entries = entries.collect();
                Body::Append { prev_index, prev_term, commit, entries }
            }
        ),
        1 => (index(), index(), proptest::option::of((index(), term()))).prop_map(
            |(index, commit, rejected)| Body::AppendReply {
                index,
                commit,
                rejected: rejected
                    .map(|(hint_index, hint_term)| Rejection { hint_index, hint_term }),
            }
        ),
        1 => (index(), context.clone())
            .prop_map(|(commit, context)| Body::Heartbeat { commit, context }),
        1 => (index(), context).prop_map(|(commit, context)| Body::HeartbeatReply { commit, context }),
        1 => (index(), term(), membership()).prop_map(|(index, term, membership)| Body::Snapshot(
            Snapshot { index, term, membership, data: vec![1] }
        )),
        1 => Just(Body::TimeoutNow),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Receive(MemberId, MemberId, Term, Body),
    Tick(u8),
    Propose,
    Change(MembershipChange),
    Read,
    Transfer(MemberId),
    Unreachable(MemberId),
    Take,
    Persist,
    Apply,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (member(), prop_oneof![30 => Just(1u64), 1 => Just(2u64)], term(), body()).prop_map(
            |(from, to, term, body)| {
                Step::Receive(from, MemberId::from_number(to).expect("not 0"), term, body)
            }
        ),
        3 => (1u8..25).prop_map(Step::Tick),
        1 => Just(Step::Propose),
        1 => change().prop_map(Step::Change),
        1 => Just(Step::Read),
        1 => member().prop_map(Step::Transfer),
        1 => member().prop_map(Step::Unreachable),
        5 => Just(Step::Take),
        5 => Just(Step::Persist),
        3 => Just(Step::Apply),
        1 => Just(Step::Compact),
    ]
}

fn start(voters: u64, me: u64, log: u64, applied: u64) -> RaftStart {
    let member = |number| MemberId::from_number(number).expect("not 0");
    let first = MembershipChange::Initial((1..=voters).map(member).collect());
    let mut entries =
        vec![Entry { index: LogIndex(1), term: Term(1), payload: Payload::Membership(first) }];
    for index in 2..=log {
        let payload = Payload::Command(vec![index as u8]);
        entries.push(Entry { index: LogIndex(index), term: Term(1 + index / 3), payload });
    }
    RaftStart {
        me: member(me),
        vote: Vote { term: Term(3), ..Vote::default() },
        first_voters: None,
        snapshot: None,
        applied: LogIndex(applied.min(entries.len() as u64)),
        entries,
        commit: LogIndex(0),
        settings: Settings {
            election_ticks: 5,
            heartbeat_ticks: 1,
            unapplied_entries_max: 6,
            trailing_entries: 1,
        },
        seed: 7,
    }
}

/// A driver that keeps the contract, whatever its member is told.
struct Driver {
    raft: Raft,
    in_flight: std::collections::VecDeque<u64>,
    to_apply: std::collections::VecDeque<LogIndex>,
}

impl Driver {
    fn step(&mut self, step: Step) {
        match step {
            Step::Receive(from, to, term, body) => {
                let before = self.raft.status();
                if self.raft.receive(Message { from, to, term, body }).is_err() {
                    assert_eq!(
                        self.raft.status(),
                        before,
                        "a refused message has changed something"
                    );
                }
            }
            Step::Tick(count) => (0..count).for_each(|_| self.raft.tick()),
            Step::Propose => drop(self.raft.propose(vec![1])),
            Step::Change(change) => drop(self.raft.change_membership(change)),
            Step::Read => drop(self.raft.read_index(1)),
            Step::Transfer(to) => drop(self.raft.transfer_leadership(to)),
            Step::Unreachable(member) => self.raft.unreachable(member),
            Step::Take => {
                let Some(ready) = self.raft.take_ready() else { return };
                let snapshot = ready.snapshot.map(|snapshot| snapshot.index);
                if snapshot.is_some() {
                    self.to_apply.clear();
                }
                self.to_apply.extend(snapshot);
                self.to_apply.extend(ready.committed.iter().map(|entry| entry.index));
                self.in_flight.push_back(ready.number);
            }
            Step::Persist => {
                let Some(number) = self.in_flight.pop_front() else { return };
                self.raft.persisted(number);
            }
            Step::Apply => {
                let Some(index) = self.to_apply.pop_front() else { return };
                self.raft.applied(index);
            }
            Step::Compact => self.raft.compact(self.raft.status().applied, vec![1]),
        }
    }
}

proptest! {

    #[test]
    fn no_message_brings_a_member_down(
        voters in 1u64..4,
        me in 1u64..4,
        log in 1u64..9,
        applied in 0u64..9,
        steps in vec(step(), 1..120),
    ) {
        let raft = Raft::start(start(voters, me, log, applied)).expect("a start");
        let mut driver =
            Driver { raft, in_flight: Default::default(), to_apply: Default::default() };
        // Whoever it is, it is called 1 in the messages.
        let me = driver.raft.status().me;
        for step in steps {
            let step = match step {
                Step::Receive(from, to, term, body) if to.number() == 1 => {
                    Step::Receive(from, me, term, body)
                }
                step => step,
            };
            driver.step(step);
        }
    }

    #[test]
    fn messages_come_back_from_their_encoding(from in member(), term in term(), body in body()) {
        let message = Message { from, to: from, term, body };
        let bytes = postcard::to_allocvec(&message).expect("it is data");
        prop_assert_eq!(postcard::from_bytes::<Message>(&bytes).expect("the same"), message);
    }

    #[test]
    fn bytes_of_a_disk_are_read_or_refused(
        head in (0u8..3, 0u8..6, 0u8..6),
        tail in vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..60),
    ) {
        let bytes = [vec![head.0, head.1, head.2], tail].concat();
        if let Ok(payload) = Payload::decode(&bytes) {
            prop_assert_eq!(payload.encode(), bytes.clone());
        }
        if let Ok(vote) = Vote::decode(&bytes) {
            prop_assert_eq!(vote.encode(), bytes.clone());
        }
        if let Ok(membership) = Membership::decode(&bytes) {
            prop_assert_eq!(membership.encode(), bytes);
        }
    }
}
