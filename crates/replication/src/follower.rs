//! What a leader knows of a follower, and which reports it refuses.

use thiserror::Error;
use towpath_model::{LeaderEpoch, Offset, Time};

/// Why a follower's report is refused; nothing of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FetchRefusal {
    /// It claims to have synced more than it has.
    #[error("durable offset lies beyond the log end offset")]
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
    /// Its log is not a prefix of this one.
    #[error("log end offset lies outside {log_start_offset}..={log_end_offset}")]
    OffsetOutOfRange {
        /// First offset here.
        log_start_offset: Offset,
        /// First offset not yet written here.
        log_end_offset: Offset,
    },
    /// It holds no replica of this partition.
    #[error("not a replica of this partition")]
    NotInReplicaSet,
}

/// What a follower has reported under this leadership. Nothing of an earlier one is kept: its log
/// may have been cut since.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Follower {
    pub(crate) reported: Option<Report>,
}

/// Invariant: durable_offset <= log_end_offset; durable_offset never falls under one leadership.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub(crate) log_end_offset: Offset,
    pub(crate) durable_offset: Offset,
    /// When it last moved its durable offset, or had nothing left to sync.
    pub(crate) moved_at: Time,
}

/// A follower as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerView {
    /// First offset it has not written, if it has reported under this leadership.
    pub log_end_offset: Option<Offset>,
    /// First offset it has not synced, if it has reported under this leadership.
    pub durable_offset: Option<Offset>,
}

impl Follower {
    pub(crate) fn view(&self) -> FollowerView {
        FollowerView {
            log_end_offset: self.reported.map(|report| report.log_end_offset),
            durable_offset: self.reported.map(|report| report.durable_offset),
        }
    }
}
