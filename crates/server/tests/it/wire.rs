//! A connection that sends any request and reads any answer, and short words for common ones.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use towpath_model::{ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_protocol::messages::*;
use towpath_protocol::{
    ApiKey, Blob, ErrorCode, Message, Request, Uuid, decode_response_header, encode_request,
};
use towpath_records::{BatchBuilder, Compression, Scratch, records, split_batches};

/// Longer than any test means to wait.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// More than any batch of a test has when decompressed.
const PLAIN_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Wire {
    socket: TcpStream,
    correlation_id: i32,
}

/// An answer's frame.
pub(crate) struct Answer {
    api_key: ApiKey,
    version: i16,
    frame: Vec<u8>,
}

impl Answer {
    /// The message; all bytes of the frame must belong to it.
    pub(crate) fn read<'a, M: Message<'a>>(&'a self) -> M {
        let (_, mut body) =
            decode_response_header(self.api_key, self.version, &self.frame).unwrap();
        let message = M::decode(self.version, &mut body).unwrap();
        body.finish().unwrap();
        message
    }
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Wire {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        Wire { socket, correlation_id: 0 }
    }

    pub(crate) fn send<'a, R: Request<'a>>(&mut self, version: i16, request: &R) {
        self.correlation_id += 1;
        let header = RequestHeader {
            request_api_key: R::API_KEY,
            request_api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some("it"),
        };
        let frame = encode_request(&header, request, version).unwrap();
        self.send_bytes(&frame.into_bytes().unwrap());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next frame, without its length; `None`: the broker has closed the connection.
    pub(crate) fn receive_frame(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        match self.socket.read_exact(&mut length) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(error) => panic!("no answer: {error}"),
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut frame).unwrap();
        Some(frame)
    }

    /// The answer to a request of this API and version.
    pub(crate) fn receive(&mut self, api_key: ApiKey, version: i16) -> Answer {
        let frame = self.receive_frame().expect("an answer, not a closed connection");
        Answer { api_key, version, frame }
    }

    pub(crate) fn ask<'a, R: Request<'a>>(&mut self, version: i16, request: &R) -> Answer {
        self.send(version, request);
        self.receive(ApiKey::try_from(R::API_KEY).unwrap(), version)
    }

    /// Whether the broker closes the connection instead of answering.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.receive_frame().is_none()
    }
}

/// What became of one produced batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Produced {
    pub(crate) error: ErrorCode,
    pub(crate) base_offset: i64,
    pub(crate) append_time: i64,
    pub(crate) message: Option<String>,
}

/// What was fetched from one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    pub(crate) log_start_offset: i64,
    /// Batches as they are stored.
    pub(crate) bytes: Vec<u8>,
}

impl Fetched {
    /// Values of all records, in order.
    pub(crate) fn values(&self) -> Vec<String> {
        let mut values = Vec::new();
        let mut scratch = Scratch::new();
        for batch in split_batches(&self.bytes) {
            let bytes = batch.bytes;
            for record in records(bytes, PLAIN_BYTES_MAX, &mut scratch).unwrap() {
                let value = record.unwrap().value.unwrap_or_default();
                values.push(String::from_utf8(value.to_vec()).unwrap());
            }
        }
        values
    }
}

pub(crate) fn code(code: i16) -> ErrorCode {
    ErrorCode::from(code)
}

/// A batch of text records; timestamps count up from `timestamp`.
pub(crate) fn batch_at(timestamp: i64, values: &[&str]) -> Vec<u8> {
    filled(timestamp, Compression::None, values).build()
}

/// A batch of text records of this moment.
pub(crate) fn batch(values: &[&str]) -> Vec<u8> {
    batch_at(now_ms(), values)
}

/// A batch of text records of an idempotent producer.
pub(crate) fn numbered(producer_id: i64, sequence: i32, values: &[&str]) -> Vec<u8> {
    let mut builder = filled(now_ms(), Compression::None, values);
    builder.set_producer(ProducerId(producer_id), ProducerEpoch(0), Sequence(sequence));
    builder.build()
}

fn filled(timestamp: i64, compression: Compression, values: &[&str]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(compression, Timestamp(timestamp));
    for (timestamp, value) in (timestamp..).zip(values) {
        builder.append(Timestamp(timestamp), Some(b"key"), Some(value.as_bytes()), []).unwrap();
    }
    builder
}

pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

pub(crate) fn produce_request<'a>(
    topic: &'a str,
    partition: i32,
    acks: i16,
    batch: &'a [u8],
) -> ProduceRequest<'a> {
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic,
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Blob::Bytes(batch)),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(crate) fn produced(answer: &Answer) -> Produced {
    let answer: ProduceResponse<'_> = answer.read();
    let partition = &answer.responses[0].partition_responses[0];
    Produced {
        error: code(partition.error_code),
        base_offset: partition.base_offset,
        append_time: partition.log_append_time_ms,
        message: partition.error_message.map(str::to_owned),
    }
}

