//! Keeps fetches on their way for a set of partitions and hands out records in order.
//!
//! One fetch per leader is parked at the broker at a time, for all partitions of that leader that
//! have nothing buffered; so at most one answer per leader is buffered, and a caller that stops
//! reading stops the fetching. Positions move only when records are handed out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use towpath_model::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use towpath_protocol::messages::{
    FetchPartition, FetchRequest, FetchResponse, FetchResponsePartitionData, FetchTopic,
};
use towpath_protocol::{ErrorCode, Uuid};
use towpath_records::Scratch;

use super::decode::read_stretch;
use super::offsets::{Isolation, OffsetSpec, list_offsets};
use crate::cluster::{Cluster, Lane};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::news::LeaderNews;
use crate::record::{Record, TopicPartition};
use crate::wire::Answer;

/// How much to fetch at a time, and how patiently.
#[derive(Debug, Clone)]
pub struct FetchConfig {
    /// How long the broker may wait for `bytes_min`.
    pub wait_max: Duration,
    /// Bytes that end the wait.
    pub bytes_min: i32,
    /// Bytes of one answer, as a guide: the first batch always comes whole (KIP-74).
    pub bytes_max: i32,
    /// Bytes of one partition in one answer, likewise.
    pub partition_bytes_max: i32,
    /// The most records that one poll returns.
    pub poll_records_max: usize,
    /// Which records of transactions are seen.
    pub isolation: Isolation,
    /// The reader's rack: brokers may send it to a closer replica (KIP-392).
    pub rack: String,
}

impl Default for FetchConfig {
    fn default() -> FetchConfig {
        FetchConfig {
            wait_max: Duration::from_millis(500),
            bytes_min: 1,
            bytes_max: 16 << 20,
            partition_bytes_max: 1 << 20,
            poll_records_max: 500,
            isolation: Isolation::default(),
            rack: String::new(),
        }
    }
}

/// Where a reader goes when its position does not exist: never committed, or deleted by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetReset {
    /// To the first record that is kept.
    Earliest,
    /// To the end: only records from now on.
    Latest,
    /// Nowhere: an error.
    Fail,
}

pub(super) struct Fetcher {
    cluster: Cluster,
    config: FetchConfig,
    reset: OffsetReset,
    places: BTreeMap<TopicPartition, Place>,
    fetches: JoinSet<Fetched>,
    /// Leaders with a fetch on its way.
    asked: Vec<BrokerId>,
    /// Rises whenever a position is set, so that an answer for an older one is recognised.
    seeks: u64,
    scratch: Scratch,
    /// Errors that the next poll returns.
    failure: Option<Error>,
}

/// One partition that is read.
struct Place {
    position: Offset,
    /// Of the last record before `position`, where it is known.
    leader_epoch: Option<LeaderEpoch>,
    seek: u64,
    is_paused: bool,
    is_reset_wanted: bool,
    buffered: VecDeque<Record>,
    /// Where the next fetch continues behind `buffered`.
    fetch_offset: Offset,
    high_watermark: Option<Offset>,
    damage: Option<Error>,
    not_before: Option<Instant>,
    failures: u32,
}

impl Place {
    fn at(position: Offset, seek: u64) -> Place {
        Place {
            position,
            leader_epoch: None,
            seek,
            is_paused: false,
            is_reset_wanted: false,
            buffered: VecDeque::new(),
            fetch_offset: position,
            high_watermark: None,
            damage: None,
            not_before: None,
            failures: 0,
        }
    }

    fn wants_records(&self, now: Instant) -> bool {
        !self.is_paused
            && !self.is_reset_wanted
            && self.buffered.is_empty()
            && self.damage.is_none()
            && self.not_before.is_none_or(|at| at <= now)
    }
}

struct Fetched {
    leader: BrokerId,
    asked: Vec<(TopicPartition, u64, Offset)>,
    outcome: Result<Answer>,
}

/// The first version that names topics by id (KIP-516).
const BY_TOPIC_ID: i16 = 13;

impl Fetcher {
    pub(super) fn new(cluster: Cluster, config: FetchConfig, reset: OffsetReset) -> Fetcher {
        Fetcher {
            cluster,
            config,
            reset,
            places: BTreeMap::new(),
            fetches: JoinSet::new(),
            asked: Vec::new(),
            seeks: 0,
            scratch: Scratch::new(),
            failure: None,
        }
    }

