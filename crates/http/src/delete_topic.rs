//! `DELETE /topics/{topic}`: delete a topic with all of its records and committed offsets.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use towpath_metadata::{Reply, Request, TopicRef};
use towpath_model::TopicId;

use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_internal, refuse_query};
use crate::captured::Captured;
use crate::refusals;

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    refuse_query(&uri)?;
    refuse_internal(&name)?;
    delete(&app, app.topic(&name)?.id).await
}

/// Deletes a topic by id: should somebody delete and create it meanwhile, the new topic is not meant.
pub(crate) async fn delete(app: &App, id: TopicId) -> Result<StatusCode, ApiError> {
    let request = Request::DeleteTopics(vec![TopicRef { name: None, id: Some(id) }]);
    match app.node.ask_metadata(request).await.map_err(refusals::of_unavailable)? {
        Reply::DeletedTopics(deleted) => match deleted.into_iter().next() {
            Some((_, Ok(_))) => Ok(StatusCode::NO_CONTENT),
            Some((_, Err(refusal))) => Err(refusals::of_metadata(&refusal)),
            None => Err(ApiError::new(Code::Internal, "deleting the topic was not answered")),
        },
        _ => Err(ApiError::new(Code::Internal, "the metadata gave an answer out of turn")),
    }
}