/// A fetch of partition 0 of one topic, by name.
pub(crate) fn fetch_request(
    topic: &str,
    offset: i64,
    min_bytes: i32,
    max_wait: Duration,
) -> FetchRequest<'_> {
    FetchRequest {
        max_wait_ms: i32::try_from(max_wait.as_millis()).unwrap(),
        min_bytes,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic,
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(crate) fn fetched(partition: &FetchResponsePartitionData<'_>) -> Fetched {
    Fetched {
        error: code(partition.error_code),
        high_watermark: partition.high_watermark,
        log_start_offset: partition.log_start_offset,
        bytes: partition.records.and_then(|r| r.bytes()).unwrap_or_default().to_vec(),
    }
}

impl Wire {
    /// Creates a topic and returns its id.
    pub(crate) fn create(
        &mut self,
        topic: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Uuid {
        let (error, message, id) = self.try_create(topic, partitions, configs);
        assert_eq!(error, ErrorCode::None, "{message:?}");
        id
    }

    /// Asks for a topic, whatever comes of it.
    pub(crate) fn try_create(
        &mut self,
        topic: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> (ErrorCode, Option<String>, Uuid) {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic,
                num_partitions: partitions,
                replication_factor: -1,
                configs: configs
                    .iter()
                    .map(|(name, value)| CreatableTopicConfig { name, value: Some(value) })
                    .collect(),
                ..Default::default()
            }],
            timeout_ms: 10_000,
            ..Default::default()
        };
        let answer = self.ask(7, &request);
        let answer: CreateTopicsResponse<'_> = answer.read();
        let result = &answer.topics[0];
        (code(result.error_code), result.error_message.map(str::to_owned), result.topic_id)
    }

    /// Creates a topic whose partitions have these replicas, the preferred leader first, and returns its
    /// id.
    pub(crate) fn create_assigned(
        &mut self,
        topic: &str,
        assignments: &[&[i32]],
        configs: &[(&str, &str)],
    ) -> Uuid {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic,
                num_partitions: -1,
                replication_factor: -1,
                assignments: (0..)
                    .zip(assignments)
                    .map(|(partition_index, brokers)| CreatableReplicaAssignment {
                        partition_index,
                        broker_ids: brokers.to_vec(),
                    })
                    .collect(),
                configs: configs
                    .iter()
                    .map(|(name, value)| CreatableTopicConfig { name, value: Some(value) })
                    .collect(),
            }],
            timeout_ms: 10_000,
            ..Default::default()
        };
        let answer = self.ask(7, &request);
        let answer: CreateTopicsResponse<'_> = answer.read();
        let result = &answer.topics[0];
        assert_eq!(code(result.error_code), ErrorCode::None, "{:?}", result.error_message);
        result.topic_id
    }

    pub(crate) fn delete(&mut self, topic: &str) {
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState { name: Some(topic), ..Default::default() }],
            timeout_ms: 10_000,
            ..Default::default()
        };
        let answer = self.ask(6, &request);
        let answer: DeleteTopicsResponse<'_> = answer.read();
        assert_eq!(code(answer.responses[0].error_code), ErrorCode::None);
    }

    /// Produces a batch to partition 0.
    pub(crate) fn produce(&mut self, topic: &str, batch: &[u8]) -> Produced {
        produced(&self.ask(9, &produce_request(topic, 0, -1, batch)))
    }

    /// Fetches what partition 0 has from `offset` on.
    pub(crate) fn fetch(&mut self, topic: &str, offset: i64) -> Fetched {
        let answer = self.ask(11, &fetch_request(topic, offset, 0, Duration::ZERO));
        let answer: FetchResponse<'_> = answer.read();
        fetched(&answer.responses[0].partitions[0])
    }

    /// ListOffsets for partition 0: the error, offset and timestamp.
    pub(crate) fn list_offset(&mut self, topic: &str, timestamp: i64) -> (ErrorCode, i64, i64) {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: topic,
                partitions: vec![ListOffsetsPartition { timestamp, ..Default::default() }],
            }],
            ..Default::default()
        };
        let answer = self.ask(8, &request);
        let answer: ListOffsetsResponse<'_> = answer.read();
        let partition = &answer.topics[0].partitions[0];
        (code(partition.error_code), partition.offset, partition.timestamp)
    }

    /// Sets (or, without a value, unsets) one property of a topic.
    pub(crate) fn alter(&mut self, topic: &str, name: &str, value: Option<&str>) -> ErrorCode {
        let request = IncrementalAlterConfigsRequest {
            resources: vec![IncrementalAlterConfigsRequestAlterConfigsResource {
                resource_type: 2,
                resource_name: topic,
                configs: vec![IncrementalAlterConfigsRequestAlterableConfig {
                    name,
                    config_operation: i8::from(value.is_none()),
                    value,
                }],
            }],
            ..Default::default()
        };
        let answer = self.ask(1, &request);
        let answer: IncrementalAlterConfigsResponse<'_> = answer.read();
        code(answer.responses[0].error_code)
    }
}
