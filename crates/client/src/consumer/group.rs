//! A member of a consumer group, as an application uses it.
//!
//! Everything that changes the set of partitions happens inside `poll`, so between two polls an
//! application owns what it was given: it processes, commits, polls again. Heartbeats go on in the
//! background meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use towpath_model::{Offset, Timestamp};

use super::commits::{Committed, Committer, commit, committed};
use super::fetcher::Fetcher;
use super::group_config::{GroupConfig, RebalanceEvent};
use super::membership::{Joined, Pulse, Seat, Standing, Task, join, leave, partition_counts};
use super::offsets::{FoundOffset, OffsetSpec, list_offsets};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::record::{Record, TopicPartition};

/// Reads topics as a member of a group. Dropping it without `close` leaves the group waiting for
/// the session timeout.
pub struct GroupConsumer {
    cluster: Cluster,
    config: Arc<GroupConfig>,
    fetcher: Fetcher,
    pulse: Arc<Pulse>,
    seat: Seat,
    owned: BTreeSet<TopicPartition>,
    /// Gained, but not yet positioned.
    unpositioned: BTreeSet<TopicPartition>,
    joining: Option<Joining>,
    heartbeats: Option<Task>,
    /// What the assignment rests on, while this member leads; and when it was looked at last.
    counts: Option<(BTreeMap<Arc<str>, i32>, Instant)>,
    last_commit: Option<JoinHandle<Result<()>>>,
    committed_at: Instant,
}

struct Joining(JoinHandle<Result<Joined>>);

impl Drop for Joining {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How often a leader looks whether a topic that it misses has appeared.
const MISSING_TOPIC_CHECK: Duration = Duration::from_secs(5);

impl GroupConsumer {
    /// A member-to-be; it joins with its first poll.
    pub fn new(cluster: Cluster, config: GroupConfig) -> Result<GroupConsumer> {
        config.check()?;
        let fetcher = Fetcher::new(cluster.clone(), config.fetch.clone(), config.reset);
        Ok(GroupConsumer {
            cluster,
            config: Arc::new(config),
            fetcher,
            pulse: Arc::new(Pulse::new()),
            seat: Seat { generation: -1, ..Seat::default() },
            owned: BTreeSet::new(),
            unpositioned: BTreeSet::new(),
            joining: None,
            heartbeats: None,
            counts: None,
            last_commit: None,
            committed_at: Instant::now(),
        })
    }

    // -------------------------------------------------------------------------------- polling

    /// Waits for records, at most for `patience`. Joins the group, rebalances and, if configured,
    /// commits meanwhile. Cancelling it loses nothing.
    pub async fn poll(&mut self, patience: Duration) -> Result<Vec<Record>> {
        let deadline = Instant::now() + patience;
        let pulse = self.pulse.clone();
        let _polling = Polling::on(&pulse);
        self.commit_if_due(false);
        loop {
            if self.joining.is_some() {
                if !self.wait_for_join(deadline).await? {
                    return Ok(Vec::new());
                }
                continue;
            }
            match self.pulse.standing() {
                Standing::Member => {}
                Standing::Rebalancing => {
                    self.begin_join().await;
                    continue;
                }
                Standing::Lost(reason) => {
                    tracing::warn!(
                        group = self.config.group,
                        reason,
                        "lost the place in the group"
                    );
                    self.lose_everything();
                    self.begin_join().await;
                    continue;
                }
                Standing::Failed(error) => return Err(error),
            }
            if !self.position_gained(deadline).await? {
                return Ok(Vec::new());
            }
            self.watch_topics().await;
            tokio::select! {
                biased;
                () = pulse.news.notified() => {}
                records = self.fetcher.poll(deadline) => return records,
            }
        }
    }

    /// Whether the round ended before `deadline`.
    async fn wait_for_join(&mut self, deadline: Instant) -> Result<bool> {
        let Some(joining) = &mut self.joining else { return Ok(true) };
        let Ok(joined) = timeout_at(deadline, &mut joining.0).await else { return Ok(false) };
        self.joining = None;
        let joined = joined.map_err(|_| Error::Closed)?;
        match joined {
            Ok(joined) => self.adopt(joined),
            Err(error) => {
                self.pulse.set_standing(Standing::Failed(error.clone()));
                return Err(error);
            }
        }
        Ok(true)
    }

