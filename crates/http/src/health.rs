//! Whether the process lives, and whether it should get work. Never depends on other brokers:
//! otherwise a cluster that restarts as a whole waits for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

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

/// `GET /readyz`, `/healthz`: 200 when work is welcome, with each check by name when asked
/// `?verbose`.
pub(crate) async fn ready(State(app): State<App>, uri: Uri) -> Response {
    let state = app.readiness.0.load(Ordering::Acquire);
    let checks = [
        ("started", state != STARTING),
        ("not stopping", state != STOPPING),
        ("data directory", !app.node.driver().is_failed()),
    ];
    let is_ready = checks.iter().all(|(_, holds)| *holds);
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
