//! What is counted between brokers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::hello::Class;

/// Counters and gauges of the connections between brokers. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct PeerMetrics {
    connected: Family<ClassLabel, Gauge>,
    made: Family<ClassLabel, Counter>,
    bytes_in: Family<ClassLabel, Counter>,
    bytes_out: Family<ClassLabel, Counter>,
    messages_in: Family<ClassLabel, Counter>,
    messages_out: Family<ClassLabel, Counter>,
    dropped: Family<ClassLabel, Counter>,
    refused: Family<ReasonLabel, Counter>,
    by_class: [OfClass; Class::ALL.len()],
}

/// The handles of one class: a lookup by label costs more than what is counted.
#[derive(Debug, Clone)]
pub(crate) struct OfClass {
    /// Brokers that this one can send to.
    pub(crate) connected: Gauge,
    /// Connections to others that were made.
    pub(crate) made: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) messages_in: Counter,
    pub(crate) messages_out: Counter,
    /// Messages that did not go out.
    pub(crate) dropped: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl Default for PeerMetrics {
    fn default() -> Self {
        let (connected, made): (Family<ClassLabel, Gauge>, _) = Default::default();
        let (bytes_in, bytes_out, messages_in, messages_out, dropped) = Default::default();
        let counter = |family: &Family<ClassLabel, Counter>, class: Class| {
            family.get_or_create(&ClassLabel { class: class.name() }).clone()
        };
        let by_class = Class::ALL.map(|class| OfClass {
            connected: connected.get_or_create(&ClassLabel { class: class.name() }).clone(),
            made: counter(&made, class),
            bytes_in: counter(&bytes_in, class),
            bytes_out: counter(&bytes_out, class),
            messages_in: counter(&messages_in, class),
            messages_out: counter(&messages_out, class),
            dropped: counter(&dropped, class),
        });
        PeerMetrics {
            connected,
            made,
            bytes_in,
            bytes_out,
            messages_in,
            messages_out,
            dropped,
            refused: Family::default(),
            by_class,
        }
    }
}

impl PeerMetrics {
    pub(crate) fn of(&self, class: Class) -> &OfClass {
        &self.by_class[class.index()]
    }

    /// One connection more was refused, by this side or the other.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Messages to others that were dropped so far.
    #[must_use]
    pub fn dropped(&self, class: Class) -> u64 {
        self.of(class).dropped.get()
    }

    /// Connections that were refused for `reason` so far.
    #[must_use]
    pub fn refused_for(&self, reason: &'static str) -> u64 {
        self.refused.get_or_create(&ReasonLabel { reason }).get()
    }

    /// Registers every series.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "towpath_peer_connected",
            "Brokers that this one is connected to, by class of traffic",
            self.connected.clone(),
        );
        let counters: [(&str, &str, &Family<ClassLabel, Counter>); 6] = [
            ("towpath_peer_connections_made", "Connections made to other brokers", &self.made),
            ("towpath_peer_in_bytes", "Bytes read from other brokers", &self.bytes_in),
            ("towpath_peer_out_bytes", "Bytes written to other brokers", &self.bytes_out),
            ("towpath_peer_messages_in", "Messages from other brokers", &self.messages_in),
            ("towpath_peer_messages_out", "Messages to other brokers", &self.messages_out),
            (
                "towpath_peer_messages_dropped",
                "Messages between brokers that were dropped because of a full queue, a lost connection \
                 or too little memory; they are repeated",
                &self.dropped,
            ),
        ];
        for (name, help, family) in counters {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "towpath_peer_refused",
            "Connections between brokers that were refused, by reason",
            self.refused.clone(),
        );
    }
}
