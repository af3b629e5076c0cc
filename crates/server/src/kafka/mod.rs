//! The Kafka protocol: one file per API. Each decodes, asks the driver, and encodes; none decides.
//!
//! A handler begins at once, when its request has been read, so that appends keep the order of the
//! requests; its answer waits its turn.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use towpath_model::Uuid;
use towpath_protocol::{
    ApiKey, DecodeError, Decoder, Message, Piece, decode_request_header, encode_response,
};

use crate::connection::File;
use crate::metrics::UnderWay;
use crate::node::Node;
use crate::outgoing::{Outgoing, Region};

mod alter_configs;
mod alter_partition_reassignments;
mod api_versions;
mod brokers;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod elect_leaders;
mod errors;
mod fetch;
mod fetch_sessions;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod outcomes;
mod produce;
mod sync_group;
mod unregister_broker;

pub(crate) use fetch_sessions::FetchSessions;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) remote: SocketAddr,
    /// The address that the client dialled.
    pub(crate) local: SocketAddr,
}

impl Peer {
    pub(crate) fn new(remote: SocketAddr, local: SocketAddr) -> Self {
        Peer { remote, local }
    }

    /// The client's address as Kafka shows it.
    pub(crate) fn host(&self) -> String {
        format!("/{}", canonical(self.remote.ip()))
    }

    /// Host and port under which this client reaches us: what it dialled, unless configured.
    pub(crate) fn address_of(&self, node: &Node) -> (String, i32) {
        match node.advertised() {
            Some((host, port)) => (host.clone(), i32::from(*port)),
            None => (canonical(self.local.ip()).to_string(), i32::from(self.local.port())),
        }
    }
}

fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// What a handler leads to.
pub(crate) enum Answered {
    Frame(Outgoing<File>),
    /// A produce request with `acks=0` has no answer.
    Nothing,
    /// The connection ends; the text says why.
    Close(String),
}

impl Answered {
    /// What it takes in memory; stretches of files take none.
    pub(crate) fn held_bytes(&self) -> usize {
        let Answered::Frame(outgoing) = self else { return 0 };
        let pieces = outgoing.frame.pieces.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Region { .. } => 0,
        });
        pieces.sum()
    }
}

/// An answer, there already or still to come.
pub(crate) enum Answer {
    Now(Answered),
    Later(Pin<Box<dyn Future<Output = Answered> + Send>>, Option<UnderWay>),
    /// Still to come, and so is a part of what the request does: the requests behind it may not begin
    /// before, or they would overtake it.
    InOrder(Pin<Box<dyn Future<Output = Answered> + Send>>, Option<UnderWay>),
}

impl Answer {
    /// Counts the request as under way until the answer is there.
    fn timed(self, under_way: UnderWay) -> Answer {
        match self {
            Answer::Later(future, _) => Answer::Later(future, Some(under_way)),
            Answer::InOrder(future, _) => Answer::InOrder(future, Some(under_way)),
            now @ Answer::Now(_) => now,
        }
    }
}

/// A request that cannot be answered: the connection ends, as Kafka ends it.
#[derive(Debug)]
pub(crate) struct Unanswerable(String);

impl<E: std::error::Error> From<E> for Unanswerable {
    fn from(error: E) -> Self {
        Unanswerable(error.to_string())
    }
}

pub(crate) type Handled = Result<Answered, Unanswerable>;

/// Most memory that the elements of one request may take, in bytes: some hundred thousand
/// partitions.
const DECODED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// One request, as read from the socket.
pub(crate) struct Incoming {
    pub(crate) api_key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) peer: Peer,
    pub(crate) frame: BytesMut,
    body: usize,
}

impl Incoming {
    fn read(peer: &Peer, mut frame: BytesMut) -> Result<Incoming, Unanswerable> {
        if let Some((version, correlation_id)) = future_api_versions(&frame) {
            let (api_key, peer) = (ApiKey::ApiVersions, peer.clone());
            let body = frame.len();
            return Ok(Incoming { api_key, version, correlation_id, peer, frame, body });
        }
        let decoded = decode_request_header(&frame).map(|(header, decoder)| {
            let (key, version) = (header.request_api_key, header.request_api_version);
            (key, version, header.correlation_id, decoder.position())
        });
        let (key, version, correlation_id, body) = match decoded {
            Err(DecodeError::InvalidUtf8 { .. }) if repair_client_id(&mut frame) => {
                return Incoming::read(peer, frame);
            }
            decoded => decoded?,
        };
        let api_key = ApiKey::try_from(key)?;
        let peer = peer.clone();
        Ok(Incoming { api_key, version, correlation_id, peer, frame, body })
    }

    /// What the client calls itself.
    pub(crate) fn client_id(&self) -> Option<&str> {
        decode_request_header(&self.frame).ok()?.0.client_id
    }

