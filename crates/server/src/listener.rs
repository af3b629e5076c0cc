//! Accepts Kafka connections, as many as the limit allows.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::connection;
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
        let slots = Slots {
            all: Arc::new(Semaphore::new(node.limits().connections_max)),
            by_address: Arc::default(),
        };
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

/// Room for connections, in all and per address.
struct Slots {
    all: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection's room, given back when dropped.
struct Slot {
    _one_of_all: OwnedSemaphorePermit,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Slots {
    fn take(&self, address: IpAddr, per_address_max: usize) -> Result<Slot, &'static str> {
        let all = Arc::clone(&self.all);
        let one_of_all = all.try_acquire_owned().map_err(|_| "max.connections")?;
        let mut by_address = self.by_address.lock().expect("no panic holds the counts");
        let count = by_address.entry(address).or_default();
        if per_address_max <= *count {
            return Err("max.connections.per.ip");
        }
        *count += 1;
        drop(by_address);
        let by_address = Arc::clone(&self.by_address);
        Ok(Slot { _one_of_all: one_of_all, by_address, address })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut by_address = self.by_address.lock().expect("no panic holds the counts");
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

fn admit(
    node: &Arc<Node>,
    slots: &Slots,
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
    let slot = match slots.take(peer.ip().to_canonical(), per_address_max) {
        Ok(slot) => slot,
        Err(limit) => return refused(&format!("as many are open as {limit} allows")),
    };
    let node = Arc::clone(node);
    connections.spawn(async move {
        node.metrics().connections.inc();
        connection::serve(Arc::clone(&node), socket, peer, stop).await;
        node.metrics().connections.dec();
        drop(slot);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_in_all_and_per_address_and_given_back() {
        let slots = Slots { all: Arc::new(Semaphore::new(3)), by_address: Arc::default() };
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let first = slots.take(one, 2).unwrap();
        let _second = slots.take(one, 2).unwrap();
        assert_eq!(slots.take(one, 2).err(), Some("max.connections.per.ip"));
        let _third = slots.take(two, 2).unwrap();
        assert_eq!(slots.take(two, 2).err(), Some("max.connections"));
        drop(first);
        assert!(slots.take(one, 2).is_ok());
    }
}
