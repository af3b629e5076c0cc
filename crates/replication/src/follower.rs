//! What a leader knows of a follower, and which reports it refuses.

use thiserror::Error;
use towpath_model::{BrokerEpoch, Durability, LeaderEpoch, Offset, Time};

/// Why a follower's position is refused; nothing of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FetchRefusal {
    /// It claims to have synced more than it has, or to hold batches of a leadership that is later
    /// than the one it follows.
    #[error("the position contradicts itself")]
    Contradiction,
    /// It follows an older leadership.
    #[error("leader epoch is older than the current one, {current}")]
    StaleLeaderEpoch {
        /// The leadership here.
        current: LeaderEpoch,
    },
    /// It follows a leadership that this broker has not heard of yet.
    #[error("leader epoch is newer than the one known here, {current}")]
    UnknownLeaderEpoch {
        /// The leadership here.
        current: LeaderEpoch,
    },
    /// It holds no replica of this partition.
    #[error("not a replica of this partition")]
    NotInReplicaSet,
    /// A later registration of the same broker has been heard of (KIP-903).
    #[error("broker epoch is older than the current one, {current}")]
    StaleBrokerEpoch {
        /// The newest that has reported here.
        current: BrokerEpoch,
    },
    /// Its log ends outside of this one.
    #[error("log end offset lies outside {log_start_offset}..={log_end_offset}")]
    OffsetOutOfRange {
        /// First offset here.
        log_start_offset: Offset,
        /// First offset not yet written here.
        log_end_offset: Offset,
    },
    /// Its log has no record in common with what this one keeps: it ends before this one starts, or
    /// all of it was written before the first leadership that is known here.
    #[error("no record of the log is left in this one, which starts at {log_start_offset}")]
    LeftBehind {
        /// First offset here.
        log_start_offset: Offset,
    },
    /// Its log is not a prefix of this one.
    #[error("the logs do not agree: leader epoch {epoch} ends at {end} here")]
    Diverging {
        /// The newest leadership here that is not after the last one there.
        epoch: LeaderEpoch,
        /// Where it ends here.
        end: Offset,
    },
}

/// What a follower has reported under this leadership. Nothing of an earlier one is kept: its log
/// may have been cut since.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Follower {
    pub(crate) reported: Option<Report>,
    /// Since when it has stood still while this broker was ahead of it.
    pub(crate) behind_since: Option<Time>,
}

/// Invariant: durable_offset <= log_end_offset; all three only rise under one leadership and one
/// broker epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub(crate) broker_epoch: BrokerEpoch,
    pub(crate) log_end_offset: Offset,
    pub(crate) durable_offset: Offset,
    pub(crate) log_start_offset: Offset,
}

impl Report {
    /// What counts for the high watermark.
    pub(crate) fn counted(&self, durability: Durability) -> Offset {
        match durability {
            Durability::Synced => self.durable_offset,
            Durability::Relaxed => self.log_end_offset,
        }
    }
}

/// A follower as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerView {
    /// Which registration of it has reported.
    pub broker_epoch: Option<BrokerEpoch>,
    /// First offset it has not written, if it has reported under this leadership.
    pub log_end_offset: Option<Offset>,
    /// First offset it has not synced, if it has reported under this leadership.
    pub durable_offset: Option<Offset>,
    /// First offset it keeps, if it has reported under this leadership.
    pub log_start_offset: Option<Offset>,
}

impl Follower {
    pub(crate) fn view(&self) -> FollowerView {
        FollowerView {
            broker_epoch: self.reported.map(|report| report.broker_epoch),
            log_end_offset: self.reported.map(|report| report.log_end_offset),
            durable_offset: self.reported.map(|report| report.durable_offset),
            log_start_offset: self.reported.map(|report| report.log_start_offset),
        }
    }

    pub(crate) fn counted(&self, durability: Durability) -> Option<Offset> {
        self.reported.map(|report| report.counted(durability))
    }
}
