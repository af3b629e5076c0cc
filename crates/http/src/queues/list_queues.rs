//! `GET /queues`: the queues by name, page by page.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;
use crate::limits::LISTED_QUEUES_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Queues {
    queues: Vec<ListedQueue>,
    /// The `after` of the next page; null at the end.
    next: Option<String>,
}

#[derive(Serialize)]
struct ListedQueue {
    name: String,
    fifo: bool,
}

pub(super) async fn handle(State(app): State<App>, uri: Uri) -> Result<Json<Queues>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let limit = query.limit.unwrap_or(LISTED_QUEUES_MAX);
    if limit == 0 || LISTED_QUEUES_MAX < limit {
        let message = format!("limit is 1 to {LISTED_QUEUES_MAX}");
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    let after = query.after.unwrap_or_default();
    let image = app.node.driver().image();
    let listed = image.topics_from(&after).filter(|topic| topic.name.as_str() != after);
    let mut listed = listed.filter(|topic| topic.is_queue()).peekable();
    let mut queues = Vec::new();
    while queues.len() < limit {
        let Some(topic) = listed.next() else { break };
        let fifo = image.effective_config(topic).queue.fifo;
        queues.push(ListedQueue { name: topic.name.as_str().to_owned(), fifo });
    }
    let is_more = listed.peek().is_some();
    let next = queues.last().filter(|_| is_more).map(|queue| queue.name.clone());
    Ok(Json(Queues { queues, next }))
}
