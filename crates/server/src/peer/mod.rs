//! Carries messages between brokers. What is in them is no concern of this module.
//!
//! ```text
//! broker 1                                broker 2
//!   send ─▶ queue ─▶ link ══ control ═══▶ incoming ─▶ handler.receive
//!   next_records ──▶ link ══ records ═══▶ incoming ─▶ handler.receive
//!                             and two more connections, dialled by broker 2, for the other direction
//! ```
//!
//! Messages may be lost: with a connection, at a queue's bound, for want of memory. Those who send them
//! repeat what matters. Nothing here waits for anything but its own connection. What surprises: a
//! connection carries messages one way only; the other way there is nothing but signs of life.
//! `docs/peer-protocol.md` draws the bytes, ADR 0017 says why.

mod addresses;
mod batch;
mod context;
mod dial;
mod frame;
mod handshake;
mod hello;
mod incoming;
mod link;
mod metrics;
mod queue;
mod secret;
mod seeds;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use towpath_model::{BrokerId, Uuid};

pub use addresses::Addresses;
pub use batch::Part;
pub use context::ClusterIdGetter;
pub use frame::{FRAME_BYTES_MAX, Inbox, Kind, MAGIC, Malformed, Received, next_frame};
pub use handshake::{Handshake, Refusal};
pub use hello::{Class, HELLO_BYTES_MAX, Hello, InvalidAddress, InvalidHello, LEVELS, PeerAddress};
pub use metrics::PeerMetrics;
pub use secret::{InvalidSecret, Secret};

use crate::cold_reads::ColdReads;
use crate::complaints::Complaints;
use crate::connection_slots::ConnectionSlots;
use crate::limits::{Ledger, TOO_FEW_FILES, leaves_files_for_data};
use addresses::Known;
use context::Context;
use incoming::Senders;
use link::Peer;

/// What is done with messages, and where records come from. Called by tasks of the runtime: what may
/// wait for a disk is guarded by the implementation, except in [`Self::next_records`] with `may_wait`.
pub trait PeerHandler: Send + Sync + 'static {
    /// A message of a peer. Those of one connection come one after the other, as they were sent.
    fn receive(&self, from: BrokerId, message: Bytes);

    /// The next message for a peer with about `bytes_max` bytes of records, asked for when the
    /// connection takes bytes: after [`Peers::ready_to_send_records`], and as long as there is
    /// something. The parts are one message when put together.
    ///
    /// Without `may_wait` it is asked on a worker of the runtime, and takes only what needs no
    /// device: [`Records::Cold`] if there is nothing else. Then it is asked again on a thread of its own,
    /// with `may_wait`, once at a time for each peer and for a few peers at once, and gives what is
    /// cold, or [`Records::Nothing`]; what is not cold is still asked for meanwhile.
    fn next_records(&self, to: BrokerId, bytes_max: usize, may_wait: bool) -> Records;

    /// A connection was made, in either direction and of either class; the peer has proved who it
    /// is. What was under way over an older one may be lost: now is the time to repeat it.
    fn connected(&self, peer: BrokerId, hello: &Hello);

    /// Nothing can be sent to the peer at the moment. `refused`: the machine at its address says that
    /// nobody listens there, so its process is gone, or not there yet; said again with every dial.
    fn disconnected(&self, peer: BrokerId, refused: bool);
}

/// What there is for a peer.
#[derive(Debug)]
pub enum Records {
    /// Nothing; [`Peers::ready_to_send_records`] says when there is something.
    Nothing,
    /// A message, in parts.
    Message(Vec<Part>),
    /// Something that a device has to be waited for.
    Cold,
}

