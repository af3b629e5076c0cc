//! A broker of one partition in this process, speaking the protocol crate over a real socket, that
//! fails as it is told.
//!
//! It checks producer sequences as Kafka does (the last five batches are remembered, an unknown
//! producer may begin anywhere), so a client that relies on more shows up here as a lost, doubled or
//! reordered record.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use towpath_protocol::messages::{
    ApiVersion, ApiVersionsResponse, InitProducerIdResponse, MetadataRequest, MetadataResponse,
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    PartitionProduceResponse, ProduceRequest, ProduceResponse, RequestHeader, TopicProduceResponse,
};
use towpath_protocol::{
    ApiKey, Decoder, ErrorCode, Message, Uuid, decode_request_header, encode_response,
};
use towpath_records::{BatchHeader, Scratch, records, set_base_offset};

/// How the broker treats one produce request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Answers with this code and appends nothing.
    Refuse(ErrorCode),
    /// Appends, and answers with this code all the same.
    RefuseAfter(ErrorCode),
    /// Hangs up and appends nothing.
    HangUp,
    /// Appends, and hangs up without an answer.
    HangUpAfter,
}

/// What it keeps.
#[derive(Default)]
pub(crate) struct State {
    /// Appended values, in order.
    pub(crate) values: Vec<Vec<u8>>,
    pub(crate) faults: VecDeque<Fault>,
    /// The largest batch it takes, in bytes.
    pub(crate) batch_bytes_max: Option<usize>,
    /// Answers ApiVersions only up to this version, as an old broker does.
    pub(crate) api_versions_max: Option<i16>,
    /// Versions of ApiVersions that were asked for.
    pub(crate) versions_asked: Vec<i16>,
    pub(crate) producers: BTreeMap<i64, Producer>,
    pub(crate) producer_ids: i64,
}

pub(crate) struct Producer {
    epoch: i16,
    /// First and last sequence, and base offset, of the last batches.
    batches: VecDeque<(i32, i32, i64)>,
}

pub(crate) struct FakeBroker {
    pub(crate) address: String,
    pub(crate) state: Arc<Mutex<State>>,
    accepting: AbortHandle,
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl FakeBroker {
    pub(crate) async fn start(state: State) -> FakeBroker {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, port, shared.clone()));
            }
        });
        FakeBroker {
            address: format!("127.0.0.1:{port}"),
            state,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn values(&self) -> Vec<String> {
        let state = self.state.lock().expect("no test panics with it");
        state.values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }
}

/// Answers requests until the client, or a fault, ends the connection.
async fn serve(mut socket: TcpStream, port: u16, state: Arc<Mutex<State>>) {
    loop {
        let mut length = [0; 4];
        if socket.read_exact(&mut length).await.is_err() {
            return;
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if socket.read_exact(&mut frame).await.is_err() {
            return;
        }
        let answer = {
            let mut state = state.lock().expect("no test panics with it");
            answer(&frame, port, &mut state)
        };
        let Some(answer) = answer else { return };
        if socket.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// The answer's frame; `None` hangs up.
fn answer(frame: &[u8], port: u16, state: &mut State) -> Option<Vec<u8>> {
    let (header, mut body) = decode_request_header(frame).expect("our client sends good frames");
    let key = ApiKey::try_from(header.request_api_key).expect("it was just decoded");
    match key {
        ApiKey::ApiVersions => Some(api_versions(&header, state)),
        ApiKey::Metadata => Some(metadata(&header, &mut body, port)),
        ApiKey::InitProducerId => {
            state.producer_ids += 1;
            let response =
                InitProducerIdResponse { producer_id: state.producer_ids, ..Default::default() };
            Some(encode(&header, &response))
        }
        ApiKey::Produce => produce(&header, &mut body, state),
        other => panic!("the fake broker does not serve {other:?}"),
    }
}

fn encode<'a, M: Message<'a>>(header: &RequestHeader<'_>, message: &M) -> Vec<u8> {
    encode_as(header, header.request_api_version, message)
}

fn encode_as<'a, M: Message<'a>>(header: &RequestHeader<'_>, version: i16, message: &M) -> Vec<u8> {
    let key = ApiKey::try_from(header.request_api_key).expect("it was decoded");
    let frame = encode_response(key, version, header.correlation_id, message);
    frame.expect("answers of the fake encode").into_bytes().expect("no regions").to_vec()
}

fn api_versions(header: &RequestHeader<'_>, state: &mut State) -> Vec<u8> {
    state.versions_asked.push(header.request_api_version);
    let highest = state.api_versions_max.unwrap_or(5);
    let entry =
        |api_key, min_version, max_version| ApiVersion { api_key, min_version, max_version };
    let mut response = ApiVersionsResponse {
        api_keys: vec![entry(0, 3, 13), entry(3, 0, 13), entry(18, 0, highest), entry(22, 0, 5)],
        ..Default::default()
    };
    if header.request_api_version <= highest {
        return encode(header, &response);
    }
    response.error_code = ErrorCode::UnsupportedVersion.code();
    encode_as(header, 0, &response)
}

const TOPIC_ID: Uuid = Uuid::from_u128(7);

fn metadata(header: &RequestHeader<'_>, body: &mut Decoder<'_>, port: u16) -> Vec<u8> {
    let version = header.request_api_version;
    let request = MetadataRequest::decode(version, body).expect("our client sends good requests");
    let topic = |name| MetadataResponseTopic {
        name: Some(name),
        topic_id: TOPIC_ID,
        partitions: vec![MetadataResponsePartition {
            leader_id: 1,
            leader_epoch: 0,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..Default::default()
        }],
        ..Default::default()
    };
    let topics = request.topics.unwrap_or_default();
    let response = MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: "127.0.0.1",
            port: i32::from(port),
            rack: None,
        }],
        topics: topics.iter().filter_map(|asked| asked.name).map(topic).collect(),
        ..Default::default()
    };
    encode(header, &response)
}

