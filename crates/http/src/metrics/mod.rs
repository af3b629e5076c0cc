//! `GET /metrics`: what the node counts, what HTTP counts, and what can be read off at the moment,
//! in OpenMetrics text, which Prometheus reads; under our names and under those of kafka_exporter.
//!
//! What is counted lives in a registry. What has many labels is read off and written at once:
//! topics, partitions and groups are each bounded, and what is beyond a bound is counted.

mod exposition;
mod groups;
mod kafka_exporter;
mod queues;
mod replication;
mod survey;
mod topics;

use std::sync::atomic::AtomicU64;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use towpath_driver::{CompactionTotals, ScrubTotals};
use towpath_model::Timestamp;

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;
use crate::process;
use exposition::Exposition;
use survey::Survey;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

/// What HTTP counts.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    requests: Family<RequestLabels, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    /// From a publish's last byte to its acknowledgement.
    pub(crate) publish_seconds: Histogram,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        HttpMetrics {
            requests: Family::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            // 0.25 ms to 8 s.
            publish_seconds: Histogram::new(exponential_buckets(0.00025, 2.0, 16)),
        }
    }
}

/// Methods beyond these are one label: strangers choose them.
fn label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

impl HttpMetrics {
    pub(crate) fn count(&self, method: &Method, route: &str, status: StatusCode) {
        let labels = RequestLabels {
            method: label(method),
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    fn register(&self, registry: &mut Registry) {
        let m = self;
        registry.register("towpath_http_requests", "HTTP requests", m.requests.clone());
        registry.register(
            "towpath_http_connections",
            "Open HTTP connections",
            m.connections.clone(),
        );
        registry.register(
            "towpath_http_connections_refused",
            "HTTP connections refused or closed for breaking a rule or a bound",
            m.connections_refused.clone(),
        );
        registry.register(
            "towpath_http_publish_seconds",
            "Time from a publish over HTTP to its acknowledgement",
            m.publish_seconds.clone(),
        );
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    names: Option<Names>,
}

/// Whose names the samples have; without a choice: both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Names {
    Towpath,
    KafkaExporter,
}

/// `GET /metrics`.
pub(crate) async fn handle(
    State(app): State<App>,
    uri: Uri,
) -> Result<([(HeaderName, HeaderValue); 1], String), ApiError> {
    let query: Query = parse_query(&uri)?;
    let failed = |_| ApiError::new(Code::Internal, "the metrics cannot be written");
    let written = tokio::task::spawn_blocking(move || exposition(&app, query.names)).await;
    let body = written.map_err(failed)?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body))
}

fn exposition(app: &App, names: Option<Names>) -> String {
    let mut body = String::new();
    if names != Some(Names::KafkaExporter) {
        let mut registry = Registry::default();
        app.node.metrics().register(&mut registry);
        app.metrics.register(&mut registry);
        register_node(app, &mut registry);
        text::encode(&mut body, &registry).expect("writing to a string cannot fail");
    }
    let survey = Survey::take(&app.node);
    let mut out = Exposition::after(body);
    if names != Some(Names::KafkaExporter) {
        replication::write(&mut out, &app.node.driver().replication_report());
        topics::write(&mut out, &survey);
        queues::write(&mut out, &survey);
        groups::write(&mut out, &survey);
    }
    if names != Some(Names::Towpath) {
        kafka_exporter::write(&mut out, &survey);
    }
    out.finish()
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge: Gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}

fn count(value: usize) -> u64 {
    value as u64
}

