//! Counters and gauges of one node, kept as handles beside what they count.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use towpath_protocol::ApiKey;

use crate::peer::PeerMetrics;

/// Requests by API: how many, how many at the moment, how long they take.
#[derive(Debug)]
pub struct Requests {
    begun: Family<ApiLabel, Counter>,
    under_way: Family<ApiLabel, Gauge>,
    seconds: Family<ApiLabel, Histogram, fn() -> Histogram>,
    /// The handles of each API at its number, made at its first request: a lookup by label costs
    /// more than everything that is counted.
    by_key: [OnceLock<Arc<OfApi>>; API_KEYS_MAX],
}

/// Kafka's API numbers lie below this.
const API_KEYS_MAX: usize = 128;

#[derive(Debug)]
struct OfApi {
    begun: Counter,
    under_way: Gauge,
    seconds: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

/// 0.1 ms to 13 s; a fetch or a join that waits belongs beyond.
fn request_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.6, 13))
}

impl Default for Requests {
    fn default() -> Requests {
        let requests = Requests {
            begun: Family::default(),
            under_way: Family::default(),
            seconds: Family::new_with_constructor(request_seconds as fn() -> Histogram),
            by_key: [const { OnceLock::new() }; API_KEYS_MAX],
        };
        // Those that every dashboard asks for are there from the start, at zero.
        for api_key in [ApiKey::Produce, ApiKey::Fetch] {
            requests.handles(api_key);
        }
        requests
    }
}

impl Requests {
    /// One more request; it has ended when the result is dropped.
    pub(crate) fn begin(&self, api_key: ApiKey) -> UnderWay {
        let api = Arc::clone(self.handles(api_key));
        api.begun.inc();
        api.under_way.inc();
        UnderWay { api, since: Instant::now() }
    }

    fn handles(&self, api_key: ApiKey) -> &Arc<OfApi> {
        let at = usize::try_from(api_key.key()).unwrap_or_default().min(API_KEYS_MAX - 1);
        self.by_key[at].get_or_init(|| Arc::new(self.of(api_key)))
    }

    fn of(&self, api_key: ApiKey) -> OfApi {
        let label = ApiLabel { api: api_key.name() };
        OfApi {
            begun: self.begun.get_or_create(&label).clone(),
            under_way: self.under_way.get_or_create(&label).clone(),
            seconds: self.seconds.get_or_create(&label).clone(),
        }
    }
}

/// A request that was begun.
#[derive(Debug)]
pub(crate) struct UnderWay {
    api: Arc<OfApi>,
    since: Instant,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.api.under_way.dec();
        self.api.seconds.observe(self.since.elapsed().as_secs_f64());
    }
}

/// How long sync rounds take, by data directory.
#[derive(Debug, Clone)]
pub struct SyncTimes(Family<DirectoryLabel, Histogram>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectoryLabel {
    directory: String,
}

impl Default for SyncTimes {
    fn default() -> Self {
        // 0.1 ms to 13 s.
        let new = || Histogram::new(exponential_buckets(0.0001, 2.0, 18));
        SyncTimes(Family::new_with_constructor(new))
    }
}

impl SyncTimes {
    /// The times of one directory.
    pub(crate) fn of(&self, directory: &Path) -> Histogram {
        let directory = directory.display().to_string();
        self.0.get_or_create(&DirectoryLabel { directory }).clone()
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
    /// Log lines about strangers that were left out.
    pub complaints_suppressed: Counter,
    /// How long it takes to make a round of appends durable.
    pub sync_seconds: SyncTimes,
    /// What goes between brokers.
    pub peers: PeerMetrics,
}

impl Metrics {
    /// Registers every series.
    pub fn register(&self, registry: &mut Registry) {
        let m = self;
        let requests = &m.requests;
        registry.register("towpath_kafka_requests", "Requests by API", requests.begun.clone());
        registry.register(
            "towpath_kafka_requests_under_way",
            "Requests that have begun and are not answered, by API; some wait on purpose",
            requests.under_way.clone(),
        );
        registry.register(
            "towpath_kafka_request_seconds",
            "Time from a request's arrival until its answer is ready, by API; Produce: until the acknowledgement",
            requests.seconds.clone(),
        );
        registry.register(
            "towpath_complaints_suppressed",
            "Log lines about misbehaving clients that were left out because there were too many",
            m.complaints_suppressed.clone(),
        );
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
        registry.register(
            "towpath_sync_seconds",
            "Time to make a round of appends durable, by data directory",
            m.sync_seconds.0.clone(),
        );
        m.peers.register(registry);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_request_is_under_way_until_it_ends() {
        assert!(ApiKey::ALL.iter().all(|key| (key.key() as usize) < API_KEYS_MAX));
        let metrics = Metrics::default();
        let shown = || {
            let mut registry = Registry::default();
            metrics.register(&mut registry);
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let first = metrics.requests.begin(ApiKey::Fetch);
        let second = metrics.requests.begin(ApiKey::Fetch);
        drop(second);
        let text = shown();
        assert!(text.contains("towpath_kafka_requests_total{api=\"Fetch\"} 2"), "{text}");
        assert!(text.contains("towpath_kafka_requests_under_way{api=\"Fetch\"} 1"), "{text}");
        assert!(text.contains("towpath_kafka_request_seconds_count{api=\"Fetch\"} 1"), "{text}");
        drop(first);
        assert!(shown().contains("towpath_kafka_requests_under_way{api=\"Fetch\"} 0"));
    }
}
