//! What a connection may cost, and what ends it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, ErrorCode, decode_exact};
use towpath_server::Limits;

use crate::broker::{Broker, Options};
use crate::wire::{Wire, code};

/// A frame of a request header (version 1, null client id) and these bytes.
fn frame(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let length = u32::try_from(10 + body.len()).unwrap();
    frame.extend(length.to_be_bytes());
    frame.extend(api_key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(7_i32.to_be_bytes());
    frame.extend((-1_i16).to_be_bytes());
    frame.extend(body);
    frame
}

fn is_alive(wire: &mut Wire) -> bool {
    let answer = wire.ask(0, &ApiVersionsRequest::default());
    let answer: ApiVersionsResponse<'_> = answer.read();
    answer.error_code == 0
}

#[test]
fn what_cannot_be_answered_closes_its_own_connection_only() {
    let broker = Broker::start();
    let mut other = broker.connect();
    let metadata = ApiKey::Metadata.key();
    let bodies: [(&str, Vec<u8>); 9] = [
        ("unknown api key", frame(999, 0, b"")),
        ("negative api key", frame(-1, 0, b"")),
        ("removed api key", frame(4, 0, b"")),
        ("version above", frame(metadata, 99, b"")),
        ("version below", frame(ApiKey::Fetch.key(), 3, &[0; 30])),
        ("no body", frame(metadata, 1, b"")),
        ("array larger than the frame", frame(metadata, 1, b"\x7f\xff\xff\xff")),
        ("string cut", frame(metadata, 1, b"\0\0\0\x01\0\x09abc")),
        ("header cut", vec![0, 0, 0, 3, 0, 3, 0]),
    ];
    for (what, bytes) in bodies {
        let mut wire = broker.connect();
        wire.send_bytes(&bytes);
        assert!(wire.is_closed(), "{what}");
        assert!(is_alive(&mut other), "{what}");
    }
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.send_bytes(&frame(ApiKey::ApiVersions.key(), 99, b"\0what is that"));
    let answer = wire.receive_frame().unwrap();
    assert_eq!(answer[..4], 7_i32.to_be_bytes());
    let answer: ApiVersionsResponse<'_> = decode_exact(0, &answer[4..]).unwrap();
    assert_eq!(code(answer.error_code), ErrorCode::UnsupportedVersion);
    let [only] = &answer.api_keys[..] else { panic!("one entry") };
    assert_eq!((only.api_key, only.min_version, only.max_version), (18, 0, 5));
    assert!(is_alive(&mut wire));
}

#[test]
fn what_is_served_is_what_is_advertised() {
    let broker = Broker::start();
    let answer = broker.connect().ask(0, &ApiVersionsRequest::default());
    let answer: ApiVersionsResponse<'_> = answer.read();
    let keys: Vec<i16> = answer.api_keys.iter().map(|entry| entry.api_key).collect();
    assert_eq!(keys, ApiKey::ALL.iter().map(|key| key.key()).collect::<Vec<_>>());
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    // The first waits half a second; the others could be answered at once.
    wire.send(11, &crate::wire::fetch_request("topic", 0, 1, Duration::from_millis(500)));
    wire.send(9, &MetadataRequest::default());
    wire.send(0, &ApiVersionsRequest::default());
    let _: FetchResponse<'_> = wire.receive(ApiKey::Fetch, 11).read();
    let _: MetadataResponse<'_> = wire.receive(ApiKey::Metadata, 9).read();
    let _: ApiVersionsResponse<'_> = wire.receive(ApiKey::ApiVersions, 0).read();
}

#[test]
fn a_frame_above_the_limit_closes_the_connection_before_it_is_read() {
    let limits = Limits { frame_bytes_max: 1000, ..Limits::default() };
    let broker = Broker::start_with(Options { limits, ..Options::default() });
    let mut wire = broker.connect();
    assert!(is_alive(&mut wire));
    wire.send_bytes(&1001_i32.to_be_bytes());
    assert!(wire.is_closed());
    let mut wire = broker.connect();
    wire.send_bytes(&(-5_i32).to_be_bytes());
    assert!(wire.is_closed());
}

#[test]
fn connections_above_the_limit_are_closed_and_come_back_when_one_ends() {
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let broker = Broker::start_with(Options { limits, ..Options::default() });
    let (mut first, mut second) = (broker.connect(), broker.connect());
    assert!(is_alive(&mut first) && is_alive(&mut second));
    assert!(broker.connect().is_closed());
    assert!(is_alive(&mut first));
    drop(second);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut third = broker.connect();
        third.send(0, &ApiVersionsRequest::default());
        if third.receive_frame().is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "the freed place is not given away");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn idle_and_slow_connections_are_closed() {
    let limits = Limits {
        idle_max: Duration::from_millis(300),
        request_wait_max: Duration::from_millis(300),
        ..Limits::default()
    };
    let broker = Broker::start_with(Options { limits, ..Options::default() });
    let begun = Instant::now();
    assert!(broker.connect().is_closed());
    assert!(Duration::from_millis(250) <= begun.elapsed());
    let mut slow = broker.connect();
    slow.send_bytes(&[0, 0, 0, 50, 0]);
    assert!(slow.is_closed());
}

#[test]
fn a_waiting_fetch_is_not_idle() {
    let limits = Limits { idle_max: Duration::from_millis(200), ..Limits::default() };
    let broker = Broker::start_with(Options { limits, ..Options::default() });
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    wire.send(11, &crate::wire::fetch_request("topic", 0, 1, Duration::from_millis(800)));
    let _: FetchResponse<'_> = wire.receive(ApiKey::Fetch, 11).read();
}

#[test]
fn strangers_get_an_answer_in_their_own_language() {
    let broker = Broker::start();
    let answer_to = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(broker.address()).unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset after the answer is as good as an end.
        let _ = socket.read_to_end(&mut answer);
        answer
    };
    let http = answer_to(b"GET /topics HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(http.starts_with(b"HTTP/1.1 400 "), "{http:?}");
    let tls = answer_to(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    assert_eq!(tls, [0x15, 3, 1, 0, 2, 2, 0x46]);
}
