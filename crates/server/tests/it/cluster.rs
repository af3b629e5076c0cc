//! Several brokers in this process that form a cluster, each with its own runtime, ports and directory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_driver::{Formation, ReplicationReport, Settings};
use towpath_log::Identity;
use towpath_metadata::{Address, Image, PartitionState, Role};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition, Uuid};
use towpath_server::disk::NodeDisk;
use towpath_server::formation::{ClusterId, Formed, Membership, form};
use towpath_server::peer::{Addresses, PeerAddress, PeerLimits, PeerMetrics, PeerSettings, Peers};
use towpath_server::{
    KafkaListener, Limits, Neighbours, Node, NodeSettings, Progress, Surroundings, Waiters,
    random_uuid,
};

use crate::wire::Wire;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a test's cluster differs from the usual one.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterOptions {
    /// The rack of each broker, the first one's first; brokers without one stand nowhere.
    pub(crate) racks: Vec<&'static str>,
    /// Broker properties and their values.
    pub(crate) properties: Vec<(&'static str, &'static str)>,
    /// What all of them write to.
    pub(crate) disk: NodeDisk,
}

/// Brokers 1 to n. Dropped, they stop.
pub(crate) struct Cluster {
    options: ClusterOptions,
    places: Vec<Place>,
    running: BTreeMap<BrokerId, Member>,
}

/// What of a broker outlives it.
struct Place {
    id: BrokerId,
    directory: TempDir,
    directory_id: Uuid,
    kafka: SocketAddr,
    peer: SocketAddr,
    cluster_id: Option<String>,
}

