//! `GET /topics`: the topics by name, page by page. The broker's own are not among them.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, partition_count};
use crate::body::parse_query;
use crate::limits::LISTED_TOPICS_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(crate) struct Topics {
    topics: Vec<ListedTopic>,
    /// The `after` of the next page; null at the end.
    next: Option<String>,
}

#[derive(Serialize)]
struct ListedTopic {
    name: String,
    partitions: u32,
}

pub(crate) async fn handle(State(app): State<App>, uri: Uri) -> Result<Json<Topics>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let limit = query.limit.unwrap_or(LISTED_TOPICS_MAX);
    if limit == 0 || LISTED_TOPICS_MAX < limit {
        let message = format!("limit is 1 to {LISTED_TOPICS_MAX}");
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    let after = query.after.unwrap_or_default();
    let image = app.node.driver().image();
    let listed = image.topics_from(&after).filter(|topic| topic.name.as_str() != after);
    let mut listed = listed.filter(|topic| !topic.internal).peekable();
    let mut topics = Vec::new();
    while topics.len() < limit {
        let Some(topic) = listed.next() else { break };
        topics.push(ListedTopic {
            name: topic.name.as_str().to_owned(),
            partitions: partition_count(topic).get(),
        });
    }
    let is_more = listed.peek().is_some();
    let next = topics.last().filter(|_| is_more).map(|topic| topic.name.clone());
    Ok(Json(Topics { topics, next }))
}
