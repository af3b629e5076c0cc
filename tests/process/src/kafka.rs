//! A very small Kafka client: one request, one answer, fixed versions, nothing retried.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use towpath_model::Timestamp;
use towpath_protocol::messages::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
    CreateTopicsResponse, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
    ElectLeadersRequest, ElectLeadersResponse, FetchPartition, FetchRequest, FetchResponse,
    FetchTopic, MetadataRequest, MetadataResponse, PartitionProduceData, ProduceRequest,
    ProduceResponse, RequestHeader, TopicProduceData,
};
use towpath_protocol::{
    ApiKey, Blob, ErrorCode, Message, Request, decode_response_header, encode_request,
};
use towpath_records::{BatchBuilder, Compression, Scratch, records, split_batches};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A refusal of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub ErrorCode);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl std::error::Error for Refused {}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its offset.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

/// A connection that does one thing at a time.
#[derive(Debug)]
pub struct KafkaConnection {
    stream: TcpStream,
    correlation_id: i32,
}

/// An answer's bytes.
#[derive(Debug)]
pub struct Answer {
    api_key: ApiKey,
    version: i16,
    bytes: Vec<u8>,
}

impl Answer {
    /// The message in it.
    pub fn read<'r, M: Message<'r>>(&'r self) -> Result<M> {
        let (_, mut d) = decode_response_header(self.api_key, self.version, &self.bytes)?;
        let message = M::decode(self.version, &mut d)?;
        d.finish()?;
        Ok(message)
    }
}

impl KafkaConnection {
    /// Dials.
    pub fn open(address: SocketAddr) -> Result<KafkaConnection> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(KafkaConnection { stream, correlation_id: 0 })
    }

    /// The bytes of a request's frame, with its length in front.
    pub fn frame<'a, M: Request<'a>>(&mut self, request: &M, version: i16) -> Result<Vec<u8>> {
        self.correlation_id += 1;
        let header = RequestHeader {
            request_api_key: M::API_KEY,
            request_api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some("towpath-process"),
        };
        let frame = encode_request(&header, request, version)?;
        Ok(frame.into_bytes().context("a request has no file regions")?.to_vec())
    }

    /// Sends a request and waits for its answer.
    pub fn call<'a, M: Request<'a>>(&mut self, request: &M, version: i16) -> Result<Answer> {
        let frame = self.frame(request, version)?;
        self.stream.write_all(&frame)?;
        let bytes = self.receive()?;
        Ok(Answer { api_key: ApiKey::try_from(M::API_KEY)?, version, bytes })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// The next frame, without its length.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Creates a topic with one replica.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        self.create_replicated_topic(name, partitions, 1, configs)
    }

    /// Creates a topic with so many replicas.
    pub fn create_replicated_topic(
        &mut self,
        name: &str,
        partitions: i32,
        replication_factor: i16,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let configs = configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig { name, value: Some(value) })
            .collect();
        self.create(CreatableTopic {
            name,
            num_partitions: partitions,
            replication_factor,
            configs,
            ..CreatableTopic::default()
        })
    }

    /// Creates a topic whose partitions lie on these brokers, the leader first.
    pub fn create_placed_topic(&mut self, name: &str, partitions: &[Vec<i32>]) -> Result<()> {
        let assignments = (0..).zip(partitions).map(|(partition_index, brokers)| {
            CreatableReplicaAssignment { partition_index, broker_ids: brokers.clone() }
        });
        self.create(CreatableTopic {
            name,
            num_partitions: -1,
            replication_factor: -1,
            assignments: assignments.collect(),
            ..CreatableTopic::default()
        })
    }

    fn create(&mut self, topic: CreatableTopic<'_>) -> Result<()> {
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 10_000,
            ..CreateTopicsRequest::default()
        };
        let answer = self.call(&request, 7)?;
        let answer: CreateTopicsResponse<'_> = answer.read()?;
        let topic = answer.topics.first().context("an answer without a topic")?;
        check(topic.error_code)
    }

    /// Deletes a topic.
    pub fn delete_topic(&mut self, name: &str) -> Result<()> {
        let topic = DeleteTopicState { name: Some(name), ..DeleteTopicState::default() };
        let request = DeleteTopicsRequest {
            topics: vec![topic],
            timeout_ms: 10_000,
            ..DeleteTopicsRequest::default()
        };
        let answer = self.call(&request, 6)?;
        let answer: DeleteTopicsResponse<'_> = answer.read()?;
        check(answer.responses.first().context("an answer without a topic")?.error_code)
    }

    /// Has every partition led by its first replica, as far as that is in sync.
    pub fn elect_preferred_leaders(&mut self) -> Result<()> {
        let request = ElectLeadersRequest { topic_partitions: None, ..Default::default() };
        let answer = self.call(&request, 2)?;
        check(answer.read::<ElectLeadersResponse<'_>>()?.error_code)
    }

    /// The names of all topics.
    pub fn topics(&mut self) -> Result<BTreeSet<String>> {
        let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let answer = self.call(&request, 9)?;
        let answer: MetadataResponse<'_> = answer.read()?;
        Ok(answer.topics.iter().filter_map(|topic| topic.name.map(str::to_owned)).collect())
    }

    /// Who leads a partition, as this broker knows it.
    pub fn leader_of(&mut self, topic: &str, partition: i32) -> Result<Option<i32>> {
        let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let answer = self.call(&request, 9)?;
        let answer: MetadataResponse<'_> = answer.read()?;
        let topic = answer.topics.iter().find(|it| it.name == Some(topic));
        let partitions = topic.map(|topic| topic.partitions.as_slice()).unwrap_or_default();
        let found = partitions.iter().find(|it| it.partition_index == partition);
        Ok(found.map(|it| it.leader_id).filter(|leader| 0 <= *leader))
    }

    /// Publishes a batch of values to one partition with acks=all, and gives back its base offset.
    pub fn produce(&mut self, topic: &str, partition: i32, values: &[&[u8]]) -> Result<i64> {
        let mut batch = BatchBuilder::new(Compression::None, now());
        for value in values {
            batch.append(now(), None, Some(value), [])?;
        }
        self.produce_batch(topic, partition, &batch.build())
    }

    /// Publishes the bytes of a batch.
    pub fn produce_batch(&mut self, topic: &str, partition: i32, batch: &[u8]) -> Result<i64> {
        let request = produce_request(topic, partition, batch);
        let answer = self.call(&request, 9)?;
        let answer: ProduceResponse<'_> = answer.read()?;
        let partition = answer
            .responses
            .first()
            .and_then(|topic| topic.partition_responses.first())
            .context("an answer without a partition")?;
        check(partition.error_code)?;
        Ok(partition.base_offset)
    }

    /// Reads a partition from `offset` to its high watermark, which comes back as well.
    pub fn read_all(
        &mut self,
        topic: &str,
        partition: i32,
        mut offset: i64,
    ) -> Result<(Vec<ReadRecord>, i64)> {
        let mut found = Vec::new();
        loop {
            let request = fetch_request(topic, partition, offset);
            let answer = self.call(&request, 12)?;
            let answer: FetchResponse<'_> = answer.read()?;
            check(answer.error_code)?;
            let data = answer
                .responses
                .first()
                .and_then(|topic| topic.partitions.first())
                .context("an answer without a partition")?;
            check(data.error_code)?;
            let bytes = data.records.as_ref().and_then(Blob::bytes).unwrap_or_default();
            let before = offset;
            offset = read_batches(bytes, offset, &mut found)?;
            if data.high_watermark <= offset {
                return Ok((found, data.high_watermark));
            }
            if offset == before {
                bail!("{topic}-{partition} gives nothing at {offset} of {}", data.high_watermark);
            }
        }
    }
}

