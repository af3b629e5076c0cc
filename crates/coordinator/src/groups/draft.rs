//! A group while one decision is worked out on it.
//!
//! A rebalance is a chain (a leave begins it, the last join completes it, a dozen requests are
//! answered), so a decision works on a copy of the group and ends in one record that holds the
//! result. Members are shared, so the copy costs a pointer per member, and a decision that changes
//! nothing copies nothing.

use std::sync::Arc;

use towpath_model::{Now, Token};

use super::config::GroupsConfig;
use super::group::Group;
use super::member::Member;
use super::record::Record;
use super::reply::{JoinRefusal, Joined, Refusal, Reply, Synced};

/// One group, the records and the answers of a decision about it.
pub(super) struct Draft<'a> {
    pub(super) config: &'a GroupsConfig,
    pub(super) now: Now,
    pub(super) id: Arc<str>,
    group: Arc<Group>,
    pub(super) is_changed: bool,
    /// Logged records, in order.
    pub(super) records: Vec<Record>,
    pub(super) replies: Vec<(Token, Reply)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        config: &'a GroupsConfig,
        now: Now,
        id: Arc<str>,
        group: Arc<Group>,
    ) -> Draft<'a> {
        let (records, replies) = (Vec::new(), Vec::new());
        Draft { config, now, id, group, is_changed: false, records, replies }
    }

    /// The group as it is so far.
    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// The group, to change it.
    pub(super) fn edit(&mut self) -> &mut Group {
        self.is_changed = true;
        Arc::make_mut(&mut self.group)
    }

    /// The result.
    pub(super) fn into_group(self) -> Arc<Group> {
        self.group
    }

    /// Records that `member_id` has become `member`, and nothing else has changed. Only where the
    /// draft is untouched; it stays so.
    pub(super) fn put(&mut self, member_id: Arc<str>, member: Member) {
        assert!(!self.is_changed);
        let (group, value) = (self.id.clone(), Arc::new(member));
        self.records.push(Record::Member { group, member_id, value });
    }

    pub(super) fn refuse_join(&mut self, token: Token, refusal: Refusal, member_id: &Arc<str>) {
        let refusal = JoinRefusal { refusal, member_id: member_id.clone() };
        self.replies.push((token, Reply::Join(Err(refusal))));
    }

    /// Answers the join in which `member_id` waits, if it does.
    pub(super) fn answer_join(&mut self, member_id: &str, answer: Result<Joined, JoinRefusal>) {
        let is_waiting = |group: &Group| group.members.get(member_id)?.waiting_join;
        let Some(token) = is_waiting(self.group()) else { return };
        self.edit().change(member_id, |member| member.waiting_join = None);
        self.replies.push((token, Reply::Join(answer)));
    }

    /// Answers the sync in which `member_id` waits, if it does; the answer is as good as a
    /// heartbeat.
    pub(super) fn answer_sync(&mut self, member_id: &str, answer: Result<Synced, Refusal>) {
        let now = self.now.time;
        let is_waiting = |group: &Group| group.members.get(member_id)?.waiting_sync;
        let Some(token) = is_waiting(self.group()) else { return };
        self.edit().change(member_id, |member| {
            member.waiting_sync = None;
            member.renew(now);
        });
        self.replies.push((token, Reply::Sync(answer)));
    }
}
