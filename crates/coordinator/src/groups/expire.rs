//! What time alone leads to in a group: sessions end, waits end.

use std::sync::Arc;

use towpath_model::{Decision, Now};

use super::draft::Draft;
use super::group::{Group, Phase};
use super::{GroupDecision, Groups};

/// Most groups looked at in one step; the rest is due again at once.
const GROUPS_PER_STEP: usize = 16;

impl Groups {
    pub(super) fn expire_groups(&self, now: Now) -> GroupDecision {
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now.time);
        let mut all = Decision::default();
        for (_, id) in due.take(GROUPS_PER_STEP) {
            let mut draft = Draft::new(&self.config, now, id.clone(), self.live[id].clone());
            draft.expire();
            let decision = self.finish(draft);
            all.records.extend(decision.records);
            all.replies.extend(decision.replies);
        }
        all
    }
}

impl Draft<'_> {
    fn expire(&mut self) {
        let now = self.now.time;
        // Even if nothing is due (heartbeats have moved it away), a new deadline must be found.
        self.edit();
        for member_id in self.ids(|group| {
            let pending = group.pending.iter();
            pending.filter(|(_, until)| **until <= now).map(|(id, _)| id.clone()).collect()
        }) {
            self.edit().remove(&member_id);
            self.complete_if_nobody_is_missing();
        }
        for member_id in self.ids(|group| {
            let is_over = |ends: towpath_model::Time| ends <= now;
            let members = group.members.iter();
            let gone = members.filter(|(_, member)| member.expires_at().is_some_and(is_over));
            gone.map(|(id, _)| id.clone()).collect()
        }) {
            self.session_is_over(&member_id);
        }
        if let Phase::Preparing { ends, .. } = self.group().phase
            && ends <= now
        {
            self.join_time_is_up();
        }
        if !self.group().unsynced.is_empty() && self.group().sync_ends <= now {
            self.sync_time_is_up();
        }
    }

    fn ids(&self, find: impl Fn(&Group) -> Vec<Arc<str>>) -> Vec<Arc<str>> {
        find(self.group())
    }

    fn session_is_over(&mut self, member_id: &Arc<str>) {
        // The one before it may have completed the join, and with it the member has a new session.
        let member = self.group().members.get(member_id);
        let ends = member.and_then(|member| member.expires_at());
        if ends.is_none_or(|ends| self.now.time < ends) {
            return;
        }
        self.remove_member(member_id);
        match self.group().phase {
            Phase::Completing | Phase::Stable => {
                self.prepare_rebalance(&format!("a member was not heard from: {member_id}"));
            }
            Phase::Empty | Phase::Preparing { .. } => self.complete_if_nobody_is_missing(),
        }
    }

    /// Unlike a leave, an expiry also ends the wait of a first rebalance, when everyone else has
    /// joined.
    fn complete_if_nobody_is_missing(&mut self) {
        let is_preparing = matches!(self.group().phase, Phase::Preparing { .. });
        if is_preparing && self.group().has_all_joined() {
            self.complete_join();
        }
    }
}
