//! Fetch: record batches out of partitions, as they are stored, straight from their files.
//!
//! A fetch that finds fewer bytes than the client wants is parked on every partition it reads,
//! with the same watches that acknowledgements use, and read anew when one of them fires.
//!
//! A consumer that says in which rack it stands is sent to an in-sync follower there (KIP-392). A
//! follower serves whom it is asked by up to the high watermark that it knows. Replicas are fed over the
//! port between brokers: who claims to be one here is refused.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use towpath_driver::{Condition, FetchRefusal, Position, ReadLimits, Reader};
use towpath_model::{BrokerId, LeaderEpoch, Offset, PartitionIndex, Token, TopicPartition};
use towpath_protocol::messages::{
    FetchPartition, FetchRequest, FetchResponse, FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint, FetchResponsePartitionData, FetchableTopicResponse,
};
use towpath_protocol::{Blob, ErrorCode};

use super::brokers::LeaderHints;
use super::fetch_sessions::{Ask, Plan, Session, Told, TopicKey};
use super::{Handled, Incoming, Unanswerable, errors, topic_id, wire_id};
use crate::connection::File;
use crate::disk::off_worker;
use crate::node::Node;
use crate::outgoing::Region;
use crate::reads::WARM_BYTES_MAX;

/// From this version on followers serve consumers (KIP-392).
const FOLLOWERS_SINCE: i16 = 11;
/// From this version on the answer names the leader that the client should have asked (KIP-951).
const LEADER_SINCE: i16 = 16;
/// From this version on topics are named by id (KIP-516).
const IDS_SINCE: i16 = 13;

/// The request, owned, so that it can be read again after a wait.
struct Wants {
    version: i16,
    max_wait: Duration,
    min_bytes: usize,
    max_bytes: i32,
    stable_only: bool,
    /// Where the consumer stands; empty if it does not say.
    rack: String,
    /// It claims to be a replica.
    is_replica: bool,
    session_id: i32,
    session_epoch: i32,
    partitions: Vec<(TopicKey, FetchPartition)>,
    forgotten: Vec<(TopicKey, i32)>,
}

/// What was found in one partition.
struct Found {
    topic: TopicKey,
    partition: i32,
    id: Option<TopicPartition>,
    error: ErrorCode,
    position: Option<Position>,
    slice: Option<(Region<File>, usize)>,
    /// The follower that the consumer should ask instead.
    preferred: Option<BrokerId>,
    /// Where records begin that the device must be asked for, and how many bytes of them.
    cold: Option<(Offset, usize)>,
}

pub(super) async fn handle(node: &Node, incoming: Incoming) -> Handled {
    let most = node.broker_config().fetch_bytes_max;
    let mut wants = read(&incoming, i32::try_from(most).unwrap_or(i32::MAX))?;
    let ask = Ask {
        id: wants.session_id,
        epoch: wants.session_epoch,
        uses_ids: IDS_SINCE <= wants.version,
        partitions: &wants.partitions,
        forgotten: &wants.forgotten,
    };
    let (session_id, session, is_incremental) = match node.sessions().plan(&ask) {
        Plan::Refused(error) => {
            let refused = FetchResponse { error_code: error.into(), ..Default::default() };
            return incoming.answer(&refused);
        }
        Plan::Sessionless => (0, None, false),
        Plan::Full { id, session } => (id, Some(session), false),
        Plan::Incremental { id, session } => (id, Some(session), true),
    };
    if let Some(session) = &session {
        let session = session.lock().expect("no panic holds a session");
        let remembered = session.partitions.iter();
        wants.partitions = remembered.map(|(topic, r)| (topic.clone(), r.wanted.clone())).collect();
    }
    let found = wait_for_bytes(node, &wants).await;
    answer(node, &incoming, session_id, session.as_ref(), is_incremental, found)
}

