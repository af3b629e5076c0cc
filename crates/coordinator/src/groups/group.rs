//! A group as its leader knows it: a value, with questions and small changes. What leads to what
//! is in `rebalance.rs` and beside it.
//!
//! ```text
//!             join                    all joined, or time is up          leader's sync
//!   Empty ──────────▶ PreparingRebalance ──────────▶ CompletingRebalance ──────────▶ Stable
//!     ▲                │    ▲                            │   join, leave, expiry      │
//!     └── nobody left ─┘    └────────────────────────────┴────────────────────────────┘
//! ```
//!
//! Invariants: `leader` is a member unless there is none; `instances` maps to members; who waits in
//! a join is in `PreparingRebalance`, who waits in a sync is in `CompletingRebalance`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Generation, Now, Time, Timestamp};

use super::member::Member;
use super::record::StoredGroup;
use super::reply::{GroupState, Rebalance, Refusal};
use super::subscription;

/// A group with its members, timers and waiting requests. Opaque outside of this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub(super) phase: Phase,
    /// Since when it is in its phase.
    pub(super) since: Option<Timestamp>,
    /// The last generation that any member was told.
    pub(super) generation: Generation,
    pub(super) protocol_type: Option<Arc<str>>,
    /// The protocol of the generation.
    pub(super) protocol: Option<Arc<str>>,
    pub(super) leader: Option<Arc<str>>,
    pub(super) members: BTreeMap<Arc<str>, Arc<Member>>,
    /// Above the number of every member.
    next_number: u64,
    /// What the members add up to.
    totals: Totals,
    /// Static members: instance id to member id.
    pub(super) instances: BTreeMap<Arc<str>, Arc<str>>,
    /// Ids that were given out and not used yet, each until when.
    pub(super) pending: BTreeMap<Arc<str>, Time>,
    /// Members that have been told the generation and have not fetched their assignment, and until
    /// when they may.
    pub(super) unsynced: BTreeSet<Arc<str>>,
    pub(super) sync_ends: Time,
    /// What the generation's members subscribe to; `None` when that is not known.
    pub(super) subscribed: Option<Arc<BTreeSet<Arc<str>>>>,
    pub(super) last_rebalance: Option<Rebalance>,
    /// No deadline of the group lies before this moment. Heartbeats only move deadlines back, so
    /// they leave it alone; when it comes, the group is looked through and a new one found.
    pub(super) check_at: Option<Time>,
}

/// Where a group stands, with what only matters there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Empty,
    /// Until `ends`, members join. `initial` is the first rebalance of a group that was empty.
    Preparing {
        ends: Time,
        initial: Option<Initial>,
    },
    Completing,
    Stable,
}

/// The first rebalance waits in steps, as long as new members keep coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Initial {
    /// The step that is running.
    pub(super) step: Duration,
    /// What is left of the longest rebalance timeout after this step.
    pub(super) remaining: Duration,
    /// Whether a member came during this step.
    pub(super) member_came: bool,
}

/// Sums over the members, kept so that a join costs the same in a group of any size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Totals {
    joins_waiting: usize,
    metadata_bytes: usize,
    /// How many members can do a protocol; none is left out, so every count is positive.
    supporters: BTreeMap<Arc<str>, usize>,
}

impl Totals {
    fn add(&mut self, member: &Member) {
        self.joins_waiting += usize::from(member.waiting_join.is_some());
        self.metadata_bytes += member.metadata_bytes();
        for (name, _) in &member.protocols {
            *self.supporters.entry(name.clone()).or_default() += 1;
        }
    }

    fn subtract(&mut self, member: &Member) {
        self.joins_waiting -= usize::from(member.waiting_join.is_some());
        self.metadata_bytes -= member.metadata_bytes();
        for (name, _) in &member.protocols {
            let count = self.supporters.get_mut(name).expect("a member was added before");
            *count -= 1;
            if *count == 0 {
                self.supporters.remove(name);
            }
        }
    }
}

/// Waiting again for members that did not come takes at least this long, so that a rebalance
/// timeout of zero does not keep the process busy.
const RETRY_MIN: Duration = Duration::from_secs(1);

