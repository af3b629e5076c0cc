//! What botocore has sent, in `captured/`; `captured/capture.py` says how that was recorded. Line N
//! of both files is the same call. What it has merely signed is of `captured/sign.py`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use towpath_sqs::{Action, Encoding, Incoming, Request, decode};

const JSON: &str = include_str!("captured/json.jsonl");
const QUERY: &str = include_str!("captured/query.jsonl");
const SIGNED: &str = include_str!("captured/signed.jsonl");

/// A request that a client has sent.
pub(crate) struct Captured(Value);

impl Captured {
    pub(crate) fn all() -> impl Iterator<Item = Captured> {
        JSON.lines().chain(QUERY.lines()).chain(SIGNED.lines()).map(Captured::read)
    }

    fn read(line: &str) -> Captured {
        Captured(serde_json::from_str(line).expect("a line is an object"))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    pub(crate) fn headers(&self) -> Vec<(String, Vec<u8>)> {
        let headers = self.0["headers"].as_object().expect("headers are an object").iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().as_bytes().to_vec();
        headers.map(|(name, value)| (name.clone(), text(value))).collect()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        BASE64_STANDARD.decode(self.text("body")).expect("bodies are in base64")
    }

    fn decoded(&self) -> Request {
        let body = self.body();
        let incoming = Incoming {
            method: self.text("method"),
            path: self.text("path"),
            query: self.text("query"),
            target: self.0["headers"]["X-Amz-Target"].as_str(),
            body: &body,
        };
        let request = decode(&incoming);
        request.unwrap_or_else(|error| panic!("{}: {error}", self.text("action")))
    }
}

#[test]
fn both_encodings_of_a_call_are_one_request() {
    let mut seen = Vec::new();
    for (json, query) in JSON.lines().zip(QUERY.lines()) {
        let (json, query) = (Captured::read(json), Captured::read(query));
        let request = json.decoded();
        assert_eq!(request, query.decoded());
        assert_eq!(request.action().name(), json.text("action"));
        seen.push(request.action());
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, Action::ALL);
}

#[test]
fn presigned_urls_are_the_same_requests_too() {
    let calls = JSON.lines().count();
    let presigned: Vec<Captured> = QUERY.lines().skip(calls).map(Captured::read).collect();
    assert_eq!(presigned.len(), 62);
    let posted = JSON.lines().map(Captured::read);
    for (posted, twice) in posted.zip(presigned.chunks(2)) {
        for (presigned, method) in twice.iter().zip(["GET", "POST"]) {
            assert_eq!(presigned.text("method"), method);
            assert_eq!(posted.decoded(), presigned.decoded());
        }
    }
}

#[test]
fn a_call_arrives_with_all_that_was_in_it() {
    let request = Captured::read(JSON.lines().nth(23).unwrap()).decoded();
    let Request::SendMessage(request) = request else { panic!("{request:?}") };
    let message = request.message;
    assert_eq!(request.queue.name.as_str(), "jobs");
    assert_eq!(request.queue.account.as_deref(), Some("000000000000"));
    assert_eq!(message.body, "tab\tline\nreturn\r\n& + % ä €  😀");
    assert_eq!(message.delay.map(|delay| delay.as_secs()), Some(900));
    assert_eq!(message.attributes.len(), 3);
    let bytes = message.attributes.get("bytes").unwrap();
    assert_eq!(bytes.value().as_bytes(), b"\x00\xff\x10binary");
    let count = message.attributes.get("Count.of").unwrap();
    assert_eq!(count.data_type().as_str(), "Number.int");
    assert_eq!(message.trace_header.as_deref().map(str::len), Some(40));
}

#[test]
fn the_encoding_is_known_before_anything_is_read() {
    let incoming = |target| Incoming { method: "PUT", path: "", query: "", target, body: b"\xff" };
    assert_eq!(incoming(Some("")).encoding(), Encoding::Json);
    assert_eq!(incoming(None).encoding(), Encoding::Query);
}
