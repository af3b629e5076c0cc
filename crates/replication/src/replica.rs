//! The follower of one partition.
//!
//! ```text
//!  position ─▶ (leader) ─▶ judge(answer) ─┬▶ Append     (log writes) ─▶ appended ─▶ leader_told
//!                                         ├▶ TruncateTo (log cuts)   ─▶ truncated
//!                                         ├▶ StartAt    (log begins anew) ─▶ started_at
//!                                         ├▶ Told                          ─▶ leader_told
//!                                         └▶ Wait, Ignore, Contradiction
//! ```
//!
//! An answer counts only where the log ends at the very position that it answers, offset and last
//! epoch both, under the same leadership: then its leader has found the two logs equal up to there,
//! so its batches continue this log and its high watermark is about records that are here. A follower
//! never cuts by its own high watermark, which it knows late (KIP-101), and never below it: what is
//! committed stays (release assert in [`Replica::truncated`]).

use std::collections::BTreeSet;
use std::time::Duration;

use thiserror::Error;
use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerId, Durability, LeaderEpoch, Now, Offset, Time};
use towpath_records::BatchHeader;

use crate::epochs::{EpochHistory, EpochStart};
use crate::leader::{Leader, LeaderStart};
use crate::position::{AnswerKind, ReplicaAnswer, ReplicaPosition};
use crate::producers::Producers;

/// What a broker knows when it begins to follow.
#[derive(Debug, Clone)]
pub struct ReplicaStart {
    /// This broker.
    pub me: BrokerId,
    /// Whom it follows, if anybody leads.
    pub leader: Option<BrokerId>,
    /// The newest leadership it knows of; not before the last one in `epochs`.
    pub leader_epoch: LeaderEpoch,
    /// First offset of the log.
    pub log_start_offset: Offset,
    /// First offset not yet written.
    pub log_end_offset: Offset,
    /// First offset not yet synced to this broker's disk.
    pub durable_offset: Offset,
    /// What this broker has told readers in this process; the log start offset where it has told
    /// nothing.
    pub high_watermark: Offset,
    /// The topic's durability.
    pub durability: Durability,
    /// Producer state as of the log's end.
    pub producers: Producers,
    /// The leaderships that wrote the log.
    pub epochs: EpochHistory,
}

/// What a follower needs to know besides its log to lead.
#[derive(Debug, Clone)]
pub struct Lead {
    /// The leadership; later than every one that it has followed, or equal to the last.
    pub leader_epoch: LeaderEpoch,
    /// The controller's number of the partition's state that says so.
    pub partition_epoch: i32,
    /// When it begins.
    pub begun_at: Time,
    /// Who holds replicas, this broker among them.
    pub replicas: Vec<BrokerId>,
    /// Who counts for the high watermark, this broker among them.
    pub in_sync: BTreeSet<BrokerId>,
    /// `min.insync.replicas`.
    pub min_insync_replicas: u32,
}

/// What follows from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaStep {
    /// Nothing: it is late, repeated, or of another leadership.
    Ignore,
    /// Its batches continue the log: append them, call [`Replica::appended`] for each, then
    /// [`Replica::leader_told`].
    Append,
    /// The logs agree: call [`Replica::leader_told`].
    Told,
    /// Cut the log to this offset, call [`Replica::truncated`], and ask again.
    TruncateTo(Offset),
    /// No record of this log is left in the leader's, and none lies behind the offset: drop everything,
    /// begin there, call [`Replica::started_at`], and ask again.
    StartAt(Offset),
    /// The leader cannot answer now: ask again after a while.
    Wait,
    /// The leader says what cannot be. Nothing is changed; whoever runs this should be told.
    Contradiction(ReplicaContradiction),
}

/// What a leader cannot rightly say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReplicaContradiction {
    /// It lacks what is committed: it was elected unclean, or has lost data.
    #[error(
        "the leader's log ends at {end}, below the high watermark {high_watermark} of this replica: \
         it lacks committed records"
    )]
    BelowHighWatermark {
        /// Where the logs would agree.
        end: Offset,
        /// What this replica knows to be committed.
        high_watermark: Offset,
    },
    /// It keeps nothing of what is committed here, and nobody has deleted it.
    #[error(
        "the leader's log begins at {begin} and shares no record with this one, of which everything \
         below {high_watermark} is committed"
    )]
    Forgotten {
        /// Where the leader's log begins.
        begin: Offset,
        /// What this replica knows to be committed.
        high_watermark: Offset,
    },
    /// It says that the logs differ, and not where.
    #[error(
        "the leader's log differs from this one somewhere before {from}, and it cannot say where"
    )]
    Nowhere {
        /// Where this log ends.
        from: Offset,
    },
}

