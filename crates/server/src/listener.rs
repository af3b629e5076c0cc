//! Accepts Kafka connections, as many as the limit allows.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::connection;
use crate::node::Node;

/// After a failed accept (no file descriptors left, usually) the next try waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
        let slots = Arc::new(Semaphore::new(node.limits().connections_max));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.changed() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, peer)) => admit(&node, &slots, &mut connections, socket, peer),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        connections.shutdown().await;
    }
}

fn admit(
    node: &Arc<Node>,
    slots: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let Ok(slot) = Arc::clone(slots).try_acquire_owned() else {
        node.metrics().connections_refused.inc();
        tracing::warn!(%peer, limit = node.limits().connections_max,
            "connection refused: as many are open as max.connections allows");
        return;
    };
    let node = Arc::clone(node);
    connections.spawn(async move {
        node.metrics().connections.inc();
        connection::serve(Arc::clone(&node), socket, peer).await;
        node.metrics().connections.dec();
        drop(slot);
    });
}
