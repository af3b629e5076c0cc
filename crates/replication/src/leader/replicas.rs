//! A leader's side of replication: what followers report, and what they are answered.

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Now, Offset};

use super::Leader;
use crate::epochs::EpochStart;
use crate::follower::{FetchRefusal, Report};
use crate::position::{AnswerKind, Incarnation, ReplicaAnswer, ReplicaPosition};

/// Of how many producers a replica that begins anew is told, at most: 1.2 MB.
pub const PRODUCERS_TOLD_MAX: usize = 8_192;

/// What a follower gets for its position, as far as the core can tell: the log has the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaGrant {
    /// Whole batches from `from` on, committed or not; [`Leader::epochs_between`] says what goes
    /// with them. Where the log has nothing at `from`, [`AnswerKind::OutOfRange`].
    Send {
        /// Where they begin.
        from: Offset,
        /// First offset not yet written.
        log_end_offset: Offset,
    },
    /// The follower has everything. Answer when there is more.
    Wait,
}

impl Leader {
    /// A follower asks for what follows its position, which is also a report.
    ///
    /// # Errors
    /// [`FetchRefusal`]; of these `Diverging`, `LeftBehind` and `OffsetOutOfRange` are answers that
    /// help the follower on.
    pub fn replica_asks(
        &mut self,
        now: Now,
        follower: Incarnation,
        position: &ReplicaPosition,
    ) -> Result<ReplicaGrant, FetchRefusal> {
        self.follower_reported(now, follower, position)?;
        let (from, log_end_offset) = (position.from, self.log_end_offset);
        Ok(if from < log_end_offset {
            ReplicaGrant::Send { from, log_end_offset }
        } else {
            ReplicaGrant::Wait
        })
    }

    /// A follower holds everything before `position.from`, and has synced everything before its
    /// durable offset. Only the latter may move the high watermark of a synced topic: what is not on
    /// its disk can still be lost. That its log is a prefix of this one is checked each time: only
    /// then do its offsets say anything about this log (KIP-101, KIP-279, KIP-595).
    ///
    /// # Errors
    /// [`FetchRefusal`]: nothing of it counts.
    pub fn follower_reported(
        &mut self,
        now: Now,
        follower: Incarnation,
        position: &ReplicaPosition,
    ) -> Result<(), FetchRefusal> {
        let known = self.followers.get(follower.broker).ok_or(FetchRefusal::NotInReplicaSet)?;
        let known = known.reported.map(|report| report.broker_epoch);
        if let Some(current) = known.filter(|current| follower.epoch < *current) {
            return Err(FetchRefusal::StaleBrokerEpoch { current });
        }
        self.check_position(position)?;

        let (durability, leader_offset) = (self.durability, self.leader_offset());
        let state = self.followers.get_mut(follower.broker).expect("looked up above");
        // Of an earlier registration nothing counts: the later one may have lost some of it.
        let before = state.reported.filter(|report| report.broker_epoch == follower.epoch);
        // Reports may overtake each other on the way here, and under one leadership the log of a
        // follower that agrees with this one only grows: the larger one counts.
        let report = Report {
            broker_epoch: follower.epoch,
            log_end_offset: before
                .map_or(position.from, |before| before.log_end_offset.max(position.from)),
            durable_offset: before.map_or(position.durable_offset, |before| {
                before.durable_offset.max(position.durable_offset)
            }),
            log_start_offset: before.map_or(position.log_start_offset, |before| {
                before.log_start_offset.max(position.log_start_offset)
            }),
        };
        let counted = report.counted(durability);
        let has_moved = before.is_none_or(|before| before.counted(durability) < counted);
        if leader_offset <= counted {
            state.behind_since = None;
        } else if has_moved || state.behind_since.is_none() {
            state.behind_since = Some(now.time);
        }
        state.reported = Some(report);

        self.advance_high_watermark();
        self.assert_invariants();
        Ok(())
    }

