//! One partition that this broker holds, as its leader or as a follower: its replication core, the
//! state that is folded from it where it leads, and everybody who waits for it.
//!
//! ```text
//! produce ─▶ admission ─▶ (driver appends) ─▶ appended ─▶ high watermark ─▶ wake, reply, commit
//!                                   (driver syncs) ─▶ synced ──┘
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use towpath_coordinator::groups::{self, Groups, Readers};
use towpath_coordinator::publishers::{self, Publishers};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{
    BrokerId, Durability, KeyValue, LeaderEpoch, Now, Offset, Time, Token, TopicPartition,
};
use towpath_queue::Deliveries;
use towpath_records::BatchHeader;
use towpath_replication::{
    Acks, Admission, EpochHistory, EpochStart, FetchRefusal, InSyncProposal, Incarnation, Lead,
    Leader, PartitionDecision, ProduceRefusal, Producers, Replica, ReplicaGrant, ReplicaPosition,
};

use crate::host::Host;
use crate::watches::{Condition, Outcome, Watches};

/// What is folded from a partition's records, if anything.
#[derive(Debug)]
pub enum State {
    /// Only records.
    None,
    /// Consumer groups and their offsets.
    Groups(Box<Host<Groups>>),
    /// Results of HTTP publishers.
    Publishers(Box<Host<Publishers>>),
    /// Who was given which record of the partition that this delivery log belongs to.
    Deliveries(Box<Host<Deliveries>>),
}

/// An order to the driver. The append comes first and under the partition's lock; everything else
/// is carried out after the lock is released.
#[derive(Debug)]
pub enum Output {
    /// Append these as one batch, then call [`Partition::records_appended`] or
    /// [`Partition::records_not_appended`].
    Append(Vec<KeyValue>),
    /// A wait is over.
    Wake(Token, Outcome),
    /// Answer of a group.
    GroupsReply(Token, groups::Reply),
    /// Answer of the publishers' state machine.
    PublishersReply(Token, publishers::Reply),
    /// Answer of a queue's deliveries.
    DeliveriesReply(Token, towpath_queue::Reply),
}

/// Runs `$body` on the host of whatever state the partition has.
macro_rules! with_host {
    ($state:expr, $host:ident => $body:expr, none => $none:expr) => {
        match $state {
            State::None => $none,
            State::Groups($host) => $body,
            State::Publishers($host) => $body,
            State::Deliveries($host) => $body,
        }
    };
}

/// Runs `$body` on the replication core, whichever it is.
macro_rules! with_core {
    ($role:expr, $core:ident => $body:expr) => {
        match $role {
            Role::Leading($core) => $body,
            Role::Following($core) => $body,
            Role::Changing => unreachable!("a change of role is one step"),
        }
    };
}

/// What this broker is to a partition.
#[derive(Debug)]
enum Role {
    Leading(Leader),
    Following(Replica),
    /// Between the two; nobody ever sees it.
    Changing,
}

/// A partition whose replica this broker holds.
///
/// Only a leader has folded state; its waits, too, are the leader's, but for those of readers who
/// wait for the high watermark of a follower.
#[derive(Debug)]
pub struct Partition {
    id: TopicPartition,
    role: Role,
    state: State,
    /// Who reads what by this partition's committed records; empty unless it holds groups.
    readers: Readers,
    watches: Watches,
}

impl Partition {
    /// A partition to lead, whose log, producers and state have been recovered, all of it durable.
    pub fn new(id: TopicPartition, leader: Leader, state: State) -> Self {
        let readers = readers_of(&state);
        Partition { id, role: Role::Leading(leader), state, readers, watches: Watches::default() }
    }

    /// A partition to follow.
    pub fn followed(id: TopicPartition, replica: Replica) -> Self {
        Partition {
            id,
            role: Role::Following(replica),
            state: State::None,
            readers: Readers::default(),
            watches: Watches::default(),
        }
    }