/// `most` bounds the answer, whatever the client asks for (`fetch.max.bytes`).
fn read(incoming: &Incoming, most: i32) -> Result<Wants, Unanswerable> {
    let request: FetchRequest<'_> = incoming.decode()?;
    let mut partitions: Vec<(TopicKey, FetchPartition)> = Vec::new();
    let mut places: HashMap<(TopicKey, i32), usize> = HashMap::new();
    // Nothing can be asked twice where one partition is asked.
    let is_single = request.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>() == 1;
    for topic in &request.topics {
        let key = TopicKey { name: topic.topic.into(), id: topic_id(topic.topic_id) };
        for partition in &topic.partitions {
            if is_single {
                partitions.push((key.clone(), partition.clone()));
                continue;
            }
            // As in Kafka, the last position asked for a partition wins.
            match places.entry((key.clone(), partition.partition)) {
                Entry::Occupied(place) => partitions[*place.get()].1 = partition.clone(),
                Entry::Vacant(place) => {
                    place.insert(partitions.len());
                    partitions.push((key.clone(), partition.clone()));
                }
            }
        }
    }
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let key = TopicKey { name: topic.topic.into(), id: topic_id(topic.topic_id) };
        forgotten.extend(topic.partitions.iter().map(|partition| (key.clone(), *partition)));
    }
    let max_bytes = request.max_bytes.min(most);
    let has_session = 7 <= incoming.version;
    Ok(Wants {
        version: incoming.version,
        max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
        min_bytes: usize::try_from(request.min_bytes.min(max_bytes)).unwrap_or(0),
        max_bytes,
        stable_only: request.isolation_level == 1,
        rack: request.rack_id.to_owned(),
        is_replica: 0 <= request.replica_id || 0 <= request.replica_state.replica_id,
        session_id: if has_session { request.session_id } else { 0 },
        session_epoch: if has_session { request.session_epoch } else { -1 },
        partitions,
        forgotten,
    })
}

async fn wait_for_bytes(node: &Node, wants: &Wants) -> Vec<Found> {
    let deadline = Instant::now() + wants.max_wait;
    loop {
        let found = find_warm(node, wants).await;
        let bytes: usize = found.iter().filter_map(|f| f.slice.as_ref()).map(|(_, len)| len).sum();
        let has_news = found.iter().any(|f| f.error != ErrorCode::None || f.preferred.is_some());
        if wants.min_bytes <= bytes || has_news || found.is_empty() || wants.max_wait.is_zero() {
            return found;
        }
        if !park(node, &found, deadline).await {
            return find_warm(node, wants).await;
        }
    }
}

/// Waits until one of the partitions has more committed records. `false`: the time is up.
async fn park(node: &Node, found: &[Found], deadline: Instant) -> bool {
    let mut wait = node.wait();
    let token = wait.token();
    let mut watches = Watches { node, token, held: Vec::with_capacity(found.len()) };
    for (id, position) in found.iter().filter_map(|f| f.id.zip(f.position)) {
        let condition = Condition::HighWatermark(position.high_watermark.next());
        if node.driver().watch_replica(id, token, condition) {
            return true;
        }
        watches.held.push((id, condition));
    }
    tokio::time::timeout_at(deadline, wait.answer()).await.is_ok()
}

/// Gives up its watches, also when the client hangs up and the wait is dropped: a partition that
/// nobody writes to would keep them for ever.
struct Watches<'n> {
    node: &'n Node,
    token: Token,
    held: Vec<(TopicPartition, Condition)>,
}

impl Drop for Watches<'_> {
    fn drop(&mut self) {
        for (id, condition) in self.held.drain(..) {
            self.node.driver().unwatch(id, self.token, condition);
        }
    }
}

/// Finds records without waiting for a device here: threads that may wait bring into memory what is
/// not there.
async fn find_warm(node: &Node, wants: &Wants) -> Vec<Found> {
    let found = find(node, wants, false);
    let mut left = WARM_BYTES_MAX;
    let mut is_any_cold = false;
    for (id, (from, bytes)) in found.iter().filter_map(|f| f.id.zip(f.cold)) {
        is_any_cold = true;
        let bytes = bytes.min(left);
        if 0 < bytes {
            left -= bytes;
            node.warm_up(id, from, bytes).await;
        }
    }
    // Some of it may be gone from memory again already.
    if is_any_cold { off_worker(|| find(node, wants, true)) } else { found }
}

