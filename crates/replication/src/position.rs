//! What a follower and a leader tell each other about one partition (KIP-595's fetch, in two one-way
//! messages).
//!
//! ```text
//!  follower ── position: "my log ends at 40, its last batch is of epoch 5, 38 is on my disk" ──▶
//!           ◀── answer to (40, epoch 5): batches from 40 │ epoch 5 ended at 37 │ begin at 90 │ nothing ──
//! ```
//!
//! An offset and the epoch of the batch before it name everything that lies before them: two logs
//! that agree in both are equal up to there. So each message is checked by itself: a position says
//! nothing wrong however late it arrives, and an answer counts only where the follower still stands
//! at the position it was given for.

use serde::{Deserialize, Serialize};
use towpath_model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset};

use crate::epochs::EpochStart;

/// Where a follower's log ends, for its leader: asks for what follows, and reports what is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaPosition {
    /// The leadership it follows.
    pub leader_epoch: LeaderEpoch,
    /// First offset it has not written.
    pub from: Offset,
    /// Leader epoch of its last batch; `None` when it has no batch.
    pub last_epoch: Option<LeaderEpoch>,
    /// First offset it has not synced; at most `from`.
    pub durable_offset: Offset,
    /// First offset it keeps, durably; at most `from`.
    pub log_start_offset: Offset,
}

/// A follower, and which registration of it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Who.
    pub broker: BrokerId,
    /// The number of its registration; a later one may have lost what an earlier one held.
    pub epoch: BrokerEpoch,
}

/// A leader's answer to a position. The bytes of its batches travel beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaAnswer {
    /// The leadership that answers.
    pub leader_epoch: LeaderEpoch,
    /// `from` of the position that is answered.
    pub from: Offset,
    /// `last_epoch` of the position that is answered.
    pub last_epoch: Option<LeaderEpoch>,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// First offset the leader keeps.
    pub log_start_offset: Offset,
    /// What it says.
    pub kind: AnswerKind,
}

/// What a leader says to a position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnswerKind {
    /// Whole batches follow, the first one at or after `from`. With them come the leaderships that
    /// began at `from` or later and before their end: a compaction may have removed the batches
    /// that would show where one began.
    Batches {
        /// Oldest first.
        epochs: Vec<EpochStart>,
    },
    /// The logs agree, and there is nothing to send: only the high watermark or the log start is
    /// news.
    Nothing,
    /// The logs do not agree up to `from`: what the leader holds of `epoch`, the newest leadership
    /// not after the follower's last one, ends at `end` (KIP-595).
    Diverging {
        /// That leadership.
        epoch: LeaderEpoch,
        /// First offset after what it wrote.
        end: Offset,
    },
    /// The leader has nothing at `from`.
    OutOfRange {
        /// First offset it has not written.
        log_end_offset: Offset,
    },
    /// The position is refused: another leadership, not a replica, nonsense. Ask again later.
    Refused,
    /// The follower's log and what the leader keeps have no record in common: the follower drops
    /// everything and begins at `begin`. What it holds before that has been deleted by the leader, what
    /// it holds behind it was never committed.
    BeginAnew {
        /// Base offset of the first batch the leader keeps, which may lie before its log start.
        begin: Offset,
        /// What the leader knows of producers by records before `begin`, as
        /// [`crate::Producers::encode`] has it: the rest is in the records that follow.
        producers: Vec<u8>,
    },
}