    // ------------------------------------------------------------------------------ positions

    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        self.places.keys().cloned().collect()
    }

    /// Starts to read a partition at `position`, or goes there.
    pub(super) fn seek(&mut self, partition: &TopicPartition, position: Offset) {
        self.seeks += 1;
        let is_paused = self.places.get(partition).is_some_and(|place| place.is_paused);
        let place = Place { is_paused, ..Place::at(position, self.seeks) };
        self.places.insert(partition.clone(), place);
    }

    /// Goes on at `position`, before which somebody has read records of `leader_epoch`.
    pub(super) fn go_on(
        &mut self,
        partition: &TopicPartition,
        position: Offset,
        leader_epoch: Option<LeaderEpoch>,
    ) {
        self.seek(partition, position);
        if let Some(place) = self.places.get_mut(partition) {
            place.leader_epoch = leader_epoch;
        }
    }

    /// Starts to read a partition where the reset rule says.
    pub(super) fn seek_by_rule(&mut self, partition: &TopicPartition) {
        self.seek(partition, Offset(-1));
        if let Some(place) = self.places.get_mut(partition) {
            place.is_reset_wanted = true;
        }
    }

    pub(super) fn remove(&mut self, partition: &TopicPartition) {
        self.places.remove(partition);
    }

    pub(super) fn position(&self, partition: &TopicPartition) -> Option<Offset> {
        let place = self.places.get(partition)?;
        (!place.is_reset_wanted).then_some(place.position)
    }

    pub(super) fn leader_epoch(&self, partition: &TopicPartition) -> Option<LeaderEpoch> {
        self.places.get(partition)?.leader_epoch
    }

    pub(super) fn high_watermark(&self, partition: &TopicPartition) -> Option<Offset> {
        self.places.get(partition)?.high_watermark
    }

    pub(super) fn set_paused(&mut self, partition: &TopicPartition, is_paused: bool) {
        if let Some(place) = self.places.get_mut(partition) {
            place.is_paused = is_paused;
        }
    }

    // -------------------------------------------------------------------------------- polling

    /// Waits for records, at most until `deadline`. Cancelling it loses nothing.
    pub(super) async fn poll(&mut self, deadline: Instant) -> Result<Vec<Record>> {
        loop {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            let records = self.take_buffered();
            if !records.is_empty() {
                // The next fetch travels while the caller works.
                self.start_fetches();
                return Ok(records);
            }
            if let Some(damage) = self.places.values_mut().find_map(|place| place.damage.take()) {
                return Err(damage);
            }
            self.reset_lost_positions(deadline).await?;
            self.start_fetches();
            if !self.wait_for_answer(deadline).await {
                return Ok(Vec::new());
            }
        }
    }

    fn take_buffered(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        for place in self.places.values_mut().filter(|place| !place.is_paused) {
            let room = self.config.poll_records_max - records.len();
            let taken = room.min(place.buffered.len());
            if let Some(last) = taken.checked_sub(1).and_then(|at| place.buffered.get(at)) {
                place.leader_epoch = last.leader_epoch.or(place.leader_epoch);
            }
            records.extend(place.buffered.drain(..taken));
            place.position = place.buffered.front().map_or(place.fetch_offset, |next| next.offset);
            if records.len() == self.config.poll_records_max {
                break;
            }
        }
        records
    }

    /// Whether something arrived, or a pause ended, before `deadline`.
    async fn wait_for_answer(&mut self, deadline: Instant) -> bool {
        let now = Instant::now();
        let pause_ends = self.places.values().filter_map(|p| p.not_before).filter(|at| now < *at);
        let wake_at = pause_ends.min().map_or(deadline, |at| at.min(deadline));
        if self.fetches.is_empty() {
            // Nothing to wait for but time: everything is paused, or nothing is assigned.
            tokio::time::sleep_until(wake_at).await;
            return wake_at < deadline;
        }
        match timeout_at(wake_at, self.fetches.join_next()).await {
            Ok(Some(Ok(fetched))) => self.take_in(fetched).await,
            Ok(_) => {}
            Err(_) => return wake_at < deadline,
        }
        true
    }

    async fn reset_lost_positions(&mut self, deadline: Instant) -> Result<()> {
        let spec = match self.reset {
            OffsetReset::Earliest => OffsetSpec::Earliest,
            OffsetReset::Latest => OffsetSpec::Latest,
            OffsetReset::Fail => {
                let lost = self.places.iter().find(|(_, place)| place.is_reset_wanted);
                return lost.map_or(Ok(()), |(partition, place)| {
                    Err(Error::OffsetOutOfRange {
                        topic: partition.topic.to_string(),
                        partition: partition.partition.0,
                        offset: place.position.0,
                    })
                });
            }
        };
        let lost: BTreeMap<TopicPartition, OffsetSpec> = self
            .places
            .iter()
            .filter(|(_, place)| place.is_reset_wanted)
            .map(|(partition, _)| (partition.clone(), spec))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let asking = list_offsets(&self.cluster, &lost, self.config.isolation);
        let Ok(found) = timeout_at(deadline, asking).await else { return Ok(()) };
        for (partition, found) in found? {
            self.seek(&partition, found.offset);
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------- fetching

    fn start_fetches(&mut self) {
        let now = Instant::now();
        let image = self.cluster.image();
        let mut by_leader: BTreeMap<BrokerId, Vec<(TopicPartition, u64, Offset)>> = BTreeMap::new();
        let mut leaderless = Vec::new();
        for (partition, place) in &mut self.places {
            if !place.wants_records(now) {
                continue;
            }
            match image.leader_since(partition, place.leader_epoch) {
                Some(leader) => by_leader.entry(leader).or_default().push((
                    partition.clone(),
                    place.seek,
                    place.fetch_offset,
                )),
                None => {
                    leaderless.push(partition.topic.clone());
                    place.failures += 1;
                    let wait = self.cluster.config().retry_backoff.wait(place.failures);
                    place.not_before = Some(now + wait);
                }
            }
        }
        self.refresh(leaderless);
        for (leader, asked) in by_leader {
            if self.asked.contains(&leader) {
                continue;
            }
            self.asked.push(leader);
            let cluster = self.cluster.clone();
            let config = self.config.clone();
            self.fetches.spawn(async move {
                let outcome = fetch(&cluster, leader, &config, &asked).await;
                Fetched { leader, asked, outcome }
            });
        }
    }

    /// Asks for new metadata in the background; the pause of the partitions covers the wait.
    fn refresh(&self, mut topics: Vec<Arc<str>>) {
        topics.sort();
        topics.dedup();
        if topics.is_empty() {
            return;
        }
        let cluster = self.cluster.clone();
        // Lives for one request at most.
        tokio::spawn(async move {
            if let Err(error) = cluster.leadership_is_stale(&topics).await {
                tracing::debug!(%error, "metadata refresh failed");
            }
        });
    }

    async fn take_in(&mut self, fetched: Fetched) {
        self.asked.retain(|leader| *leader != fetched.leader);
        let Fetched { leader, asked, outcome } = &fetched;
        let decoded = outcome.as_ref().map_err(Clone::clone);
        let decoded = decoded.and_then(|answer| self.read_answer(*leader, answer, asked));
        match decoded {
            Ok(stale) => self.refresh(stale),
            Err(error) if error.is_retriable() => {
                tracing::debug!(%error, "fetch failed, retrying");
                let now = Instant::now();
                for (partition, seek, _) in &fetched.asked {
                    if let Some(place) = self.places.get_mut(partition).filter(|p| p.seek == *seek)
                    {
                        place.failures += 1;
                        let wait = self.cluster.config().retry_backoff.wait(place.failures);
                        place.not_before = Some(now + wait);
                    }
                }
                self.refresh(fetched.asked.into_iter().map(|(p, ..)| p.topic).collect());
            }
            Err(error) => {
                self.failure = Some(error);
                // Whoever polls on after an error must not do so in a tight loop.
                sleep(self.cluster.config().retry_backoff.wait(1)).await;
            }
        }
    }

    /// Buffers what came. Returns the topics whose metadata is stale.
    fn read_answer(
        &mut self,
        leader: BrokerId,
        answer: &Answer,
        asked: &[(TopicPartition, u64, Offset)],
    ) -> Result<Vec<Arc<str>>> {
        let response: FetchResponse<'_> = answer.read()?;
        let code = ErrorCode::from(response.error_code);
        if !code.is_ok() {
            return Err(Error::refused("fetching", code, None));
        }
        let image = self.cluster.image();
        let mut stale = Vec::new();
        let mut news = LeaderNews::of_fetch(&response);
        for topic in &response.responses {
            let name: Arc<str> = if answer.version < BY_TOPIC_ID {
                topic.topic.into()
            } else {
                match asked.iter().find(|(p, ..)| topic_id(&image, &p.topic) == topic.topic_id) {
                    Some((partition, ..)) => partition.topic.clone(),
                    None => continue,
                }
            };
            for data in &topic.partitions {
                let partition = TopicPartition {
                    topic: name.clone(),
                    partition: PartitionIndex(data.partition_index),
                };
                let seek = asked.iter().find(|(p, ..)| *p == partition).map(|(_, seek, _)| *seek);
                news.fetched(&partition, data);
                if self.take_in_partition(&partition, seek, data) {
                    stale.push(partition);
                }
            }
        }
        self.cluster.heed(news);
        Ok(self.still_stale(leader, stale))
    }

    /// The topics of partitions that `asked` refused and of which nobody else is known to lead. The others
    /// are asked for at once.
    fn still_stale(&mut self, asked: BrokerId, refused: Vec<TopicPartition>) -> Vec<Arc<str>> {
        let image = self.cluster.image();
        let mut stale = Vec::new();
        for partition in refused {
            let leader = image.partition(&partition).and_then(|known| known.leader);
            if leader.is_none_or(|leader| leader == asked) {
                stale.push(partition.topic);
            } else if let Some(place) = self.places.get_mut(&partition) {
                place.not_before = None;
            }
        }
        stale
    }

    /// Buffers one partition's records. Returns whether its metadata is stale.
    fn take_in_partition(
        &mut self,
        partition: &TopicPartition,
        seek: Option<u64>,
        data: &FetchResponsePartitionData<'_>,
    ) -> bool {
        // A seek or a rebalance since then made the answer void.
        let place = self.places.get_mut(partition).filter(|place| Some(place.seek) == seek);
        let Some(place) = place else { return false };
        let code = ErrorCode::from(data.error_code);
        match code {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => {
                tracing::warn!(%partition, offset = place.fetch_offset.0, "the position does not exist in the partition");
                place.is_reset_wanted = true;
                return false;
            }
            // Waiting does not bring them back. Whoever polls on asks again, after a pause.
            ErrorCode::CorruptMessage => {
                place.damage = Some(Error::DamagedRecords {
                    topic: partition.topic.to_string(),
                    partition: partition.partition.0,
                    offset: place.fetch_offset.0,
                });
                place.not_before =
                    Some(Instant::now() + self.cluster.config().retry_backoff.wait(5));
                return false;
            }
            code if code.is_retriable() => {
                place.failures += 1;
                let wait = self.cluster.config().retry_backoff.wait(place.failures);
                place.not_before = Some(Instant::now() + wait);
                return true;
            }
            code => {
                place.damage = Some(Error::refused(format!("reading {partition}"), code, None));
                place.not_before =
                    Some(Instant::now() + self.cluster.config().retry_backoff.wait(5));
                return false;
            }
        }
        place.failures = 0;
        place.not_before = None;
        place.high_watermark = (data.high_watermark >= 0).then_some(Offset(data.high_watermark));
        let bytes = data.records.and_then(|records| records.bytes()).unwrap_or_default();
        if bytes.is_empty() {
            return false;
        }
        let aborted = data.aborted_transactions.as_deref().unwrap_or_default();
        let isolation = self.config.isolation;
        let from = place.fetch_offset;
        let stretch = read_stretch(partition, from, bytes, aborted, isolation, &mut self.scratch);
        place.buffered = stretch.records.into();
        place.fetch_offset = stretch.next_offset;
        place.damage = stretch.damage;
        if place.buffered.is_empty() {
            place.position = place.fetch_offset;
        }
        false
    }
}

fn topic_id(image: &Image, topic: &Arc<str>) -> Uuid {
    image.topics.get(topic).map_or(Uuid::ZERO, |topic| topic.id)
}

async fn fetch(
    cluster: &Cluster,
    leader: BrokerId,
    config: &FetchConfig,
    asked: &[(TopicPartition, u64, Offset)],
) -> Result<Answer> {
    let connection = cluster.broker(leader, Lane::Fetch).await?;
    let image = cluster.image();
    let has_ids = asked.iter().all(|(p, ..)| !topic_id(&image, &p.topic).is_zero());
    let highest = if has_ids { i16::MAX } else { BY_TOPIC_ID - 1 };
    let version = connection.version_up_to::<FetchRequest<'_>>(highest)?;

    let mut topics: Vec<FetchTopic<'_>> = Vec::new();
    for (partition, _, offset) in asked {
        let known = image.topics.get(&partition.topic);
        let epoch =
            known.and_then(|topic| Some(topic.partition(partition.partition)?.leader_epoch));
        let partition_request = FetchPartition {
            partition: partition.partition.0,
            current_leader_epoch: epoch.map_or(-1, |epoch| epoch.0),
            fetch_offset: offset.0,
            partition_max_bytes: config.partition_bytes_max,
            ..Default::default()
        };
        match topics.iter_mut().find(|topic| topic.topic == &*partition.topic) {
            Some(topic) => topic.partitions.push(partition_request),
            None => topics.push(FetchTopic {
                topic: &partition.topic,
                topic_id: topic_id(&image, &partition.topic),
                partitions: vec![partition_request],
            }),
        }
    }
    let request = FetchRequest {
        max_wait_ms: i32::try_from(config.wait_max.as_millis()).unwrap_or(i32::MAX),
        min_bytes: config.bytes_min,
        max_bytes: config.bytes_max,
        isolation_level: config.isolation.on_the_wire(),
        topics,
        rack_id: &config.rack,
        ..Default::default()
    };
    let patience = config.wait_max + cluster.config().request_timeout;
    connection.submit(version, &request, patience).await?.answer().await
}
