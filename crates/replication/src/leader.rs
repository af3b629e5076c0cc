//! The leader of one partition.
//!
//!   produce ──▶ Append{base offset} ─(log writes)─▶ appended ─(disk syncs)─▶ synced ─┐
//!   replica_asks, follower_reported ──────────────────────────────────────────────────┴▶ high watermark
//!
//! `produce` decides and changes nothing; between it and `appended` the caller holds the partition,
//! so nothing can come between a check and its use. An append that fails is simply never reported.
//!
//! The high watermark is the smallest durable offset (relaxed topics: log end offset) over the
//! *maximal* in-sync set, that is the agreed set together with whoever the controller was asked for
//! since (KIP-497): whoever may become leader must hold what was acknowledged. It stands
//! still while fewer replicas are in sync than `min.insync.replicas` asks for (KIP-966), and it
//! never goes back under one leadership.

mod followers;
mod in_sync;
mod replicas;

use std::collections::BTreeSet;
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerId, Durability, LeaderEpoch, Now, Offset, Time};
use towpath_records::BatchHeader;

use crate::admission::{Acks, Admission, ProduceRefusal};
use crate::epochs::{EpochHistory, EpochRefusal};
use crate::follower::FollowerView;
use crate::producers::{Producers, Verdict};
use crate::replica::{Replica, ReplicaStart};

use followers::Followers;

pub use in_sync::{InSyncProposal, PartitionDecision};
pub use replicas::{PRODUCERS_TOLD_MAX, ReplicaGrant};

/// What a broker knows when it begins to lead.
#[derive(Debug, Clone)]
pub struct LeaderStart {
    /// This broker.
    pub me: BrokerId,
    /// The leadership; later than every one that `epochs` knows, or equal to the last.
    pub leader_epoch: LeaderEpoch,
    /// The controller's number of the partition's state that says so (KIP-497).
    pub partition_epoch: i32,
    /// When it begins: a follower that has not been heard of has stood still since then.
    pub begun_at: Time,
    /// Who holds replicas, this broker among them.
    pub replicas: Vec<BrokerId>,
    /// Who counts for the high watermark, this broker among them.
    pub in_sync: BTreeSet<BrokerId>,
    /// `min.insync.replicas`; counts as the number of replicas where it is larger.
    pub min_insync_replicas: u32,
    /// The topic's durability.
    pub durability: Durability,
    /// First offset of the log.
    pub log_start_offset: Offset,
    /// First offset not yet written.
    pub log_end_offset: Offset,
    /// First offset not yet synced to this broker's disk.
    pub durable_offset: Offset,
    /// The high watermark this broker has known as a follower in this process, if it has: readers
    /// have seen it, so it must not fall. The log start offset where there is none.
    pub high_watermark: Offset,
    /// Producer state as of the log's end.
    pub producers: Producers,
    /// The leaderships that wrote the log.
    pub epochs: EpochHistory,
}

/// The leader of one partition, under one leadership.
///
/// Invariants: log_start_offset <= high_watermark <= log_end_offset;
/// durable_offset <= log_end_offset; `me` is a replica and in sync; every in-sync broker is a
/// replica; in a synced topic the high watermark has never passed an offset that was not durable on
/// all of the in-sync set of that moment.
#[derive(Debug, Clone)]
pub struct Leader {
    me: BrokerId,
    leader_epoch: LeaderEpoch,
    partition_epoch: i32,
    followers: Followers,
    in_sync: BTreeSet<BrokerId>,
    /// What the controller has been asked and has not answered.
    proposal: Option<InSyncProposal>,
    /// Who is not in `in_sync` and may be for the controller by now: whoever was proposed since
    /// `partition_epoch`, whatever became of the proposal.
    asked_for: BTreeSet<BrokerId>,
    min_insync_replicas: u32,
    durability: Durability,
    log_start_offset: Offset,
    log_end_offset: Offset,
    durable_offset: Offset,
    high_watermark: Offset,
    /// Where this leadership began to write: who joins the in-sync set must have come this far, or
    /// it may lack what the high watermark, which this leader may know late, has passed already.
    epoch_start_offset: Offset,
    producers: Producers,
    epochs: EpochHistory,
}

impl Leader {
    /// Begins to lead.
    ///
    /// # Panics
    ///
    /// When `start` breaks one of the invariants above.
    #[must_use]
    pub fn new(start: LeaderStart) -> Leader {
        assert!(start.replicas.contains(&start.me), "a leader holds a replica");
        assert!(start.epochs.latest().is_none_or(|latest| latest <= start.leader_epoch));
        let me = start.me;
        let mut followers = Followers::default();
        followers.become_those_of(me, &start.replicas, start.begun_at);
        let mut epochs = start.epochs;
        epochs.enter(start.leader_epoch, start.log_end_offset);
        let mut leader = Leader {
            me,
            leader_epoch: start.leader_epoch,
            partition_epoch: start.partition_epoch,
            followers,
            in_sync: start.in_sync,
            proposal: None,
            asked_for: BTreeSet::new(),
            min_insync_replicas: start.min_insync_replicas,
            durability: start.durability,
            log_start_offset: start.log_start_offset,
            log_end_offset: start.log_end_offset,
            durable_offset: start.durable_offset,
            high_watermark: start
                .high_watermark
                .max(start.log_start_offset)
                .min(start.log_end_offset),
            epoch_start_offset: start.log_end_offset,
            producers: start.producers,
            epochs,
        };
        leader.advance_high_watermark();
        if leader.leader_offset() <= leader.high_watermark {
            // Nobody waits for anybody: in-sync followers hold all of this.
            leader.followers.iter_mut().for_each(|follower| follower.behind_since = None);
        }
        leader.assert_invariants();
        leader
    }