    async fn begin_join(&mut self) {
        self.commit_if_due(true);
        if let Some(commit) = self.last_commit.take() {
            // What was handed out must be committed before somebody else may start there.
            let _ = timeout(self.cluster.config().request_timeout, commit).await;
        }
        if !self.config.is_cooperative() {
            let revoked: Vec<_> = std::mem::take(&mut self.owned).into_iter().collect();
            self.give_up(&revoked);
            self.tell(RebalanceEvent::Revoked, revoked);
        }
        let (cluster, config) = (self.cluster.clone(), self.config.clone());
        let owned = self.owned.iter().cloned().collect();
        let (seat, pulse) = (self.seat.clone(), self.pulse.clone());
        // Heartbeats of the old place must not report about the new one.
        self.heartbeats = None;
        self.joining = Some(Joining(tokio::spawn(join(cluster, config, seat, owned, pulse))));
    }

    fn adopt(&mut self, joined: Joined) {
        if joined.has_lost_place {
            self.lose_everything();
        }
        self.seat = joined.seat;
        self.heartbeats = Some(joined.heartbeats);
        self.counts = joined.counts.map(|counts| (counts, Instant::now()));
        let assignment: BTreeSet<_> = joined.assignment.into_iter().collect();
        let revoked: Vec<_> = self.owned.difference(&assignment).cloned().collect();
        let gained: Vec<_> = assignment.difference(&self.owned).cloned().collect();
        self.owned = assignment;
        self.give_up(&revoked);
        self.unpositioned.extend(gained.iter().cloned());
        let must_rejoin = !revoked.is_empty() && joined.assignor.is_cooperative();
        self.tell(RebalanceEvent::Revoked, revoked);
        self.tell(RebalanceEvent::Assigned, gained);
        if must_rejoin {
            // What we gave up is handed to its new owner in the next round (KIP-429).
            self.pulse.set_standing(Standing::Rebalancing);
        }
    }

    fn lose_everything(&mut self) {
        self.seat = Seat { generation: -1, ..Seat::default() };
        let lost: Vec<_> = std::mem::take(&mut self.owned).into_iter().collect();
        self.give_up(&lost);
        self.tell(RebalanceEvent::Lost, lost);
    }

    fn give_up(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.fetcher.remove(partition);
            self.unpositioned.remove(partition);
        }
    }

    fn tell(
        &self,
        event: fn(Vec<TopicPartition>) -> RebalanceEvent,
        partitions: Vec<TopicPartition>,
    ) {
        if let Some(listener) = self.config.listener.as_ref().filter(|_| !partitions.is_empty()) {
            listener(&event(partitions));
        }
    }

    /// Starts gained partitions where the group had committed. Whether that ended before `deadline`.
    async fn position_gained(&mut self, deadline: Instant) -> Result<bool> {
        if self.unpositioned.is_empty() {
            return Ok(true);
        }
        let partitions: Vec<_> = self.unpositioned.iter().cloned().collect();
        let asking = committed(&self.cluster, &self.config.group, Some(&partitions));
        let Ok(found) = timeout_at(deadline, asking).await else { return Ok(false) };
        let found = found?;
        for partition in partitions {
            match found.get(&partition) {
                Some(committed) => {
                    self.fetcher.go_on(&partition, committed.offset, committed.leader_epoch);
                }
                None => self.fetcher.seek_by_rule(&partition),
            }
            self.unpositioned.remove(&partition);
        }
        Ok(true)
    }

