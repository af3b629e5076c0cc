//! `POST /queues`: create a queue, which is a topic that is worked as one.

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
use crate::create_topic::{self, Value};

use super::settings::{ENABLE, ShownQueue, property_of};
use super::show_queue::show;

/// A queue begins with a partition per broker, and not more than so many.
const PARTITIONS_MAX: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    name: String,
    #[serde(default)]
    partitions: Option<i32>,
    #[serde(default)]
    settings: BTreeMap<String, Value>,
    /// Of its topic.
    #[serde(default)]
    configs: BTreeMap<String, Value>,
}

pub(super) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<ShownQueue>), ApiError> {
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let wanted: Wanted = parse_json(&bytes)?;
    let mut configs = BTreeMap::new();
    for (name, value) in wanted.configs {
        configs.insert(name, value.into_text());
    }
    for (name, value) in wanted.settings {
        configs.insert(property_of(&name)?.to_owned(), value.into_text());
    }
    create(&app, &wanted.name, wanted.partitions, configs).await?;
    Ok((StatusCode::CREATED, Json(show(&app, &wanted.name)?)))
}

/// Creates a queue; `configs` are properties of its topic.
pub(crate) async fn create(
    app: &App,
    name: &str,
    partitions: Option<i32>,
    mut configs: BTreeMap<String, String>,
) -> Result<(), ApiError> {
    refuse_internal(name)?;
    configs.insert(ENABLE.to_owned(), "true".to_owned());
    let usual = || {
        let image = app.node.driver().image();
        let there = image.brokers().filter(|broker| !broker.fenced).count();
        i32::try_from(there.clamp(1, PARTITIONS_MAX)).unwrap_or(1)
    };
    let topic = NewTopic {
        partitions: partitions.unwrap_or_else(usual),
        configs: configs.into_iter().map(|(name, value)| (name, Some(value))).collect(),
        ..NewTopic::named(name, random_uuid())
    };
    create_topic::create(app, topic).await.map_err(|error| match app.queue(name) {
        Err(other) if error.code == Code::TopicExists && other.code == Code::NotAQueue => {
            ApiError { help: other.help, ..error }
        }
        _ => error,
    })
}