    /// The message itself; it borrows from the frame. Kafka ignores what follows it, and so do we.
    pub(crate) fn decode<'a, M: Message<'a>>(&'a self) -> Result<M, Unanswerable> {
        let mut decoder = Decoder::new(&self.frame[self.body..]).with_memory_max(DECODED_BYTES_MAX);
        M::decode(self.version, &mut decoder).map_err(|e| self.malformed(&e))
    }

    fn malformed(&self, error: &dyn std::error::Error) -> Unanswerable {
        let (name, version) = (self.api_key.name(), self.version);
        Unanswerable(format!("malformed {name} request, version {version}: {error}"))
    }

    /// Encodes the answer.
    pub(crate) fn answer<'m, M: Message<'m>>(&self, message: &M) -> Handled {
        self.answer_with(message, Vec::new())
    }

    /// Encodes an answer with file regions.
    pub(crate) fn answer_with<'m, M: Message<'m>>(
        &self,
        message: &M,
        regions: Vec<Region<File>>,
    ) -> Handled {
        let frame = encode_response(self.api_key, self.version, self.correlation_id, message)?;
        Ok(Answered::Frame(Outgoing { frame, regions }))
    }
}

/// Version and correlation id of an ApiVersions request whose version we do not know: its header may
/// have a form that we do not know either, and is answered all the same (KIP-511).
fn future_api_versions(frame: &[u8]) -> Option<(i16, i32)> {
    let (key, rest) = frame.split_first_chunk::<2>()?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (correlation_id, _) = rest.split_first_chunk::<4>()?;
    let version = i16::from_be_bytes(*version);
    let is_ours = i16::from_be_bytes(*key) == ApiKey::ApiVersions.key();
    let is_known = ApiKey::ApiVersions.versions().contains(&version);
    (is_ours && !is_known).then(|| (version, i32::from_be_bytes(*correlation_id)))
}

/// A client id is a name for people, so one that is not UTF-8 does not cost the connection. What is
/// not ASCII in it becomes question marks (in Kafka: U+FFFD, which has another length). Says
/// whether there was anything to repair.
fn repair_client_id(frame: &mut [u8]) -> bool {
    // API key, version and correlation id stand before its length.
    const AT: usize = 8;
    let Some(length) = frame.get(AT..AT + 2) else { return false };
    let length = usize::try_from(i16::from_be_bytes([length[0], length[1]])).unwrap_or(0);
    let Some(bytes) = frame.get_mut(AT + 2..AT + 2 + length) else { return false };
    let is_text = std::str::from_utf8(bytes).is_ok();
    if !is_text {
        bytes.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
    }
    !is_text
}

/// Begins to handle a frame.
pub(crate) fn handle(node: &Arc<Node>, peer: &mut Peer, frame: BytesMut) -> Answer {
    let incoming = match Incoming::read(peer, frame) {
        Ok(incoming) => incoming,
        Err(Unanswerable(why)) => return Answer::Now(Answered::Close(why)),
    };
    let (api_key, version) = (incoming.api_key, incoming.version);
    let under_way = node.metrics().requests.begin(api_key);
    if !api_key.versions().contains(&version) && api_key != ApiKey::ApiVersions {
        let served = api_key.versions();
        let (first, last) = (served.start(), served.end());
        return Answer::Now(Answered::Close(format!(
            "{} version {version} is not served (only {first} to {last})",
            api_key.name(),
        )));
    }
    let answer = match api_key {
        // Most requests are these two. A future of their own is small, and produce often needs
        // none: the others share one that has room for the largest.
        ApiKey::Produce => produce::begin(node, incoming),
        ApiKey::Fetch => {
            let node = Arc::clone(node);
            begin(Box::pin(async move { answered(fetch::handle(&node, incoming).await) }))
        }
        _ => {
            let node = Arc::clone(node);
            begin(Box::pin(async move { answered(dispatch(node, incoming).await) }))
        }
    };
    answer.timed(under_way)
}

fn answered(handled: Handled) -> Answered {
    handled.unwrap_or_else(|Unanswerable(why)| Answered::Close(why))
}

/// Runs a handler up to its first wait.
fn begin(mut future: Pin<Box<dyn Future<Output = Answered> + Send>>) -> Answer {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answered) => Answer::Now(answered),
        Poll::Pending => Answer::Later(future, None),
    }
}

