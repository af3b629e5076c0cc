//! LeaveGroup: members go, or an administrator removes static ones.

use std::sync::Arc;

use towpath_model::{Decision, Now, Token};

use super::draft::Draft;
use super::group::Phase;
use super::join::in_words;
use super::reply::{Left, Refusal, Reply};
use super::request::{Leave, Leaving};
use super::{GroupDecision, Groups, is_group_id};

impl Groups {
    pub(super) fn leave(&self, now: Now, token: Token, request: Leave) -> GroupDecision {
        if !is_group_id(&request.group) {
            return Decision::reply(token, Reply::Leave(Err(Refusal::InvalidGroupId)));
        }
        let Some(group) = self.live.get(&request.group).cloned() else {
            let refused = |leaving| left(leaving, Err(Refusal::UnknownMemberId));
            let refused = request.members.into_iter().map(refused).collect();
            return Decision::reply(token, Reply::Leave(Ok(refused)));
        };
        let mut draft = Draft::new(&self.config, now, request.group.clone(), group);
        let mut results = Vec::new();
        let mut reason = None;
        for leaving in request.members {
            let taken_out = draft.take_out(&leaving);
            if let Ok(member_id) = &taken_out {
                reason = Some(in_words("a member left", member_id, &leaving.reason));
            }
            results.push(left(leaving, taken_out.map(|_| ())));
        }
        if let Some(reason) = reason {
            draft.members_left(&reason);
        }
        draft.replies.push((token, Reply::Leave(Ok(results))));
        self.finish(draft)
    }
}

fn left(leaving: Leaving, result: Result<(), Refusal>) -> Left {
    Left { member_id: leaving.member_id, group_instance_id: leaving.group_instance_id, result }
}

impl Draft<'_> {
    fn take_out(&mut self, leaving: &Leaving) -> Result<Arc<str>, Refusal> {
        let instance = leaving.group_instance_id.as_deref();
        let group = self.group();
        let member_id: Arc<str> = if leaving.member_id.is_empty() {
            let current = instance.and_then(|instance| group.instances.get(instance));
            current.ok_or(Refusal::UnknownMemberId)?.clone()
        } else if group.pending.contains_key(&leaving.member_id) {
            leaving.member_id.clone()
        } else {
            group.check_member(&leaving.member_id, instance)?;
            leaving.member_id.clone()
        };
        self.remove_member(&member_id);
        Ok(member_id)
    }

    /// What follows when members are gone.
    pub(super) fn members_left(&mut self, reason: &str) {
        match self.group().phase {
            Phase::Completing | Phase::Stable => self.prepare_rebalance(reason),
            Phase::Preparing { .. } => self.complete_if_all_joined(),
            Phase::Empty => {}
        }
    }
}