impl Group {
    /// A group that nobody has joined yet.
    pub(super) fn empty() -> Group {
        Group {
            phase: Phase::Empty,
            since: None,
            generation: Generation(0),
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            next_number: 0,
            totals: Totals::default(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            sync_ends: Time(0),
            subscribed: None,
            last_rebalance: None,
            check_at: None,
        }
    }

    /// The group that a new leader finds in the log.
    pub(super) fn load(now: Now, stored: &StoredGroup) -> Group {
        let protocol_type = Some(&stored.protocol_type).filter(|name| !name.is_empty());
        let mut group = Group {
            phase: if stored.members.is_empty() { Phase::Empty } else { Phase::Stable },
            since: stored.since,
            generation: stored.generation,
            protocol_type: protocol_type.cloned(),
            protocol: stored.protocol.clone(),
            ..Group::empty()
        };
        for member in &stored.members {
            let (member_id, member) = Member::load(now.time, stored.protocol.as_ref(), member);
            group.insert(member_id, member);
        }
        if let Some(leader) = stored.leader.as_ref().filter(|id| group.members.contains_key(*id)) {
            group.leader = Some(leader.clone());
        }
        group.subscribed = group.find_subscribed();
        group.assert_invariants();
        group
    }

    /// The logged form of the current generation.
    pub(super) fn store(&self) -> StoredGroup {
        let protocol = self.protocol.as_deref().unwrap_or("");
        StoredGroup {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            since: self.since,
            members: self.in_order().map(|(id, member)| member.store(id, protocol)).collect(),
        }
    }

    pub(super) fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing { .. } => GroupState::PreparingRebalance,
            Phase::Completing => GroupState::CompletingRebalance,
            Phase::Stable => GroupState::Stable,
        }
    }

    pub(super) fn enter(&mut self, now: Now, phase: Phase) {
        self.phase = phase;
        self.since = Some(now.wall);
    }

    /// The members in the order in which they joined: Kafka's order, which some assignors see.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Member>)> {
        let mut members: Vec<(&Arc<str>, &Arc<Member>)> = self.members.iter().collect();
        members.sort_unstable_by_key(|(_, member)| member.number);
        members.into_iter()
    }

    pub(super) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub(super) fn is_consumer_group(&self) -> bool {
        self.protocol_type.as_deref() == Some(subscription::CONSUMER)
    }

    /// Whether every member waits in a join, and nobody holds an unused id.
    pub(super) fn has_all_joined(&self) -> bool {
        self.pending.is_empty() && self.joins_waiting() == self.members.len()
    }

    /// Whether a join of `member_id` would just wait, changing no more than that member. The first
    /// member also decides on the protocol type, so it is never alone a matter of itself.
    pub(super) fn lets_wait(&self, member_id: &str) -> bool {
        let Phase::Preparing { initial, .. } = self.phase else { return false };
        let member = self.members.get(member_id);
        let is_new = member.is_none();
        let waits = member.is_some_and(|member| member.waiting_join.is_some());
        let pending = self.pending.len() - usize::from(self.pending.contains_key(member_id));
        let missing =
            self.members.len() + usize::from(is_new) - (self.joins_waiting() + usize::from(!waits));
        !self.members.is_empty() && (initial.is_some() || pending != 0 || missing != 0)
    }

    pub(super) fn joins_waiting(&self) -> usize {
        self.totals.joins_waiting
    }

    /// The longest that any member may take to rejoin.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    /// How long to wait again when nobody came.
    pub(super) fn retry_timeout(&self) -> Duration {
        self.rebalance_timeout().max(RETRY_MIN)
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.totals.metadata_bytes
    }

    /// Whether `member_id` is a member, and still the one that holds its instance id.
    pub(super) fn check_member(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
    ) -> Result<(), Refusal> {
        if let Some(instance) = group_instance_id {
            match self.instances.get(instance) {
                None => return Err(Refusal::UnknownMemberId),
                Some(current) if **current != *member_id => return Err(Refusal::FencedInstanceId),
                Some(_) => {}
            }
        }
        if !self.members.contains_key(member_id) {
            return Err(Refusal::UnknownMemberId);
        }
        Ok(())
    }

    /// Whether a member with these protocols could be in the next generation with the others.
    pub(super) fn fits(&self, protocol_type: &str, protocols: &[(Arc<str>, Arc<[u8]>)]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| self.all_support(name))
    }

    fn all_support(&self, protocol: &str) -> bool {
        self.totals.supporters.get(protocol) == Some(&self.members.len())
    }

    /// The protocol of the next generation: every member votes for the first of its own that all
    /// can do; among equals the leader's order decides.
    pub(super) fn elect_protocol(&self) -> Option<Arc<str>> {
        let leader = self.members.get(self.leader.as_ref()?)?;
        let names = leader.protocols.iter().map(|(name, _)| name);
        let candidates: Vec<&Arc<str>> = names.filter(|name| self.all_support(name)).collect();
        let vote = |member: &Member| {
            let first = member.protocols.iter().find(|(name, _)| candidates.contains(&name));
            first.map(|(name, _)| name.clone())
        };
        let votes: Vec<Arc<str>> = self.members.values().filter_map(|m| vote(m)).collect();
        let count = |candidate: &Arc<str>| votes.iter().filter(|vote| *vote == candidate).count();
        // `max_by_key` keeps the last of equals, so look from the leader's last to its first.
        candidates.into_iter().rev().max_by_key(|candidate| count(candidate)).cloned()
    }

    /// What the members of the generation subscribe to, where that can be known.
    pub(super) fn find_subscribed(&self) -> Option<Arc<BTreeSet<Arc<str>>>> {
        if !self.is_consumer_group() {
            return None;
        }
        if self.members.is_empty() {
            return Some(Arc::default());
        }
        let protocol = self.protocol.as_deref()?;
        let metadata: Vec<Arc<[u8]>> =
            self.members.values().map(|member| member.metadata(protocol)).collect();
        subscription::topics(metadata.iter().map(|bytes| &**bytes)).map(Arc::new)
    }

    /// Whether offsets in `topic` are in use by members. A consumer group of which that is not
    /// known uses all topics.
    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_consumer_group(),
        }
    }

    /// Changes a member, if it is one.
    pub(super) fn change<R>(
        &mut self,
        member_id: &str,
        change: impl FnOnce(&mut Member) -> R,
    ) -> Option<R> {
        let member = self.members.get_mut(member_id)?;
        self.totals.subtract(member);
        let result = change(Arc::make_mut(member));
        self.totals.add(member);
        Some(result)
    }

    /// Takes a member in; the first one leads.
    pub(super) fn insert(&mut self, member_id: Arc<str>, mut member: Member) {
        if let Some(instance) = &member.group_instance_id {
            self.instances.insert(instance.clone(), member_id.clone());
        }
        if let Phase::Preparing { initial: Some(initial), .. } = &mut self.phase {
            initial.member_came = true;
        }
        self.pending.remove(&member_id);
        self.leader.get_or_insert_with(|| member_id.clone());
        member.number = self.next_number;
        self.next_number += 1;
        self.totals.add(&member);
        self.members.insert(member_id, Arc::new(member));
    }

    /// Gives a member a longer session; never a shorter one, because `check_at` must stay before it.
    pub(super) fn renew(&mut self, member_id: &str, session_ends: Time) {
        if let Some(member) = self.members.get_mut(member_id).map(Arc::make_mut) {
            member.session_ends = member.session_ends.max(session_ends);
        }
    }

    /// Carries out a change of one member that moves nothing else, whether it is new or not.
    pub(super) fn put(&mut self, member_id: &Arc<str>, value: &Arc<Member>) {
        self.unsynced.remove(member_id);
        let expires_at = value.expires_at();
        match self.members.get_mut(member_id) {
            Some(member) => {
                self.totals.subtract(member);
                *member = value.clone();
                self.totals.add(member);
            }
            None => self.insert(member_id.clone(), Member::clone(value)),
        }
        self.check_at = self.check_at.into_iter().chain(expires_at).min();
    }

    /// Takes a member or an unused id out. Another member becomes the leader if it led.
    pub(super) fn remove(&mut self, member_id: &str) -> Option<Arc<Member>> {
        self.pending.remove(member_id);
        self.unsynced.remove(member_id);
        let member = self.members.remove(member_id)?;
        self.totals.subtract(&member);
        if let Some(instance) = &member.group_instance_id {
            self.instances.remove(instance);
        }
        if self.is_leader(member_id) {
            let first = self.in_order().next().map(|(id, _)| id.clone());
            self.leader = first;
        }
        Some(member)
    }

    /// The earliest moment at which time alone may change something.
    pub(super) fn earliest_deadline(&self) -> Option<Time> {
        let sessions = self.members.values().filter_map(|member| member.expires_at());
        let pending = self.pending.values().copied();
        let phase = match self.phase {
            Phase::Preparing { ends, .. } => Some(ends),
            _ => None,
        };
        let sync = (!self.unsynced.is_empty()).then_some(self.sync_ends);
        sessions.chain(pending).chain(phase).chain(sync).min()
    }

    /// Checked after every change.
    pub(super) fn assert_invariants(&self) {
        assert_eq!(self.leader.is_none(), self.members.is_empty());
        assert!(self.leader.iter().all(|leader| self.members.contains_key(leader)));
        assert!(self.instances.len() <= self.members.len());
        match self.phase {
            Phase::Empty => assert!(self.members.is_empty()),
            Phase::Preparing { .. } => assert!(self.unsynced.is_empty()),
            Phase::Completing | Phase::Stable => assert!(!self.members.is_empty()),
        }
        let mut totals = Totals::default();
        for (member_id, member) in &self.members {
            assert!(!self.pending.contains_key(member_id));
            assert!(member.number < self.next_number);
            totals.add(member);
            let preparing = matches!(self.phase, Phase::Preparing { .. });
            assert!(member.waiting_join.is_none() || preparing);
            assert!(member.waiting_sync.is_none() || self.phase == Phase::Completing);
        }
        assert_eq!(totals, self.totals);
    }
}
