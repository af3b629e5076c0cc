//! Whether the process lives, and whether it should get work.
//!
//! Work is for brokers that the cluster counts as there. A cluster that starts as a whole needs a
//! majority for that: whoever starts brokers must not wait for one before it starts the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use towpath_driver::Room;

use crate::app::App;

/// How far the process is. Shared with whoever starts and stops it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicU8>);

const STARTING: u8 = 0;
const READY: u8 = 1;
const STOPPING: u8 = 2;

impl Readiness {
    /// The listeners are up and the data directory has been recovered.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire) == READY
    }

    /// Nothing is known of the cluster yet.
    pub(crate) fn is_starting(&self) -> bool {
        self.0.load(Ordering::Acquire) == STARTING
    }

    /// From now on work is welcome.
    pub fn set_ready(&self) {
        self.0.store(READY, Ordering::Release);
    }

    /// From now on it is not.
    pub fn set_stopping(&self) {
        self.0.store(STOPPING, Ordering::Release);
    }
}

/// `GET /livez`: answers at all.
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// Without the first data directory neither metadata nor offsets can be written.
fn is_first_directory_at_work(app: &App) -> bool {
    let statuses = app.node.driver().volume_statuses();
    statuses.first().is_some_and(|first| first.failure.is_none() && first.stalled_for.is_none())
}

/// A broker that is fenced, or not registered yet, neither leads nor follows anything.
fn is_known(app: &App) -> bool {
    let standing = app.node.driver().standing();
    standing.broker_epoch.is_some() && !standing.is_fenced
}

/// Who was removed from the cluster does not come back by waiting.
fn is_member(app: &App) -> bool {
    !app.node.driver().is_retired()
}

/// What is wrong with the data directories, in words.
fn problems(app: &App) -> Vec<String> {
    let driver = app.node.driver();
    let mut problems = Vec::new();
    for status in driver.volume_statuses() {
        let directory = status.path.display();
        if let Some(failure) = &status.failure {
            problems.push(format!("{directory} has failed: {failure}"));
        }
        if let Some(stalled_for) = status.stalled_for {
            problems.push(format!(
                "{directory} is stalled: nothing has come back from it for {stalled_for:.1?}"
            ));
        }
        if status.room == Room::Full {
            let free = status.space.free_bytes >> 20;
            problems.push(format!("{directory} is full: {free} MiB free, producing is refused"));
        }
    }
    problems.extend(driver.missing_volumes().iter().map(|missing| missing.reason.clone()));
    problems
}

/// `GET /readyz`, `/healthz`: 200 when work is welcome, with each check by name when asked
/// `?verbose`.
pub(crate) async fn ready(State(app): State<App>, uri: Uri) -> Response {
    let state = app.readiness.0.load(Ordering::Acquire);
    let mut checks = vec![
        ("started".to_owned(), state != STARTING),
        ("not stopping".to_owned(), state != STOPPING),
        ("data directory".to_owned(), is_first_directory_at_work(&app)),
        ("known to the cluster".to_owned(), is_known(&app)),
        ("not removed from the cluster".to_owned(), is_member(&app)),
    ];
    // With its first data directory a broker is of use, so these only say what is wrong.
    let is_ready = checks.iter().all(|(_, holds)| *holds);
    checks.extend(problems(&app).into_iter().map(|problem| (problem, false)));
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = String::new();
    let is_verbose = uri.query().is_some_and(|query| {
        query.split('&').any(|part| part.split('=').next() == Some("verbose"))
    });
    for (name, holds) in checks {
        if is_verbose || !holds {
            let mark = if holds { "[+]" } else { "[-]" };
            body.push_str(&format!("{mark} {name}\n"));
        }
    }
    body.push_str(if is_ready { "ok\n" } else { "not ready\n" });
    (status, body).into_response()
}
