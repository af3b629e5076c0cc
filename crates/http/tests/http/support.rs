//! A broker in this process with its HTTP listener on a real socket, and a client of few words.

use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_http::{HttpListener, Readiness, SqsSettings};
use towpath_model::BrokerId;
use towpath_server::{Limits, Node, NodeSettings, random_uuid};

/// A running broker.
pub(crate) struct Broker {
    pub(crate) node: Arc<Node>,
    pub(crate) address: SocketAddr,
    pub(crate) readiness: Readiness,
    stop: watch::Sender<bool>,
    listener: JoinHandle<()>,
    data: TempDir,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The JSON of an answer that is no error.
    pub(crate) fn ok(self) -> Value {
        assert!(self.status < 300, "{} {}", self.status, self.body);
        self.json()
    }

    /// Checks that this is an error of this status and code.
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        let json = self.json();
        assert_eq!((self.status, json["error"]["code"].as_str()), (status, Some(code)), "{json}");
        json
    }
}

fn settings(data: &Path, creates_topics: bool, properties: &[(&str, &str)]) -> NodeSettings {
    // How full the disk is that a test happens to run on is nothing that it tests.
    let usual = [("disk.low.watermark.bytes", "0"), ("disk.high.watermark.bytes", "0")];
    let all = usual.iter().chain(properties);
    let statics = all.map(|(name, value)| ((*name).into(), (*value).into()));
    NodeSettings {
        data: vec![data.to_owned()],
        disk: towpath_server::disk::NodeDisk::default(),
        driver: towpath_driver::Settings {
            broker_id: BrokerId(1),
            statics: statics.collect(),
            incarnation: random_uuid(),
            addresses: Vec::new(),
            forgotten_directories: Vec::new(),
            rack: None,
            role: towpath_metadata::Role::Broker,
            formation: towpath_driver::Formation::Alone,
        },
        advertised: None,
        limits: Limits::default(),
        http_creates_topics: creates_topics,
        identity: None,
    }
}

/// As `towpath dev` serves SQS.
fn open_to_anybody() -> SqsSettings {
    SqsSettings { lets_anybody_in_on_loopback: true, ..SqsSettings::default() }
}

impl Broker {
    /// A fresh broker whose publishing creates topics, as in `towpath dev`.
    pub(crate) async fn start() -> Broker {
        Broker::start_with(true, &[("num.partitions", "3")]).await
    }

    pub(crate) async fn start_with(creates_topics: bool, properties: &[(&str, &str)]) -> Broker {
        let data = TempDir::new().unwrap();
        let settings = settings(data.path(), creates_topics, properties);
        Broker::open(data, settings, open_to_anybody()).await
    }

    /// A fresh broker that serves SQS like this.
    pub(crate) async fn start_with_sqs(sqs: SqsSettings) -> Broker {
        let data = TempDir::new().unwrap();
        let settings = settings(data.path(), true, &[]);
        Broker::open(data, settings, sqs).await
    }

    /// A fresh broker that serves SQS at a port of its own too, and where that is.
    pub(crate) async fn start_with_sqs_port(sqs: SqsSettings) -> (Broker, SocketAddr) {
        let data = TempDir::new().unwrap();
        let settings = settings(data.path(), true, &[]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let http = HttpListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        (Broker::open_at(data, settings, http.with_sqs(sqs, Some(listener))).await, address)
    }

    /// As `towpath dev` on somebody's own machine, with HTTP at this address, and where SQS is.
    pub(crate) async fn start_on_own_machine(http: &str) -> (Broker, SocketAddr) {
        let data = TempDir::new().unwrap();
        let settings = settings(data.path(), true, &[]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let http = HttpListener::bind(http.parse().unwrap()).await.unwrap();
        let http = http.with_sqs(open_to_anybody(), Some(listener)).with_local_names_only();
        (Broker::open_at(data, settings, http).await, address)
    }

    async fn open(data: TempDir, settings: NodeSettings, sqs: SqsSettings) -> Broker {
        let http = HttpListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        Broker::open_at(data, settings, http.with_sqs(sqs, None)).await
    }

    async fn open_at(data: TempDir, settings: NodeSettings, listener: HttpListener) -> Broker {
        let node = tokio::task::spawn_blocking(|| Node::start(settings).unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let readiness = Readiness::default();
        readiness.set_ready();
        let serve = listener.serve(Arc::clone(&node), readiness.clone(), stopped);
        Broker { node, address, readiness, stop, listener: tokio::spawn(serve), data }
    }

    /// Stops the broker and starts it again on the same data.
    pub(crate) async fn restart(self) -> Broker {
        let Broker { node, stop, listener, data, .. } = self;
        stop.send_replace(true);
        listener.await.unwrap();
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
        let settings = settings(data.path(), true, &[("num.partitions", "3")]);
        Broker::open(data, settings, open_to_anybody()).await
    }

    /// Stops and waits for the end of the listener.
    pub(crate) async fn stop(self) -> PathBuf {
        self.stop.send_replace(true);
        self.listener.await.unwrap();
        let node = self.node;
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
        self.data.path().to_owned()
    }

    /// Overwrites these bytes wherever they are stored, behind the broker's back.
    pub(crate) fn damage(&self, bytes: &[u8]) {
        let mut directories = vec![self.data.path().to_owned()];
        let mut count = 0;
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    directories.push(path);
                    continue;
                }
                let stored = std::fs::read(&path).unwrap();
                let Some(at) = stored.windows(bytes.len()).position(|here| here == bytes) else {
                    continue;
                };
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(&vec![b'#'; bytes.len()], at as u64).unwrap();
                count += 1;
            }
        }
        assert_ne!(count, 0, "the bytes are stored nowhere");
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.request("POST", path, body).await
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.raw(text.as_bytes()).await
    }

    /// Sends bytes and reads to the end.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let text = self.exchange(bytes).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// Sends bytes and reads whatever comes until the broker closes.
    pub(crate) async fn exchange(&self, bytes: &[u8]) -> String {
        let talk = async {
            let mut socket = TcpStream::connect(self.address).await.unwrap();
            // The broker may answer and close before all has been sent.
            let _ = socket.write_all(bytes).await;
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::time::timeout(Duration::from_secs(30), talk).await.expect("an answer in time")
    }
}