async fn dispatch(node: Arc<Node>, incoming: Incoming) -> Handled {
    match incoming.api_key {
        ApiKey::Produce | ApiKey::Fetch => unreachable!("begun by themselves"),
        ApiKey::ListOffsets => list_offsets::handle(&node, &incoming).await,
        ApiKey::Metadata => metadata::handle(&node, &incoming).await,
        ApiKey::OffsetCommit => offset_commit::handle(&node, &incoming).await,
        ApiKey::OffsetFetch => offset_fetch::handle(&node, &incoming).await,
        ApiKey::FindCoordinator => find_coordinator::handle(&node, &incoming).await,
        ApiKey::JoinGroup => join_group::handle(&node, &incoming).await,
        ApiKey::Heartbeat => heartbeat::handle(&node, &incoming).await,
        ApiKey::LeaveGroup => leave_group::handle(&node, &incoming).await,
        ApiKey::SyncGroup => sync_group::handle(&node, &incoming).await,
        ApiKey::DescribeGroups => describe_groups::handle(&node, &incoming).await,
        ApiKey::ListGroups => list_groups::handle(&node, &incoming).await,
        ApiKey::ApiVersions => api_versions::handle(&node, &incoming),
        ApiKey::CreateTopics => create_topics::handle(&node, &incoming).await,
        ApiKey::DeleteTopics => delete_topics::handle(&node, &incoming).await,
        ApiKey::DeleteRecords => delete_records::handle(&node, &incoming).await,
        ApiKey::InitProducerId => init_producer_id::handle(&node, &incoming).await,
        ApiKey::OffsetForLeaderEpoch => offset_for_leader_epoch::handle(&node, &incoming),
        ApiKey::DescribeConfigs => describe_configs::handle(&node, &incoming),
        ApiKey::AlterConfigs => alter_configs::handle(&node, &incoming).await,
        ApiKey::DescribeLogDirs => describe_log_dirs::handle(&node, &incoming),
        ApiKey::CreatePartitions => create_partitions::handle(&node, &incoming).await,
        ApiKey::DeleteGroups => delete_groups::handle(&node, &incoming).await,
        ApiKey::IncrementalAlterConfigs => {
            incremental_alter_configs::handle(&node, &incoming).await
        }
        ApiKey::ElectLeaders => elect_leaders::handle(&node, &incoming).await,
        ApiKey::AlterPartitionReassignments => {
            alter_partition_reassignments::handle(&node, &incoming).await
        }
        ApiKey::ListPartitionReassignments => {
            list_partition_reassignments::handle(&node, &incoming)
        }
        ApiKey::OffsetDelete => offset_delete::handle(&node, &incoming).await,
        ApiKey::DescribeQuorum => describe_quorum::handle(&node, &incoming).await,
        ApiKey::DescribeCluster => describe_cluster::handle(&node, &incoming),
        ApiKey::UnregisterBroker => unregister_broker::handle(&node, &incoming).await,
        ApiKey::DescribeProducers => describe_producers::handle(&node, &incoming),
        ApiKey::DescribeTopicPartitions => describe_topic_partitions::handle(&node, &incoming),
    }
}

/// Each of `asked` once, by its key and in the order of the first mention: an answer must not grow
/// with how often a question repeats itself.
pub(crate) fn distinct<'a, T, K: Ord>(asked: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<&'a T> {
    let mut seen = BTreeSet::new();
    asked.iter().filter(|one| seen.insert(key(one))).collect()
}

/// The wire's id as the model's.
pub(crate) fn topic_id(id: towpath_protocol::Uuid) -> Uuid {
    Uuid(id.0)
}

/// The model's id as the wire's.
pub(crate) fn wire_id(id: Uuid) -> towpath_protocol::Uuid {
    towpath_protocol::Uuid(id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_that_is_not_text_is_repaired() {
        let frame = b"\0\x12\0\0\0\0\0\x07\0\x04a\xffb\xfe rest";
        let mut repaired = frame.to_vec();
        assert!(repair_client_id(&mut repaired));
        assert_eq!(repaired, b"\0\x12\0\0\0\0\0\x07\0\x04a?b? rest");
        assert!(!repair_client_id(&mut repaired));
        for odd in [&frame[..2], &frame[..10], &frame[..12]] {
            assert!(!repair_client_id(&mut odd.to_vec()), "{odd:x?}");
        }
        let peer = ([127, 0, 0, 1], 1).into();
        let incoming = Incoming::read(&Peer::new(peer, peer), frame[..].into()).unwrap();
        assert_eq!((incoming.client_id(), incoming.correlation_id), (Some("a?b?"), 7));
    }

    #[test]
    fn what_is_asked_twice_is_answered_once() {
        assert_eq!(distinct(&["b", "a", "b"], |name| *name), [&"b", &"a"]);
    }

    #[test]
    fn api_versions_of_the_future_are_told_from_the_first_eight_bytes() {
        let frame = |key: i16, version: i16| {
            let mut frame = key.to_be_bytes().to_vec();
            frame.extend_from_slice(&version.to_be_bytes());
            frame.extend_from_slice(&7i32.to_be_bytes());
            frame.extend_from_slice(b"\xff\xff\xffwhatever");
            frame
        };
        assert_eq!(future_api_versions(&frame(18, 99)), Some((99, 7)));
        assert_eq!(future_api_versions(&frame(18, -1)), Some((-1, 7)));
        assert_eq!(future_api_versions(&frame(18, 3)), None);
        assert_eq!(future_api_versions(&frame(3, 99)), None);
        assert_eq!(future_api_versions(&[0, 18, 0]), None);
    }
}
