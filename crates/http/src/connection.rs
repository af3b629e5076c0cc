//! One HTTP connection: who is there, then request after request.
//!
//! The first byte is looked at before anything is parsed: TLS and Kafka clients on this port get
//! one line in the log that says what to change, and cost nothing more.

use std::net::SocketAddr;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::limits::{HEAD_WAIT_MAX, PARSER_BYTES_MAX, PARSER_HEADERS_MAX, WRITE_STALL_MAX};
use crate::routes::Front;
use crate::stall::Stall;

/// Another protocol on our port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stranger {
    Tls,
    Kafka,
    Nonsense,
}

impl Stranger {
    /// Judges a connection by its first byte. `None`: it may be HTTP, whose methods are words and
    /// may follow empty lines.
    fn of(first: u8) -> Option<Stranger> {
        match first {
            b'\r' | b'\n' => None,
            _ if first.is_ascii_alphabetic() => None,
            0x16 => Some(Stranger::Tls),
            // The length of a frame, below 16 MiB.
            0x00 => Some(Stranger::Kafka),
            _ => Some(Stranger::Nonsense),
        }
    }

    /// What the log says, after the peer's address.
    fn advice(self) -> &'static str {
        match self {
            Stranger::Tls => {
                "the peer speaks TLS, but this listener expects HTTP in plain text: \
                 use http:// in the address"
            }
            Stranger::Kafka => {
                "the peer speaks the Kafka protocol, but this listener expects HTTP: \
                 set bootstrap.servers to the Kafka address (default port 9092)"
            }
            Stranger::Nonsense => {
                "the peer sent bytes that are no HTTP request: \
                 this listener expects HTTP/1.1 in plain text"
            }
        }
    }

    /// An answer in the peer's own language, where it has one.
    fn answer(self) -> &'static [u8] {
        match self {
            // A fatal protocol_version alert, so that the client reports TLS and not a hang-up.
            Stranger::Tls => &[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46],
            Stranger::Kafka | Stranger::Nonsense => b"",
        }
    }
}

/// Serves a connection until it ends, or until the broker stops and what is under way is done.
pub(crate) async fn serve(front: &Front, socket: TcpStream, peer: SocketAddr) {
    let app = front.app();
    let mut stop = app.stop.clone();
    // Answers are written whole; waiting for more bytes in the kernel would only add latency.
    let _ = socket.set_nodelay(true);
    let mut first = [0];
    let peeked = tokio::select! {
        peeked = timeout(HEAD_WAIT_MAX, socket.peek(&mut first)) => peeked,
        _ = stop.changed() => return,
    };
    match peeked {
        Ok(Ok(1)) => {}
        Ok(Ok(_)) => return,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "http connection ended"),
        Err(_) => return tracing::debug!(%peer, "idle http connection closed"),
    }
    if let Some(stranger) = Stranger::of(first[0]) {
        refused(app, peer, stranger.advice());
        // A courtesy: whether it arrives does not matter.
        let _ = socket.try_write(stranger.answer());
        return;
    }
    serve_requests(front, socket, peer, stop).await;
}

async fn serve_requests(
    front: &Front,
    socket: TcpStream,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    let io = TokioIo::new(Stall::new(socket, WRITE_STALL_MAX));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(PARSER_BYTES_MAX)
        .max_headers(PARSER_HEADERS_MAX)
        .serve_connection(io, front.clone());
    let ended = tokio::select! {
        ended = &mut connection => ended,
        _ = stop.changed() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    let Err(error) = ended else { return };
    let app = front.app();
    if !error.is_timeout() {
        let is_theirs = error.is_parse() || error.is_parse_too_large();
        if is_theirs {
            let expected = "this listener expects HTTP/1.1 in plain text";
            refused(app, peer, &format!("{error}; {expected}"));
        } else {
            tracing::debug!(%peer, %error, "http connection ended");
        }
        return;
    }
    let parts = connection.into_parts();
    if parts.read_buf.is_empty() {
        return tracing::debug!(%peer, "idle http connection closed");
    }
    let limit = HEAD_WAIT_MAX.as_secs();
    let message = format!("the head of a request did not arrive within {limit} s");
    refused(app, peer, &message);
    let _ = parts.io.inner().socket().try_write(&too_slow(message));
}

/// Counts a connection that breaks a rule, and says so in the log if not too many did.
fn refused(app: &App, peer: SocketAddr, why: &str) {
    app.metrics.connections_refused.inc();
    if let Some(suppressed) = app.node.may_complain() {
        tracing::warn!(%peer, suppressed, "http connection closed: {why}");
    }
}

/// A whole answer: the parser has given up, so nobody else writes one.
fn too_slow(message: String) -> Vec<u8> {
    let body = ApiError::new(Code::RequestTimeout, message).to_json();
    let length = body.len();
    format!(
        "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_are_told_by_their_first_byte() {
        assert_eq!(Stranger::of(b'G'), None);
        assert_eq!(Stranger::of(b'\r'), None);
        assert_eq!(Stranger::of(0x16), Some(Stranger::Tls));
        assert_eq!(Stranger::of(0x00), Some(Stranger::Kafka));
        assert_eq!(Stranger::of(0xff), Some(Stranger::Nonsense));
    }
}
