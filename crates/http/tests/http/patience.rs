//! What happens to peers that take their time. The clock of the test only runs when nothing else
//! does, so that minutes pass in no time.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::Broker;

/// Sends `bytes` and nothing more; returns what came back until the broker closed, and when.
async fn left_hanging(bytes: &[u8]) -> (String, Duration) {
    let broker = Broker::start_with(true, &[]).await;
    let mut socket = TcpStream::connect(broker.address).await.unwrap();
    tokio::time::pause();
    let begun = Instant::now();
    socket.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    let waited = begun.elapsed();
    tokio::time::resume();
    broker.stop().await;
    (String::from_utf8(answer).unwrap(), waited)
}

fn is_about(waited: Duration, seconds: u64) -> bool {
    (seconds..=seconds + 1).contains(&waited.as_secs())
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let (answer, waited) = left_hanging(b"").await;
    assert_eq!(answer, "");
    assert!(is_about(waited, 60), "{waited:?}");
}

#[tokio::test]
async fn a_head_that_never_ends_is_closed_with_the_reason() {
    let (answer, waited) = left_hanging(b"GET /livez HTTP/1.1\r\nhost: loc").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains(r#""code":"REQUEST_TIMEOUT""#), "{answer}");
    assert!(is_about(waited, 60), "{waited:?}");
}

#[tokio::test]
async fn a_body_that_never_ends_is_refused() {
    let head = b"POST /topics/t/messages HTTP/1.1\r\nhost: l\r\ncontent-length: 100\r\n\r\n{\"val";
    let (answer, waited) = left_hanging(head).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains(r#""code":"REQUEST_TIMEOUT""#), "{answer}");
    assert!(is_about(waited, 30), "{waited:?}");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_answer() {
    let (answer, waited) = left_hanging(b"GET /livez HTTP/1.1\r\nhost: l\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
    assert!(is_about(waited, 60), "{waited:?}");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_peers_that_say_nothing() {
    let broker = Broker::start_with(true, &[]).await;
    let _silent = TcpStream::connect(broker.address).await.unwrap();
    let mut idle = TcpStream::connect(broker.address).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: l\r\n\r\n").await.unwrap();
    assert_ne!(idle.read(&mut [0; 64]).await.unwrap(), 0);
    let begun = std::time::Instant::now();
    broker.stop().await;
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
}