fn find(node: &Node, wants: &Wants, may_wait: bool) -> Vec<Found> {
    let mut left = i64::from(wants.max_bytes);
    let mut is_empty_so_far = true;
    let mut all = Vec::with_capacity(wants.partitions.len());
    for (topic, wanted) in &wants.partitions {
        let found = find_one(node, wants, topic, wanted, left, is_empty_so_far, may_wait);
        if let Some((_, len)) = &found.slice {
            left -= i64::try_from(*len).unwrap_or(i64::MAX);
            is_empty_so_far = false;
        }
        all.push(found);
    }
    all
}

fn find_one(
    node: &Node,
    wants: &Wants,
    topic: &TopicKey,
    wanted: &FetchPartition,
    left: i64,
    is_empty_so_far: bool,
    may_wait: bool,
) -> Found {
    let mut found = Found {
        topic: topic.clone(),
        partition: wanted.partition,
        id: None,
        error: ErrorCode::None,
        position: None,
        slice: None,
        preferred: None,
        cold: None,
    };
    match resolve(node, wants.version, topic, wanted.partition) {
        Ok(id) => found.id = Some(id),
        Err(error) => {
            found.error = error;
            return found;
        }
    }
    let id = found.id.expect("just resolved");
    if wants.is_replica {
        found.error = ErrorCode::TopicAuthorizationFailed;
        return found;
    }
    if wants.max_bytes < 0 || wanted.partition_max_bytes < 0 {
        found.error = ErrorCode::UnknownServerError;
        return found;
    }
    let epoch = Some(wanted.current_leader_epoch).filter(|epoch| 0 <= *epoch).map(LeaderEpoch);
    let limit = i64::from(wanted.partition_max_bytes).min(left).max(0);
    let limits = ReadLimits {
        max_bytes: usize::try_from(limit).unwrap_or(usize::MAX),
        at_least_one_batch: is_empty_so_far,
    };
    let from = Offset(wanted.fetch_offset);
    let driver = node.driver();
    if !wants.rack.is_empty()
        && let Some(closest) = driver.closest_replica(id, &wants.rack, from)
    {
        match driver.position(id, epoch) {
            Ok(position) => (found.position, found.preferred) = (Some(position), Some(closest)),
            Err(refusal) => found.error = errors::of_fetch_refusal(&refusal),
        }
        return found;
    }
    let reader = Reader { epoch, from, stable_only: wants.stable_only, limits };
    let read = match (FOLLOWERS_SINCE <= wants.version, may_wait) {
        (true, _) => driver.read_replica(id, &reader, may_wait),
        (false, true) => driver.read(id, epoch, from, wants.stable_only, limits),
        (false, false) => driver.read_resident(id, epoch, from, wants.stable_only, limits),
    };
    match read {
        Ok(read) => {
            found.position = Some(read.position);
            found.slice = read
                .slice
                .filter(|slice| 0 < slice.len)
                .map(|slice| (Region { file: slice.file, position: slice.position }, slice.len));
        }
        // Whatever the bytes before were, these come in an answer that has room for them.
        Err(FetchRefusal::NotResident) => found.cold = Some((from, limits.max_bytes)),
        Err(refusal) => {
            if let FetchRefusal::Corrupt(_) | FetchRefusal::Storage(_) = refusal
                && let Some(suppressed) = node.may_complain()
            {
                tracing::error!(suppressed, topic = %topic.name, partition = wanted.partition, %refusal,
                    "cannot serve records");
            }
            found.error = errors::of_fetch_refusal(&refusal);
        }
    }
    found
}

