//! Counters and gauges of one node, kept as handles beside what they count.

use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use towpath_protocol::ApiKey;

/// Requests by API.
#[derive(Debug, Clone)]
pub struct Requests {
    family: Family<ApiLabel, Counter>,
    /// The family's counters by API key, as far as they were needed: a request looks nothing up.
    by_key: Arc<[OnceLock<Counter>; API_KEYS_MAX]>,
}

/// More than there are API keys.
const API_KEYS_MAX: usize = 96;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

impl Default for Requests {
    fn default() -> Self {
        let by_key = Arc::new([const { OnceLock::new() }; API_KEYS_MAX]);
        Requests { family: Family::default(), by_key }
    }
}

impl Requests {
    /// One more request.
    pub(crate) fn count(&self, api_key: ApiKey) {
        let named = || self.family.get_or_create(&ApiLabel { api: api_key.name() }).clone();
        match usize::try_from(api_key.key()).ok().and_then(|key| self.by_key.get(key)) {
            Some(counter) => counter.get_or_init(named).inc(),
            None => named().inc(),
        };
    }
}

/// What a node counts. Names follow `towpath_*` with base units.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests by Kafka API.
    pub requests: Requests,
    /// Open Kafka connections.
    pub connections: Gauge,
    /// Kafka connections refused or closed for breaking a rule or a bound.
    pub connections_refused: Counter,
    /// Bytes read from Kafka connections.
    pub bytes_in: Counter,
    /// Bytes written to Kafka connections.
    pub bytes_out: Counter,
    /// Records appended on behalf of producers.
    pub records_appended: Counter,
    /// Bytes of record batches appended on behalf of producers.
    pub record_bytes_appended: Counter,
    /// Batches that producers repeated and that were recognised.
    pub batches_duplicate: Counter,
    /// Batches refused.
    pub batches_refused: Counter,
    /// Bytes of record batches handed to consumers.
    pub record_bytes_fetched: Counter,
}

impl Metrics {
    /// Registers every series.
    pub fn register(&self, registry: &mut Registry) {
        let m = self;
        registry.register("towpath_kafka_requests", "Requests by API", m.requests.family.clone());
        registry.register(
            "towpath_kafka_connections",
            "Open Kafka connections",
            m.connections.clone(),
        );
        registry.register(
            "towpath_kafka_connections_refused",
            "Kafka connections refused or closed for breaking a rule or a bound",
            m.connections_refused.clone(),
        );
        registry.register(
            "towpath_kafka_in_bytes",
            "Bytes read from Kafka connections",
            m.bytes_in.clone(),
        );
        registry.register(
            "towpath_kafka_out_bytes",
            "Bytes written to Kafka connections",
            m.bytes_out.clone(),
        );
        registry.register(
            "towpath_records_appended",
            "Records appended",
            m.records_appended.clone(),
        );
        registry.register(
            "towpath_record_bytes_appended",
            "Bytes of record batches appended",
            m.record_bytes_appended.clone(),
        );
        registry.register(
            "towpath_batches_duplicate",
            "Repeated batches that were recognised",
            m.batches_duplicate.clone(),
        );
        registry.register("towpath_batches_refused", "Batches refused", m.batches_refused.clone());
        registry.register(
            "towpath_record_bytes_fetched",
            "Bytes of record batches handed to consumers",
            m.record_bytes_fetched.clone(),
        );
    }
}
