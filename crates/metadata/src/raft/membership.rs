//! Who votes, who learns, and the only ways in which that changes.
//!
//!   voters ──EnterJoint──▶ voters && voters_outgoing ──LeaveJoint──▶ voters
//!
//! While two sets of voters count, a majority of *each* is needed. One voter at a time may change
//! without that detour ([`MembershipChange::Simple`]). The change is what the log keeps; every
//! member comes to the same membership from the same changes, and a change that does not fit leaves
//! it as it is, everywhere alike.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use towpath_model::FoldError;

use super::bytes::{Reader, Writer};
use super::ids::MemberId;

/// The most members of one quorum, voters and learners together.
pub const MEMBERS_MAX: usize = 1024;

/// The members, and what each may do.
///
/// Invariants ([`Membership::check`]): learners are no voters; `learners_next` are outgoing voters
/// that are not incoming; without outgoing voters there are no `learners_next`, and no `auto_leave`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Membership {
    /// Whose majority decides. Empty only before the first entry of the log is applied.
    pub voters: BTreeSet<MemberId>,
    /// The voters of before, whose majority is needed too; empty but for the time of a change.
    pub voters_outgoing: BTreeSet<MemberId>,
    /// Who follows without a vote.
    pub learners: BTreeSet<MemberId>,
    /// Who becomes a learner when the outgoing voters are let go.
    pub learners_next: BTreeSet<MemberId>,
    /// Whether the leader lets the outgoing voters go by itself.
    pub auto_leave: bool,
}

/// One step for one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberChange {
    /// A new voter, or a learner that becomes one.
    AddVoter(MemberId),
    /// A new learner, or a voter that becomes one.
    AddLearner(MemberId),
    /// Is a member no more.
    Remove(MemberId),
}

/// A change of the membership, as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MembershipChange {
    /// The first voters: the first entry of every log, and nothing else.
    Initial(BTreeSet<MemberId>),
    /// At most one voter more or less, any number of learners.
    Simple(Vec<MemberChange>),
    /// Any change; until it is left, majorities of the old *and* the new voters are needed.
    EnterJoint {
        /// What changes.
        changes: Vec<MemberChange>,
        /// Whether the leader leaves by itself once the change is committed.
        auto_leave: bool,
    },
    /// Lets the outgoing voters go.
    LeaveJoint,
}

/// Why a change does not fit a membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MembershipRefusal {
    /// There are voters already.
    #[error("the cluster has its first voters already")]
    NotTheFirst,
    /// The last change has to be left first.
    #[error("the quorum is in the middle of a change; leave that one first")]
    Joint,
    /// There is nothing to leave.
    #[error("the quorum is not in the middle of a change")]
    NotJoint,
    /// Only a joint change may do that.
    #[error("more than one voter changes at once; that takes a joint change")]
    MoreThanOneVoter,
    /// The order of its steps would matter.
    #[error("a change names a member twice")]
    Twice,
    /// Nobody could decide anything.
    #[error("no voter would be left")]
    NoVoters,
    /// The bound of members.
    #[error("a quorum has at most {MEMBERS_MAX} members, and a change at most so many steps")]
    TooMany,
}

impl MemberChange {
    /// Whom it is about.
    #[must_use]
    pub fn member(self) -> MemberId {
        match self {
            MemberChange::AddVoter(member)
            | MemberChange::AddLearner(member)
            | MemberChange::Remove(member) => member,
        }
    }
}

impl Membership {
    /// Whether two sets of voters are needed.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// Whether `member` votes, in the old set or the new.
    #[must_use]
    pub fn is_voter(&self, member: MemberId) -> bool {
        self.voters.contains(&member) || self.voters_outgoing.contains(&member)
    }

    /// Whether `member` takes part in any way.
    #[must_use]
    pub fn contains(&self, member: MemberId) -> bool {
        self.is_voter(member) || self.learners.contains(&member)
    }

    /// Every member once, in order.
    #[must_use]
    pub fn members(&self) -> BTreeSet<MemberId> {
        self.voters.iter().chain(&self.voters_outgoing).chain(&self.learners).copied().collect()
    }