fn resolve(
    node: &Node,
    version: i16,
    topic: &TopicKey,
    partition: i32,
) -> Result<TopicPartition, ErrorCode> {
    let image = node.driver().image();
    let found = if IDS_SINCE <= version {
        image.topic_by_id(topic.id).ok_or(ErrorCode::UnknownTopicId)?
    } else {
        image.topic(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition)?
    };
    let exists = usize::try_from(partition).is_ok_and(|at| at < found.partitions.len());
    let id = TopicPartition { topic: found.id, partition: PartitionIndex(partition) };
    exists.then_some(id).ok_or(ErrorCode::UnknownTopicOrPartition)
}

fn answer(
    node: &Node,
    incoming: &Incoming,
    session_id: i32,
    session: Option<&Arc<Mutex<Session>>>,
    is_incremental: bool,
    found: Vec<Found>,
) -> Handled {
    let news = session.map(|session| {
        let told: Vec<_> = found.iter().map(|f| (&f.topic, f.partition, told_of(f))).collect();
        session.lock().expect("no panic holds a session").tell(&told)
    });
    let mut hints = LeaderHints::new(node, &incoming.peer);
    let mut regions = Vec::new();
    let mut listed: Vec<(TopicKey, Vec<FetchResponsePartitionData<'_>>)> = Vec::new();
    let mut places: HashMap<TopicKey, usize> = HashMap::new();
    let mut fetched = 0u64;
    for (at, one) in found.into_iter().enumerate() {
        let is_news = news.as_ref().is_none_or(|news| news[at]) || one.preferred.is_some();
        if is_incremental && !is_news {
            continue;
        }
        let told = told_of(&one);
        let knows_leader =
            matches!(one.error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
        let (leader_id, leader_epoch) = match one.id {
            Some(id) if knows_leader && LEADER_SINCE <= incoming.version => hints.leader_of(id),
            _ => (-1, -1),
        };
        let records = one.slice.map_or(Blob::Bytes(&[]), |(region, len)| {
            let index = u32::try_from(regions.len()).expect("partitions of a request are bounded");
            regions.push(region);
            fetched += len as u64;
            Blob::Region { index, len: u32::try_from(len).expect("an answer is below 2 GiB") }
        });
        let data = FetchResponsePartitionData {
            partition_index: one.partition,
            error_code: told.error,
            high_watermark: told.high_watermark,
            last_stable_offset: one.position.map_or(-1, |p| p.last_stable_offset.0),
            log_start_offset: told.log_start_offset,
            // Null in both isolation levels: there are no transactions, and a list for a
            // read_uncommitted reader makes some clients drop records.
            aborted_transactions: None,
            current_leader: FetchResponseLeaderIdAndEpoch { leader_id, leader_epoch },
            preferred_read_replica: one.preferred.map_or(-1, |replica| replica.0),
            records: Some(records),
            ..Default::default()
        };
        // Most partitions follow another one of their topic.
        if let Some((topic, partitions)) = listed.last_mut()
            && *topic == one.topic
        {
            partitions.push(data);
            continue;
        }
        match places.entry(one.topic) {
            Entry::Occupied(place) => listed[*place.get()].1.push(data),
            Entry::Vacant(place) => {
                listed.push((place.key().clone(), vec![data]));
                place.insert(listed.len() - 1);
            }
        }
    }
    node.metrics().record_bytes_fetched.inc_by(fetched);
    let responses = listed
        .iter_mut()
        .map(|(topic, partitions)| FetchableTopicResponse {
            topic: &topic.name,
            topic_id: wire_id(topic.id),
            partitions: std::mem::take(partitions),
        })
        .collect();
    let endpoints = hints.endpoints().map(|(node_id, broker)| FetchResponseNodeEndpoint {
        node_id,
        host: &broker.host,
        port: broker.port,
        rack: broker.rack.as_deref(),
    });
    let node_endpoints = endpoints.collect();
    let response = FetchResponse { session_id, responses, node_endpoints, ..Default::default() };
    incoming.answer_with(&response, regions)
}

fn told_of(found: &Found) -> Told {
    Told {
        has_records: found.slice.is_some(),
        high_watermark: found.position.map_or(-1, |p| p.high_watermark.0),
        log_start_offset: found.position.map_or(-1, |p| p.log_start_offset.0),
        error: found.error.into(),
    }
}
