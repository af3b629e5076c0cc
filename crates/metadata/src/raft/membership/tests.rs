use std::collections::BTreeSet;

use super::super::bytes::{Reader, Writer};
use super::*;

fn member(number: u64) -> MemberId {
    MemberId::from_number(number).expect("not 0")
}

fn members(numbers: &[u64]) -> BTreeSet<MemberId> {
    numbers.iter().map(|&number| member(number)).collect()
}

fn voters(numbers: &[u64]) -> Membership {
    Membership { voters: members(numbers), ..Membership::default() }
}

#[test]
fn one_voter_changes_at_a_time_unless_jointly() {
    let three = voters(&[1, 2, 3]);
    let two_at_once = vec![MemberChange::Remove(member(1)), MemberChange::AddVoter(member(4))];
    assert_eq!(
        three.after(&MembershipChange::Simple(two_at_once.clone())),
        Err(MembershipRefusal::MoreThanOneVoter)
    );
    let joint = three
        .after(&MembershipChange::EnterJoint { changes: two_at_once, auto_leave: true })
        .expect("a joint change may");
    assert_eq!(joint.voters, members(&[2, 3, 4]));
    assert_eq!(joint.voters_outgoing, members(&[1, 2, 3]));
    assert_eq!(joint.after(&MembershipChange::Simple(vec![])), Err(MembershipRefusal::Joint));
    let left = joint.after(&MembershipChange::LeaveJoint).expect("it is joint");
    assert_eq!(left, voters(&[2, 3, 4]));
    assert_eq!(left.after(&MembershipChange::LeaveJoint), Err(MembershipRefusal::NotJoint));
}

#[test]
fn a_voter_that_becomes_a_learner_waits_until_its_vote_is_not_needed() {
    let change = MembershipChange::EnterJoint {
        changes: vec![MemberChange::AddLearner(member(1))],
        auto_leave: false,
    };
    let joint = voters(&[1, 2]).after(&change).expect("fits");
    assert_eq!(joint.learners_next, members(&[1]));
    assert!(joint.is_voter(member(1)));
    let left = joint.after(&MembershipChange::LeaveJoint).expect("it is joint");
    assert_eq!(left.learners, members(&[1]));
    assert!(!left.is_voter(member(1)));
}

#[test]
fn what_nobody_could_decide_with_is_refused() {
    let one = voters(&[1]);
    let remove = MembershipChange::Simple(vec![MemberChange::Remove(member(1))]);
    assert_eq!(one.after(&remove), Err(MembershipRefusal::NoVoters));
    assert_eq!(
        one.after(&MembershipChange::Initial(members(&[2]))),
        Err(MembershipRefusal::NotTheFirst)
    );
    let twice = MembershipChange::Simple(vec![
        MemberChange::AddLearner(member(2)),
        MemberChange::Remove(member(2)),
    ]);
    assert_eq!(one.after(&twice), Err(MembershipRefusal::Twice));
    let crowd = (2..).take(MEMBERS_MAX).map(|n| MemberChange::AddLearner(member(n))).collect();
    assert_eq!(one.after(&MembershipChange::Simple(crowd)), Err(MembershipRefusal::TooMany));
}

#[test]
fn the_smallest_change_to_a_wanted_membership_leads_there() {
    let mut now = voters(&[1, 2, 3]);
    now.learners = members(&[4, 5]);
    for (voters, learners) in [
        (members(&[1, 2, 3, 4]), members(&[5])),
        (members(&[1, 2]), members(&[3, 6])),
        (members(&[4, 5, 6]), members(&[1])),
        (members(&[1, 2, 3]), members(&[])),
    ] {
        let change = now.change_to(&voters, &learners);
        let mut then = now.after(&change).expect("the change fits");
        if then.is_joint() {
            then = then.after(&MembershipChange::LeaveJoint).expect("it is joint");
        }
        assert_eq!((then.voters, then.learners), (voters, learners));
    }
}

#[test]
fn memberships_and_changes_come_back_from_their_bytes() {
    let mut membership = voters(&[2, 3]);
    membership.voters_outgoing = members(&[1, 2]);
    membership.learners = members(&[7]);
    membership.learners_next = members(&[1]);
    membership.auto_leave = true;
    assert_eq!(Membership::decode(&membership.encode()), Ok(membership.clone()));
    for cut in 0..membership.encode().len() {
        assert!(Membership::decode(&membership.encode()[..cut]).is_err());
    }
    membership.learners = members(&[2]);
    assert!(Membership::decode(&membership.encode()).is_err(), "a voter is no learner");

    let changes = vec![
        MemberChange::AddVoter(member(1)),
        MemberChange::AddLearner(member(2)),
        MemberChange::Remove(member(3)),
    ];
    for change in [
        MembershipChange::Initial(members(&[1, 2])),
        MembershipChange::Simple(changes.clone()),
        MembershipChange::EnterJoint { changes: changes.clone(), auto_leave: false },
        MembershipChange::EnterJoint { changes, auto_leave: true },
        MembershipChange::LeaveJoint,
    ] {
        let mut out = Writer::new();
        change.write(&mut out);
        assert_eq!(MembershipChange::read(&mut Reader::new(&out.finish())), Ok(change));
    }
}