fn produce(
    header: &RequestHeader<'_>,
    body: &mut Decoder<'_>,
    state: &mut State,
) -> Option<Vec<u8>> {
    let version = header.request_api_version;
    let request = ProduceRequest::decode(version, body).expect("our client sends good requests");
    let batch = request.topic_data[0].partition_data[0].records?.bytes()?;
    let fault = state.faults.pop_front().unwrap_or(Fault::None);
    let (mut code, mut offset) = (ErrorCode::None, -1);
    match fault {
        Fault::HangUp => return None,
        Fault::Refuse(refusal) => code = refusal,
        _ => match append(batch, state) {
            Ok(base_offset) => offset = base_offset,
            Err(refusal) => code = refusal,
        },
    }
    match fault {
        Fault::HangUpAfter => return None,
        Fault::RefuseAfter(refusal) if code.is_ok() => (code, offset) = (refusal, -1),
        _ => {}
    }
    let response = ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: request.topic_data[0].name,
            topic_id: request.topic_data[0].topic_id,
            partition_responses: vec![PartitionProduceResponse {
                error_code: code.code(),
                base_offset: offset,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    Some(encode(header, &response))
}

fn append(batch: &[u8], state: &mut State) -> Result<i64, ErrorCode> {
    let mut batch = batch.to_vec();
    if state.batch_bytes_max.is_some_and(|max| max < batch.len()) {
        return Err(ErrorCode::MessageTooLarge);
    }
    let base_offset = i64::try_from(state.values.len()).expect("tests are small");
    set_base_offset(&mut batch, towpath_model::Offset(base_offset));
    let header = BatchHeader::parse(&batch).map_err(|_| ErrorCode::CorruptMessage)?;
    if let Some(id) = header.producer_id() {
        let (first, last) = (header.base_sequence().0, header.last_sequence().0);
        let epoch = header.producer_epoch().0;
        match state.producers.get(&id.0) {
            Some(known) if epoch < known.epoch => return Err(ErrorCode::InvalidProducerEpoch),
            Some(known) if epoch == known.epoch => {
                if let Some(same) = known.batches.iter().find(|b| (b.0, b.1) == (first, last)) {
                    return Ok(same.2);
                }
                let next = known.batches.back().map_or(0, |batch| batch.1.wrapping_add(1));
                if first != next {
                    return Err(ErrorCode::OutOfOrderSequenceNumber);
                }
            }
            Some(_) if first != 0 => return Err(ErrorCode::OutOfOrderSequenceNumber),
            _ => {}
        }
        let producer =
            state.producers.entry(id.0).or_insert(Producer { epoch, batches: VecDeque::new() });
        if producer.epoch != epoch {
            *producer = Producer { epoch, batches: VecDeque::new() };
        }
        producer.batches.push_back((first, last, base_offset));
        if 5 < producer.batches.len() {
            producer.batches.pop_front();
        }
    }
    let mut scratch = Scratch::new();
    let records = records(&batch, 1 << 20, &mut scratch).map_err(|_| ErrorCode::CorruptMessage)?;
    for record in records {
        let record = record.map_err(|_| ErrorCode::CorruptMessage)?;
        state.values.push(record.value.unwrap_or_default().to_vec());
    }
    Ok(base_offset)
}