    /// Begins to lead, with state folded from the log up to its end. Where this broker led already, as
    /// when a replica has been taken away, its log goes on as it is, and so does whoever waits for what is
    /// in it; but not who has asked a state, for that is folded anew.
    pub fn lead(&mut self, lead: Lead, state: State, out: &mut Vec<Output>) {
        let goes_on = self.is_led() && matches!(self.state, State::None);
        if !goes_on {
            self.resign(Outcome::NotLeader, out);
        }
        let replica = match std::mem::replace(&mut self.role, Role::Changing) {
            Role::Leading(leader) => leader.resign(),
            Role::Following(replica) => replica,
            Role::Changing => unreachable!("a change of role is one step"),
        };
        self.readers = readers_of(&state);
        self.state = state;
        self.role = Role::Leading(replica.lead(lead));
        self.settle(out);
    }

    /// Follows a leadership, or waits for one (`leader` is `None`). Whoever waits for this broker's
    /// own is told that it is over.
    pub fn follow(
        &mut self,
        leader: Option<BrokerId>,
        leader_epoch: LeaderEpoch,
        out: &mut Vec<Output>,
    ) {
        if self.is_led() {
            self.resign(Outcome::NotLeader, out);
            self.state = State::None;
            self.readers = Readers::default();
            let Role::Leading(leader) = std::mem::replace(&mut self.role, Role::Changing) else {
                unreachable!("just asked");
            };
            self.role = Role::Following(leader.resign());
        }
        if let Role::Following(replica) = &mut self.role {
            replica.follow(leader, leader_epoch);
        }
    }

    /// Which partition this is.
    pub fn id(&self) -> TopicPartition {
        self.id
    }

