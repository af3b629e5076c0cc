//! From a data directory to a node among its peers.
//!
//! ```text
//! look whose directory it is ─▶ listen for peers ─▶ (new) find the cluster ─▶ recover ─▶ serve peers
//! ```
//!
//! A directory that has taken part in a quorum knows its cluster: it starts without asking anybody,
//! whatever the command line says of how to begin.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_driver::{Formation, Settings as DriverSettings};
use towpath_metadata::{Address, Role};
use towpath_server::disk::NodeDisk;
use towpath_server::formation::{Belonging, ClusterId, Formed, form_watched};
use towpath_server::peer::{Addresses, PeerAddress, PeerLimits, PeerMetrics, PeerSettings, Peers};
use towpath_server::{
    AddressBook, Identity, Limits, Neighbours, Node, NodeSettings, Progress, Surroundings, Waiters,
    random_uuid,
};

use super::bind::PeerListener;
use super::stop::StopSignals;
use crate::config::{ClusterSettings, Company, HostPort, Settings};
use crate::failure::{Failure, Outcome};

/// Where the other listeners of this broker are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) kafka: SocketAddr,
    pub(super) http: SocketAddr,
}

/// A node, and its connections to others.
pub(super) struct Joined {
    pub(super) node: Arc<Node>,
    company: Option<InCompany>,
}

struct InCompany {
    peers: Arc<Peers>,
    stop: watch::Sender<bool>,
    book: JoinHandle<()>,
}

impl Joined {
    /// Ends the connections to peers.
    pub(super) async fn part(self) -> Arc<Node> {
        if let Some(InCompany { peers, stop, book }) = self.company {
            stop.send_replace(true);
            // A task that panicked has already ended the process.
            let _ = book.await;
            peers.stop().await;
        }
        self.node
    }
}

/// Starts a node. `None`: it was told to stop before it knew its cluster.
pub(super) async fn join(
    settings: &Settings,
    data: &[PathBuf],
    bound: Bound,
    peer: Option<PeerListener>,
    progress: &Progress,
    signals: &mut StopSignals,
) -> Outcome<Option<Joined>> {
    let mut start = node_settings(settings, data, bound);
    let (Some(cluster), Some(peer)) = (&settings.cluster, peer) else {
        let node = open(start, Surroundings::default(), progress).await?;
        return Ok(Some(Joined { node, company: None }));
    };
    let address = cluster.advertised.clone().or_else(|| reachable(peer.address));
    start.driver.addresses.extend(address.as_ref().map(|at| listener("PEER", &at.host, at.port)));

    let (disk, first) = (start.disk.clone(), data[0].clone());
    let look = tokio::task::spawn_blocking(move || Belonging::look(&disk, &first)).await;
    let belonging = look.map_err(|error| Failure::new(error.to_string()))?.map_err(not_opened)?;
    let me = start.driver.broker_id;
    if belonging.identity.as_ref().is_some_and(|identity| identity.node_id != me) {
        // Says what to do about it, before anybody else hears of this broker.
        let node = open(start, Surroundings::default(), progress).await?;
        return Ok(Some(Joined { node, company: None }));
    }
    let identity = belonging.identity.as_ref();
    let directory_id = identity.map_or_else(random_uuid, |identity| identity.directory_id);
    let cluster_id = ClusterId::default();
    if let Some(identity) = identity.filter(|_| belonging.has_quorum) {
        cluster_id.set(&identity.cluster_id);
    }

    let neighbours = Arc::new(Neighbours::default());
    let surroundings = Surroundings { waiters: Waiters::default(), peers: PeerMetrics::default() };
    let addresses = Addresses::default();
    let configured = configured(&cluster.company);
    addresses.replace(configured.clone());
    if let Company::Join(seeds) = &cluster.company {
        addresses.set_seeds(seeds.clone());
    }
    let known = cluster_id.clone();
    let peers = PeerSettings {
        me,
        directory_id,
        incarnation: start.driver.incarnation,
        cluster_id: Arc::new(move || known.get()),
        listener: peer.listener,
        advertised: address,
        secret: cluster.secret.clone(),
        addresses: addresses.clone(),
        limits: PeerLimits::default(),
        metrics: surroundings.peers.clone(),
    };
    let handler: Arc<Neighbours> = Arc::clone(&neighbours);
    let peers = Arc::new(Peers::start(peers, handler));
    surroundings.waiters.set_peers(Arc::clone(&peers));

    if !belonging.has_quorum {
        let mine = identity.map(|identity| identity.cluster_id.as_str());
        let membership = cluster.company.membership();
        let formed = tokio::select! {
            formed = form_watched(&neighbours, &membership, me, directory_id, mine, progress) => formed,
            () = signals.wait() => {
                peers.stop().await;
                return Ok(None);
            }
        };
        let Formed { cluster_id: id, formation } = formed;
        cluster_id.set(&id);
        peers.introduce_again();
        start.driver.formation = formation;
        start.identity = Some(Identity { cluster_id: id, node_id: me, directory_id });
    } else if cluster.company != Company::Alone {
        start.driver.formation = Formation::Joining;
    }
    let node = open(start, surroundings, progress).await?;
    neighbours.serve(&node);
    let (stop, stopped) = watch::channel(false);
    let book = AddressBook::new(configured);
    let book = tokio::spawn(book.keep(addresses, neighbours, Arc::clone(&node), stopped));
    Ok(Some(Joined { node, company: Some(InCompany { peers, stop, book }) }))
}

