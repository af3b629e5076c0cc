//! Request frames as a broker gets them, and answers as a client gets them.
//!
//! What decodes must encode, and what that encodes must decode to the same bytes again.

use towpath_protocol::messages::*;
use towpath_protocol::{
    ApiKey, Decoder, Encoder, Message, Request, decode_request_header, decode_response_header,
    encode_request, encode_response,
};
use towpath_records::Compression;

use super::batches::sample_batch;
use crate::shape::Shape;
use crate::target::Target;

/// A frame without its length: header, then body.
pub(super) const REQUESTS: Target = Target {
    name: "requests",
    seeds: request_seeds,
    run: request,
    memory_max: 1 << 20,
    waits_for_others: false,
};

/// `api key i16 │ version i16 │ frame without its length`.
pub(super) const RESPONSES: Target = Target {
    name: "responses",
    seeds: response_seeds,
    run: response,
    memory_max: 1 << 20,
    waits_for_others: false,
};

/// Reads a message of `$message` from the decoder `$d` and checks what follows from that.
macro_rules! check {
    ($message:ident, $version:expr, $d:expr, $shape:expr) => {{
        let (version, mut d, shape) = ($version, $d, $shape);
        match <$message as Message>::decode(version, &mut d) {
            Err(error) => shape.error(&error),
            Ok(message) => {
                let has_rest = usize::from(0 < d.remaining());
                let shape = shape.word("decoded").size(has_rest).size(d.memory_charged());
                let encode = |message: &$message| {
                    let mut e = Encoder::new();
                    message.encode(version, &mut e).expect("what was decoded can be encoded");
                    e.into_body().expect("there are no regions")
                };
                let once = encode(&message);
                let mut again = Decoder::new(&once);
                let message = <$message as Message>::decode(version, &mut again)
                    .expect("what was encoded can be decoded");
                assert_eq!(again.remaining(), 0, "bytes are left after our own encoding");
                assert_eq!(encode(&message), once, "a second round changes the bytes");
                shape
            }
        }
    }};
}

/// Does `$then!(Request, Response)` for the API `$api_key`.
macro_rules! by_api {
    ($api_key:expr, $then:ident) => {
        by_api!(@all $api_key, $then,
            Produce ProduceRequest ProduceResponse, Fetch FetchRequest FetchResponse,
            ListOffsets ListOffsetsRequest ListOffsetsResponse,
            Metadata MetadataRequest MetadataResponse,
            OffsetCommit OffsetCommitRequest OffsetCommitResponse,
            OffsetFetch OffsetFetchRequest OffsetFetchResponse,
            FindCoordinator FindCoordinatorRequest FindCoordinatorResponse,
            JoinGroup JoinGroupRequest JoinGroupResponse,
            Heartbeat HeartbeatRequest HeartbeatResponse,
            LeaveGroup LeaveGroupRequest LeaveGroupResponse,
            SyncGroup SyncGroupRequest SyncGroupResponse,
            DescribeGroups DescribeGroupsRequest DescribeGroupsResponse,
            ListGroups ListGroupsRequest ListGroupsResponse,
            ApiVersions ApiVersionsRequest ApiVersionsResponse,
            CreateTopics CreateTopicsRequest CreateTopicsResponse,
            DeleteTopics DeleteTopicsRequest DeleteTopicsResponse,
            DeleteRecords DeleteRecordsRequest DeleteRecordsResponse,
            InitProducerId InitProducerIdRequest InitProducerIdResponse,
            OffsetForLeaderEpoch OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse,
            DescribeConfigs DescribeConfigsRequest DescribeConfigsResponse,
            AlterConfigs AlterConfigsRequest AlterConfigsResponse,
            DescribeLogDirs DescribeLogDirsRequest DescribeLogDirsResponse,
            CreatePartitions CreatePartitionsRequest CreatePartitionsResponse,
            DeleteGroups DeleteGroupsRequest DeleteGroupsResponse,
            IncrementalAlterConfigs IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse,
            OffsetDelete OffsetDeleteRequest OffsetDeleteResponse,
            DescribeCluster DescribeClusterRequest DescribeClusterResponse,
            DescribeProducers DescribeProducersRequest DescribeProducersResponse,
            DescribeTopicPartitions DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse,
            ElectLeaders ElectLeadersRequest ElectLeadersResponse,
            AlterPartitionReassignments AlterPartitionReassignmentsRequest
                AlterPartitionReassignmentsResponse,
            ListPartitionReassignments ListPartitionReassignmentsRequest
                ListPartitionReassignmentsResponse,
            DescribeQuorum DescribeQuorumRequest DescribeQuorumResponse,
            UnregisterBroker UnregisterBrokerRequest UnregisterBrokerResponse,
        )
    };
    (@all $api_key:expr, $then:ident, $($api:ident $request:ident $response:ident,)*) => {
        match $api_key {
            $(ApiKey::$api => $then!($request, $response),)*
        }
    };
}

pub(super) use by_api;

fn request(frame: &[u8]) -> Shape {
    let (header, d) = match decode_request_header(frame) {
        Ok(decoded) => decoded,
        Err(error) => return Shape::default().word("header").error(&error),
    };
    let Ok(api_key) = ApiKey::try_from(header.request_api_key) else {
        return Shape::default().word("unknown");
    };
    let version = header.request_api_version;
    let shape = shape_of(api_key, version);
    macro_rules! body {
        ($request:ident, $response:ident) => {
            check!($request, version, d, shape)
        };
    }
    by_api!(api_key, body)
}

