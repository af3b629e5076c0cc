//! How one generation follows another: members are asked to join again, wait for each other, and
//! get the number of the next generation together.
//!
//! A generation is logged (without members) before any member hears its number, so that no number
//! is ever given out twice, whatever crashes: a new leader that finds a generation without members
//! knows that nobody has an assignment from it, and that everybody must join anew.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};

use super::draft::Draft;
use super::group::{Initial, Phase};
use super::member::Member;
use super::record::{Record, StoredGroup};
use super::reply::{JoinRefusal, Joined, JoinedMember, Rebalance, Refusal};

impl Draft<'_> {
    /// What follows when the set of members (or what they can do) has changed.
    pub(super) fn rebalance_or_complete(&mut self, reason: &str) {
        match self.group().phase {
            Phase::Empty | Phase::Completing | Phase::Stable => self.prepare_rebalance(reason),
            Phase::Preparing { .. } => self.complete_if_all_joined(),
        }
    }

    /// Begins a rebalance: from here on every member has to join again.
    pub(super) fn prepare_rebalance(&mut self, reason: &str) {
        if self.group().phase == Phase::Completing {
            self.drop_assignments(Refusal::RebalanceInProgress);
        }
        let (now, delay) = (self.now, self.config.initial_rebalance_delay);
        let was_empty = self.group().phase == Phase::Empty;
        let group = self.edit();
        group.unsynced.clear();
        group.last_rebalance = Some(Rebalance { at: now.wall, reason: reason.into() });
        let timeout = group.rebalance_timeout();
        if was_empty && delay != Duration::ZERO {
            let remaining = timeout.saturating_sub(delay);
            let initial = Initial { step: delay, remaining, member_came: false };
            let ends = now.time + delay;
            group.enter(now, Phase::Preparing { ends, initial: Some(initial) });
            return;
        }
        group.enter(now, Phase::Preparing { ends: now.time + timeout, initial: None });
        if was_empty || self.group().has_all_joined() {
            self.complete_join();
        }
    }

    /// Completes the join as soon as nobody is missing; a first rebalance waits its time.
    pub(super) fn complete_if_all_joined(&mut self) {
        let Phase::Preparing { initial: None, .. } = self.group().phase else { return };
        if self.group().has_all_joined() {
            self.complete_join();
        }
    }

    /// The time to join is up: a first rebalance may take another step, any other goes on without
    /// those who did not come.
    pub(super) fn join_time_is_up(&mut self) {
        let now = self.now;
        let Phase::Preparing { initial, .. } = self.group().phase else { return };
        match initial {
            Some(Initial { step, remaining, member_came: true }) if remaining != Duration::ZERO => {
                let next = self.config.initial_rebalance_delay.min(remaining);
                let remaining = remaining.saturating_sub(step);
                let initial = Some(Initial { step: next, remaining, member_came: false });
                self.edit().phase = Phase::Preparing { ends: now.time + next, initial };
            }
            _ => self.complete_join(),
        }
    }

    /// Ends the join: those who did not come are out (static members stay), and everyone else
    /// learns the next generation.
    pub(super) fn complete_join(&mut self) {
        let now = self.now;
        self.remove_dynamic_absentees();
        if !self.elect_present_leader() && !self.group().members.is_empty() {
            let group = self.edit();
            let ends = now.time + group.retry_timeout();
            group.phase = Phase::Preparing { ends, initial: None };
            return;
        }

        let group = self.edit();
        // Nobody reaches 2^31 rebalances; if somebody does, counting starts again.
        if !mutant::is_on(Mutant::GenerationKept) {
            group.generation.0 = group.generation.0.checked_add(1).unwrap_or(1);
        }
        group.protocol = group.elect_protocol();
        group.subscribed = group.find_subscribed();
        let is_empty = group.members.is_empty();
        group.enter(now, if is_empty { Phase::Empty } else { Phase::Completing });
        self.store_generation();
        if !is_empty {
            self.answer_joins();
        }
    }

    fn remove_dynamic_absentees(&mut self) {
        let is_absent =
            |member: &Member| member.waiting_join.is_none() && member.group_instance_id.is_none();
        let members = self.group().members.iter();
        let absent: Vec<Arc<str>> =
            members.filter(|(_, member)| is_absent(member)).map(|(id, _)| id.clone()).collect();
        for member_id in absent {
            self.edit().remove(&member_id);
        }
    }

    /// Makes sure that the leader is one who has joined, for somebody must assign. Whether there
    /// is one.
    fn elect_present_leader(&mut self) -> bool {
        let group = self.group();
        let has_joined = |id: &Arc<str>| group.members[id].waiting_join.is_some();
        if group.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let present = group.in_order().map(|(id, _)| id).find(|id| has_joined(id));
        let Some(leader) = present.cloned() else { return false };
        self.edit().leader = Some(leader);
        true
    }

    /// Logs the number of the generation, without members: they have no assignment yet.
    fn store_generation(&mut self) {
        if mutant::is_on(Mutant::GenerationNotLogged) {
            return;
        }
        let stored = self.group().store();
        let value = StoredGroup { protocol: None, leader: None, members: Vec::new(), ..stored };
        self.records.push(Record::Stored { group: self.id.clone(), value: Some(value) });
    }

    fn answer_joins(&mut self) {
        let now = self.now.time;
        let ids: Vec<Arc<str>> = self.group().members.keys().cloned().collect();
        for member_id in &ids {
            let joined = self.joined(member_id);
            self.answer_join(member_id, Ok(joined));
            let group = self.edit();
            group.unsynced.insert(member_id.clone());
            group.change(member_id, |member| {
                member.is_new = false;
                member.renew(now);
            });
        }
        let group = self.edit();
        group.sync_ends = now + group.rebalance_timeout();
    }

    /// What `member_id` is told about the current generation; the leader learns the members.
    pub(super) fn joined(&self, member_id: &Arc<str>) -> Joined {
        let group = self.group();
        let members = if group.is_leader(member_id) { self.joined_members() } else { Vec::new() };
        Joined {
            generation: group.generation,
            protocol_type: group.protocol_type.clone(),
            protocol: group.protocol.clone(),
            leader: group.leader.clone().unwrap_or_else(|| "".into()),
            skip_assignment: false,
            member_id: member_id.clone(),
            members,
        }
    }

    fn joined_members(&self) -> Vec<JoinedMember> {
        let group = self.group();
        let protocol = group.protocol.as_deref().unwrap_or("");
        let joined = |(id, member): (&Arc<str>, &Arc<Member>)| JoinedMember {
            member_id: id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            metadata: member.metadata(protocol),
        };
        group.in_order().map(joined).collect()
    }

    /// Takes all assignments back and answers the waiting syncs with `refusal`.
    pub(super) fn drop_assignments(&mut self, refusal: Refusal) {
        let ids: Vec<Arc<str>> = self.group().members.keys().cloned().collect();
        for member_id in &ids {
            self.edit().change(member_id, |member| member.assignment = [].into());
            self.answer_sync(member_id, Err(refusal));
        }
    }

    /// Takes a member out that did not ask for it; what it waits for ends as unknown.
    pub(super) fn remove_member(&mut self, member_id: &Arc<str>) {
        let refusal = JoinRefusal { refusal: Refusal::UnknownMemberId, member_id: "".into() };
        self.answer_join(member_id, Err(refusal));
        self.answer_sync(member_id, Err(Refusal::UnknownMemberId));
        self.edit().remove(member_id);
    }
}