    /// The leader rejoins when a topic appeared, disappeared or grew.
    async fn watch_topics(&mut self) {
        let Some((counts, looked_at)) = &mut self.counts else { return };
        let has_all = self.config.topics.iter().all(|topic| counts.contains_key(topic));
        let age = self.cluster.config().metadata_age_max;
        let interval = if has_all { age } else { MISSING_TOPIC_CHECK.min(age) };
        if looked_at.elapsed() < interval {
            return;
        }
        *looked_at = Instant::now();
        let topics = counts.keys().chain(&self.config.topics).cloned().collect();
        match partition_counts(&self.cluster, &topics).await {
            Ok(now) if now != *counts => self.pulse.set_standing(Standing::Rebalancing),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "looking for new partitions failed"),
        }
    }

    // ------------------------------------------------------------------------------ positions

    /// The partitions this member owns now.
    #[must_use]
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.owned.iter().cloned().collect()
    }

    /// The id the coordinator gave this member; empty before the first round.
    #[must_use]
    pub fn member_id(&self) -> &str {
        &self.seat.member_id
    }

    /// The next offset that `poll` hands out; `None` for partitions that are not owned or not yet
    /// positioned.
    #[must_use]
    pub fn position(&self, partition: &TopicPartition) -> Option<Offset> {
        self.fetcher.position(partition)
    }

    /// The high watermark that the last fetch brought.
    #[must_use]
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<Offset> {
        self.fetcher.high_watermark(partition)
    }

    /// Goes on at `offset`. The partition must be owned.
    pub fn seek(&mut self, partition: &TopicPartition, offset: Offset) -> Result<()> {
        if !self.owned.contains(partition) {
            let message = format!("this member does not own {partition}");
            return Err(Error::InvalidArgument(message));
        }
        self.unpositioned.remove(partition);
        self.fetcher.seek(partition, offset);
        Ok(())
    }

    /// Stops handing out records of these partitions; they stay owned.
    pub fn pause(&mut self, partitions: &[TopicPartition]) {
        partitions.iter().for_each(|partition| self.fetcher.set_paused(partition, true));
    }

    /// Hands out records of these partitions again.
    pub fn resume(&mut self, partitions: &[TopicPartition]) {
        partitions.iter().for_each(|partition| self.fetcher.set_paused(partition, false));
    }

    /// The first offset at or after a time, per partition; those without one are missing.
    pub async fn offsets_for_times(
        &self,
        times: &BTreeMap<TopicPartition, Timestamp>,
    ) -> Result<BTreeMap<TopicPartition, FoundOffset>> {
        let wanted = times.iter().map(|(p, time)| (p.clone(), OffsetSpec::At(*time))).collect();
        list_offsets(&self.cluster, &wanted, self.config.fetch.isolation).await
    }

    /// What the group has committed for these partitions.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Committed>> {
        committed(&self.cluster, &self.config.group, Some(partitions)).await
    }

    // -------------------------------------------------------------------------------- commits

    /// Commits the positions of all owned partitions: everything that polls have handed out.
    pub async fn commit_sync(&mut self) -> Result<()> {
        let positions = self.positions();
        self.commit_offsets(positions).await
    }

    /// Commits these positions, after those that are on their way.
    pub async fn commit_offsets(
        &mut self,
        offsets: BTreeMap<TopicPartition, Committed>,
    ) -> Result<()> {
        self.chain_commit(offsets);
        match self.last_commit.take() {
            Some(commit) => commit.await.unwrap_or(Err(Error::Closed)),
            None => Ok(()),
        }
    }

    /// Commits the positions of all owned partitions in the background. Commits keep their order; a
    /// failure is logged, and the next commit makes up for it.
    pub fn commit_async(&mut self) {
        let positions = self.positions();
        self.chain_commit(positions);
    }

    fn positions(&self) -> BTreeMap<TopicPartition, Committed> {
        let position = |partition: &TopicPartition| {
            let offset = self.fetcher.position(partition)?;
            let leader_epoch = self.fetcher.leader_epoch(partition);
            let committed = Committed { offset, leader_epoch, metadata: String::new() };
            Some((partition.clone(), committed))
        };
        self.owned.iter().filter_map(position).collect()
    }

    fn chain_commit(&mut self, offsets: BTreeMap<TopicPartition, Committed>) {
        let before = self.last_commit.take();
        let cluster = self.cluster.clone();
        let committer = Committer {
            group: self.config.group.clone(),
            member_id: self.seat.member_id.clone(),
            instance_id: self.config.instance_id.clone(),
            generation: self.seat.generation,
        };
        self.committed_at = Instant::now();
        // Lives for one commit, which has a time limit.
        self.last_commit = Some(tokio::spawn(async move {
            if let Some(before) = before {
                // Its failure was logged; what counts is that it is over.
                let _ = before.await;
            }
            let patience = cluster.config().request_timeout;
            commit(&cluster, &committer, &offsets, patience).await.inspect_err(|error| {
                tracing::warn!(group = committer.group, %error, "commit failed");
            })
        }));
    }

    fn commit_if_due(&mut self, is_last_chance: bool) {
        let Some(interval) = self.config.commit_interval else { return };
        let is_due = is_last_chance || interval <= self.committed_at.elapsed();
        if is_due && 0 <= self.seat.generation && !self.owned.is_empty() {
            self.commit_async();
        }
    }

    /// Commits if configured, and leaves the group. A static member keeps its place for its
    /// successor until the session expires.
    pub async fn close(mut self) -> Result<()> {
        self.commit_if_due(true);
        if let Some(commit) = self.last_commit.take() {
            commit.await.unwrap_or(Err(Error::Closed))?;
        }
        self.heartbeats = None;
        if self.seat.member_id.is_empty() || self.config.instance_id.is_some() {
            return Ok(());
        }
        leave(&self.cluster, &self.config, &self.seat, "the consumer is closed").await
    }
}

/// While it lives, the application counts as polling.
struct Polling<'p>(&'p Pulse);

impl Polling<'_> {
    fn on(pulse: &Pulse) -> Polling<'_> {
        pulse.poll_begins();
        Polling(pulse)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.poll_ends();
    }
}