    /// The smallest change that makes `voters` the voters and `learners` the learners: a simple one
    /// where that is enough, else a joint one that the leader leaves by itself.
    #[must_use]
    pub fn change_to(
        &self,
        voters: &BTreeSet<MemberId>,
        learners: &BTreeSet<MemberId>,
    ) -> MembershipChange {
        let mut changes = Vec::new();
        changes.extend(voters.difference(&self.voters).map(|&m| MemberChange::AddVoter(m)));
        changes.extend(
            learners
                .difference(&self.learners)
                .filter(|m| !voters.contains(m))
                .map(|&m| MemberChange::AddLearner(m)),
        );
        changes.extend(
            self.voters
                .union(&self.learners)
                .filter(|m| !voters.contains(m) && !learners.contains(m))
                .map(|&m| MemberChange::Remove(m)),
        );
        if self.voters.symmetric_difference(voters).count() <= 1 {
            return MembershipChange::Simple(changes);
        }
        MembershipChange::EnterJoint { changes, auto_leave: true }
    }

    /// The membership after `change`.
    ///
    /// # Errors
    ///
    /// When the change does not fit; then everything stays as it is.
    pub fn after(&self, change: &MembershipChange) -> Result<Membership, MembershipRefusal> {
        let mut next = self.clone();
        match change {
            MembershipChange::Initial(voters) => {
                if *self != Membership::default() {
                    return Err(MembershipRefusal::NotTheFirst);
                }
                next.voters.clone_from(voters);
            }
            MembershipChange::Simple(changes) => {
                if self.is_joint() {
                    return Err(MembershipRefusal::Joint);
                }
                next.apply(changes)?;
                if 1 < next.voters.symmetric_difference(&self.voters).count() {
                    return Err(MembershipRefusal::MoreThanOneVoter);
                }
            }
            MembershipChange::EnterJoint { changes, auto_leave } => {
                if self.is_joint() {
                    return Err(MembershipRefusal::Joint);
                }
                next.voters_outgoing.clone_from(&self.voters);
                next.apply(changes)?;
                next.auto_leave = *auto_leave;
            }
            MembershipChange::LeaveJoint => {
                if !self.is_joint() {
                    return Err(MembershipRefusal::NotJoint);
                }
                next.voters_outgoing.clear();
                next.learners.append(&mut next.learners_next);
                next.auto_leave = false;
            }
        }
        next.check()?;
        Ok(next)
    }

    fn apply(&mut self, changes: &[MemberChange]) -> Result<(), MembershipRefusal> {
        if self.voters.is_empty() {
            return Err(MembershipRefusal::NoVoters);
        }
        if MEMBERS_MAX < changes.len() {
            return Err(MembershipRefusal::TooMany);
        }
        let named: BTreeSet<MemberId> = changes.iter().map(|change| change.member()).collect();
        if named.len() < changes.len() {
            return Err(MembershipRefusal::Twice);
        }
        for change in changes {
            match *change {
                MemberChange::AddVoter(member) => {
                    self.remove(member);
                    self.voters.insert(member);
                }
                MemberChange::AddLearner(member) => {
                    self.remove(member);
                    if self.voters_outgoing.contains(&member) {
                        self.learners_next.insert(member);
                    } else {
                        self.learners.insert(member);
                    }
                }
                MemberChange::Remove(member) => self.remove(member),
            }
        }
        Ok(())
    }

    fn remove(&mut self, member: MemberId) {
        self.voters.remove(&member);
        self.learners.remove(&member);
        self.learners_next.remove(&member);
    }

    /// Whether this is a membership that a quorum can have.
    ///
    /// # Errors
    ///
    /// When it has no voters, too many members, or contradicts itself.
    pub fn check(&self) -> Result<(), MembershipRefusal> {
        if self.voters.is_empty() {
            return Err(MembershipRefusal::NoVoters);
        }
        let joint = self.is_joint();
        if !joint && (!self.learners_next.is_empty() || self.auto_leave) {
            return Err(MembershipRefusal::NotJoint);
        }
        let learners_vote = self.learners.iter().any(|&m| self.is_voter(m));
        let next_are_outgoing = self.learners_next.is_subset(&self.voters_outgoing)
            && self.learners_next.is_disjoint(&self.voters);
        if learners_vote || !next_are_outgoing {
            return Err(MembershipRefusal::Joint);
        }
        if MEMBERS_MAX < self.members().len() {
            return Err(MembershipRefusal::TooMany);
        }
        Ok(())
    }
}

const MEMBERSHIP_VERSION: u8 = 1;

