//! Frames as the load sends and reads them.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towpath_process::kafka::produce_request;
use towpath_protocol::messages::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ProduceResponse, RequestHeader,
};
use towpath_protocol::{
    ApiKey, Blob, ErrorCode, Message, Request, decode_response_header, encode_request,
};

/// The last version that names topics: one more round trip less to begin with.
pub(crate) const PRODUCE_VERSION: i16 = 12;
pub(crate) const FETCH_VERSION: i16 = 12;
/// Where the correlation id lies in a frame with its length.
const CORRELATION_AT: std::ops::Range<usize> = 8..12;
/// Bytes of a batch up to its last offset delta, inclusive.
const BATCH_HEAD_BYTES: usize = 27;

/// A frame with its length, ready to send.
pub(crate) fn frame<'a, M: Request<'a>>(request: &M, version: i16) -> Result<Vec<u8>> {
    let header = RequestHeader {
        request_api_key: M::API_KEY,
        request_api_version: version,
        correlation_id: 0,
        client_id: Some("towpath-bench"),
    };
    let frame = encode_request(&header, request, version)?;
    Ok(frame.into_bytes().context("a request has no file regions")?.to_vec())
}

/// A produce request with `acks=all`.
pub(crate) fn produce_frame(topic: &str, partition: i32, batch: &[u8]) -> Result<Vec<u8>> {
    frame(&produce_request(topic, partition, batch), PRODUCE_VERSION)
}

/// A fetch of one partition that waits up to half a second for one byte.
pub(crate) fn fetch_frame(topic: &str, partition: i32, from: i64, bytes: i32) -> Result<Vec<u8>> {
    let partition = FetchPartition {
        partition,
        fetch_offset: from,
        partition_max_bytes: bytes,
        current_leader_epoch: -1,
        ..FetchPartition::default()
    };
    let topic = FetchTopic { topic, partitions: vec![partition], ..FetchTopic::default() };
    let request = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: bytes,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    frame(&request, FETCH_VERSION)
}

/// Gives a frame its correlation id.
pub(crate) fn number(frame: &mut [u8], correlation_id: i32) {
    frame[CORRELATION_AT].copy_from_slice(&correlation_id.to_be_bytes());
}

/// The correlation id of an answer without its length.
pub(crate) fn correlation_of(answer: &[u8]) -> Result<i32> {
    let bytes = answer.first_chunk::<4>().context("an answer without a header")?;
    Ok(i32::from_be_bytes(*bytes))
}

fn body<'a, M: Message<'a>>(answer: &'a [u8], version: i16) -> Result<M> {
    let (_, mut decoder) = decode_response_header(ApiKey::try_from(M::API_KEY)?, version, answer)?;
    Ok(M::decode(version, &mut decoder)?)
}

/// Refuses an answer to a produce request that is no success.
pub(crate) fn check_produced(answer: &[u8]) -> Result<()> {
    let answer: ProduceResponse<'_> = body(answer, PRODUCE_VERSION)?;
    let codes = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    for partition in codes {
        let code = ErrorCode::from(partition.error_code);
        ensure!(code.is_ok(), "a batch was refused: {}", code.name());
    }
    Ok(())
}

/// What a fetch brought.
pub(crate) struct Fetched<'a> {
    /// Batches as they lie in the log; the last one may be cut.
    pub(crate) records: &'a [u8],
    /// The offset to ask for next.
    pub(crate) next_offset: i64,
}

/// Reads the answer to a fetch of one partition from `from` on.
pub(crate) fn fetched(answer: &[u8], from: i64) -> Result<Fetched<'_>> {
    let answer: FetchResponse<'_> = body(answer, FETCH_VERSION)?;
    let code = ErrorCode::from(answer.error_code);
    ensure!(code.is_ok(), "a fetch was refused: {}", code.name());
    let Some(partition) = answer.responses.first().and_then(|topic| topic.partitions.first())
    else {
        return Ok(Fetched { records: &[], next_offset: from });
    };
    let code = ErrorCode::from(partition.error_code);
    ensure!(code.is_ok(), "a fetch was refused: {}", code.name());
    let records = match partition.records {
        Some(Blob::Bytes(bytes)) => bytes,
        _ => &[],
    };
    Ok(Fetched { records, next_offset: end_of(records).unwrap_or(from) })
}

/// The offset after the last whole batch.
fn end_of(mut batches: &[u8]) -> Option<i64> {
    let mut end = None;
    while BATCH_HEAD_BYTES <= batches.len() {
        let base = i64::from_be_bytes(*batches.first_chunk()?);
        let length = usize::try_from(i32::from_be_bytes(*batches[8..].first_chunk()?)).ok()?;
        let last_delta = i32::from_be_bytes(*batches[23..].first_chunk()?);
        let Some(rest) = batches.get(12 + length..) else { break };
        end = Some(base + i64::from(last_delta) + 1);
        batches = rest;
    }
    end
}

/// One connection of the load.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    input: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Connection {
    pub(crate) async fn open(address: std::net::SocketAddr) -> Result<Connection> {
        let socket = TcpStream::connect(address).await.context("connect to the broker")?;
        socket.set_nodelay(true)?;
        Ok(Connection { socket, input: Vec::new(), begin: 0, end: 0 })
    }

    pub(crate) async fn send(&mut self, frame: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(frame).await?)
    }

    /// The next answer, without its length.
    pub(crate) async fn receive(&mut self) -> Result<&[u8]> {
        loop {
            let held = &self.input[self.begin..self.end];
            let needed = match held.first_chunk::<4>() {
                Some(length) => 4 + usize::try_from(i32::from_be_bytes(*length))?,
                None => 4,
            };
            if 4 < needed && needed <= held.len() {
                let answer = self.begin + 4..self.begin + needed;
                self.begin += needed;
                return Ok(&self.input[answer]);
            }
            self.input.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            let room = needed.max(self.end + 4096);
            if self.input.len() < room {
                self.input.resize(room, 0);
            }
            let read = self.socket.read(&mut self.input[self.end..]).await?;
            ensure!(0 < read, "the broker closed the connection");
            self.end += read;
        }
    }
}