/// Bounds of the connections between brokers.
#[derive(Debug, Clone)]
pub struct PeerLimits {
    /// Peers that are known at once.
    pub peers_max: usize,
    /// Connections whose other end is not known yet: in all.
    pub handshakes_max: usize,
    /// And from one address.
    pub handshakes_per_address_max: usize,
    /// Bytes that may wait to be sent, for each peer and class.
    pub queue_bytes_max: usize,
    /// Largest message, in bytes.
    pub message_bytes_max: usize,
    /// Bytes of messages that are arriving, over all connections. A quarter is for the first 64 KiB of
    /// each; a large message without room in the rest is dropped.
    pub memory_bytes: usize,
    /// How long a name may take to be resolved.
    pub resolve_max: Duration,
    /// How long an address may take to answer.
    pub dial_max: Duration,
    /// How long a handshake may take.
    pub handshake_max: Duration,
    /// How long a peer may take no bytes, send none, or owe the answer whether it is there.
    pub stall_max: Duration,
    /// How often a receiver is asked whether it is there. Less than half of `stall_max`.
    pub ping_every: Duration,
    /// The first rest between two dials; each is twice as long as the one before.
    pub rest_min: Duration,
    /// The longest.
    pub rest_max: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        PeerLimits {
            peers_max: 256,
            handshakes_max: 256,
            handshakes_per_address_max: 64,
            queue_bytes_max: 16 << 20,
            message_bytes_max: 144 << 20,
            memory_bytes: 256 << 20,
            resolve_max: Duration::from_secs(10),
            dial_max: Duration::from_secs(1),
            handshake_max: Duration::from_secs(5),
            stall_max: Duration::from_secs(5),
            ping_every: Duration::from_secs(1),
            rest_min: Duration::from_millis(20),
            rest_max: Duration::from_secs(1),
        }
    }
}

/// Who this broker is among its peers.
pub struct PeerSettings {
    /// Its number.
    pub me: BrokerId,
    /// The data directory with its metadata.
    pub directory_id: Uuid,
    /// This run of the process.
    pub incarnation: Uuid,
    /// The cluster that it belongs to at the moment.
    pub cluster_id: ClusterIdGetter,
    /// Where peers connect, already bound.
    pub listener: TcpListener,
    /// Where peers reach it, as they are to be told.
    pub advertised: Option<PeerAddress>,
    /// What all brokers of the cluster share. Without one, only brokers on this machine are peers.
    pub secret: Option<Secret>,
    /// Where peers are.
    pub addresses: Addresses,
    /// Bounds.
    pub limits: PeerLimits,
    /// Where things are counted.
    pub metrics: PeerMetrics,
}

/// The connections of this broker to others. Stopped by its owner, or when it is dropped.
pub struct Peers {
    me: BrokerId,
    addresses: Addresses,
    peers_max: usize,
    routes: Arc<Routes>,
    metrics: PeerMetrics,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Peers {
    /// Begins to listen, and to connect to all peers whose addresses are or become known.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(settings: PeerSettings, handler: Arc<dyn PeerHandler>) -> Peers {
        let metrics = settings.metrics.clone();
        let (addresses, peers_max) = (settings.addresses.clone(), settings.limits.peers_max);
        let me = settings.me;
        let context = Arc::new(Context {
            node_id: settings.me,
            directory_id: settings.directory_id,
            incarnation: settings.incarnation,
            cluster_id: settings.cluster_id,
            address: settings.advertised,
            secret: settings.secret,
            addresses: settings.addresses,
            ledger: Ledger::new(settings.limits.memory_bytes),
            cold_reads: ColdReads::new(),
            limits: settings.limits,
            metrics: settings.metrics,
            handler,
            complaints: Complaints::default(),
            began: Instant::now(),
        });
        let routes = Arc::new(Routes::default());
        let (stop, stopped) = watch::channel(false);
        let serving = serve(context, Arc::clone(&routes), settings.listener, stopped);
        let task = Mutex::new(Some(tokio::spawn(serving)));
        Peers { me, addresses, peers_max, routes, metrics, stop, task }
    }

    /// Sends a message, unless the peer cannot be reached at the moment. `true` promises nothing but
    /// that it waits to be sent; never blocks.
    pub fn send(&self, to: BrokerId, class: Class, message: impl Into<Bytes>) -> bool {
        let Some(peer) = self.routes.of(to) else { return false };
        let (is_waiting, dropped) = peer.queue(class).push(message.into());
        self.metrics.of(class).dropped.inc_by(dropped + u64::from(!is_waiting));
        is_waiting
    }

    /// Says that the handler has records for a peer.
    pub fn ready_to_send_records(&self, to: BrokerId) {
        if let Some(peer) = self.routes.of(to) {
            peer.queue(Class::Records).records_are_ready();
        }
    }

    /// Tells all peers anew who this broker is, over new connections: to be called when it has come to
    /// belong to a cluster. Messages under way may be lost.
    pub fn introduce_again(&self) {
        for peer in self.routes.0.read().expect("nothing panics over the routes").values() {
            // Whatever the address is, it counts as another one.
            peer.address.send_modify(|_| {});
        }
    }