fn configured(company: &Company) -> BTreeMap<towpath_model::BrokerId, PeerAddress> {
    match company {
        Company::With(members) => members.clone(),
        Company::Alone | Company::Join(_) => BTreeMap::new(),
    }
}

/// Where others reach what is bound here, if that can be told.
fn reachable(bound: SocketAddr) -> Option<PeerAddress> {
    let is_somewhere = !bound.ip().is_unspecified();
    is_somewhere.then(|| PeerAddress { host: bound.ip().to_string(), port: bound.port() })
}

fn listener(name: &str, host: &str, port: u16) -> Address {
    Address { listener: name.to_owned(), host: host.to_owned(), port }
}

fn node_settings(settings: &Settings, data: &[PathBuf], bound: Bound) -> NodeSettings {
    let advertised =
        settings.advertised.as_ref().map(|address| (address.host.clone(), address.port));
    let cluster = settings.cluster.as_ref();
    let others = cluster.and_then(|cluster| cluster.kafka.clone());
    let (host, port) = advertised
        .clone()
        .or_else(|| others.map(|HostPort { host, port }| (host, port)))
        .unwrap_or_else(|| (bound.kafka.ip().to_string(), bound.kafka.port()));
    let mut addresses = vec![listener("PLAINTEXT", &host, port)];
    match cluster.and_then(|cluster: &ClusterSettings| cluster.http.as_ref()) {
        Some(HostPort { host, port }) => addresses.push(listener("HTTP", host, *port)),
        None => {
            let http = reachable(bound.http);
            addresses.extend(http.map(|http| listener("HTTP", &http.host, http.port)));
        }
    }
    let broker = &settings.broker;
    NodeSettings {
        data: data.to_vec(),
        disk: NodeDisk::default(),
        driver: DriverSettings {
            broker_id: broker.node_id,
            statics: settings.statics.clone(),
            incarnation: random_uuid(),
            addresses,
            forgotten_directories: settings.forgotten_directories.clone(),
            rack: settings.statics.get("broker.rack").filter(|rack| !rack.is_empty()).cloned(),
            role: cluster.map_or(Role::Broker, |cluster| cluster.role),
            formation: Formation::Alone,
        },
        advertised,
        limits: Limits {
            frame_bytes_max: broker.request_bytes_max,
            connections_max: broker.connections_max,
            idle_max: broker.connections_idle_max,
            ..Limits::default()
        },
        http_creates_topics: broker.auto_create_topics,
        identity: None,
    }
}

/// Recovery reads the disk, for seconds where there is much.
async fn open(
    settings: NodeSettings,
    surroundings: Surroundings,
    progress: &Progress,
) -> Outcome<Arc<Node>> {
    let progress = progress.clone();
    let opened =
        tokio::task::spawn_blocking(move || Node::start_with(settings, surroundings, &progress));
    opened.await.map_err(|error| Failure::new(error.to_string()))?.map_err(not_opened)
}

pub(super) fn not_opened(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
        .with_help("nothing was changed; the message names the file or directory that it is about")
}
