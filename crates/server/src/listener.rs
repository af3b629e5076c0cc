//! Accepts Kafka connections, as many as the limit allows.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection;
use crate::connection_slots::{ConnectionSlots, NoSlot};
use crate::limits::{TOO_FEW_FILES, leaves_files_for_data};
use crate::node::Node;

/// After a failed accept (no file descriptors left, usually) the next try waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a stop waits for answers that are under way.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// A bound Kafka listener.
#[derive(Debug)]
pub struct KafkaListener {
    listener: TcpListener,
}

impl KafkaListener {
    /// Binds `address`; port 0 picks one.
    ///
    /// # Errors
    /// As the system says, such as an address in use.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(KafkaListener { listener: TcpListener::bind(address).await? })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// As the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections until `stop` changes; then closes them all.
    pub async fn serve(self, node: Arc<Node>, mut stop: watch::Receiver<bool>) {
        let slots = ConnectionSlots::new(node.limits().connections_max);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.changed() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, peer)) => {
                        admit(&node, &slots, &mut connections, socket, peer, stop.clone());
                    }
                    Err(error) => {
                        if let Some(suppressed) = node.may_complain() {
                            tracing::warn!(%error, suppressed, "cannot accept a connection");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        // Answers under way may go out: a client that gets none publishes again.
        let all_ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_MAX, all_ended).await;
        connections.shutdown().await;
    }
}

fn property(full: NoSlot) -> &'static str {
    match full {
        NoSlot::InAll => "max.connections",
        NoSlot::OfAddress => "max.connections.per.ip",
    }
}

fn admit(
    node: &Arc<Node>,
    slots: &ConnectionSlots,
    connections: &mut JoinSet<()>,
    socket: TcpStream,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
) {
    let per_address_max = node.broker_config().connections_per_ip_max;
    let refused = |why: &str| {
        node.metrics().connections_refused.inc();
        if let Some(suppressed) = node.may_complain() {
            tracing::warn!(%peer, suppressed, "kafka connection refused: {why}");
        }
    };
    if !leaves_files_for_data(&socket) {
        return refused(TOO_FEW_FILES);
    }
    let slot = match slots.take(peer.ip(), per_address_max) {
        Ok(slot) => slot,
        Err(full) => return refused(&format!("as many are open as {} allows", property(full))),
    };
    let node = Arc::clone(node);
    connections.spawn(async move {
        node.metrics().connections.inc();
        connection::serve(Arc::clone(&node), socket, peer, stop).await;
        node.metrics().connections.dec();
        drop(slot);
    });
}
