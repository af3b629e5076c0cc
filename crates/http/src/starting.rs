//! What is answered over HTTP before there is a broker: the process lives, and how far its start is.
//!
//! An orchestrator that hears nothing from a process that recovers for minutes kills it, and it
//! begins again. Everything but the two questions about health is asked to come back later.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use towpath_server::Progress;

use crate::api_error::{ApiError, Code};
use crate::health::live;
use crate::limits::{PARSER_BYTES_MAX, PARSER_HEADERS_MAX};
use crate::listener::ACCEPT_PAUSE;

/// Connections at once; the others wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// How long one connection may take, from its first byte to the end of its answer.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

/// Answers until `over` changes. Connections that have not been accepted by then wait for the broker.
pub(crate) async fn answer(
    listener: &TcpListener,
    progress: Progress,
    mut over: watch::Receiver<bool>,
) {
    let router = Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(not_ready))
        .route("/healthz", get(not_ready))
        .fallback(later)
        .with_state(progress);
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let is_over = async { over.wait_for(|over| *over).await.is_ok() };
    tokio::pin!(is_over);
    loop {
        let accept = async {
            let slot = Arc::clone(&slots).acquire_owned().await.expect("it is never closed");
            (listener.accept().await, slot)
        };
        tokio::select! {
            _ = &mut is_over => break,
            (accepted, slot) = accept => match accepted {
                Ok((socket, _)) => {
                    let router = router.clone();
                    connections.spawn(async move {
                        let _ = timeout(CONNECTION_MAX, serve(router, socket)).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an http connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
    connections.shutdown().await;
}

async fn serve(router: Router, socket: TcpStream) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_MAX)
        .max_buf_size(PARSER_BYTES_MAX)
        .max_headers(PARSER_HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!(%error, "http connection ended");
    }
}

/// `GET /readyz`, `/healthz`.
async fn not_ready(State(progress): State<Progress>) -> Response {
    let text = format!("[-] started: {}\nnot ready\n", how_far(&progress));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn later(State(progress): State<Progress>) -> ApiError {
    ApiError::new(Code::Unavailable, format!("the broker is starting: {}", how_far(&progress)))
        .with_help("try again; /readyz says when it is ready")
}

fn how_far(progress: &Progress) -> String {
    if let Some(waiting) = progress.waiting() {
        return waiting;
    }
    match progress.partitions() {
        (_, 0) => "reading the write-ahead file and the metadata".to_owned(),
        (opened, all) => format!("recovering, {opened} of {all} partitions are"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::HttpListener;

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_broker_that_starts_lives_and_says_how_far_it_is() {
        let listener = HttpListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, over) = watch::channel(false);
        let answering = tokio::spawn(listener.answer_while_starting(Progress::default(), over));
        let live = ask(address, "/livez").await;
        assert!(live.starts_with("HTTP/1.1 200 ") && live.ends_with("ok\n"), "{live}");
        let ready = ask(address, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(ready.contains("[-] started: reading the write-ahead file"), "{ready}");
        let topics = ask(address, "/topics").await;
        assert!(topics.starts_with("HTTP/1.1 503 "), "{topics}");
        assert!(topics.contains(r#""code":"UNAVAILABLE""#), "{topics}");
        // Somebody who only connected keeps nobody waiting.
        let _silent = TcpStream::connect(address).await.unwrap();
        tell.send_replace(true);
        let listener = answering.await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
    }
}