/// The follower of one partition.
///
/// Invariants: log_start_offset <= high_watermark <= log_end_offset; durable_offset <=
/// log_end_offset; the epochs of the log rise and are at most `leader_epoch`. The high watermark
/// never goes back in one process, but by [`Replica::give_up_committed`].
#[derive(Debug, Clone)]
pub struct Replica {
    me: BrokerId,
    leader: Option<BrokerId>,
    leader_epoch: LeaderEpoch,
    log_start_offset: Offset,
    log_end_offset: Offset,
    durable_offset: Offset,
    high_watermark: Offset,
    /// Where the leader's log starts, as far as it has said.
    leader_start_offset: Offset,
    durability: Durability,
    producers: Producers,
    epochs: EpochHistory,
}

impl Replica {
    /// Begins to follow.
    ///
    /// # Panics
    /// When `start` breaks one of the invariants above.
    #[must_use]
    pub fn new(start: ReplicaStart) -> Replica {
        let high_watermark = start.high_watermark.max(start.log_start_offset);
        // Of leaderships that wrote nothing this broker may remember its own. The next leader may have
        // batches of an older one to send.
        let mut epochs = start.epochs;
        epochs.truncate_from_end(start.log_end_offset);
        let replica = Replica {
            me: start.me,
            leader: start.leader,
            leader_epoch: start.leader_epoch,
            log_start_offset: start.log_start_offset,
            log_end_offset: start.log_end_offset,
            durable_offset: start.durable_offset,
            high_watermark: high_watermark.min(start.log_end_offset),
            leader_start_offset: start.log_start_offset,
            durability: start.durability,
            producers: start.producers,
            epochs,
        };
        replica.assert_invariants();
        replica
    }

    /// A new leadership, or none (`leader` is `None` while nobody can lead). Returns `false`, and
    /// changes nothing, when a later one is known. The log stays as it is until the new leader has
    /// said where the two agree.
    pub fn follow(&mut self, leader: Option<BrokerId>, leader_epoch: LeaderEpoch) -> bool {
        if leader_epoch < self.leader_epoch {
            return false;
        }
        assert_ne!(leader, Some(self.me), "a broker does not follow itself");
        self.leader = leader;
        self.leader_epoch = leader_epoch;
        true
    }

    /// Begins to lead with this log: high watermark, producers and epochs go on.
    ///
    /// # Panics
    /// When the leadership is older than one that it has followed, or breaks an invariant of
    /// [`Leader`].
    #[must_use]
    pub fn lead(self, lead: Lead) -> Leader {
        assert!(self.leader_epoch <= lead.leader_epoch, "leader epochs only rise");
        Leader::new(LeaderStart {
            me: self.me,
            leader_epoch: lead.leader_epoch,
            partition_epoch: lead.partition_epoch,
            begun_at: lead.begun_at,
            replicas: lead.replicas,
            in_sync: lead.in_sync,
            min_insync_replicas: lead.min_insync_replicas,
            durability: self.durability,
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
            durable_offset: self.durable_offset,
            high_watermark: self.high_watermark,
            producers: self.producers,
            epochs: self.epochs,
        })
    }

    /// What to tell the leader: when it changes, when the leader does, and now and then.
    #[must_use]
    pub fn position(&self) -> ReplicaPosition {
        ReplicaPosition {
            leader_epoch: self.leader_epoch,
            from: self.log_end_offset,
            last_epoch: self.last_epoch(),
            durable_offset: self.durable_offset,
            log_start_offset: self.log_start_offset,
        }
    }

    fn last_epoch(&self) -> Option<LeaderEpoch> {
        let last = Offset(self.log_end_offset.0 - 1);
        (self.log_start_offset <= last).then(|| self.epochs.epoch_of(last)).flatten()
    }