    /// Somebody says where a peer is: that counts where nothing better is known.
    pub fn hear_of(&self, peer: BrokerId, address: PeerAddress) {
        if peer != self.me && self.addresses.of(peer).is_none() {
            self.addresses.learn(peer, address, self.peers_max);
        }
    }

    /// Whether messages of this class reach the peer, as far as is known.
    #[must_use]
    pub fn is_connected(&self, to: BrokerId, class: Class) -> bool {
        self.routes.of(to).is_some_and(|peer| peer.is_connected(class))
    }

    /// Ends all connections, and waits until the handler is not called any more, except by a read that
    /// waits for a device.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().expect("nothing panics over the task").take();
        if let Some(task) = task {
            // A task that panicked has already ended the process.
            let _ = task.await;
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// The peers that this broker sends to.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<BTreeMap<BrokerId, Arc<Peer>>>);

impl Routes {
    fn of(&self, peer: BrokerId) -> Option<Arc<Peer>> {
        self.0.read().expect("nothing panics over the routes").get(&peer).cloned()
    }

    /// A peer has called: it is there again.
    fn called(&self, peer: BrokerId) {
        if let Some(peer) = self.of(peer) {
            peer.calls.send_modify(|calls| *calls += 1);
        }
    }

    /// Follows the addresses that are known.
    fn follow(&self, known: &Known, context: &Arc<Context>, tasks: &mut JoinSet<()>) {
        let mut routes = self.0.write().expect("nothing panics over the routes");
        routes.retain(|id, peer| {
            let address = known.of(*id);
            let is_other = |now: &mut Option<PeerAddress>| {
                let is_other = now.as_ref() != address;
                *now = address.cloned();
                is_other
            };
            peer.address.send_if_modified(is_other);
            address.is_some()
        });
        let wanted = known.peers().filter(|id| *id != context.node_id);
        for id in wanted.take(context.limits.peers_max) {
            let Some(address) = known.of(id) else { continue };
            routes.entry(id).or_insert_with(|| {
                let peer = Arc::new(Peer::new(id, address.clone(), &context.limits));
                for class in Class::ALL {
                    tasks.spawn(link::keep(Arc::clone(context), Arc::clone(&peer), class));
                }
                peer
            });
        }
    }
}

/// After a failed accept (no file descriptors left, usually) the next try waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

async fn serve(
    context: Arc<Context>,
    routes: Arc<Routes>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) {
    let limits = &context.limits;
    let slots = ConnectionSlots::new(limits.handshakes_max);
    let senders = Arc::new(Senders::default());
    let mut tasks = JoinSet::new();
    let mut addresses = context.addresses.watch();
    routes.follow(&addresses.borrow_and_update(), &context, &mut tasks);
    tasks.spawn(seeds::ask(Arc::clone(&context), Arc::clone(&routes)));
    loop {
        tokio::select! {
            _ = stop.changed() => break,
            Ok(()) = addresses.changed() => {
                routes.follow(&addresses.borrow_and_update(), &context, &mut tasks);
            }
            accepted = listener.accept() => match accepted {
                Ok((socket, from)) => {
                    let refused = |why: &str| {
                        context.metrics.refused("too many");
                        if let Some(suppressed) = context.may_complain() {
                            tracing::warn!(%from, suppressed, "connection to the port for brokers refused: {why}");
                        }
                    };
                    if !leaves_files_for_data(&socket) {
                        refused(TOO_FEW_FILES);
                        continue;
                    }
                    let Ok(slot) = slots.take(from.ip(), limits.handshakes_per_address_max) else {
                        refused("too many are in the middle of a handshake");
                        continue;
                    };
                    let (context, senders) = (Arc::clone(&context), Arc::clone(&senders));
                    let routes = Arc::clone(&routes);
                    tasks.spawn(incoming::serve(context, senders, routes, socket, from, slot));
                }
                Err(error) => {
                    if let Some(suppressed) = context.may_complain() {
                        tracing::warn!(%error, suppressed, "cannot accept a connection of a broker");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    drop(listener);
    routes.0.write().expect("nothing panics over the routes").clear();
    tasks.shutdown().await;
}
