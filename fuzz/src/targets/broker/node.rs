//! A broker with its own data, listener and threads, and a client of its own that means well.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use towpath_driver::Settings;
use towpath_model::BrokerId;
use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, Message, Request, Uuid, decode_response_header, encode_request};
use towpath_server::{KafkaListener, Limits, Node, NodeSettings, random_uuid};

use crate::targets::batches::sample_batch;

/// A topic that is there, with three partitions and a few records, when an input begins.
pub(super) const TOPIC: &str = "orders";
/// A group.
pub(super) const GROUP: &str = "crew";
/// How long an answer may take that waits for nothing but the disk and this machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// The bounds that keep a run small; everything else is as it comes.
const PROPERTIES: [(&str, &str); 8] = [
    ("auto.create.topics.enable", "false"),
    ("disk.high.watermark.bytes", "0"),
    ("disk.low.watermark.bytes", "0"),
    ("disk.reserve.bytes", "0"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "2"),
    ("partitions.max", "200"),
    ("topics.max", "40"),
];

/// A running broker; dropped, it stops, and its data goes.
pub(super) struct Broker {
    pub(super) runtime: Runtime,
    pub(super) address: SocketAddr,
    node: Arc<Node>,
    stop: watch::Sender<bool>,
    /// Inputs that it has had.
    pub(super) inputs: u32,
    _data: TempDir,
}

impl Broker {
    /// In memory where the system has a place for that: nothing here has to survive.
    pub(super) fn start() -> Broker {
        let memory = Path::new("/dev/shm");
        let temporary = std::env::temp_dir();
        let root = if memory.is_dir() { memory } else { &temporary };
        let data = TempDir::with_prefix_in("towpath-fuzz-", root).expect("a temporary directory");
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let settings = NodeSettings {
            data: vec![data.path().to_owned()],
            disk: Default::default(),
            driver: Settings {
                broker_id: BrokerId(1),
                statics: PROPERTIES.map(own).into(),
                incarnation: random_uuid(),
                addresses: Vec::new(),
                forgotten_directories: Vec::new(),
                rack: None,
                role: towpath_metadata::Role::Broker,
                formation: towpath_driver::Formation::Alone,
            },
            advertised: None,
            limits: Limits { frame_bytes_max: 1 << 20, ..Limits::default() },
            http_creates_topics: false,
            identity: None,
        };
        let node = Node::start(settings).expect("an empty directory");
        // Everything in this thread, whose allocations are counted.
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.block_on(KafkaListener::bind(any_port)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(listener.serve(Arc::clone(&node), stopped));
        Broker { runtime, address, node, stop, inputs: 0, _data: data }
    }

    /// Brings topics and configurations to where every input begins, as an administrator would: so it
    /// also shows that others are still served. Gives back the topic's id.
    pub(super) fn reset(&self) -> Uuid {
        self.runtime.block_on(async {
            let mut admin = Admin { socket: connect(self.address).await };
            let configs = ["", "1"].map(|name| AlterConfigsRequestAlterConfigsResource {
                resource_type: 4,
                resource_name: name,
                configs: Vec::new(),
            });
            let request =
                AlterConfigsRequest { resources: configs.into(), ..AlterConfigsRequest::default() };
            admin.call(&request, 2).await;
            let frame = admin.call(&everything(), 12).await;
            let there: Vec<String> = topics(&frame).into_iter().map(|(name, _)| name).collect();
            if !there.is_empty() {
                let topics = there.iter().map(|name| DeleteTopicState {
                    name: Some(name),
                    ..DeleteTopicState::default()
                });
                let request = DeleteTopicsRequest {
                    topics: topics.collect(),
                    timeout_ms: 4_000,
                    ..DeleteTopicsRequest::default()
                };
                admin.call(&request, 6).await;
            }
            let topic = CreatableTopic {
                name: TOPIC,
                num_partitions: 3,
                replication_factor: 1,
                ..CreatableTopic::default()
            };
            let request = CreateTopicsRequest {
                topics: vec![topic],
                timeout_ms: 4_000,
                ..CreateTopicsRequest::default()
            };
            admin.call(&request, 7).await;
            let batch = sample_batch(towpath_records::Compression::None);
            let records = Some(towpath_protocol::Blob::Bytes(&batch));
            let data = PartitionProduceData { index: 0, records };
            let topic = TopicProduceData {
                name: TOPIC,
                partition_data: vec![data],
                ..TopicProduceData::default()
            };
            let request = ProduceRequest {
                acks: -1,
                timeout_ms: 4_000,
                topic_data: vec![topic],
                ..ProduceRequest::default()
            };
            admin.call(&request, 9).await;
            let frame = admin.call(&everything(), 12).await;
            match &topics(&frame)[..] {
                [(name, id)] if name == TOPIC => *id,
                others => panic!("an administrator cannot restore the topics: {others:?}"),
            }
        })
    }
}

impl Drop for Broker {
    /// Happens while the thread ends, when the runtime can run nothing any more: its tasks go with it.
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.node.stop();
    }
}

pub(super) async fn connect(address: SocketAddr) -> TcpStream {
    let socket = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
    socket.expect("a connection is accepted in time").expect("a connection is accepted")
}

fn everything() -> MetadataRequest<'static> {
    MetadataRequest { topics: None, ..MetadataRequest::default() }
}

/// Topics that are no internal ones, with their ids.
fn topics(frame: &[u8]) -> Vec<(String, Uuid)> {
    let (_, mut d) = decode_response_header(ApiKey::Metadata, 12, frame).expect("an answer");
    let answer = MetadataResponse::decode(12, &mut d).expect("an answer");
    let users = answer.topics.iter().filter(|topic| !topic.is_internal);
    users.filter_map(|topic| Some((topic.name?.to_owned(), topic.topic_id))).collect()
}

/// A client that means well and must be served.
struct Admin {
    socket: TcpStream,
}

impl Admin {
    /// Gives back the answer's frame.
    async fn call<'a, R: Request<'a>>(&mut self, request: &R, version: i16) -> Vec<u8> {
        let header = RequestHeader {
            request_api_key: R::API_KEY,
            request_api_version: version,
            correlation_id: 1,
            client_id: Some("admin"),
        };
        let frame = encode_request(&header, request, version).expect("a request of ours");
        let bytes = frame.into_bytes().expect("there are no regions");
        let served = tokio::time::timeout(PATIENCE, async {
            self.socket.write_all(&bytes).await?;
            read_frame(&mut self.socket).await
        });
        let served = served.await.expect("an honest client is served in time");
        served.expect("an honest client is served")
    }
}

/// One frame, without its length.
pub(super) async fn read_frame(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = socket.read_i32().await?;
    let length = usize::try_from(length).expect("a length of ours is positive");
    let mut frame = vec![0; length];
    socket.read_exact(&mut frame).await?;
    Ok(frame)
}
