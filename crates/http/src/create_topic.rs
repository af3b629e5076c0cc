//! `POST /topics`: create a topic.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use towpath_metadata::NewTopic;
use towpath_server::random_uuid;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_internal};
use crate::body::{parse_json, read_body};
use crate::refusals;
use crate::show_topic::{ShownTopic, show};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    name: String,
    #[serde(default)]
    partitions: Option<i32>,
    #[serde(default)]
    configs: BTreeMap<String, Value>,
}

/// A value of a property; numbers and truth values need no quotes.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a value is a string, a number or a boolean")]
pub(crate) enum Value {
    Text(String),
    Boolean(bool),
    Number(serde_json::Number),
}

impl Value {
    /// As configurations have it.
    pub(crate) fn into_text(self) -> String {
        match self {
            Value::Text(text) => text,
            Value::Boolean(boolean) => boolean.to_string(),
            Value::Number(number) => number.to_string(),
        }
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<ShownTopic>), ApiError> {
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let wanted: Wanted = parse_json(&bytes)?;
    refuse_internal(&wanted.name)?;
    let configs = wanted.configs.into_iter().map(|(name, value)| (name, Some(value.into_text())));
    let topic = NewTopic {
        partitions: wanted.partitions.unwrap_or(-1),
        configs: configs.collect(),
        ..NewTopic::named(&wanted.name, random_uuid())
    };
    create(&app, topic).await?;
    Ok((StatusCode::CREATED, Json(show(&app, &wanted.name).await?)))
}

/// Creates a topic.
pub(crate) async fn create(app: &App, topic: NewTopic) -> Result<(), ApiError> {
    let created = app.node.create_topics(vec![topic]).await.map_err(refusals::of_unavailable)?;
    match created.into_iter().next() {
        Some((_, Ok(_))) => Ok(()),
        Some((_, Err(refusal))) => Err(refusals::of_metadata(&refusal)),
        None => Err(ApiError::new(Code::Internal, "creating the topic was not answered")),
    }
}
