//! One partition that this broker leads: its replication core, the state that is folded from it,
//! and everybody who waits for it.
//!
//! ```text
//! produce ─▶ admission ─▶ (driver appends) ─▶ appended ─▶ high watermark ─▶ wake, reply, commit
//!                                   (driver syncs) ─▶ synced ──┘
//! ```

use std::time::Duration;

use towpath_coordinator::groups::{self, Groups, Readers};
use towpath_coordinator::publishers::{self, Publishers};
use towpath_metadata::{self as metadata, Metadata};
use towpath_model::{Durability, KeyValue, LeaderEpoch, Now, Offset, Time, Token, TopicPartition};
use towpath_records::BatchHeader;
use towpath_replication::{Acks, Admission, EpochHistory, Leader, ProduceRefusal, Producers};

use crate::host::Host;
use crate::watches::{Condition, Outcome, Watches};

/// What is folded from a partition's records, if anything.
#[derive(Debug)]
pub enum State {
    /// Only records.
    None,
    /// The cluster's metadata.
    Metadata(Box<Host<Metadata>>),
    /// Consumer groups and their offsets.
    Groups(Box<Host<Groups>>),
    /// Results of HTTP publishers.
    Publishers(Box<Host<Publishers>>),
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
    /// Metadata that is committed now: publish it, and carry out what follows from it.
    MetadataCommitted(Vec<metadata::Record>),
    /// Answer of the metadata state machine.
    MetadataReply(Token, metadata::Reply),
    /// Answer of a group.
    GroupsReply(Token, groups::Reply),
    /// Answer of the publishers' state machine.
    PublishersReply(Token, publishers::Reply),
}

/// Runs `$body` on the host of whatever state the partition has.
macro_rules! with_host {
    ($state:expr, $host:ident => $body:expr, none => $none:expr) => {
        match $state {
            State::None => $none,
            State::Metadata($host) => $body,
            State::Groups($host) => $body,
            State::Publishers($host) => $body,
        }
    };
}

/// A led partition.
#[derive(Debug)]
pub struct Partition {
    id: TopicPartition,
    leader: Leader,
    state: State,
    /// Who reads what by this partition's committed records; empty unless it holds groups.
    readers: Readers,
    watches: Watches,
}

impl Partition {
    /// A partition whose log, producers and state have been recovered, all of it durable.
    pub fn new(id: TopicPartition, leader: Leader, state: State) -> Self {
        let mut readers = Readers::default();
        if let State::Groups(host) = &state {
            host.machine().logged_state().for_each(|record| readers.apply(&record));
        }
        Partition { id, leader, state, readers, watches: Watches::default() }
    }

    /// Which partition this is.
    pub fn id(&self) -> TopicPartition {
        self.id
    }

    /// The leader's core, for questions; `None` where this broker does not lead.
    pub fn leader(&self) -> Option<&Leader> {
        Some(&self.leader)
    }

    /// Whether this broker leads the partition.
    pub fn is_led(&self) -> bool {
        self.leader().is_some()
    }

    /// First offset kept.
    pub fn log_start_offset(&self) -> Offset {
        self.leader.log_start_offset()
    }

    /// First offset that is not known to be committed.
    pub fn high_watermark(&self) -> Offset {
        self.leader.high_watermark()
    }

    /// First offset of the oldest open transaction, or the high watermark.
    pub fn last_stable_offset(&self) -> Offset {
        self.leader.last_stable_offset()
    }

    /// First offset not yet written.
    pub fn log_end_offset(&self) -> Offset {
        self.leader.log_end_offset()
    }

    /// First offset not yet synced to this broker's disk.
    pub fn durable_offset(&self) -> Offset {
        self.leader.durable_offset()
    }

    /// The idempotent producers of this partition, as of the log's end.
    pub fn producers(&self) -> &Producers {
        self.leader.producers()
    }

    /// The leaderships that wrote the log.
    pub fn epochs(&self) -> &EpochHistory {
        self.leader.epochs()
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
        self.leader.produce(now, header, acks)
    }

    /// A batch (its header with the final base offset) lies in the log.
    pub fn appended(&mut self, now: Now, header: &BatchHeader, out: &mut Vec<Output>) {
        self.leader.appended(now, header);
        self.settle(out);
    }

