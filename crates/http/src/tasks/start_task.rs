//! `POST /queues/{queue}/redrive` and `/queues/{queue}/drop`: messages that nobody holds go to another queue, or are
//! dropped, as a task; with `dry_run` it is only said which would be.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use towpath_metadata::{IN_HAND_MAX, REDRIVES_MAX_USUAL, TaskKind};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::{parse_json, read_body};
use crate::captured::Captured;
use crate::queues::Content;

use super::filter::Filter;
use super::select::{self, EXAMPLES_MAX};
use super::service::{NotDone, Start, start};
use super::view::TaskView;
use super::work::select_in;

/// How long a dry run looks.
const DRY_RUN_MAX: Duration = Duration::from_secs(10);
/// Who has ordered a task, if nothing is said.
pub(super) const SOMEBODY: &str = "http";

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// Of a redrive only.
    to: Option<String>,
    filter: Filter,
    max: Option<u64>,
    rate: Option<u32>,
    redrives_max: Option<u32>,
    by: Option<String>,
    dry_run: bool,
}

/// Lets everything in a queue go to its dead-letter queue, and then deletes it.
///
/// # Errors
/// When it has no dead-letter queue, and what the metadata refuses.
pub(crate) async fn retire(
    app: &App,
    queue: &TopicView,
    by: Option<String>,
) -> Result<TaskView, ApiError> {
    let Some(to) = &queue.config.queue.dead_letter_queue else {
        let message = format!("queue {:?} has no dead-letter queue", queue.name.as_str());
        return Err(ApiError::new(Code::InvalidRequest, message)
            .with_help("name one (PATCH /queues/{queue}), or delete it with unsettled=drop"));
    };
    let asked = Start {
        kind: TaskKind::Retire,
        source: queue.name.to_string(),
        destination: Some(to.to_string()),
        filter: Filter::default(),
        messages_max: None,
        rate: None,
        redrives_max: u32::MAX,
        by: by.unwrap_or_else(|| SOMEBODY.to_owned()),
    };
    let task = start(app, asked).await.map_err(NotDone::into_error)?;
    Ok(TaskView::of(&task))
}

/// What a task would do.
#[derive(Debug, Default, Serialize)]
struct Forecast {
    dry_run: bool,
    would_move: u64,
    looked_at: u64,
    passed_over: u64,
    guarded: u64,
    stranded: u64,
    /// Everything was looked at.
    complete: bool,
    examples: Vec<Content>,
}

pub(super) async fn redrive(
    state: State<App>,
    queue: Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    handle(TaskKind::Redrive, state, queue, headers, body).await
}

pub(super) async fn drop_messages(
    state: State<App>,
    queue: Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    handle(TaskKind::Drop, state, queue, headers, body).await
}

async fn handle(
    kind: TaskKind,
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let source = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let wanted: Wanted = if bytes.is_empty() { Wanted::default() } else { parse_json(&bytes)? };
    wanted.check(&app, kind, &source)?;
    if wanted.dry_run {
        return Ok(Json(foresee(&app, &source, kind, &wanted).await?).into_response());
    }
    let asked = Start {
        kind,
        source: name,
        destination: wanted.to,
        filter: wanted.filter,
        messages_max: wanted.max,
        rate: wanted.rate,
        redrives_max: wanted.redrives_max.unwrap_or(REDRIVES_MAX_USUAL),
        by: wanted.by.unwrap_or_else(|| SOMEBODY.to_owned()),
    };
    let task = start(&app, asked).await.map_err(NotDone::into_error)?;
    Ok((StatusCode::CREATED, Json(TaskView::of(&task))).into_response())
}

impl Wanted {
    fn check(&self, app: &App, kind: TaskKind, source: &TopicView) -> Result<(), ApiError> {
        let invalid = |message: &str| Err(ApiError::new(Code::InvalidRequest, message));
        if kind == TaskKind::Drop && (self.to.is_some() || self.redrives_max.is_some()) {
            return invalid(
                "what is dropped goes nowhere: `to` and `redrives_max` are a redrive's",
            );
        }
        if self.rate == Some(0) || self.max == Some(0) {
            return invalid("rate and max are at least 1; without them there is no bound");
        }
        if let Some(to) = &self.to
            && app.queue(to)?.id == source.id
        {
            return invalid("messages cannot go to the queue that they are in");
        }
        self.filter.written().map(drop)
    }

    fn select(&self, kind: TaskKind, from: i64, until: i64, chosen: u64) -> select::Wanted {
        let is_redrive = kind == TaskKind::Redrive;
        let left = self.max.unwrap_or(u64::MAX).saturating_sub(chosen);
        let redrives_max = self.redrives_max.unwrap_or(REDRIVES_MAX_USUAL);
        select::Wanted {
            from,
            until,
            max: usize::try_from(left).unwrap_or(usize::MAX).min(IN_HAND_MAX),
            filter: self.filter.clone(),
            redrives_max: is_redrive.then_some(redrives_max),
            home: is_redrive && self.to.is_none(),
            held_too: false,
            is_to_be_emptied: false,
            examples: EXAMPLES_MAX,
        }
    }
}

/// Looks at messages as a task would, and leaves them where they are.
async fn foresee(
    app: &App,
    source: &TopicView,
    kind: TaskKind,
    wanted: &Wanted,
) -> Result<Forecast, ApiError> {
    let deadline = Instant::now() + DRY_RUN_MAX;
    let mut forecast = Forecast { dry_run: true, complete: true, ..Forecast::default() };
    for partition in source.partition_indexes() {
        let (mut from, mut until) = (Some(0), i64::MAX);
        while let Some(at) = from {
            let select = wanted.select(kind, at, until, forecast.would_move);
            if select.max == 0 {
                return Ok(forecast);
            }
            if deadline <= Instant::now() {
                forecast.complete = false;
                return Ok(forecast);
            }
            let seen = select_in(app, source, partition, &select).await?;
            // What comes while it is looked is not looked at: it would never end.
            until = until.min(seen.end);
            from = seen.next;
            forecast.would_move += seen.offsets.len() as u64;
            forecast.looked_at += seen.looked_at;
            forecast.passed_over += seen.passed_over;
            forecast.guarded += seen.guarded;
            forecast.stranded += seen.stranded;
            let room = EXAMPLES_MAX - forecast.examples.len();
            forecast.examples.extend(seen.examples.into_iter().take(room));
        }
    }
    Ok(forecast)
}
