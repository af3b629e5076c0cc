//! `DELETE /queues/{queue}`: delete a queue with all of its messages; with `unsettled=move`, once they lie in its
//! dead-letter queue.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::parse_query;
use crate::captured::Captured;
use crate::{delete_topic, tasks};

use super::subscriptions::names_of;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    #[serde(default)]
    unsettled: Unsettled,
    by: Option<String>,
}

/// What becomes of messages that nobody has deleted.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unsettled {
    #[default]
    Drop,
    Move,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query: Query = parse_query(&uri)?;
    let queue = app.queue(&name)?;
    match query.unsettled {
        Unsettled::Drop => Ok(delete_topic::delete(&app, queue.id).await?.into_response()),
        Unsettled::Move => {
            refuse_subscriptions(&app, &queue).await?;
            let task = tasks::retire(&app, &queue, query.by).await?;
            Ok((StatusCode::ACCEPTED, Json(task)).into_response())
        }
    }
}

/// What only a subscription has not worked would be gone with the queue, and its dead-letter queue could not tell it from
/// what the queue's own receivers have not.
async fn refuse_subscriptions(app: &App, queue: &TopicView) -> Result<(), ApiError> {
    let names = names_of(app, queue).await?;
    if names.is_empty() {
        return Ok(());
    }
    let message = format!(
        "queue {:?} has subscriptions ({}), and what they have not worked would be lost",
        queue.name.as_str(),
        names.join(", ")
    );
    Err(ApiError::new(Code::InvalidRequest, message).with_help(
        "let them work what is there and delete them (DELETE /queues/{queue}/subscriptions/{name}), or delete the \
         queue with unsettled=drop",
    ))
}
