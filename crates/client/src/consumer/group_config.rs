//! How a member takes part in its group.

use std::sync::Arc;
use std::time::Duration;

use super::assignor::Assignor;
use super::fetcher::{FetchConfig, OffsetReset};
use crate::error::{Error, Result};
use crate::record::TopicPartition;

/// What happened to a member's partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebalanceEvent {
    /// These are given up; others will read on from what was committed.
    Revoked(Vec<TopicPartition>),
    /// These were gained.
    Assigned(Vec<TopicPartition>),
    /// These were taken away without a word: others may be reading them already.
    Lost(Vec<TopicPartition>),
}

/// Called inside `poll`, in order.
pub type RebalanceListener = Arc<dyn Fn(&RebalanceEvent) + Send + Sync>;

/// Settings of a [`super::GroupConsumer`].
#[derive(Clone)]
pub struct GroupConfig {
    /// The group's id.
    pub group: String,
    /// The topics to read.
    pub topics: Vec<Arc<str>>,
    /// Strategies on offer, the preferred first. All eager or all cooperative.
    pub assignors: Vec<Assignor>,
    /// A lasting identity: a restart within the session timeout keeps the partitions (KIP-345).
    pub instance_id: Option<String>,
    /// How long the coordinator waits for a heartbeat before it gives the partitions to others.
    pub session_timeout: Duration,
    /// How often this member beats.
    pub heartbeat_interval: Duration,
    /// How long the application may stay away from `poll` before the member leaves by itself. It is
    /// also how long the group waits for this member in a rebalance.
    pub poll_interval_max: Duration,
    /// Where to start in a partition of which nothing is committed.
    pub reset: OffsetReset,
    /// Commits the positions handed out by earlier polls, this often, inside `poll` and before
    /// partitions are given up. `None`: only the caller commits.
    pub commit_interval: Option<Duration>,
    /// How to fetch.
    pub fetch: FetchConfig,
    /// Told about gained and given up partitions.
    pub listener: Option<RebalanceListener>,
}

impl GroupConfig {
    /// Defaults for a member of `group` that reads `topics`.
    pub fn new(
        group: impl Into<String>,
        topics: impl IntoIterator<Item = impl Into<Arc<str>>>,
    ) -> GroupConfig {
        GroupConfig {
            group: group.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            assignors: vec![Assignor::CooperativeSticky],
            instance_id: None,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            poll_interval_max: Duration::from_secs(300),
            reset: OffsetReset::Latest,
            commit_interval: None,
            fetch: FetchConfig::default(),
            listener: None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let cooperative = self.assignors.iter().filter(|a| a.is_cooperative()).count();
        let problem = if self.group.is_empty() {
            "a group needs a name"
        } else if self.topics.is_empty() {
            "a group consumer needs a topic"
        } else if self.assignors.is_empty() {
            "a group consumer needs an assignor"
        } else if cooperative != 0 && cooperative != self.assignors.len() {
            "eager and cooperative assignors cannot be offered together"
        } else if self.session_timeout <= self.heartbeat_interval {
            "the heartbeat interval must be shorter than the session timeout"
        } else {
            return Ok(());
        };
        Err(Error::InvalidArgument(problem.to_owned()))
    }

    pub(super) fn is_cooperative(&self) -> bool {
        self.assignors.iter().all(|assignor| assignor.is_cooperative())
    }
}
