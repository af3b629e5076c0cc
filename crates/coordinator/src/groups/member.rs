//! One member of a group, as the leader knows it.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Time, Token};

use super::record::StoredMember;

/// A member: what it can do, what it was given, and which of its requests wait. Opaque outside of
/// this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its place in the order of joining; the group gives it.
    pub(super) number: u64,
    pub(super) group_instance_id: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout: Duration,
    pub(super) session_timeout: Duration,
    /// Best first; after a replay only the one of the generation.
    pub(super) protocols: Vec<(Arc<str>, Arc<[u8]>)>,
    /// Its share of the generation; empty while there is none.
    pub(super) assignment: Arc<[u8]>,
    /// When it counts as gone, unless a request of it waits.
    pub(super) session_ends: Time,
    /// Whether it has never been in a generation. Such a member cannot heartbeat, so its waiting
    /// join does not prove that it lives: `session_ends` holds in any case, and is far.
    pub(super) is_new: bool,
    /// Its JoinGroup that waits for the others.
    pub(super) waiting_join: Option<Token>,
    /// Its SyncGroup that waits for the leader's.
    pub(super) waiting_sync: Option<Token>,
}

impl Member {
    /// The member that a new leader finds in the log: with a fresh session.
    pub(super) fn load(
        now: Time,
        protocol: Option<&Arc<str>>,
        stored: &StoredMember,
    ) -> (Arc<str>, Member) {
        let protocol = protocol.cloned().unwrap_or_else(|| "".into());
        let member = Member {
            number: 0,
            group_instance_id: stored.group_instance_id.clone(),
            client_id: stored.client_id.clone(),
            client_host: stored.client_host.clone(),
            rebalance_timeout: stored.rebalance_timeout,
            session_timeout: stored.session_timeout,
            protocols: vec![(protocol, stored.subscription.clone())],
            assignment: stored.assignment.clone(),
            session_ends: now + stored.session_timeout,
            is_new: false,
            waiting_join: None,
            waiting_sync: None,
        };
        (stored.member_id.clone(), member)
    }

    /// The logged form, for the generation's `protocol`.
    pub(super) fn store(&self, member_id: &Arc<str>, protocol: &str) -> StoredMember {
        StoredMember {
            member_id: member_id.clone(),
            group_instance_id: self.group_instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout: self.rebalance_timeout,
            session_timeout: self.session_timeout,
            subscription: self.metadata(protocol),
            assignment: self.assignment.clone(),
        }
    }

    /// Its metadata for `protocol`; empty when it cannot do that.
    pub(super) fn metadata(&self, protocol: &str) -> Arc<[u8]> {
        let found = self.protocols.iter().find(|(name, _)| **name == *protocol);
        found.map_or_else(|| [].into(), |(_, metadata)| metadata.clone())
    }

    /// Bytes of its protocols, for the group's bound.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum()
    }

    /// When it counts as gone; `None` while a request of it waits, which is as good as a
    /// heartbeat.
    pub(super) fn expires_at(&self) -> Option<Time> {
        let waits = self.waiting_join.is_some() || self.waiting_sync.is_some();
        (self.is_new || !waits).then_some(self.session_ends)
    }

    /// It has shown that it lives.
    pub(super) fn renew(&mut self, now: Time) {
        self.session_ends = now + self.session_timeout;
    }
}
