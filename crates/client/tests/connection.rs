//! Connections to what is no broker: the error says what it is.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use towpath_client::{ClientConfig, Connection, Error};

/// Dials something that answers everything with `answer`, and hangs up if that is empty.
async fn dial(answer: &'static [u8]) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut question = [0; 512];
            let _ = socket.read(&mut question).await;
            let _ = socket.write_all(answer).await;
            if !answer.is_empty() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
    });
    let mut config = ClientConfig::new(&address).unwrap();
    config.connect_timeout = Duration::from_millis(300);
    Connection::open(&address, &config).await.err().expect("it is no broker")
}

#[tokio::test]
async fn strangers_are_recognised() {
    let http = dial(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    assert!(matches!(http, Error::NotKafka { looks_like: "an HTTP server", .. }), "{http}");
    let tls = dial(&[0x15, 3, 3, 0, 2, 2, 70]).await;
    assert!(matches!(tls, Error::NotKafka { looks_like: "a TLS listener", .. }), "{tls}");
}

#[tokio::test]
async fn nonsense_and_silence_end_in_an_error() {
    let huge = dial(&[0x7f, 0xff, 0xff, 0xff, 0, 0]).await;
    assert!(matches!(huge, Error::Malformed { .. }), "{huge}");
    let negative = dial(&[0xff, 0xff, 0xff, 0xff]).await;
    assert!(matches!(negative, Error::Malformed { .. }), "{negative}");
    let other_answer = dial(&[0, 0, 0, 4, 0, 0, 0, 99]).await;
    assert!(matches!(other_answer, Error::Malformed { .. }), "{other_answer}");
    let silence = dial(&[0, 0, 0]).await;
    assert!(matches!(silence, Error::Disconnected { .. }), "{silence}");
    let hang_up = dial(b"").await;
    assert!(matches!(hang_up, Error::Disconnected { .. }), "{hang_up}");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let config = ClientConfig::new(&address).unwrap();
    let error = Connection::open(&address, &config).await.err().unwrap();
    assert!(error.is_unreachable() && error.advice().is_some(), "{error}");
}
