//! `GET /topics/{topic}`: what a topic promises, and what is in it. Each partition's leader tells of it; a
//! partition whose leader does not answer is missing.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_driver::DamagedRange;
use towpath_model::properties::{Durability, TopicConfig};
use towpath_model::{BrokerId, PartitionIndex, TopicId, TopicPartition};

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::forward::{ask_each, is_hop};

#[derive(Serialize)]
pub(crate) struct ShownTopic {
    name: String,
    /// The promise of an acknowledged message, in words.
    durability: &'static str,
    retention_ms: Option<i64>,
    retention_bytes: Option<u64>,
    max_message_bytes: u64,
    partitions: Vec<ShownPartition>,
    /// What was configured for this topic; everything else has its default.
    configs: BTreeMap<String, String>,
}

/// What another broker tells of the partitions that it leads.
#[derive(Deserialize)]
struct ShownElsewhere {
    partitions: Vec<ShownPartition>,
}

#[derive(Serialize, Deserialize)]
struct ShownPartition {
    partition: i32,
    log_start_offset: i64,
    high_watermark: i64,
    size_bytes: u64,
    /// Messages that Kafka producers and HTTP appended since this broker serves the partition.
    records_in: u64,
    /// Those with `acks=0`: nobody was told whether they were written.
    records_acks_none: u64,
    /// Those with `acks=1`: lost with the leader, if nobody else has them yet.
    records_acks_leader: u64,
    /// Where the topic is compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compaction: Option<ShownCompaction>,
    /// Acknowledged messages that cannot be read any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<DamagedMessages>,
}

#[derive(Serialize, Deserialize)]
struct ShownCompaction {
    /// Up to where no key has two messages.
    clean_offset: i64,
    /// Part that waits for compaction, 0 to 1.
    dirty_ratio: f64,
    /// When it was last compacted since the broker started.
    last_run_ms: Option<i64>,
    /// Why it is not compacted any more.
    stopped: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct DamagedMessages {
    first_offset: i64,
    end_offset: i64,
    cause: String,
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<ShownTopic>, ApiError> {
    refuse_query(&uri)?;
    let shown = if is_hop(&headers) { here(&app, &name) } else { show(&app, &name).await };
    shown.map(Json)
}

/// The topic as it is now.
pub(crate) async fn show(app: &App, name: &str) -> Result<ShownTopic, ApiError> {
    let mut shown = here(app, name)?;
    let leaders: BTreeSet<BrokerId> = {
        let image = app.node.driver().image();
        let states = image.topic(name).map_or(&[][..], |topic| &topic.partitions);
        states.iter().filter_map(|state| state.leader).filter(|id| *id != image.me()).collect()
    };
    // What is a topic's name stands in a path as it is.
    let path = format!("/topics/{name}");
    let asked = leaders.into_iter().map(|leader| (leader, Bytes::new()));
    for (leader, told) in ask_each::<ShownElsewhere>(app, &Method::GET, &path, asked).await {
        match told {
            Ok(told) => shown.partitions.extend(told.partitions),
            Err(error) => {
                tracing::debug!(%leader, error = %error.message, "its partitions are not shown");
            }
        }
    }
    shown.partitions.sort_by_key(|shown| shown.partition);
    shown.partitions.dedup_by_key(|shown| shown.partition);
    Ok(shown)
}

/// The topic with the partitions that are led here.
fn here(app: &App, name: &str) -> Result<ShownTopic, ApiError> {
    let topic = app.topic(name)?;
    let image = app.node.driver().image();
    let overrides = image.topic(name).map(|topic| topic.overrides.clone()).unwrap_or_default();
    drop(image);
    let indexes = (0..topic.partitions.get()).filter_map(|p| i32::try_from(p).ok());
    let partitions = indexes.filter_map(|index| partition(app, topic.id, index)).collect();
    let TopicConfig { retention_ms, retention_bytes, max_message_bytes, .. } = topic.config;
    Ok(ShownTopic {
        name: topic.name.as_str().to_owned(),
        durability: promise(topic.config.durability),
        retention_ms,
        retention_bytes,
        max_message_bytes: max_message_bytes.into(),
        partitions,
        configs: overrides.into_iter().collect(),
    })
}

impl DamagedMessages {
    fn of(range: &DamagedRange) -> DamagedMessages {
        DamagedMessages {
            first_offset: range.offsets.start.0,
            end_offset: range.offsets.end.0,
            cause: range.cause.to_string(),
        }
    }
}

fn promise(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "an acknowledged message is on disk",
        Durability::Relaxed => {
            "an acknowledged message is in memory and reaches the disk a little later: \
             a power cut loses the newest ones"
        }
    }
}

fn partition(app: &App, topic: TopicId, index: i32) -> Option<ShownPartition> {
    let id = TopicPartition { topic, partition: PartitionIndex(index) };
    let position = app.node.driver().position(id, None).ok()?;
    let traffic = app.node.driver().traffic(id).unwrap_or_default();
    Some(ShownPartition {
        partition: index,
        log_start_offset: position.log_start_offset.0,
        high_watermark: position.high_watermark.0,
        size_bytes: app.node.driver().size_bytes(id).unwrap_or_default(),
        records_in: traffic.records_in,
        records_acks_none: traffic.records_acks_none,
        records_acks_leader: traffic.records_acks_leader,
        compaction: app.node.driver().compaction_of(id).map(|compaction| ShownCompaction {
            clean_offset: compaction.state.clean.0,
            dirty_ratio: compaction.state.dirty_ratio(),
            last_run_ms: compaction.last_run.map(|at| at.0),
            stopped: compaction.stopped,
        }),
        damaged: app.node.driver().damage(id).iter().map(DamagedMessages::of).collect(),
    })
}
