//! `GET /groups/{group}/offsets`: where a group is.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use towpath_coordinator::groups::{FetchOffsets, FetchTopic, FetchedTopic, Reply, Request};
use towpath_driver::NotCoordinator;
use towpath_model::{Offset, PartitionIndex};
use towpath_server::Unavailable;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::parse_query;
use crate::captured::Captured;
use crate::refusals;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    topic: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct GroupOffsets {
    group: String,
    offsets: Vec<GroupOffset>,
}

#[derive(Serialize)]
struct GroupOffset {
    topic: String,
    partition: i32,
    offset: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    metadata: String,
    committed_at: i64,
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(group): Captured<String>,
    uri: Uri,
) -> Result<Json<GroupOffsets>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let asked = match &query.topic {
        None => None,
        Some(name) => {
            let topic = app.topic(name)?;
            let partitions = (0..topic.partitions.get()).filter_map(|p| i32::try_from(p).ok());
            Some(vec![ask_for(&topic, partitions.map(PartitionIndex).collect())])
        }
    };
    let topics = fetch(&app, &group, asked).await?;
    let mut offsets = Vec::new();
    for topic in &topics {
        let committed = topic.partitions.iter().filter_map(|partition| {
            let committed = partition.committed.as_ref()?;
            Some(GroupOffset {
                topic: topic.name.as_ref().to_owned(),
                partition: partition.partition.0,
                offset: committed.offset.0,
                metadata: committed.metadata.as_ref().to_owned(),
                committed_at: committed.committed_at.0,
            })
        });
        offsets.extend(committed);
    }
    Ok(Json(GroupOffsets { group, offsets }))
}

/// What a group has committed in one partition.
pub(crate) async fn committed_offset(
    app: &App,
    topic: &TopicView,
    partition: PartitionIndex,
    group: &str,
) -> Result<Option<Offset>, ApiError> {
    let topics = fetch(app, group, Some(vec![ask_for(topic, vec![partition])])).await?;
    let mut partitions = topics.iter().flat_map(|topic| &topic.partitions);
    Ok(partitions.find_map(|partition| partition.committed.as_ref()).map(|found| found.offset))
}

fn ask_for(topic: &TopicView, partitions: Vec<PartitionIndex>) -> FetchTopic {
    FetchTopic { name: topic.name.as_str().into(), id: topic.id, partitions }
}

async fn fetch(
    app: &App,
    group: &str,
    topics: Option<Vec<FetchTopic>>,
) -> Result<Vec<FetchedTopic>, ApiError> {
    let request = FetchOffsets { group: group.into(), topics, require_stable: false };
    match app.node.ask_group(group, Request::FetchOffsets(request)).await {
        Ok(Reply::FetchOffsets(topics)) => Ok(topics),
        Ok(_) => Err(ApiError::new(Code::Internal, "the group gave an answer out of turn")),
        // No group has ever committed anything.
        Err(Unavailable::NotCoordinator(NotCoordinator::NoTopic)) => Ok(Vec::new()),
        Err(unavailable) => Err(refusals::of_unavailable(unavailable)),
    }
}
