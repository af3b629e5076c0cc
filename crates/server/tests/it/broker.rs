//! A broker in this process, on a port and a directory of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_driver::Settings;
use towpath_model::BrokerId;
use towpath_server::disk::NodeDisk;
use towpath_server::{KafkaListener, Limits, Node, NodeSettings, PlainTurn, random_uuid};

use crate::wire::Wire;

/// How a test's broker differs from the usual one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Broker properties and their values.
    pub(crate) properties: Vec<(&'static str, &'static str)>,
    pub(crate) limits: Limits,
    /// Data directories besides the first one.
    pub(crate) more_directories: Vec<PathBuf>,
    pub(crate) disk: NodeDisk,
}

/// A running broker; dropped, it stops cleanly.
pub(crate) struct Broker {
    node: Arc<Node>,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    serving: Option<JoinHandle<()>>,
    address: SocketAddr,
    options: Options,
    directory: Option<TempDir>,
}

impl Broker {
    pub(crate) fn start() -> Broker {
        Broker::start_with(Options::default())
    }

    pub(crate) fn start_with(options: Options) -> Broker {
        Broker::start_in(tempfile::tempdir().unwrap(), options)
    }

    /// Starts on what an earlier broker has left.
    pub(crate) fn start_in(directory: TempDir, options: Options) -> Broker {
        let node = Node::start(settings(directory.path(), &options)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = watch::channel(false);
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.block_on(KafkaListener::bind(any_port)).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Some(runtime.spawn(listener.serve(Arc::clone(&node), stopped)));
        Broker { node, runtime, stop, serving, address, options, directory: Some(directory) }
    }

    /// Stops cleanly and starts again with the same data.
    pub(crate) fn restart(mut self) -> Broker {
        let directory = self.directory.take().expect("only restart() takes it");
        let options = self.options.clone();
        drop(self);
        Broker::start_in(directory, options)
    }

    /// Stops cleanly and leaves the first data directory.
    pub(crate) fn stop(mut self) -> TempDir {
        self.directory.take().expect("only restart() and stop() take it")
    }

    /// What another broker would find if this one had been killed at this moment.
    pub(crate) fn as_if_killed(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_into(self.data(), copy.path());
        copy
    }

    /// The first data directory.
    pub(crate) fn data(&self) -> &Path {
        self.directory.as_ref().expect("only restart() and stop() take it").path()
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(self.address)
    }

    /// Waits for something that the node does.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// The node, for who keeps it.
    pub(crate) fn shared_node(&self) -> &Arc<Node> {
        &self.node
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Takes the memory for large batches, as somebody who looks at one does.
    pub(crate) fn plain_turn(&self) -> PlainTurn {
        self.runtime.block_on(self.node.plain_turn())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(serving) = self.serving.take() {
            let _ = self.runtime.block_on(serving);
        }
        self.node.stop();
    }
}

fn settings(data: &Path, options: &Options) -> NodeSettings {
    // A group of one need not wait for others.
    let mut statics = vec![
        ("group.initial.rebalance.delay.ms", "0"),
        // How full the disk is that a test happens to run on is nothing that it tests.
        ("disk.low.watermark.bytes", "0"),
        ("disk.high.watermark.bytes", "0"),
        ("disk.reserve.bytes", "0"),
    ];
    statics.extend(&options.properties);
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    NodeSettings {
        data: [&[data.to_owned()], &options.more_directories[..]].concat(),
        disk: options.disk.clone(),
        driver: Settings {
            broker_id: BrokerId(1),
            statics: statics.into_iter().map(owned).collect(),
            incarnation: random_uuid(),
            addresses: Vec::new(),
            forgotten_directories: Vec::new(),
            rack: None,
            role: towpath_metadata::Role::Broker,
            formation: towpath_driver::Formation::Alone,
        },
        advertised: None,
        limits: options.limits.clone(),
        http_creates_topics: false,
        identity: None,
    }
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_into(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