    /// The leader's core, for questions; `None` where this broker does not lead.
    pub fn leader(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leading(leader) => Some(leader),
            _ => None,
        }
    }

    /// The follower's core, for questions; `None` where this broker leads.
    pub fn replica(&self) -> Option<&Replica> {
        match &self.role {
            Role::Following(replica) => Some(replica),
            _ => None,
        }
    }

    fn leading(&mut self) -> &mut Leader {
        match &mut self.role {
            Role::Leading(leader) => leader,
            _ => panic!(
                "partition {} is not led here, and is asked to do what only a leader does",
                self.id
            ),
        }
    }

    fn following(&mut self) -> &mut Replica {
        match &mut self.role {
            Role::Following(replica) => replica,
            _ => panic!("partition {} is not followed here, and is asked to follow", self.id),
        }
    }

    /// Whether this broker leads the partition.
    pub fn is_led(&self) -> bool {
        self.leader().is_some()
    }

    /// First offset kept.
    pub fn log_start_offset(&self) -> Offset {
        with_core!(&self.role, core => core.log_start_offset())
    }

    /// Where the logs of all who count for the high watermark start, at the least; where this broker
    /// follows, its own start.
    pub fn low_watermark(&self) -> Offset {
        self.leader().map_or_else(|| self.log_start_offset(), Leader::low_watermark)
    }

    /// Where this log should start, if that is later than it does: others have deleted records that
    /// are still here.
    pub fn wanted_log_start(&self) -> Option<Offset> {
        with_core!(&self.role, core => core.wanted_log_start())
    }

    /// First offset that is not known to be committed.
    pub fn high_watermark(&self) -> Offset {
        with_core!(&self.role, core => core.high_watermark())
    }

    /// First offset of the oldest open transaction, or the high watermark.
    pub fn last_stable_offset(&self) -> Offset {
        self.high_watermark()
    }

    /// First offset not yet written.
    pub fn log_end_offset(&self) -> Offset {
        with_core!(&self.role, core => core.log_end_offset())
    }

    /// First offset not yet synced to this broker's disk.
    pub fn durable_offset(&self) -> Offset {
        with_core!(&self.role, core => core.durable_offset())
    }

    /// The idempotent producers of this partition, as of the log's end.
    pub fn producers(&self) -> &Producers {
        with_core!(&self.role, core => core.producers())
    }

    /// The leaderships that wrote the log.
    pub fn epochs(&self) -> &EpochHistory {
        with_core!(&self.role, core => core.epochs())
    }

    /// The folded state, for questions.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The committed offsets of the groups that this partition holds. They follow the high
    /// watermark: none of them can be lost.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Whether, and where, a producer's batch may be appended. Changes nothing.
    ///
    /// # Errors
    /// The refusal that the producer is told.
    pub fn produce(
        &self,
        now: Now,
        header: &BatchHeader,
        acks: Acks,
    ) -> Result<Admission, ProduceRefusal> {
        match &self.role {
            Role::Leading(leader) => leader.produce(now, header, acks),
            _ => panic!("partition {} is not led here", self.id),
        }
    }

    /// A batch (its header with the final base offset) lies in the log.
    pub fn appended(&mut self, now: Now, header: &BatchHeader, out: &mut Vec<Output>) {
        self.leading().appended(now, header);
        self.settle(out);
    }

    /// The log is durable up to `durable_offset` (exclusive).
    pub fn synced(&mut self, now: Now, durable_offset: Offset, out: &mut Vec<Output>) {
        match &mut self.role {
            Role::Leading(leader) => leader.synced(now, durable_offset),
            Role::Following(replica) => replica.synced(durable_offset),
            Role::Changing => unreachable!("a change of role is one step"),
        }
        self.settle(out);
    }

    /// The log starts later: records were deleted or have expired.
    pub fn log_start_moved(&mut self, to: Offset, out: &mut Vec<Output>) {
        with_core!(&mut self.role, core => core.log_start_moved(to));
        self.settle(out);
    }

    /// Configuration that the replication core lives by has changed.
    pub fn configured(
        &mut self,
        min_insync_replicas: u32,
        durability: Durability,
        out: &mut Vec<Output>,
    ) {
        match &mut self.role {
            Role::Leading(leader) => leader.set_config(min_insync_replicas, durability),
            Role::Following(replica) => replica.set_config(durability),
            Role::Changing => unreachable!("a change of role is one step"),
        }
        self.settle(out);
    }

    /// Forgets producers that have been idle for longer than `idle`.
    pub fn expire_producers(&mut self, now: Now, idle: Duration) {
        with_core!(&mut self.role, core => core.expire_producers(now, idle));
    }

    /// What a producer waits for before it is told that everything below `end` is written.
    /// `None`: nothing.
    pub fn acknowledgement(&self, acks: Acks, end: Offset) -> Option<Condition> {
        match (acks, self.durability()) {
            (Acks::None, _) | (Acks::Leader, Durability::Relaxed) => None,
            (Acks::Leader, Durability::Synced) => Some(Condition::Durable(end)),
            (Acks::All, _) => Some(Condition::HighWatermark(end)),
        }
    }

    /// Waits for `condition`, unless it holds already; says whether it does.
    pub fn watch(&mut self, token: Token, condition: Condition) -> bool {
        let reached = match condition {
            Condition::HighWatermark(offset) => offset <= self.high_watermark(),
            Condition::Durable(offset) => offset <= self.durable_offset(),
            Condition::LogStarts(_) if mutant::is_on(Mutant::DeletionAnsweredEarly) => true,
            Condition::LogStarts(offset) => offset <= self.low_watermark(),
        };
        if !reached {
            self.watches.add(token, condition);
        }
        reached
    }

    /// Gives up a wait.
    pub fn unwatch(&mut self, token: Token, condition: Condition) {
        self.watches.remove(token, condition);
    }

    /// How many waits there are.
    pub fn watch_count(&self) -> usize {
        self.watches.count()
    }

    /// Asks a group; false when this partition holds none.
    pub fn ask_groups(
        &mut self,
        now: Now,
        token: Token,
        request: groups::Request,
        out: &mut Vec<Output>,
    ) -> bool {
        let end = self.log_end_offset();
        let State::Groups(host) = &mut self.state else { return false };
        let records = host.request(now, token, request, end);
        self.order(records, out);
        true
    }

    /// Asks the publishers' state; false when this partition holds none.
    pub fn ask_publishers(
        &mut self,
        now: Now,
        token: Token,
        request: publishers::Request,
        out: &mut Vec<Output>,
    ) -> bool {
        let end = self.log_end_offset();
        let State::Publishers(host) = &mut self.state else { return false };
        let records = host.request(now, token, request, end);
        self.order(records, out);
        true
    }

    /// Asks the deliveries of a queue; false when this is no delivery log.
    pub fn ask_deliveries(
        &mut self,
        now: Now,
        token: Token,
        request: towpath_queue::Request,
        out: &mut Vec<Output>,
    ) -> bool {
        let end = self.log_end_offset();
        let State::Deliveries(host) = &mut self.state else { return false };
        if !host.machine().is_serving() {
            return false;
        }
        let records = host.request(now, token, request, end);
        self.order(records, out);
        true
    }

    /// Begins to lead with replayed deliveries, whose records' end has been told.
    pub fn resume_deliveries(&mut self, now: Now, out: &mut Vec<Output>) {
        let end = self.log_end_offset();
        if let State::Deliveries(host) = &mut self.state {
            let records = host.resume(now, end);
            self.order(records, out);
        }
    }

    /// The deliveries of a queue, for questions; none when this is no delivery log that is led here.
    pub fn deliveries(&self) -> Option<&Deliveries> {
        match &self.state {
            State::Deliveries(host) => Some(host.machine()),
            _ => None,
        }
    }

    /// Says something to the deliveries that is no change of their state: how they are configured, where
    /// their records end.
    pub fn tell_deliveries(&mut self, tell: impl FnOnce(&mut Deliveries)) {
        if let State::Deliveries(host) = &mut self.state {
            tell(host.machine_mut());
        }
    }

    /// Lets time act on the state.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        let end = self.log_end_offset();
        let records = with_host!(&mut self.state, host => host.expire(now, end), none => return);
        self.order(records, out);
    }

    /// Begins to lead with replayed state; deliveries do so later, by
    /// [`Partition::resume_deliveries`].
    pub fn resume(&mut self, now: Now, out: &mut Vec<Output>) {
        if matches!(self.state, State::Deliveries(_)) {
            return;
        }
        let end = self.log_end_offset();
        let records = with_host!(&mut self.state, host => host.resume(now, end), none => return);
        self.order(records, out);
    }

    /// The records of the last [`Output::Append`] lie in the log as one batch.
    pub fn records_appended(&mut self, now: Now, header: &BatchHeader, out: &mut Vec<Output>) {
        self.leading().appended(now, header);
        let (base, end) = (header.base_offset(), header.next_offset());
        with_host!(&mut self.state, host => host.appended(base, end), none => {});
        self.settle(out);
    }

    /// The records of the last [`Output::Append`] could not be written.
    pub fn records_not_appended(&mut self, out: &mut Vec<Output>) {
        let tokens = with_host!(&mut self.state, host => host.append_failed(), none => Vec::new());
        out.extend(tokens.into_iter().map(|t| Output::Wake(t, Outcome::StorageFailed)));
    }

    /// This broker stops leading the partition: everybody who waits is told why.
    pub fn resign(&mut self, outcome: Outcome, out: &mut Vec<Output>) {
        let mut tokens = self.watches.drain();
        tokens.extend(with_host!(&mut self.state, host => host.drop_parked(), none => Vec::new()));
        out.extend(tokens.into_iter().map(|token| Output::Wake(token, outcome)));
    }

    /// When [`Partition::expire`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        with_host!(&self.state, host => host.next_deadline(), none => None)
    }

    /// The epoch in which this broker leads.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        with_core!(&self.role, core => core.leader_epoch())
    }

    fn durability(&self) -> Durability {
        with_core!(&self.role, core => core.durability())
    }

    /// A follower says where its log ends; says whether there is something to send it.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub fn replica_asks(
        &mut self,
        now: Now,
        follower: Incarnation,
        position: &ReplicaPosition,
        out: &mut Vec<Output>,
    ) -> Result<ReplicaGrant, FetchRefusal> {
        let granted = self.leading().replica_asks(now, follower, position);
        self.settle(out);
        granted
    }

    /// Whoever another log of this partition may have brought into the in-sync set counts here too.
    /// Nothing where this broker follows.
    pub fn count_also(&mut self, brokers: &BTreeSet<BrokerId>) {
        if let Role::Leading(leader) = &mut self.role {
            leader.count_also(brokers);
        }
    }

    /// Asks the controller for an in-sync set.
    pub fn propose_in_sync(&mut self, proposal: InSyncProposal) {
        self.leading().propose_in_sync(proposal);
    }

    /// The controller has refused the set for good.
    pub fn proposal_refused(&mut self) {
        self.leading().proposal_refused();
    }

    /// The controller has decided about this partition, under the same leadership.
    pub fn decided(
        &mut self,
        now: Now,
        decision: PartitionDecision<'_>,
        out: &mut Vec<Output>,
    ) -> bool {
        let is_news = self.leading().partition_decided(now, decision);
        self.settle(out);
        is_news
    }

    /// A batch of the leader lies in this follower's log.
    pub fn replicated(&mut self, now: Now, header: &BatchHeader, starts: &[EpochStart]) {
        self.following().appended(now, header, starts);
    }

    /// What the leader says of its lines, once what came with it is in the log.
    pub fn leader_told(
        &mut self,
        high_watermark: Offset,
        log_start_offset: Offset,
        out: &mut Vec<Output>,
    ) {
        self.following().leader_told(high_watermark, log_start_offset);
        self.settle(out);
    }

    /// This follower's log has been cut.
    pub fn truncated(&mut self, log_end_offset: Offset, producers: Producers) {
        self.following().truncated(log_end_offset, producers);
    }

    /// This follower's log begins anew, at the beginning of its leader's.
    pub fn started_at(&mut self, offset: Offset, producers: Producers) {
        self.following().started_at(offset, producers);
    }

    /// An operator has accepted that committed records are lost.
    pub fn give_up_committed(&mut self) {
        self.following().give_up_committed();
    }

    /// Passes on an order to append, or settles what needed none.
    fn order(&mut self, records: Vec<KeyValue>, out: &mut Vec<Output>) {
        if records.is_empty() {
            self.settle(out);
        } else {
            out.push(Output::Append(records));
        }
    }

    /// Sets free whatever the offsets of this moment allow. Committed metadata comes before the
    /// replies that rest on it, so that who is told of a topic finds it.
    fn settle(&mut self, out: &mut Vec<Output>) {
        let high_watermark = self.high_watermark();
        let mut woken = self.watches.reached(high_watermark, self.durable_offset());
        if self.watches.wait_for_log_starts() {
            woken.extend(self.watches.starts_reached(self.low_watermark()));
        }
        out.extend(woken.into_iter().map(|token| Output::Wake(token, Outcome::Reached)));
        match &mut self.state {
            State::None => {}
            State::Groups(host) => {
                let freed = host.advance(high_watermark);
                freed.committed.iter().for_each(|record| self.readers.apply(record));
                out.extend(freed.replies.into_iter().map(|(t, r)| Output::GroupsReply(t, r)));
            }
            State::Publishers(host) => {
                let freed = host.advance(high_watermark);
                out.extend(freed.replies.into_iter().map(|(t, r)| Output::PublishersReply(t, r)));
            }
            State::Deliveries(host) => {
                let is_early = mutant::is_on(Mutant::DeliveriesAnsweredEarly);
                let to = if is_early { Offset(i64::MAX) } else { high_watermark };
                let freed = host.advance(to);
                out.extend(freed.replies.into_iter().map(|(t, r)| Output::DeliveriesReply(t, r)));
            }
        }
    }
}

fn readers_of(state: &State) -> Readers {
    let mut readers = Readers::default();
    if let State::Groups(host) = state {
        host.machine().logged_state().for_each(|record| readers.apply(&record));
    }
    readers
}

#[cfg(test)]
mod tests;
