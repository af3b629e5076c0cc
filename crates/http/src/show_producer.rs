//! `GET /topics/{topic}/partitions/{partition}/producers/{producer}`: what a partition remembers of a Kafka
//! producer: its last batches. Whoever does not know what became of one finds it there, or does not.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use towpath_model::{ProducerId, TopicPartition};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;

/// A producer as a partition remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownProducer {
    /// Null: it has never published here, or is forgotten.
    pub(crate) epoch: Option<i16>,
    /// The newest ones, oldest first.
    pub(crate) batches: Vec<RememberedBatch>,
    /// What lies below it is committed.
    pub(crate) high_watermark: i64,
}

/// One batch of a producer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedBatch {
    pub(crate) base_sequence: i32,
    pub(crate) base_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) timestamp: i64,
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured((topic, partition, producer)): Captured<(String, String, String)>,
    uri: Uri,
) -> Result<Json<ShownProducer>, ApiError> {
    refuse_query(&uri)?;
    let Ok(producer) = producer.parse::<i64>() else {
        let message = format!("{producer:?} is no number of a Kafka producer");
        return Err(ApiError::new(Code::InvalidParameter, message));
    };
    let id = app.topic(&topic)?.partition_in_path(&partition)?;
    look(&app, id, ProducerId(producer)).map(Json)
}

/// What this broker, which leads the partition, remembers.
pub(crate) fn look(
    app: &App,
    id: TopicPartition,
    producer: ProducerId,
) -> Result<ShownProducer, ApiError> {
    let found = app.node.driver().with_partition(id, |partition| {
        let producers = partition.producers();
        let batch = |batch: &towpath_replication::RememberedBatch| RememberedBatch {
            base_sequence: batch.base_sequence.0,
            base_offset: batch.base_offset.0,
            end_offset: batch.end_offset().0,
            timestamp: batch.timestamp.0,
        };
        ShownProducer {
            epoch: producers.get(producer).map(|known| known.epoch.0),
            batches: producers.batches(producer).iter().map(batch).collect(),
            high_watermark: partition.high_watermark().0,
        }
    });
    found.ok_or_else(|| {
        ApiError::new(Code::Unavailable, "the partition is not served here").with_help("try again")
    })
}
