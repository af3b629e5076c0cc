//! Somebody who came to the wrong door is told so, in their own language or in the log.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use towpath_process::http;
use towpath_process::kafka::KafkaConnection;

use crate::support::dev;

const PATIENCE: Duration = Duration::from_secs(30);

/// The first bytes of a TLS 1.3 client's hello.
const TLS_HELLO: [u8; 11] = [0x16, 3, 1, 0, 0xf4, 1, 0, 0, 0xf0, 3, 3];

/// Says `words`, and returns what came back before the connection was closed.
fn answer_to(address: SocketAddr, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(words).unwrap();
    let mut answer = Vec::new();
    // A reset is an answer as well: nothing is left to read.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "never closed: {error}");
    }
    answer
}

#[test]
fn http_on_the_kafka_port_is_answered_in_http() {
    let (broker, _data) = dev();
    let answer = http::get(broker.addresses.kafka, "/topics").unwrap();
    assert_eq!(answer.status, 400);
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.contains("Kafka"), "{text}");
    let log = broker.wait_for_log("HTTP", PATIENCE).unwrap();
    assert!(log.contains("127.0.0.1"), "no peer: {log}");
}

#[test]
fn tls_on_the_kafka_port_is_answered_with_an_alert() {
    let (broker, _data) = dev();
    let answer = answer_to(broker.addresses.kafka, &TLS_HELLO);
    assert_eq!(answer.first(), Some(&0x15), "no alert: {answer:x?}");
    let log = broker.wait_for_log("TLS", PATIENCE).unwrap();
    assert!(log.contains("security.protocol=PLAINTEXT"), "no fix: {log}");
}

#[test]
fn nonsense_on_the_kafka_port_costs_its_connection_and_a_line() {
    let (broker, _data) = dev();
    assert!(answer_to(broker.addresses.kafka, &[0xff; 40]).is_empty());
    broker.wait_for_log("expects the Kafka protocol", PATIENCE).unwrap();
    KafkaConnection::open(broker.addresses.kafka).unwrap().topics().unwrap();
}

#[test]
fn kafka_and_tls_on_the_http_port_cost_their_connection_and_a_line() {
    let (broker, _data) = dev();
    answer_to(broker.addresses.http, &TLS_HELLO);
    broker.wait_for_log("TLS", PATIENCE).unwrap();
    // ApiVersions v0 from client "x".
    answer_to(broker.addresses.http, b"\0\0\0\x0b\0\x12\0\0\0\0\0\x01\0\x01x");
    broker.wait_for_log("Kafka", PATIENCE).unwrap();
    assert_eq!(http::get(broker.addresses.http, "/livez").unwrap().status, 200);
}
