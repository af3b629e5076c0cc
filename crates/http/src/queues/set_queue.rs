//! `PATCH /queues/{queue}`: change how a queue is configured; `null` brings a default back. With
//! `queue.enable` among its configs a topic becomes a queue.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use towpath_metadata::{
    ConfigChange, ConfigOperation, Refusal, Reply, Request, Resource, ResourceKind,
};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_internal};
use crate::body::{parse_json, read_body};
use crate::captured::Captured;
use crate::create_topic::Value;
use crate::refusals;

use super::settings::{ENABLE, ShownQueue, property_of};
use super::show_queue::show;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    settings: BTreeMap<String, Option<Value>>,
    #[serde(default)]
    configs: BTreeMap<String, Option<Value>>,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ShownQueue>, ApiError> {
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let Wanted { settings, configs } = parse_json(&bytes)?;
    if !configs.contains_key(ENABLE) {
        app.queue(&name)?;
    }
    let mut changes = BTreeMap::new();
    for (name, value) in configs {
        changes.insert(name, value.map(Value::into_text));
    }
    for (name, value) in settings {
        changes.insert(property_of(&name)?.to_owned(), value.map(Value::into_text));
    }
    set(&app, &name, changes).await?;
    show(&app, &name).map(Json)
}

/// Changes properties of a queue's topic; nothing brings the default back.
async fn set(
    app: &App,
    name: &str,
    changes: BTreeMap<String, Option<String>>,
) -> Result<(), ApiError> {
    alter(app, name, changes, None).await?.map_err(|refusal| refusals::of_metadata(&refusal))
}

/// The same, if a property still has the value that was read, where none is as good as an empty one. Says whether it
/// has.
pub(crate) async fn set_if_unchanged(
    app: &App,
    name: &str,
    changes: BTreeMap<String, Option<String>>,
    (property, read): (&str, &str),
) -> Result<bool, ApiError> {
    let expected = ConfigChange {
        name: property.to_owned(),
        operation: ConfigOperation::Expect,
        value: Some(read.to_owned()),
    };
    match alter(app, name, changes, Some(expected)).await? {
        Ok(()) => Ok(true),
        Err(Refusal::ConfigChanged(_)) => Ok(false),
        Err(refusal) => Err(refusals::of_metadata(&refusal)),
    }
}

async fn alter(
    app: &App,
    name: &str,
    changes: BTreeMap<String, Option<String>>,
    expected: Option<ConfigChange>,
) -> Result<Result<(), Refusal>, ApiError> {
    refuse_internal(name)?;
    let change = |(name, value): (String, Option<String>)| ConfigChange {
        name,
        operation: match value {
            Some(_) => ConfigOperation::Set,
            None => ConfigOperation::Delete,
        },
        value,
    };
    let changes = expected.into_iter().chain(changes.into_iter().map(change)).collect();
    let resource = Resource { kind: ResourceKind::Topic, name: name.to_owned() };
    let alter =
        Request::AlterConfigs { resources: vec![(resource, changes)], validate_only: false };
    match app.node.ask_metadata(alter).await.map_err(refusals::of_unavailable)? {
        Reply::AlteredConfigs(altered) => match altered.into_iter().next() {
            Some((_, done)) => Ok(done),
            None => Err(ApiError::new(Code::Internal, "the change was not answered")),
        },
        _ => Err(ApiError::new(Code::Internal, "the metadata gave an answer out of turn")),
    }
}
