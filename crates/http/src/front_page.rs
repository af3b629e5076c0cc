//! `GET /`: what lives where, for somebody who opens the address in a browser.

use axum::http::HeaderMap;

/// The page, as text: there is nothing to click that a browser does not make clickable anyway.
pub(crate) async fn handle(headers: HeaderMap) -> String {
    let host = headers.get("host").and_then(|host| host.to_str().ok());
    let host = host.filter(|host| host.bytes().all(|b| b.is_ascii_graphic()));
    let host = host.unwrap_or("localhost:8080");
    format!(
        "Towpath {version}

Publish   curl http://{host}/topics/hello/messages -d '{{\"value\":\"it works\"}}'
Read      curl http://{host}/topics/hello/partitions/0/messages
Topics    curl http://{host}/topics
Queues    curl http://{host}/queues -d '{{\"name\":\"work\"}}'
          curl http://{host}/queues/work/messages -d '{{\"value\":\"do it\"}}'
          curl http://{host}/queues/work/receive -d '{{\"wait_ms\":20000}}'
Cluster   curl http://{host}/cluster   curl http://{host}/nodes

API       http://{host}/openapi.json
Metrics   http://{host}/metrics
Health    http://{host}/livez   http://{host}/readyz?verbose
",
        version = env!("CARGO_PKG_VERSION"),
    )
}