fn response(input: &[u8]) -> Shape {
    let Some((front, frame)) = input.split_at_checked(4) else { return Shape::default() };
    let number = |at: usize| i16::from_be_bytes([front[at], front[at + 1]]);
    let Ok(api_key) = ApiKey::try_from(number(0)) else {
        return Shape::default().word("unknown");
    };
    let version = number(2);
    let shape = shape_of(api_key, version);
    let d = match decode_response_header(api_key, version, frame) {
        Ok((_, d)) => d,
        Err(error) => return shape.word("header").error(&error),
    };
    macro_rules! body {
        ($request:ident, $response:ident) => {
            check!($response, version, d, shape)
        };
    }
    by_api!(api_key, body)
}

/// Versions that do not exist are all the same.
fn shape_of(api_key: ApiKey, version: i16) -> Shape {
    let is_known = api_key.versions().contains(&version);
    Shape::default().word(api_key.name()).exact(if is_known { version } else { -1 })
}

fn request_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for api_key in ApiKey::ALL {
        macro_rules! empty {
            ($request:ident, $response:ident) => {
                add_request(&mut seeds, &$request::default())
            };
        }
        by_api!(api_key, empty);
    }
    let batch = sample_batch(Compression::Lz4);
    let data =
        PartitionProduceData { index: 3, records: Some(towpath_protocol::Blob::Bytes(&batch)) };
    let topic = TopicProduceData {
        name: "orders",
        partition_data: vec![data],
        ..TopicProduceData::default()
    };
    add_request(
        &mut seeds,
        &ProduceRequest { acks: -1, topic_data: vec![topic], ..ProduceRequest::default() },
    );
    let topic = FetchTopic {
        topic: "orders",
        partitions: vec![FetchPartition::default(); 3],
        ..FetchTopic::default()
    };
    add_request(&mut seeds, &FetchRequest { topics: vec![topic], ..FetchRequest::default() });
    let topic = CreatableTopic {
        name: "orders",
        num_partitions: 3,
        configs: vec![CreatableTopicConfig { name: "retention.ms", value: Some("7") }],
        assignments: vec![CreatableReplicaAssignment {
            partition_index: 0,
            broker_ids: vec![1, 2],
        }],
        ..CreatableTopic::default()
    };
    let topics = vec![topic];
    add_request(&mut seeds, &CreateTopicsRequest { topics, ..CreateTopicsRequest::default() });
    let protocol = JoinGroupRequestProtocol { name: "range", metadata: &[0, 1, 0, 0] };
    let join = JoinGroupRequest {
        group_id: "workers",
        protocol_type: "consumer",
        protocols: vec![protocol],
        ..JoinGroupRequest::default()
    };
    add_request(&mut seeds, &join);
    seeds
}

/// The frame in the first, the last and the first flexible version.
fn add_request<'a, M: Request<'a>>(seeds: &mut Vec<Vec<u8>>, request: &M) {
    for version in versions::<M>() {
        let header = RequestHeader {
            request_api_key: M::API_KEY,
            request_api_version: version,
            correlation_id: 7,
            client_id: Some("fuzz"),
        };
        let frame = encode_request(&header, request, version).ok();
        let bytes = frame.and_then(|frame| frame.into_bytes());
        seeds.extend(bytes.map(|bytes| bytes[4..].to_vec()));
    }
}

fn response_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for api_key in ApiKey::ALL {
        macro_rules! empty {
            ($request:ident, $response:ident) => {
                add_response(&mut seeds, *api_key, &$response::default())
            };
        }
        by_api!(api_key, empty);
    }
    let batch = sample_batch(Compression::None);
    let data = FetchResponsePartitionData {
        records: Some(towpath_protocol::Blob::Bytes(&batch)),
        aborted_transactions: Some(vec![AbortedTransaction::default()]),
        ..FetchResponsePartitionData::default()
    };
    let topic = FetchableTopicResponse {
        topic: "orders",
        partitions: vec![data],
        ..FetchableTopicResponse::default()
    };
    let answer = FetchResponse { responses: vec![topic], ..FetchResponse::default() };
    add_response(&mut seeds, ApiKey::Fetch, &answer);
    let partition = MetadataResponsePartition {
        replica_nodes: vec![1],
        isr_nodes: vec![1],
        ..MetadataResponsePartition::default()
    };
    let topic = MetadataResponseTopic {
        name: Some("orders"),
        partitions: vec![partition],
        ..MetadataResponseTopic::default()
    };
    let answer = MetadataResponse { topics: vec![topic], ..MetadataResponse::default() };
    add_response(&mut seeds, ApiKey::Metadata, &answer);
    seeds
}

fn add_response<'a, M: Message<'a>>(seeds: &mut Vec<Vec<u8>>, api_key: ApiKey, message: &M) {
    for version in versions::<M>() {
        let frame = encode_response(api_key, version, 7, message).ok();
        let Some(bytes) = frame.and_then(|frame| frame.into_bytes()) else { continue };
        let mut seed = api_key.key().to_be_bytes().to_vec();
        seed.extend(version.to_be_bytes());
        seed.extend(&bytes[4..]);
        seeds.push(seed);
    }
}

fn versions<'a, M: Message<'a>>() -> Vec<i16> {
    let (first, last) = (*M::VERSIONS.start(), *M::VERSIONS.end());
    let mut versions = vec![first, last, M::FIRST_FLEXIBLE.unwrap_or(last)];
    versions.retain(|version| M::VERSIONS.contains(version));
    versions.sort_unstable();
    versions.dedup();
    versions
}