fn register_node(app: &App, registry: &mut Registry) {
    let driver = app.node.driver();
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("towpath_build", "The running program", build);
    let image = driver.image();
    let (topics, partitions) = (image.topic_count(), image.partition_count());
    drop(image);
    gauge(registry, "towpath_topics", "Topics, the broker's own included", count(topics));
    gauge(registry, "towpath_partitions", "Partitions of all topics", count(partitions));
    let ready = u64::from(app.readiness.is_ready() && !driver.is_failed());
    gauge(registry, "towpath_ready", "1 when work is welcome", ready);
    let failed = driver.volume_statuses().iter().any(|status| status.failure.is_some());
    let help = "1 when a data directory has failed";
    gauge(registry, "towpath_storage_failed", help, u64::from(failed));
    register_disks(app, registry);
    let unsynced = u64::from(driver.has_unsynced());
    let help = "1 when records wait for the disk at this moment";
    gauge(registry, "towpath_sync_pending", help, unsynced);
    register_compaction(&driver.compaction_totals(), registry);
    register_scrub(&driver.scrubbed_so_far(), registry);
    let damaged: usize = driver.damaged_partitions().iter().map(|found| found.ranges.len()).sum();
    let help = "Ranges of acknowledged records that cannot be read any more";
    gauge(registry, "towpath_damaged_ranges", help, count(damaged));
    let help = "Partitions that this broker should serve and cannot: their files cannot be read";
    let offline = driver.offline_partitions().len();
    gauge(registry, "towpath_offline_partitions", help, count(offline));
    let help = "Start of the process, in seconds since 1970";
    gauge(registry, "process_start_time_seconds", help, app.started_at.as_secs());
    if let Some(bytes) = process::resident_bytes() {
        gauge(registry, "process_resident_memory_bytes", "Resident memory in bytes", bytes);
    }
    if let Some(seconds) = process::cpu_seconds() {
        let counter: Counter<f64, AtomicU64> = Counter::default();
        counter.inc_by(seconds);
        let help = "CPU time of the process in seconds, user and system";
        registry.register("process_cpu_seconds", help, counter);
    }
    if let Some(open) = process::open_files() {
        gauge(registry, "process_open_fds", "Open file descriptors", open);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectoryLabel {
    directory: String,
}

/// What is known of the data directories; no disk is asked for it.
fn register_disks(app: &App, registry: &mut Registry) {
    let driver = app.node.driver();
    let family = Family::<DirectoryLabel, Gauge>::default;
    let (free, total, room) = (family(), family(), family());
    let (failed, stalled, partitions) = (family(), family(), family());
    for status in driver.volume_statuses() {
        let label = DirectoryLabel { directory: status.path.display().to_string() };
        let set = |family: &Family<DirectoryLabel, Gauge>, value: u64| {
            family.get_or_create(&label).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&free, status.space.free_bytes);
        set(&total, status.space.total_bytes);
        set(&room, status.room as u64);
        set(&failed, u64::from(status.failure.is_some()));
        set(&stalled, u64::from(status.stalled_for.is_some()));
        set(&partitions, count(status.partitions));
    }
    let mut register = |name: &str, help: &str, family: Family<DirectoryLabel, Gauge>| {
        registry.register(name, help, family);
    };
    register("towpath_disk_free_bytes", "Bytes free in a data directory's file system", free);
    register("towpath_disk_size_bytes", "Bytes in all in a data directory's file system", total);
    let help =
        "0 with enough room, 1 below the low watermark, 2 below the high one: producing is refused";
    register("towpath_disk_watermark", help, room);
    register(
        "towpath_disk_failed",
        "1 when a data directory has failed: it takes no writes",
        failed,
    );
    let help =
        "1 while a data directory's disk does not answer: nothing has come back from it for 5 s";
    register("towpath_disk_stalled", help, stalled);
    register("towpath_disk_partitions", "Partitions that are led in a data directory", partitions);
    let missing = count(driver.missing_volumes().len());
    gauge(registry, "towpath_disks_missing", "Data directories that could not be opened", missing);
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

/// When something last happened, in the unit that Prometheus uses.
fn last_time(registry: &mut Registry, name: &str, help: &str, at: Option<Timestamp>) {
    if let Some(at) = at {
        gauge(registry, name, help, u64::try_from(at.0 / 1000).unwrap_or(0));
    }
}

fn register_scrub(totals: &ScrubTotals, registry: &mut Registry) {
    let mut counter = |name: &str, help: &str, value: u64| counter(registry, name, help, value);
    let help = "Scrubs of a whole data directory that ended";
    counter("towpath_scrub_passes", help, totals.passes);
    counter("towpath_scrub_segments", "Segments that scrubs have read", totals.segments);
    counter("towpath_scrub_bytes", "Bytes that scrubs have read", totals.bytes);
    let help = "Ranges of damaged records that scrubs have found";
    counter("towpath_scrub_damaged_ranges", help, totals.damaged_ranges);
    let help = "Wrong indexes that scrubs have replaced";
    counter("towpath_scrub_rebuilt_indexes", help, totals.rebuilt_indexes);
    let help = "Segments that the disk could not read when they were scrubbed";
    counter("towpath_scrub_unreadable_segments", help, totals.unreadable_segments);
    let help = "When a scrub of a whole data directory last ended, in seconds since 1970";
    last_time(registry, "towpath_scrub_last_pass_time_seconds", help, totals.last_pass);
}

fn register_compaction(totals: &CompactionTotals, registry: &mut Registry) {
    let mut counter = |name: &str, help: &str, value: u64| counter(registry, name, help, value);
    counter("towpath_compaction_runs", "Compactions of a partition that ended", totals.runs);
    let help = "Bytes that compaction has read and written";
    counter("towpath_compaction_io_bytes", help, totals.io_bytes);
    let help = "Bytes that compaction has freed";
    counter("towpath_compaction_removed_bytes", help, totals.removed_bytes);
    let help = "Records that compaction has removed";
    counter("towpath_compaction_removed_records", help, totals.removed_records);
    let ratio: Gauge<f64, AtomicU64> = Gauge::default();
    ratio.set(totals.dirty_ratio_max);
    let help = "The largest part of a partition that waits for compaction, 0 to 1";
    registry.register("towpath_compaction_dirty_ratio_max", help, ratio);
    let help = "Partitions that are not compacted any more because of damage";
    gauge(registry, "towpath_compaction_stopped_partitions", help, totals.stopped_partitions);
    let help = "When a compaction last ended, in seconds since 1970";
    last_time(registry, "towpath_compaction_last_run_time_seconds", help, totals.last_run);
}