    /// The log is durable up to `durable_offset` (exclusive).
    pub fn synced(&mut self, now: Now, durable_offset: Offset, out: &mut Vec<Output>) {
        self.leader.synced(now, durable_offset);
        self.settle(out);
    }

    /// The log starts later: records were deleted or have expired.
    pub fn log_start_moved(&mut self, to: Offset, out: &mut Vec<Output>) {
        self.leader.log_start_moved(to);
        self.settle(out);
    }

    /// Configuration that the replication core lives by has changed.
    pub fn configured(
        &mut self,
        min_insync_replicas: u32,
        durability: Durability,
        out: &mut Vec<Output>,
    ) {
        self.leader.set_config(min_insync_replicas, durability);
        self.settle(out);
    }

    /// Forgets producers that have been idle for longer than `idle`.
    pub fn expire_producers(&mut self, now: Now, idle: Duration) {
        self.leader.expire_producers(now, idle);
    }

    /// What a producer waits for before it is told that everything below `end` is written.
    /// `None`: nothing.
    pub fn acknowledgement(&self, acks: Acks, end: Offset) -> Option<Condition> {
        match (acks, self.leader.durability()) {
            (Acks::None, _) | (Acks::Leader, Durability::Relaxed) => None,
            (Acks::Leader, Durability::Synced) => Some(Condition::Durable(end)),
            (Acks::All, _) => Some(Condition::HighWatermark(end)),
        }
    }

    /// Waits for `condition`, unless it holds already; says whether it does.
    pub fn watch(&mut self, token: Token, condition: Condition) -> bool {
        let reached = match condition {
            Condition::HighWatermark(offset) => offset <= self.leader.high_watermark(),
            Condition::Durable(offset) => offset <= self.leader.durable_offset(),
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

    /// Asks the metadata; false when this partition does not hold it.
    pub fn ask_metadata(
        &mut self,
        now: Now,
        token: Token,
        request: metadata::Request,
        out: &mut Vec<Output>,
    ) -> bool {
        let State::Metadata(host) = &mut self.state else { return false };
        let records = host.request(now, token, request, self.leader.log_end_offset());
        self.order(records, out);
        true
    }

    /// Asks a group; false when this partition holds none.
    pub fn ask_groups(
        &mut self,
        now: Now,
        token: Token,
        request: groups::Request,
        out: &mut Vec<Output>,
    ) -> bool {
        let State::Groups(host) = &mut self.state else { return false };
        let records = host.request(now, token, request, self.leader.log_end_offset());
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
        let State::Publishers(host) = &mut self.state else { return false };
        let records = host.request(now, token, request, self.leader.log_end_offset());
        self.order(records, out);
        true
    }

    /// Lets time act on the state.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        let end = self.leader.log_end_offset();
        let records = with_host!(&mut self.state, host => host.expire(now, end), none => return);
        self.order(records, out);
    }

    /// Begins to lead with replayed state.
    pub fn resume(&mut self, now: Now, out: &mut Vec<Output>) {
        let end = self.leader.log_end_offset();
        let records = with_host!(&mut self.state, host => host.resume(now, end), none => return);
        self.order(records, out);
    }

    /// The records of the last [`Output::Append`] lie in the log as one batch.
    pub fn records_appended(&mut self, now: Now, header: &BatchHeader, out: &mut Vec<Output>) {
        self.leader.appended(now, header);
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
        self.leader.leader_epoch()
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
        let high_watermark = self.leader.high_watermark();
        let woken = self.watches.reached(high_watermark, self.leader.durable_offset());
        out.extend(woken.into_iter().map(|token| Output::Wake(token, Outcome::Reached)));
        match &mut self.state {
            State::None => {}
            State::Metadata(host) => {
                let freed = host.advance(high_watermark);
                if !freed.committed.is_empty() {
                    out.push(Output::MetadataCommitted(freed.committed));
                }
                out.extend(freed.replies.into_iter().map(|(t, r)| Output::MetadataReply(t, r)));
            }
            State::Groups(host) => {
                let freed = host.advance(high_watermark);
                freed.committed.iter().for_each(|record| self.readers.apply(record));
                out.extend(freed.replies.into_iter().map(|(t, r)| Output::GroupsReply(t, r)));
            }
            State::Publishers(host) => {
                let freed = host.advance(high_watermark);
                out.extend(freed.replies.into_iter().map(|(t, r)| Output::PublishersReply(t, r)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
