//! SyncGroup: the leader hands the assignment of a generation in, and everyone fetches its share.
//!
//! The assignment is logged before anybody is answered. So a member never acts on a share that a
//! failover could take back, and two generations can never both be the last one.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_model::{Decision, Now, Token};

use super::draft::Draft;
use super::encoding;
use super::group::{Group, Phase};
use super::member::Member;
use super::record::{Record, StoredGroup};
use super::reply::{Refusal, Reply, Synced};
use super::request::Sync;
use super::{GroupDecision, Groups, is_group_id};

impl Groups {
    pub(super) fn sync(&self, now: Now, token: Token, request: Sync) -> GroupDecision {
        let group = match self.check_sync(&request) {
            Ok(group) => group.clone(),
            Err(refusal) => return Decision::reply(token, Reply::Sync(Err(refusal))),
        };
        let mut draft = Draft::new(&self.config, now, request.group.clone(), group);
        match draft.group().phase {
            Phase::Completing => draft.wait_for_assignment(token, request),
            _ => draft.fetch_assignment(token, &request.member_id),
        }
        self.finish(draft)
    }

    fn check_sync(&self, request: &Sync) -> Result<&Arc<Group>, Refusal> {
        if !is_group_id(&request.group) {
            return Err(Refusal::InvalidGroupId);
        }
        let group = self.live.get(&request.group).ok_or(Refusal::UnknownMemberId)?;
        group.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation != group.generation {
            return Err(Refusal::IllegalGeneration);
        }
        let differs = |asked: &Option<Arc<str>>, ours: &Option<Arc<str>>| {
            asked.as_ref().zip(ours.as_ref()).is_some_and(|(asked, ours)| asked != ours)
        };
        if differs(&request.protocol_type, &group.protocol_type)
            || differs(&request.protocol, &group.protocol)
        {
            return Err(Refusal::InconsistentGroupProtocol);
        }
        match group.phase {
            Phase::Preparing { .. } => Err(Refusal::RebalanceInProgress),
            Phase::Empty | Phase::Completing | Phase::Stable => Ok(group),
        }
    }
}

impl Draft<'_> {
    fn wait_for_assignment(&mut self, token: Token, request: Sync) {
        let member_id = &request.member_id;
        let mut member = Member::clone(&self.group().members[member_id]);
        if let Some(older) = member.waiting_sync.replace(token) {
            // It has lost its connection, most likely.
            self.replies.push((older, Reply::Sync(Err(Refusal::RebalanceInProgress))));
        }
        if !self.group().is_leader(member_id) {
            return self.put(member_id.clone(), member);
        }
        self.edit().put(member_id, &Arc::new(member));
        self.assign(request.assignments);
    }

    /// The leader has decided: log it and tell those who wait.
    fn assign(&mut self, assignments: Vec<(Arc<str>, Arc<[u8]>)>) {
        let now = self.now;
        let mut assignments: BTreeMap<Arc<str>, Arc<[u8]>> = assignments.into_iter().collect();
        let ids: Vec<Arc<str>> = self.group().members.keys().cloned().collect();
        for member_id in &ids {
            let assignment = assignments.remove(member_id).unwrap_or_else(|| [].into());
            self.edit().change(member_id, |member| member.assignment = assignment);
        }
        let value = StoredGroup { since: Some(now.wall), ..self.group().store() };
        if !self.fits_record(&value) {
            self.drop_assignments(Refusal::AssignmentTooLarge);
            self.prepare_rebalance("the assignment does not fit into one record");
            return;
        }

        self.edit().enter(now, Phase::Stable);
        self.records.push(Record::Stored { group: self.id.clone(), value: Some(value) });
        for member_id in &ids {
            let synced = self.synced(member_id);
            self.answer_sync(member_id, Ok(synced));
        }
    }

    fn fetch_assignment(&mut self, token: Token, member_id: &Arc<str>) {
        let synced = self.synced(member_id);
        self.replies.push((token, Reply::Sync(Ok(synced))));
        let mut member = Member::clone(&self.group().members[member_id]);
        member.renew(self.now.time);
        self.put(member_id.clone(), member);
    }

    fn synced(&self, member_id: &str) -> Synced {
        let group = self.group();
        let assignment = group.members.get(member_id).map(|member| member.assignment.clone());
        Synced {
            protocol_type: group.protocol_type.clone(),
            protocol: group.protocol.clone(),
            assignment: assignment.unwrap_or_else(|| [].into()),
        }
    }

    /// Whether the internal topic takes a record with this group.
    pub(super) fn fits_record(&self, group: &StoredGroup) -> bool {
        encoding::group_value(group).len() + self.id.len() <= self.config.record_bytes_max
    }

    /// The time to fetch the assignment is up: whoever did not is out.
    pub(super) fn sync_time_is_up(&mut self) {
        let unsynced = self.group().unsynced.clone();
        for member_id in &unsynced {
            self.remove_member(member_id);
        }
        self.rebalance_or_complete("members did not fetch their assignment in time");
    }
}
