//! `GET /cluster/sizes`: how many bytes one replica of each partition has. Whoever leads a partition
//! says so; of partitions whose leader does not answer nothing is said.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_model::{PartitionIndex, TopicPartition};

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::forward::{ask_each, is_hop, others_there};

#[derive(Serialize, Deserialize)]
pub(crate) struct Sizes {
    partitions: Vec<Sized>,
}

#[derive(Serialize, Deserialize)]
struct Sized {
    topic: String,
    partition: i32,
    bytes: u64,
}

pub(crate) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Sizes>, ApiError> {
    refuse_query(&uri)?;
    Ok(Json(if is_hop(&headers) { here(&app) } else { everywhere(&app).await }))
}

fn here(app: &App) -> Sizes {
    let driver = app.node.driver();
    let led: Vec<(String, TopicPartition)> = {
        let image = driver.image();
        let led = image.partitions().filter(|(.., state)| state.leader == Some(image.me()));
        led.map(|(topic, id, _)| (topic.name.to_string(), id)).collect()
    };
    let sized = led.into_iter().filter_map(|(topic, id)| {
        let bytes = driver.size_bytes(id)?;
        Some(Sized { topic, partition: id.partition.0, bytes })
    });
    Sizes { partitions: sized.collect() }
}

async fn everywhere(app: &App) -> Sizes {
    let mut sizes = here(app);
    let others = others_there(app).into_iter().map(|broker| (broker, Bytes::new()));
    for (broker, told) in ask_each::<Sizes>(app, &Method::GET, "/cluster/sizes", others).await {
        match told {
            Ok(told) => sizes.partitions.extend(told.partitions),
            Err(error) => {
                tracing::debug!(%broker, error = %error.message, "its sizes are not known");
            }
        }
    }
    sizes.partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    sizes
}

/// By partition, as far as they are known.
pub(crate) async fn by_partition(app: &App) -> BTreeMap<TopicPartition, u64> {
    let sizes = everywhere(app).await.partitions;
    let image = app.node.driver().image();
    let known = sizes.into_iter().filter_map(|sized| {
        let topic = image.topic(&sized.topic)?.id;
        Some((TopicPartition { topic, partition: PartitionIndex(sized.partition) }, sized.bytes))
    });
    known.collect()
}
