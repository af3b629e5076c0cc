//! Keeps one connection to one peer: dials, sends, dials again.
//!
//! ```text
//! dial ──▶ connected ──▶ ended ──▶ rest (0, then 20 ms … 1 s) ──▶ dial
//!   └──────── failed ──────────────▲      └─ cut short when the peer calls, or moves
//! ```
//!
//! A task per peer and class does this until the peer is forgotten. Messages wait for the outcome of a
//! dial, and for no rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use towpath_model::BrokerId;

use super::context::{Context, jittered};
use super::dial::{Failure, dial};
use super::handshake::Refusal;
use super::hello::{Class, PeerAddress};
use super::queue::Queue;
use super::writer::{Ended, Writer};
use super::{PeerLimits, Records};

/// A peer that this broker sends to.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: BrokerId,
    /// Where it is; `None` when it is forgotten.
    pub(crate) address: watch::Sender<Option<PeerAddress>>,
    /// How often it has called.
    pub(crate) calls: watch::Sender<u64>,
    queues: [Queue; Class::ALL.len()],
    is_connected: [AtomicBool; Class::ALL.len()],
}

impl Peer {
    pub(crate) fn new(id: BrokerId, address: PeerAddress, limits: &PeerLimits) -> Peer {
        let queue = || Queue::new(limits.queue_bytes_max, limits.message_bytes_max);
        Peer {
            id,
            address: watch::Sender::new(Some(address)),
            calls: watch::Sender::new(0),
            queues: Class::ALL.map(|_| queue()),
            is_connected: Default::default(),
        }
    }

    pub(crate) fn queue(&self, class: Class) -> &Queue {
        &self.queues[class.index()]
    }

    pub(crate) fn is_connected(&self, class: Class) -> bool {
        self.is_connected[class.index()].load(Ordering::Relaxed)
    }

    fn set_connected(&self, class: Class, is_connected: bool) {
        self.is_connected[class.index()].store(is_connected, Ordering::Relaxed);
    }
}

/// How long to rest before the next dial.
struct Pace {
    next: Duration,
    min: Duration,
    max: Duration,
}

impl Pace {
    fn new(limits: &PeerLimits) -> Pace {
        Pace { next: limits.rest_min, min: limits.rest_min, max: limits.rest_max }
    }

    fn rest(&mut self) -> Duration {
        let rest = self.next;
        self.next = (2 * rest).clamp(self.min, self.max);
        jittered(rest)
    }

    /// After a connection that was one: the first dial is at once. If the process is gone, that
    /// is how it becomes known.
    fn lasted(&mut self, lasted: Duration) {
        if self.max <= lasted {
            self.next = Duration::ZERO;
        }
    }
}

/// Keeps the connection until the peer is forgotten.
pub(crate) async fn keep(context: Arc<Context>, peer: Arc<Peer>, class: Class) {
    let mut link = Link {
        address: peer.address.subscribe(),
        calls: peer.calls.subscribe(),
        pace: Pace::new(&context.limits),
        reading: None,
        said: String::new(),
        context,
        peer,
        class,
    };
    loop {
        let Some(address) = link.address.borrow_and_update().clone() else { break };
        link.try_once(&address).await;
        link.drop_waiting();
        let rest = link.pace.rest();
        let Link { calls, address, .. } = &mut link;
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = calls.changed() => link.pace = Pace::new(&link.context.limits),
            _ = address.changed() => link.pace = Pace::new(&link.context.limits),
        }
    }
    link.drop_waiting();
}

struct Link {
    context: Arc<Context>,
    peer: Arc<Peer>,
    class: Class,
    address: watch::Receiver<Option<PeerAddress>>,
    calls: watch::Receiver<u64>,
    pace: Pace,
    /// Records that are being fetched where waiting for a device is allowed. Outlives a connection, so
    /// that there is never more than one.
    reading: Option<JoinHandle<Records>>,
    /// What the log has said last, to say it once.
    said: String,
}

