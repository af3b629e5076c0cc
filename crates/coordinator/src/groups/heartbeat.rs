//! Heartbeat: a member says that it lives, and hears whether it must join again.

use std::sync::Arc;

use towpath_model::{Decision, Now, Token};

use super::group::{Group, Phase};
use super::record::Record;
use super::reply::{Refusal, Reply};
use super::request::Heartbeat;
use super::{GroupDecision, Groups, is_group_id};

impl Groups {
    pub(super) fn heartbeat(&self, now: Now, token: Token, request: Heartbeat) -> GroupDecision {
        let group = match self.check_heartbeat(&request) {
            Ok(group) => group,
            Err(refusal) => return Decision::reply(token, Reply::Heartbeat(Err(refusal))),
        };
        let answer = match group.phase {
            Phase::Preparing { .. } => Err(Refusal::RebalanceInProgress),
            Phase::Empty | Phase::Completing | Phase::Stable => Ok(()),
        };
        let mut decision = Decision::reply(token, Reply::Heartbeat(answer));
        decision.records.extend(self.heard_from(now, &request.group, &request.member_id));
        decision
    }

    fn check_heartbeat(&self, request: &Heartbeat) -> Result<&Arc<Group>, Refusal> {
        if !is_group_id(&request.group) {
            return Err(Refusal::InvalidGroupId);
        }
        let group = self.live.get(&request.group).ok_or(Refusal::UnknownMemberId)?;
        group.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation != group.generation {
            return Err(Refusal::IllegalGeneration);
        }
        Ok(group)
    }

    /// The record that gives a member a fresh session, if it is one.
    pub(super) fn heard_from(
        &self,
        now: Now,
        group: &Arc<str>,
        member_id: &Arc<str>,
    ) -> Option<Record> {
        let member = self.live.get(group)?.members.get(member_id)?;
        let session_ends = now.time + member.session_timeout;
        Some(Record::Heartbeat { group: group.clone(), member_id: member_id.clone(), session_ends })
    }
}