/// Adds the records at or after `offset` to `found`; returns the next offset to ask for.
fn read_batches(bytes: &[u8], mut offset: i64, found: &mut Vec<ReadRecord>) -> Result<i64> {
    let mut scratch = Scratch::new();
    for batch in split_batches(bytes) {
        batch.check_crc()?;
        for record in records(batch.bytes, 64 << 20, &mut scratch)? {
            let record = record?;
            let at = batch.header.offset_of(record.offset_delta).0;
            if at < offset {
                continue;
            }
            found.push(ReadRecord {
                offset: at,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
            });
        }
        offset = offset.max(batch.header.next_offset().0);
    }
    Ok(offset)
}

/// A produce request with acks=all for one batch.
pub fn produce_request<'a>(topic: &'a str, index: i32, batch: &'a [u8]) -> ProduceRequest<'a> {
    let partition = PartitionProduceData { index, records: Some(Blob::Bytes(batch)) };
    let topic = TopicProduceData {
        name: topic,
        partition_data: vec![partition],
        ..TopicProduceData::default()
    };
    ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![topic],
        ..ProduceRequest::default()
    }
}

/// A fetch request without a session that does not wait.
pub fn fetch_request(topic: &str, partition: i32, offset: i64) -> FetchRequest<'_> {
    let partition = FetchPartition {
        partition,
        fetch_offset: offset,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    let topic = FetchTopic { topic, partitions: vec![partition], ..FetchTopic::default() };
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 8 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    }
}

/// The wall clock, as records carry it.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn check(code: i16) -> Result<()> {
    let code = ErrorCode::from(code);
    if code.is_ok() { Ok(()) } else { Err(Refused(code).into()) }
}