/// A broker that runs.
struct Member {
    node: Arc<Node>,
    peers: Arc<Peers>,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Cluster {
    /// Three brokers that know each other.
    pub(crate) fn start() -> Cluster {
        Cluster::start_with(3, ClusterOptions::default())
    }

    pub(crate) fn start_with(count: i32, options: ClusterOptions) -> Cluster {
        let places = (1..=count).map(|id| Place {
            id: BrokerId(id),
            directory: tempfile::tempdir().unwrap(),
            directory_id: random_uuid(),
            kafka: free_address(),
            peer: free_address(),
            cluster_id: None,
        });
        let mut cluster = Cluster { options, places: places.collect(), running: BTreeMap::new() };
        let all: Vec<BrokerId> = cluster.places.iter().map(|place| place.id).collect();
        cluster.run(&all);
        cluster.settle();
        cluster
    }

    /// Starts brokers that do not run, all at once: to form a cluster they need each other.
    fn run(&mut self, ids: &[BrokerId]) {
        let peers: Vec<(BrokerId, PeerAddress)> =
            self.places.iter().map(|place| (place.id, peer_address(place.peer))).collect();
        let wanted = self.places.iter_mut().filter(|place| ids.contains(&place.id));
        let (options, peers) = (&self.options, &peers);
        let begun: Vec<(BrokerId, Member)> = std::thread::scope(|scope| {
            let starts: Vec<_> = wanted
                .map(|place| scope.spawn(move || (place.id, Member::start(place, options, peers))))
                .collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        self.running.extend(begun);
    }

    /// Starts a broker again with what it has.
    pub(crate) fn start_again(&mut self, id: i32) {
        self.run(&[BrokerId(id)]);
    }

    /// Takes a broker from the net, and then stops it: to the others it is as if it had died.
    pub(crate) fn kill(&mut self, id: i32) {
        self.running.remove(&BrokerId(id)).expect("it runs").stop();
    }

    /// Waits until every broker that runs counts as there, to every broker that runs.
    pub(crate) fn settle(&self) {
        let count = self.running.len();
        self.eventually("all brokers are there", |image| {
            let unfenced = image.brokers().filter(|broker| !broker.fenced);
            unfenced.filter(|broker| self.running.contains_key(&broker.id)).count() == count
        });
    }

    /// Waits until something is so in the metadata of every broker that runs.
    pub(crate) fn eventually(&self, what: &str, is_so: impl Fn(&Image) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.running.values().all(|member| is_so(&member.node.driver().image())) {
            assert!(Instant::now() < deadline, "{what}: it has not come");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Creates a topic whose partitions have these replicas, and waits until everybody knows it.
    pub(crate) fn create(
        &self,
        topic: &str,
        assignments: &[&[i32]],
        configs: &[(&str, &str)],
    ) -> towpath_protocol::Uuid {
        let id = self.connect(1).create_assigned(topic, assignments, configs);
        self.eventually("the topic is known", |image| image.topic(topic).is_some());
        id
    }

    /// A partition's state as a broker that runs has it.
    pub(crate) fn state(&self, topic: &str, partition: i32) -> PartitionState {
        let member = self.running.values().next().expect("somebody runs");
        let image = member.node.driver().image();
        let topic = image.topic(topic).unwrap().id;
        let id = TopicPartition { topic, partition: PartitionIndex(partition) };
        image.partition(id).unwrap().clone()
    }

    /// Waits until somebody leads a partition, and says who.
    pub(crate) fn leader_of(&self, topic: &str, partition: i32) -> i32 {
        let leader_in = |image: &Image| {
            let topic = image.topic(topic)?;
            topic.partitions[usize::try_from(partition).unwrap()].leader
        };
        self.eventually("somebody leads", |image| {
            leader_in(image).is_some_and(|leader| self.running.contains_key(&leader))
        });
        self.state(topic, partition).leader.expect("just seen").0
    }

    /// Waits until exactly these brokers are in sync.
    pub(crate) fn in_sync(&self, topic: &str, partition: i32, brokers: &[i32]) {
        let mut wanted: Vec<i32> = brokers.to_vec();
        wanted.sort_unstable();
        let at = usize::try_from(partition).unwrap();
        self.eventually("the in-sync set", |image| {
            let state = image.topic(topic).and_then(|topic| topic.partitions.get(at));
            let mut now: Vec<i32> =
                state.map_or_else(Vec::new, |s| s.in_sync.iter().map(|id| id.0).collect());
            now.sort_unstable();
            now == wanted
        });
    }

    /// Where a broker listens for clients.
    pub(crate) fn kafka(&self, id: i32) -> SocketAddr {
        self.places.iter().find(|place| place.id.0 == id).expect("it is one of them").kafka
    }

    /// Replicas that are being added to what a broker leads, as it says.
    pub(crate) fn coming(&self, id: i32) -> Vec<towpath_driver::ComingReplica> {
        self.running[&BrokerId(id)].node.driver().coming_replicas()
    }

    /// How replication does, as a broker says that runs.
    pub(crate) fn replication(&self, id: i32) -> ReplicationReport {
        self.running[&BrokerId(id)].node.driver().replication_report()
    }

    /// Who is the controller, as a broker says of itself; waits until one does.
    pub(crate) fn controller(&self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_controller = |member: &Member| member.node.driver().is_controller();
            if let Some((id, _)) = self.running.iter().find(|(_, member)| is_controller(member)) {
                return id.0;
            }
            assert!(Instant::now() < deadline, "nobody is the controller");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Tells a broker that a reader has met records that it cannot read.
    pub(crate) fn doubt(&self, id: i32, topic: &str, offset: i64) {
        let driver = self.running[&BrokerId(id)].node.driver();
        let partition = driver.partition_of(topic, PartitionIndex(0)).expect("it is held");
        driver.doubt(partition, towpath_model::Offset(offset));
    }

    /// A broker's data directory.
    pub(crate) fn data(&self, id: i32) -> &Path {
        let place = self.places.iter().find(|place| place.id.0 == id);
        place.expect("it is one of them").directory.path()
    }

    /// Every broker's address for clients, as clients are configured with them.
    pub(crate) fn bootstrap(&self) -> String {
        let addresses = self.places.iter().map(|place| place.kafka.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// A connection to a broker's Kafka port.
    pub(crate) fn connect(&self, id: i32) -> Wire {
        Wire::connect(self.kafka(id))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        std::mem::take(&mut self.running).into_values().for_each(Member::stop);
    }
}

impl Member {
    fn start(
        place: &mut Place,
        options: &ClusterOptions,
        known: &[(BrokerId, PeerAddress)],
    ) -> Member {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(KafkaListener::bind(place.kafka)).unwrap();
        let neighbours = Arc::new(Neighbours::default());
        let surroundings =
            Surroundings { waiters: Waiters::default(), peers: PeerMetrics::default() };
        let cluster_id = ClusterId::default();
        if let Some(id) = &place.cluster_id {
            cluster_id.set(id);
        }
        let mut settings = settings(place, options);
        let told = cluster_id.clone();
        let inside = runtime.enter();
        let peers = PeerSettings {
            me: place.id,
            directory_id: place.directory_id,
            incarnation: settings.driver.incarnation,
            cluster_id: Arc::new(move || told.get()),
            listener: runtime.block_on(tokio::net::TcpListener::bind(place.peer)).unwrap(),
            advertised: Some(peer_address(place.peer)),
            secret: None,
            addresses: Addresses::new(known.iter().cloned()),
            limits: PeerLimits::default(),
            metrics: surroundings.peers.clone(),
        };
        let peers = Arc::new(Peers::start(peers, neighbours.clone()));
        drop(inside);
        surroundings.waiters.set_peers(Arc::clone(&peers));
        if place.cluster_id.is_none() {
            let membership = Membership::With(known.iter().map(|(id, _)| *id).collect());
            let Formed { cluster_id: id, formation } = runtime.block_on(form(
                &neighbours,
                &membership,
                place.id,
                place.directory_id,
                None,
            ));
            cluster_id.set(&id);
            settings.driver.formation = formation;
            place.cluster_id = Some(id);
        }
        settings.identity = Some(Identity {
            cluster_id: place.cluster_id.clone().expect("just formed"),
            node_id: place.id,
            directory_id: place.directory_id,
        });
        let node = Node::start_with(settings, surroundings, &Progress::default()).unwrap();
        neighbours.serve(&node);
        let (stop, stopped) = watch::channel(false);
        let serving = runtime.spawn(listener.serve(Arc::clone(&node), stopped));
        Member { node, peers, runtime, stop, serving }
    }

    fn stop(self) {
        self.runtime.block_on(self.peers.stop());
        let _ = self.stop.send(true);
        let _ = self.runtime.block_on(self.serving);
        self.node.stop();
    }
}

fn settings(place: &Place, options: &ClusterOptions) -> NodeSettings {
    let mut statics = vec![
        ("group.initial.rebalance.delay.ms", "0"),
        // A machine that is busy with other things stands still for longer than brokers usually may.
        ("broker.session.timeout.ms", "3000"),
        ("offsets.topic.num.partitions", "3"),
        // How full the disk is that a test happens to run on is nothing that it tests.
        ("disk.low.watermark.bytes", "0"),
        ("disk.high.watermark.bytes", "0"),
        ("disk.reserve.bytes", "0"),
    ];
    statics.extend(&options.properties);
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let at = usize::try_from(place.id.0 - 1).expect("brokers count from 1");
    let listener = |name: &str, at: SocketAddr| Address {
        listener: name.to_owned(),
        host: at.ip().to_string(),
        port: at.port(),
    };
    NodeSettings {
        data: vec![Path::to_path_buf(place.directory.path())],
        disk: options.disk.clone(),
        driver: Settings {
            broker_id: place.id,
            statics: statics.into_iter().map(owned).collect(),
            incarnation: random_uuid(),
            addresses: vec![listener("PLAINTEXT", place.kafka), listener("PEER", place.peer)],
            forgotten_directories: Vec::new(),
            rack: options.racks.get(at).map(|rack| (*rack).to_owned()),
            role: Role::Broker,
            formation: Formation::Joining,
        },
        advertised: None,
        limits: Limits::default(),
        http_creates_topics: false,
        identity: None,
    }
}

fn peer_address(address: SocketAddr) -> PeerAddress {
    address.to_string().parse().unwrap()
}

/// An address that nobody listens on, chosen by the system: a broker that comes back needs the one it
/// had.
fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap()
}