    /// Ends this leadership; the log goes on as a replica's, of a leader yet to be named.
    #[must_use]
    pub fn resign(self) -> Replica {
        Replica::new(ReplicaStart {
            me: self.me,
            leader: None,
            leader_epoch: self.leader_epoch,
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
            durable_offset: self.durable_offset,
            high_watermark: self.high_watermark,
            durability: self.durability,
            producers: self.producers,
            epochs: self.epochs,
        })
    }

    /// Whether a batch may be appended, and where. The header is as the producer sent it.
    pub fn produce(
        &self,
        _now: Now,
        header: &BatchHeader,
        acks: Acks,
    ) -> Result<Admission, ProduceRefusal> {
        let in_sync = self.in_sync_count();
        let min = self.effective_min_insync_replicas();
        if acks == Acks::All && in_sync < min {
            return Err(ProduceRefusal::NotEnoughReplicas { in_sync, min });
        }
        match self.producers.judge(header)? {
            Verdict::New => Ok(Admission::Append {
                base_offset: self.log_end_offset,
                leader_epoch: self.leader_epoch,
            }),
            Verdict::Duplicate(batch) => Ok(Admission::Duplicate {
                base_offset: batch.base_offset,
                end_offset: batch.end_offset(),
                append_time: batch.timestamp,
            }),
        }
    }

    /// A batch has been written to this broker's log; its header carries the offset and the
    /// leadership that [`Leader::produce`] gave.
    ///
    /// # Panics
    ///
    /// When the batch does not continue this log under this leadership.
    pub fn appended(&mut self, now: Now, header: &BatchHeader) {
        assert_eq!(header.base_offset(), self.log_end_offset, "a batch continues the log");
        assert_eq!(header.leader_epoch(), self.leader_epoch, "a batch names its leadership");
        self.epochs.enter(self.leader_epoch, header.base_offset());
        self.producers.appended(now, header);
        self.log_end_offset = header.next_offset();

        self.note_who_is_behind(now);
        self.advance_high_watermark();
        self.assert_invariants();
    }

    /// This broker's disk holds everything before `durable_offset`. Reports from before a
    /// truncation never get here: the log's generation stops them.
    ///
    /// # Panics
    ///
    /// When the offset goes back, or beyond the log's end.
    pub fn synced(&mut self, now: Now, durable_offset: Offset) {
        assert!(self.durable_offset <= durable_offset, "what was durable stays so");
        assert!(durable_offset <= self.log_end_offset, "what is durable has been written");
        self.durable_offset = durable_offset;

        self.note_who_is_behind(now);
        self.advance_high_watermark();
        self.assert_invariants();
    }

    /// Records before `to` are gone (retention, DeleteRecords). A smaller offset than the current
    /// one changes nothing.
    ///
    /// # Panics
    ///
    /// When `to` lies beyond the high watermark: uncommitted records cannot be deleted.
    pub fn log_start_moved(&mut self, to: Offset) {
        assert!(to <= self.high_watermark, "only committed records are deleted");
        if self.log_start_offset < to {
            self.log_start_offset = to;
            self.epochs.truncate_from_start(to);
        }
        self.assert_invariants();
    }

    /// The topic's configuration has changed. What has been acknowledged stays so.
    pub fn set_config(&mut self, min_insync_replicas: u32, durability: Durability) {
        self.min_insync_replicas = min_insync_replicas;
        self.durability = durability;

        self.advance_high_watermark();
        self.assert_invariants();
    }

    /// Forgets idempotent producers that have been idle for longer than `idle`.
    pub fn expire_producers(&mut self, now: Now, idle: Duration) {
        self.producers.expire(now, idle);
    }

    /// The most producers this partition remembers; one more makes it forget the idlest.
    pub fn set_producers_max(&mut self, most: usize) {
        self.producers.set_most(most);
    }

    /// Whether a client's idea of the leadership is this one. `None` (−1 on the wire) asks nothing.
    pub fn check_epoch(&self, current: Option<LeaderEpoch>) -> Result<(), EpochRefusal> {
        match current {
            Some(asked) if asked < self.leader_epoch => {
                Err(EpochRefusal::Fenced { current: self.leader_epoch })
            }
            Some(asked) if self.leader_epoch < asked => {
                Err(EpochRefusal::Unknown { current: self.leader_epoch })
            }
            _ => Ok(()),
        }
    }