impl Link {
    async fn try_once(&mut self, address: &PeerAddress) {
        let Link { context, peer, class, .. } = self;
        let (context, peer, class) = (Arc::clone(context), Arc::clone(peer), *class);
        peer.queue(class).open();
        self.calls.mark_unchanged();
        let dialled = tokio::select! {
            dialled = dial(&context, address, class, Some(peer.id)) => dialled,
            _ = self.address.changed() => return self.address.mark_changed(),
        };
        let (socket, hello) = match dialled {
            Ok(connection) => connection,
            Err(failure) => return self.failed(address, &failure),
        };
        let since = Instant::now();
        self.said.clear();
        context.metrics.of(class).made.inc();
        context.metrics.of(class).connected.inc();
        peer.set_connected(class, true);
        if class == Class::Control {
            tracing::info!(peer = %peer.id, %address, "connected to another broker");
        }
        // A new connection has no records of the old one on their way.
        peer.queue(class).records_are_ready();
        context.handler.connected(peer.id, &hello);
        let writer = Writer::new(&context, &peer, class, &socket, &mut self.reading);
        let ended = tokio::select! {
            ended = writer.run() => Some(ended),
            _ = self.address.changed() => None,
        };
        drop(socket);
        context.metrics.of(class).connected.dec();
        peer.set_connected(class, false);
        self.pace.lasted(since.elapsed());
        match ended {
            Some(ended) => self.ended(address, &ended),
            None => self.address.mark_changed(),
        }
        if class == Class::Control {
            context.handler.disconnected(peer.id, false);
        }
    }

    fn failed(&mut self, address: &PeerAddress, failure: &Failure) {
        let may_say = match failure {
            Failure::Refused(refusal) => self.context.refused(refusal),
            Failure::NobodyListens | Failure::Io(_) => self.context.may_complain(),
        };
        if matches!(failure, Failure::NobodyListens) && self.class == Class::Control {
            self.context.handler.disconnected(self.peer.id, true);
        }
        // Both connections fail for the same reason, and mostly again and again.
        let text = failure.to_string();
        let is_news = self.said != text && self.class == Class::Control;
        if let Some(suppressed) = may_say.filter(|_| is_news) {
            let peer = self.peer.id;
            match failure {
                Failure::Refused(Refusal::Itself) => {
                    tracing::warn!(%peer, %address, "the address of another broker is this one's");
                }
                Failure::Refused(_) => {
                    tracing::warn!(%peer, %address, suppressed, "no connection to another broker: {text}");
                }
                Failure::NobodyListens | Failure::Io(_) => {
                    tracing::warn!(%peer, %address, suppressed, "another broker cannot be reached, \
                        which is tried again and again: {text}");
                }
            }
            self.said = text;
        }
    }

    fn ended(&self, address: &PeerAddress, ended: &Ended) {
        let peer = self.peer.id;
        match self.class {
            Class::Control => {
                tracing::warn!(%peer, %address, "connection to another broker lost: {ended}");
            }
            Class::Records => {
                tracing::debug!(%peer, %address, "connection for records lost: {ended}");
            }
        }
    }

    fn drop_waiting(&self) {
        let dropped = self.peer.queue(self.class).close();
        self.context.metrics.of(self.class).dropped.inc_by(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_and_a_connection_that_lasted_is_followed_by_none() {
        let (min, max) = (Duration::from_millis(20), Duration::from_secs(1));
        let mut pace = Pace { next: min, min, max };
        for expected in [20, 40, 80, 160, 320, 640, 1000, 1000] {
            let expected = Duration::from_millis(expected);
            let rest = pace.rest();
            assert!(expected / 2 <= rest && rest <= expected, "{rest:?} {expected:?}");
        }
        pace.lasted(Duration::from_millis(1));
        assert!(max / 2 <= pace.rest());
        pace.lasted(max);
        assert_eq!(pace.rest(), Duration::ZERO);
        assert!(min / 2 <= pace.rest());
    }
}