    /// What follows from an answer. Changes nothing.
    #[must_use]
    pub fn judge(&self, answer: &ReplicaAnswer) -> ReplicaStep {
        let is_for_here = answer.leader_epoch == self.leader_epoch
            && (answer.from, answer.last_epoch) == (self.log_end_offset, self.last_epoch());
        if !is_for_here && !mutant::is_on(Mutant::StaleAnswerApplied) {
            return ReplicaStep::Ignore;
        }
        match answer.kind {
            AnswerKind::Batches { .. } => ReplicaStep::Append,
            AnswerKind::Nothing => ReplicaStep::Told,
            AnswerKind::Refused => ReplicaStep::Wait,
            AnswerKind::Diverging { epoch, end } => self.cut_for(epoch, end),
            AnswerKind::BeginAnew { begin, .. } => self.begin_anew(begin),
            AnswerKind::OutOfRange { log_end_offset: end } => {
                let high_watermark = self.high_watermark;
                if high_watermark <= end {
                    return ReplicaStep::Wait;
                }
                let contradiction =
                    ReplicaContradiction::BelowHighWatermark { end, high_watermark };
                ReplicaStep::Contradiction(contradiction)
            }
        }
    }

    /// Both logs hold of leaderships up to `epoch` the same, as far as each of them goes.
    fn cut_for(&self, epoch: LeaderEpoch, end: Offset) -> ReplicaStep {
        let here = self.epochs.end_offset_of(epoch, self.log_end_offset);
        let agreed = here.map_or(end, |(_, end_here)| end_here.min(end)).max(self.log_start_offset);
        let to = if mutant::is_on(Mutant::TruncateToHighWatermark) {
            self.high_watermark
        } else {
            agreed
        };
        let high_watermark = self.high_watermark;
        if end < high_watermark || to < high_watermark {
            let contradiction = ReplicaContradiction::BelowHighWatermark { end, high_watermark };
            return ReplicaStep::Contradiction(contradiction);
        }
        if self.log_end_offset <= to {
            let from = self.log_end_offset;
            return ReplicaStep::Contradiction(ReplicaContradiction::Nowhere { from });
        }
        ReplicaStep::TruncateTo(to)
    }

    /// The leader keeps no record of this log. What lies before `begin` has been deleted there, and
    /// what lies behind it was never committed: that goes first, so that this broker, if it counts as
    /// in sync, at no moment has a log that ends before what is committed.
    fn begin_anew(&self, begin: Offset) -> ReplicaStep {
        let (start, end) = (self.log_start_offset, self.log_end_offset);
        if begin < end && begin < self.high_watermark {
            let high_watermark = self.high_watermark;
            let contradiction = ReplicaContradiction::Forgotten { begin, high_watermark };
            return ReplicaStep::Contradiction(contradiction);
        }
        match begin {
            begin if begin < end => ReplicaStep::TruncateTo(begin),
            begin if begin == start => ReplicaStep::Wait,
            begin => ReplicaStep::StartAt(begin),
        }
    }

    /// A batch of the leader has been written to this broker's log. `starts` is what came with it:
    /// where leaderships began.
    ///
    /// # Panics
    /// When the batch does not continue this log, or its leader epoch falls.
    pub fn appended(&mut self, now: Now, header: &BatchHeader, starts: &[EpochStart]) {
        let (base, epoch) = (header.base_offset(), header.leader_epoch());
        assert!(self.log_end_offset <= base, "a batch comes after the last one");
        assert!(epoch <= self.leader_epoch, "a batch is of a leadership that has been");
        assert!(self.epochs.latest().is_none_or(|latest| latest <= epoch), "leader epochs rise");
        for start in starts {
            let is_before = start.epoch <= epoch && start.start <= base;
            if is_before && self.log_end_offset <= start.start {
                self.epochs.enter(start.epoch, start.start);
            }
        }
        self.epochs.enter(epoch, base);
        self.producers.appended(now, header);
        self.log_end_offset = header.next_offset();
        self.assert_invariants();
    }