    /// Whether a position is that of a log which is a prefix of this one. Changes nothing.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub fn check_position(&self, position: &ReplicaPosition) -> Result<(), FetchRefusal> {
        let &ReplicaPosition { leader_epoch, from, last_epoch, durable_offset, .. } = position;
        let is_whole = position.log_start_offset <= from && durable_offset <= from;
        if !is_whole || Some(leader_epoch) < last_epoch {
            return Err(FetchRefusal::Contradiction);
        }
        if leader_epoch < self.leader_epoch {
            return Err(FetchRefusal::StaleLeaderEpoch { current: self.leader_epoch });
        }
        if self.leader_epoch < leader_epoch {
            return Err(FetchRefusal::UnknownLeaderEpoch { current: self.leader_epoch });
        }
        let out_of_range = FetchRefusal::OffsetOutOfRange {
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
        };
        // Without a batch it begins where it was told to, at the base of the first batch here, which
        // may lie before the log start. Whether the log has anything there the log knows.
        let left_behind = FetchRefusal::LeftBehind { log_start_offset: self.log_start_offset };
        if from < self.log_start_offset && last_epoch.is_some() {
            return Err(left_behind);
        }
        if let Some(last_epoch) = last_epoch
            && !mutant::is_on(Mutant::NoDivergenceCheck)
        {
            // Where that leadership ended is not known any more: it may have been before the log
            // start, and what the follower has from there up to the start was never committed.
            if self.epochs.begins_after(last_epoch, self.log_start_offset) {
                return Err(left_behind);
            }
            let ended = self.end_offset_of_epoch(last_epoch);
            let (epoch, end) = ended.ok_or(FetchRefusal::Contradiction)?;
            if epoch != last_epoch || end < from {
                return Err(FetchRefusal::Diverging { epoch, end });
            }
        }
        if self.log_end_offset < from {
            return Err(out_of_range);
        }
        Ok(())
    }

    /// An answer to `position` under this leadership, with the offsets of this moment.
    #[must_use]
    pub fn answer(&self, position: &ReplicaPosition, kind: AnswerKind) -> ReplicaAnswer {
        ReplicaAnswer {
            leader_epoch: self.leader_epoch,
            from: position.from,
            last_epoch: position.last_epoch,
            high_watermark: self.high_watermark,
            log_start_offset: self.log_start_offset,
            kind,
        }
    }

    /// The answer to a position that was refused; `None` where only the log knows, and
    /// [`Leader::begin_anew`] is the answer.
    #[must_use]
    pub fn answer_to_refused(
        &self,
        position: &ReplicaPosition,
        refusal: FetchRefusal,
    ) -> Option<ReplicaAnswer> {
        let kind = match refusal {
            FetchRefusal::LeftBehind { .. } => return None,
            FetchRefusal::Diverging { epoch, end } => AnswerKind::Diverging { epoch, end },
            FetchRefusal::OffsetOutOfRange { log_end_offset, .. } => {
                AnswerKind::OutOfRange { log_end_offset }
            }
            _ => AnswerKind::Refused,
        };
        Some(self.answer(position, kind))
    }

    /// The answer to a replica that has nothing of what is kept here. `begin` is the base offset of
    /// the first batch that the log keeps, which may lie before its start. What is known of producers
    /// only by records before that goes along, for the [`PRODUCERS_TOLD_MAX`] that appended last.
    #[must_use]
    pub fn begin_anew(&self, position: &ReplicaPosition, begin: Offset) -> ReplicaAnswer {
        let producers = self.producers.known_before(begin, PRODUCERS_TOLD_MAX).encode();
        self.answer(position, AnswerKind::BeginAnew { begin, producers })
    }

    /// Where the logs of all who count for the high watermark start, at the least: whoever of them
    /// leads next shows no record before this offset (Kafka's low watermark).
    #[must_use]
    pub fn low_watermark(&self) -> Offset {
        let others = self.in_sync.iter().chain(&self.asked_for).filter(|id| **id != self.me);
        let starts = others.map(|id| {
            let reported = self.followers.get(*id).and_then(|follower| follower.reported);
            reported.map_or(Offset::ZERO, |report| report.log_start_offset)
        });
        starts.fold(self.log_start_offset, Offset::min)
    }

    /// Where this log should start, if that is later than it does: where a follower's does. An earlier
    /// leader has deleted what lies before, and was replaced before this one had followed.
    #[must_use]
    pub fn wanted_log_start(&self) -> Option<Offset> {
        let reports = self.followers.iter().filter_map(|(_, follower)| follower.reported);
        let latest = reports.map(|report| report.log_start_offset).max()?;
        let wanted = latest.min(self.high_watermark);
        (self.log_start_offset < wanted).then_some(wanted)
    }

    /// The leaderships that began in `[from, end)`, for the batches between them.
    #[must_use]
    pub fn epochs_between(&self, from: Offset, end: Offset) -> Vec<EpochStart> {
        let entries = self.epochs.entries().iter();
        entries.filter(|entry| from <= entry.start && entry.start < end).copied().collect()
    }
}
