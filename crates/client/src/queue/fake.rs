//! A queue in memory behind the paths of the HTTP API, for tests of what clients do with answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::config::Backoff;

use super::client::Queue;
use super::http::{HttpCluster, HttpConfig};

/// What the fake knows, and was asked.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) ready: VecDeque<String>,
    pub(crate) held: BTreeMap<String, String>,
    pub(crate) deleted: Vec<String>,
    /// Every call that is not a receive: its verb and its body.
    pub(crate) calls: Vec<(String, Value)>,
    pub(crate) receives: usize,
    /// Calls that are answered with this instead, the next ones first.
    pub(crate) refusals: VecDeque<(u16, &'static str)>,
    /// Extensions are refused: others have the messages.
    pub(crate) is_taken_away: bool,
    next: usize,
}

/// A fake broker.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) async fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Fake { address, state: Arc::default() };
        let served = fake.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let fake = served.clone();
                let service = service_fn(move |request| fake.clone().answer(request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        fake
    }

    pub(crate) fn with_messages(self, messages: usize) -> Fake {
        self.state().ready = (0..messages).map(|n| format!("m{n}")).collect();
        self
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Bodies of all calls of a verb.
    pub(crate) fn calls(&self, verb: &str) -> Vec<Value> {
        let state = self.state();
        let calls = state.calls.iter().filter(|(called, _)| called == verb);
        calls.map(|(_, body)| body.clone()).collect()
    }

    pub(crate) fn queue(&self) -> Queue {
        queue_at(&[self.address])
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let verb = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, answer) = if verb == "receive" {
            self.receive(&body).await
        } else {
            self.state().settle(&verb, &body)
        };
        let answer = Full::new(Bytes::from(answer.to_string()));
        Ok(Response::builder().status(status).body(answer).unwrap())
    }

    /// Waits a little, as brokers do.
    async fn receive(&self, body: &Value) -> (u16, Value) {
        for _ in 0..body["wait_ms"].as_u64().unwrap() / 10 {
            if !self.state().ready.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.state().receive(body)
    }
}

/// The queue at these brokers, asked again soon and not for long.
pub(crate) fn queue_at(addresses: &[SocketAddr]) -> Queue {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let config = HttpConfig {
        retry_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(2),
        retry_backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(50)),
        ..HttpConfig::new(&addresses.join(",")).unwrap()
    };
    Queue::new(HttpCluster::new(config), "q")
}

fn refused(code: &str) -> Value {
    json!({"error": {"code": code, "message": "no"}})
}

impl State {
    fn receive(&mut self, body: &Value) -> (u16, Value) {
        self.receives += 1;
        if let Some((status, code)) = self.refusals.pop_front() {
            return (status, refused(code));
        }
        let max = usize::try_from(body["max"].as_u64().unwrap()).unwrap();
        let mut messages = Vec::new();
        while messages.len() < max {
            let Some(value) = self.ready.pop_front() else { break };
            self.next += 1;
            let receipt = format!("r{}", self.next);
            messages.push(json!({"id": value, "value": value, "group": null, "headers": [],
                "sent_ms": 1, "receives": 1, "receipt": receipt, "visible_again_ms": 2}));
            self.held.insert(receipt, value);
        }
        (200, json!({ "messages": messages }))
    }

    fn settle(&mut self, verb: &str, body: &Value) -> (u16, Value) {
        self.calls.push((verb.to_owned(), body.clone()));
        if let Some((status, code)) = self.refusals.pop_front() {
            return (status, refused(code));
        }
        if verb == "messages" {
            let sent = body["messages"].as_array().unwrap().iter();
            let sent = sent.map(|message| json!({"id": message["value"], "sent_ms": 1}));
            return (200, json!({ "results": sent.collect::<Vec<_>>() }));
        }
        let receipts = body["receipts"].as_array().unwrap().iter();
        let results: Vec<Value> =
            receipts.map(|receipt| self.one(verb, receipt.as_str().unwrap())).collect();
        let has_failed = results.iter().any(|result| result != &json!({}));
        (if has_failed { 409 } else { 200 }, json!({ "results": results }))
    }

    fn one(&mut self, verb: &str, receipt: &str) -> Value {
        let is_stale = self.is_taken_away || !self.held.contains_key(receipt);
        match verb {
            "extend" if is_stale => refused("RECEIPT_STALE"),
            "extend" => json!({}),
            _ => {
                let message = self.held.remove(receipt);
                match (verb, message) {
                    ("delete", message) => self.deleted.extend(message),
                    ("release", Some(message)) => self.ready.push_back(message),
                    _ => {}
                }
                json!({})
            }
        }
    }
}