impl Membership {
    /// Its bytes, for the head of a snapshot; `docs/file-formats.md` draws them.
    ///
    /// # Panics
    ///
    /// When it has more than [`MEMBERS_MAX`] members by far, which [`Membership::check`] refuses.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(MEMBERSHIP_VERSION).u8(u8::from(self.auto_leave));
        out.members(&self.voters).members(&self.voters_outgoing);
        out.members(&self.learners).members(&self.learners_next);
        out.finish()
    }

    /// # Errors
    ///
    /// When the bytes are not those of a membership that a quorum can have.
    pub fn decode(bytes: &[u8]) -> Result<Membership, FoldError> {
        let mut reader = Reader::new(bytes);
        reader.version(MEMBERSHIP_VERSION, "membership")?;
        let membership = Membership {
            auto_leave: reader.bool()?,
            voters: reader.members()?,
            voters_outgoing: reader.members()?,
            learners: reader.members()?,
            learners_next: reader.members()?,
        };
        reader.end()?;
        membership.check().map_err(|refusal| FoldError(refusal.to_string()))?;
        Ok(membership)
    }
}

const INITIAL: u8 = 0;
const SIMPLE: u8 = 1;
const ENTER_JOINT: u8 = 2;
const ENTER_JOINT_TO_LEAVE: u8 = 3;
const LEAVE_JOINT: u8 = 4;

impl MembershipChange {
    /// Whether it is small enough to be kept.
    pub(super) fn fits(&self) -> bool {
        match self {
            MembershipChange::Initial(voters) => voters.len() <= MEMBERS_MAX,
            MembershipChange::Simple(changes) | MembershipChange::EnterJoint { changes, .. } => {
                changes.len() <= MEMBERS_MAX
            }
            MembershipChange::LeaveJoint => true,
        }
    }

    pub(super) fn write(&self, out: &mut Writer) {
        match self {
            MembershipChange::Initial(voters) => {
                out.u8(INITIAL).members(voters);
            }
            MembershipChange::Simple(changes) => write_changes(SIMPLE, changes, out),
            MembershipChange::EnterJoint { changes, auto_leave: false } => {
                write_changes(ENTER_JOINT, changes, out);
            }
            MembershipChange::EnterJoint { changes, auto_leave: true } => {
                write_changes(ENTER_JOINT_TO_LEAVE, changes, out);
            }
            MembershipChange::LeaveJoint => {
                out.u8(LEAVE_JOINT);
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<MembershipChange, FoldError> {
        let change = match reader.u8()? {
            INITIAL => MembershipChange::Initial(reader.members()?),
            SIMPLE => MembershipChange::Simple(read_changes(reader)?),
            ENTER_JOINT => {
                MembershipChange::EnterJoint { changes: read_changes(reader)?, auto_leave: false }
            }
            ENTER_JOINT_TO_LEAVE => {
                MembershipChange::EnterJoint { changes: read_changes(reader)?, auto_leave: true }
            }
            LEAVE_JOINT => MembershipChange::LeaveJoint,
            other => return Err(FoldError(format!("membership change {other} is not known"))),
        };
        if change.fits() {
            return Ok(change);
        }
        Err(FoldError(MembershipRefusal::TooMany.to_string()))
    }
}

const ADD_VOTER: u8 = 0;
const ADD_LEARNER: u8 = 1;
const REMOVE: u8 = 2;

fn write_changes(kind: u8, changes: &[MemberChange], out: &mut Writer) {
    out.u8(kind).count(changes.len());
    for change in changes {
        let (kind, member) = match *change {
            MemberChange::AddVoter(member) => (ADD_VOTER, member),
            MemberChange::AddLearner(member) => (ADD_LEARNER, member),
            MemberChange::Remove(member) => (REMOVE, member),
        };
        out.u8(kind).u64(member.number());
    }
}

fn read_changes(reader: &mut Reader<'_>) -> Result<Vec<MemberChange>, FoldError> {
    let count = reader.count()?;
    let mut changes = Vec::new();
    for _ in 0..count {
        let kind = reader.u8()?;
        let member = reader.member()?;
        changes.push(match kind {
            ADD_VOTER => MemberChange::AddVoter(member),
            ADD_LEARNER => MemberChange::AddLearner(member),
            REMOVE => MemberChange::Remove(member),
            other => return Err(FoldError(format!("change {other} of a member is not known"))),
        });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests;
