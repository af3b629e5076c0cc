//! Members come and go.

use std::collections::BTreeSet;

use towpath_metadata::raft::{MemberChange, MemberId, Membership, MembershipChange};

use super::{Cluster, Member};

impl<C: Member> Cluster<C> {
    pub(super) fn change_something(&mut self) {
        let membership = self.checker.newest_state().membership;
        if membership.voters.is_empty() {
            return;
        }
        let slot = self.rng.below(self.nodes.len() as u64) as usize;
        let member = self.nodes[slot].me;
        if !membership.contains(member) {
            if self.rng.one_in(3) && self.may_go(member, &membership) {
                self.replace_disk(slot);
                return;
            }
            self.change(MembershipChange::Simple(vec![MemberChange::AddLearner(member)]));
            return;
        }
        // Only who takes part gets a vote, so that nobody votes whose disk is gone.
        let change = match self.rng.below(6) {
            0 => MembershipChange::Simple(vec![MemberChange::Remove(member)]),
            1 => MembershipChange::Simple(vec![MemberChange::AddLearner(member)]),
            2 => MembershipChange::Simple(vec![MemberChange::AddVoter(member)]),
            3 => MembershipChange::LeaveJoint,
            _ => self.joint_change(&membership),
        };
        self.change(change);
    }

    /// Whether all voters that are left know for good that `member` is none of them.
    fn may_go(&self, member: MemberId, membership: &Membership) -> bool {
        let knows = |voter: &MemberId| {
            let node = self.nodes.iter().find(|node| node.me == *voter);
            let status = node.and_then(|node| node.core.as_ref()).map(|core| core.status());
            status.is_some_and(|s| s.is_membership_durable && !s.membership.contains(member))
        };
        membership.voters.iter().all(knows)
    }

    fn joint_change(&mut self, membership: &Membership) -> MembershipChange {
        let living: BTreeSet<MemberId> = self.nodes.iter().map(|node| node.me).collect();
        let mut changes = Vec::new();
        for member in membership.members().intersection(&living) {
            changes.push(match self.rng.below(4) {
                0 => MemberChange::AddLearner(*member),
                1 => MemberChange::Remove(*member),
                _ => MemberChange::AddVoter(*member),
            });
        }
        MembershipChange::EnterJoint { changes, auto_leave: !self.rng.one_in(3) }
    }
}
