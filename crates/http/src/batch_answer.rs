//! Answers about several things at once: a result for each, in their order, and the first failure once
//! more, so that nobody overlooks it.

use axum::body::to_bytes;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use towpath_model::BrokerId;

use crate::answer::Json;
use crate::api_error::{ApiError, Code, Failed};
use crate::app::App;
use crate::body::parse_json;
use crate::forward::{NotAsked, ask};
use crate::limits::BODY_BYTES_MAX;

/// What became of one of them.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<T> {
    Done(T),
    Failed { error: ApiError },
}

#[derive(Serialize)]
struct Many<T> {
    results: Vec<Entry<T>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ApiError>,
}

/// If one failed, the whole request has the status of the first failure, for callers that look at nothing
/// else.
pub(crate) fn answer_many<T: Serialize>(results: Vec<Result<T, ApiError>>) -> Response {
    let error = results.iter().find_map(|result| result.as_ref().err()).cloned();
    let status = error.as_ref().map(|error| error.code.status());
    let entry = |result| match result {
        Ok(done) => Entry::Done(done),
        Err(error) => Entry::Failed { error },
    };
    let body = Json(Many { results: results.into_iter().map(entry).collect(), error });
    match status {
        Some(status) => (status, body).into_response(),
        None => body.into_response(),
    }
}

/// What another broker says became of one of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum ToldEntry<T> {
    Failed { error: Failed },
    Done(T),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Told<T> {
    Results { results: Vec<ToldEntry<T>> },
    Failed { error: Failed },
}

/// What another broker has made of several things.
pub(crate) enum Asked<T> {
    /// Nothing: somebody else may be asked.
    NotTaken,
    /// It may have done it or not.
    InDoubt(ApiError),
    /// It has answered.
    Answered(Result<Vec<Result<T, ApiError>>, ApiError>),
}

/// Passes several things on to the broker that they concern.
pub(crate) async fn ask_many<T: DeserializeOwned>(
    app: &App,
    broker: BrokerId,
    path: &str,
    body: Bytes,
) -> Asked<T> {
    let response = match ask(app, broker, &Method::POST, path, body).await {
        Ok(response) => response,
        Err(NotAsked::NotSent(_)) => return Asked::NotTaken,
        Err(NotAsked::NotAnswered(error)) => return Asked::InDoubt(error),
    };
    if response.status() == StatusCode::MISDIRECTED_REQUEST {
        return Asked::NotTaken;
    }
    let Ok(bytes) = to_bytes(response.into_body(), BODY_BYTES_MAX).await else {
        let message = format!("the answer of broker {broker} broke off");
        return Asked::InDoubt(ApiError::new(Code::NotCommittedInTime, message));
    };
    Asked::Answered(read(&bytes))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<Result<T, ApiError>>, ApiError> {
    let into_result = |entry| match entry {
        ToldEntry::Failed { error } => Err(error.into_error()),
        ToldEntry::Done(done) => Ok(done),
    };
    match parse_json::<Told<T>>(bytes)? {
        Told::Results { results } => Ok(results.into_iter().map(into_result).collect()),
        Told::Failed { error } => Err(error.into_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PublishedMessage;

    #[test]
    fn answers_are_read_entry_by_entry() {
        let text = r#"{"results":[{"partition":1,"offset":2,"timestamp":3},
            {"error":{"code":"DISK_FULL","message":"m","help":"h"}}],
            "error":{"code":"DISK_FULL","message":"m","help":"h"}}"#;
        let results = read::<PublishedMessage>(text.as_bytes()).unwrap();
        assert_eq!(results[0].as_ref().unwrap().offset, 2);
        assert_eq!(results[1].as_ref().unwrap_err().code, Code::DiskFull);
        let text = r#"{"error":{"code":"TOPIC_NOT_FOUND","message":"m"}}"#;
        let refused = read::<PublishedMessage>(text.as_bytes()).unwrap_err();
        assert_eq!(refused.code, Code::TopicNotFound);
    }
}