    /// The log has been cut, to the end of the last batch that lies wholly before the offset that
    /// [`Replica::judge`] gave. `producers` are those of what is left.
    ///
    /// # Panics
    /// When something committed has been cut.
    pub fn truncated(&mut self, log_end_offset: Offset, producers: Producers) {
        assert!(log_end_offset <= self.log_end_offset, "a cut makes a log shorter");
        assert!(self.high_watermark <= log_end_offset, "what is committed is never cut");
        self.log_end_offset = log_end_offset;
        self.durable_offset = self.durable_offset.min(log_end_offset);
        self.epochs.truncate_from_end(log_end_offset);
        self.producers = producers;
        self.assert_invariants();
    }

    /// The log is empty and begins at `offset`, the beginning of the leader's. `producers` are those
    /// that the leader knew there, as far as anybody has told.
    ///
    /// # Panics
    /// When the log would begin before its end.
    pub fn started_at(&mut self, offset: Offset, producers: Producers) {
        assert!(self.log_end_offset <= offset, "only a log that begins later takes the place");
        self.log_start_offset = offset;
        self.log_end_offset = offset;
        self.durable_offset = offset;
        self.high_watermark = offset;
        self.leader_start_offset = self.leader_start_offset.max(offset);
        self.epochs = EpochHistory::new();
        self.producers = producers;
        self.assert_invariants();
    }

    /// This broker's disk holds everything before `durable_offset`. To be reported at once.
    ///
    /// # Panics
    /// When the offset goes back, or beyond the log's end.
    pub fn synced(&mut self, durable_offset: Offset) {
        assert!(self.durable_offset <= durable_offset, "what was durable stays so");
        assert!(durable_offset <= self.log_end_offset, "what is durable has been written");
        self.durable_offset = durable_offset;
    }

    /// The high watermark and the log start of an answer that [`Replica::judge`] has let through,
    /// after its batches were appended.
    pub fn leader_told(&mut self, high_watermark: Offset, log_start_offset: Offset) {
        let known = high_watermark.min(self.log_end_offset);
        self.high_watermark = if mutant::is_on(Mutant::HighWatermarkRegresses) {
            known.max(self.log_start_offset)
        } else {
            known.max(self.high_watermark)
        };
        self.leader_start_offset = log_start_offset.max(self.leader_start_offset);
        self.assert_invariants();
    }

    /// Where this log should start, if that is later than it does: where the leader's does, as far as
    /// that is known to be committed here.
    #[must_use]
    pub fn wanted_log_start(&self) -> Option<Offset> {
        let wanted = self.leader_start_offset.min(self.high_watermark);
        (self.log_start_offset < wanted).then_some(wanted)
    }

    /// Records before `to` are gone. A smaller offset than the current one changes nothing.
    ///
    /// # Panics
    /// When `to` lies beyond the high watermark.
    pub fn log_start_moved(&mut self, to: Offset) {
        assert!(to <= self.high_watermark, "only committed records are deleted");
        if self.log_start_offset < to {
            self.log_start_offset = to;
            self.epochs.truncate_from_start(to);
        }
        self.assert_invariants();
    }

    /// An operator has accepted the loss of committed records: a leader that may lack some was
    /// elected (unclean). What this replica has known to be committed need not be so any more.
    pub fn give_up_committed(&mut self) {
        self.high_watermark = self.log_start_offset;
        self.assert_invariants();
    }

    /// The topic's configuration has changed.
    pub fn set_config(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Forgets idempotent producers that have been idle for longer than `idle`.
    pub fn expire_producers(&mut self, now: Now, idle: Duration) {
        self.producers.expire(now, idle);
    }

    /// The most producers this partition remembers; one more makes it forget the idlest.
    pub fn set_producers_max(&mut self, most: usize) {
        self.producers.set_most(most);
    }

    /// Whom this replica follows.
    #[must_use]
    pub fn leader(&self) -> Option<BrokerId> {
        self.leader
    }

    /// The newest leadership it knows of.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// First offset that is not known to be committed; readers get what lies before it.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
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

    /// When a record counts for the high watermark.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
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

    fn assert_invariants(&self) {
        assert!(self.log_start_offset <= self.high_watermark);
        assert!(self.high_watermark <= self.log_end_offset);
        assert!(self.durable_offset <= self.log_end_offset);
        let latest = self.epochs.latest();
        assert!(latest.is_none_or(|latest| latest <= self.leader_epoch));
    }
}

#[cfg(test)]
mod tests;