    /// The newest leadership not after `asked` and where it ended, as OffsetForLeaderEpoch answers;
    /// `None` is its (−1, −1). The current one ends at the log's end.
    #[must_use]
    pub fn end_offset_of_epoch(&self, asked: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        if asked == self.leader_epoch {
            return Some((asked, self.log_end_offset));
        }
        let (epoch, end) = self.epochs.end_offset_of(asked, self.log_end_offset)?;
        Some((epoch, end.max(self.log_start_offset)))
    }

    /// First offset that is not committed; readers get what lies before it.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Whether the high watermark is as high as any reader can have seen it. A new leader's may be
    /// lower, until it has committed everything that it began with; until then it tells nobody where
    /// the committed records end (Kafka: OFFSET_NOT_AVAILABLE, 78; KIP-207).
    #[must_use]
    pub fn is_high_watermark_certain(&self) -> bool {
        self.epoch_start_offset <= self.high_watermark
    }

    /// First offset of the oldest open transaction, or the high watermark: without transactions it
    /// is always the latter.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        self.high_watermark
    }

    /// First offset kept.
    #[must_use]
    pub fn log_start_offset(&self) -> Offset {
        self.log_start_offset
    }

    /// First offset not yet written.
    #[must_use]
    pub fn log_end_offset(&self) -> Offset {
        self.log_end_offset
    }

    /// First offset not yet synced to this broker's disk.
    #[must_use]
    pub fn durable_offset(&self) -> Offset {
        self.durable_offset
    }

    /// The first offset that `acks=1` waits for: what this broker alone vouches for, so its disk in
    /// a synced topic, its memory in a relaxed one.
    #[must_use]
    pub fn leader_offset(&self) -> Offset {
        match self.durability {
            Durability::Synced if mutant::is_on(Mutant::HighWatermarkNotDurable) => {
                self.log_end_offset
            }
            Durability::Synced => self.durable_offset,
            Durability::Relaxed => self.log_end_offset,
        }
    }

    /// When a record counts for the high watermark.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// This leadership.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// Followers and what they have reported.
    pub fn followers(&self) -> impl Iterator<Item = (BrokerId, FollowerView)> {
        self.followers.iter().map(|(broker, follower)| (broker, follower.view()))
    }

    /// Whether fewer replicas are in sync than `min.insync.replicas` asks for: nothing is committed
    /// until there are more.
    #[must_use]
    pub fn lacks_in_sync_replicas(&self) -> bool {
        self.in_sync_count() < self.effective_min_insync_replicas()
    }

    /// The idempotent producers of this partition.
    #[must_use]
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// The leaderships that wrote this log.
    #[must_use]
    pub fn epochs(&self) -> &EpochHistory {
        &self.epochs
    }

    fn advance_high_watermark(&mut self) {
        if self.in_sync_count() < self.effective_min_insync_replicas() {
            return;
        }
        let is_ignored = mutant::is_on(Mutant::NoMaximalIsr);
        let asked_for = self.asked_for.iter().filter(|_| !is_ignored);
        let held = self.in_sync.iter().chain(asked_for).map(|broker| self.held_by(*broker));
        let committed = if mutant::is_on(Mutant::QuorumHighWatermark) {
            let mut held: Vec<Offset> = held.collect();
            held.sort_unstable_by(|a, b| b.cmp(a));
            held[self.effective_min_insync_replicas().max(1) as usize - 1]
        } else {
            held.min().expect("this broker is in sync, so the set is not empty")
        };
        self.high_watermark = self.high_watermark.max(committed);
    }

    /// What `broker` can be trusted to hold: nothing, until it has reported under this leadership.
    fn held_by(&self, broker: BrokerId) -> Offset {
        if broker == self.me {
            return self.leader_offset();
        }
        let follower = self.followers.get(broker);
        follower.and_then(|follower| follower.counted(self.durability)).unwrap_or(Offset::ZERO)
    }

    /// What this broker alone vouches for has moved: from now on time counts for those who lack it.
    fn note_who_is_behind(&mut self, now: Now) {
        let (durability, leader_offset) = (self.durability, self.leader_offset());
        for follower in self.followers.iter_mut() {
            let is_behind = follower.counted(durability).is_none_or(|held| held < leader_offset);
            if is_behind && self.high_watermark < leader_offset {
                follower.behind_since.get_or_insert(now.time);
            }
        }
    }

    fn in_sync_count(&self) -> u32 {
        u32::try_from(self.in_sync.len()).unwrap_or(u32::MAX)
    }

    fn effective_min_insync_replicas(&self) -> u32 {
        let replicas = u32::try_from(self.followers.len() + 1).unwrap_or(u32::MAX);
        self.min_insync_replicas.min(replicas)
    }

    fn assert_invariants(&self) {
        assert!(self.log_start_offset <= self.high_watermark);
        assert!(self.high_watermark <= self.log_end_offset);
        assert!(self.durable_offset <= self.log_end_offset);
        assert!(self.in_sync.contains(&self.me), "a leader is in sync with itself");
        for broker in self.in_sync.iter().chain(&self.asked_for) {
            assert!(
                *broker == self.me || self.followers.get(*broker).is_some(),
                "broker {broker} counts for the high watermark and holds no replica"
            );
        }
    }
}

#[cfg(test)]
mod tests;
