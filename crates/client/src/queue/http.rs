//! Calls of Towpath's HTTP API: kept connections to several brokers, any of which answers for all.
//!
//! Calls go to one broker for as long as it answers, then to the next one. What surprises: a call whose
//! answer did not come may have been carried out, so it is repeated only where that does no harm
//! ([`Call::is_repeatable`]).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::config::{Backoff, join_address, split_address};
use crate::error::{Error, Result};

/// The port of the HTTP listener when an address names none.
const HTTP_PORT: u16 = 8080;
/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Connections that are kept although nobody uses them.
const IDLE_MAX: usize = 16;
/// Brokers close what was not used for a minute; a request is not sent into that.
const IDLE_AGE_MAX: Duration = Duration::from_secs(20);

/// Where the HTTP API is, and how patient to be with it.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Addresses (`host:port`) of brokers' HTTP listeners.
    pub addresses: Vec<String>,
    /// How long a TCP connection may take to open.
    pub connect_timeout: Duration,
    /// How long one broker may take for an answer, besides the time that the call itself waits.
    pub request_timeout: Duration,
    /// How long a call is tried again, with this and other brokers, before it fails.
    pub retry_timeout: Duration,
    /// Pause before a call that failed is tried again.
    pub retry_backoff: Backoff,
}

impl HttpConfig {
    /// Defaults for brokers at `addresses`, separated by commas; port 8080 if none is named.
    ///
    /// # Errors
    /// When one of them is no address, or there is none.
    pub fn new(addresses: &str) -> Result<HttpConfig> {
        let named = addresses.split(',').map(str::trim).filter(|address| !address.is_empty());
        let addresses: Vec<String> = named.map(full_address).collect::<Result<_>>()?;
        if addresses.is_empty() {
            return Err(Error::InvalidArgument("no server address was given".to_owned()));
        }
        Ok(HttpConfig {
            addresses,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(15),
            retry_timeout: Duration::from_secs(30),
            retry_backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
        })
    }
}

fn full_address(address: &str) -> Result<String> {
    let address = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let (host, port) = split_address(address)?;
    let names_port = address.ends_with(&format!(":{port}")) && address != host;
    Ok(join_address(host, if names_port { port } else { HTTP_PORT }))
}

/// The HTTP API of a cluster. Clones share their connections.
#[derive(Debug, Clone)]
pub struct HttpCluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: HttpConfig,
    /// The address that answered last.
    preferred: AtomicUsize,
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    address: usize,
    since: Instant,
    sender: SendRequest<Full<Bytes>>,
}

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// What it does, for errors.
    pub(crate) doing: String,
    /// How long the broker is asked to wait.
    pub(crate) wait: Duration,
    /// Whether carrying it out twice is the same as once.
    pub(crate) is_repeatable: bool,
}

impl Call {
    /// Looks at something.
    pub(crate) fn get(path: String, doing: impl Into<String>) -> Call {
        Call {
            method: Method::GET,
            path,
            body: Bytes::new(),
            doing: doing.into(),
            wait: Duration::ZERO,
            is_repeatable: true,
        }
    }
}

/// What a broker answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    status: u16,
    body: Bytes,
}

#[derive(Deserialize)]
struct Refused {
    error: Refusal,
}

/// An error as the API writes it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Refusal {
    pub(crate) fn into_error(self, doing: &str) -> Error {
        let status = status_of(&self.code);
        let Refusal { code, message, help } = self;
        Error::HttpRefused { doing: doing.to_owned(), status, code, message, help }
    }
}

/// Entries of a batch have codes and no status; what tells whether a repeat may help is all that is needed.
fn status_of(code: &str) -> u16 {
    match code {
        "MISDIRECTED" => 421,
        "NOT_ENOUGH_REPLICAS"
        | "UNAVAILABLE"
        | "OVERLOADED"
        | "STOPPING"
        | "PRODUCER_BUSY"
        | "STORAGE_FAILED"
        | "DISK_FULL" => 503,
        "NOT_COMMITTED_IN_TIME" => 504,
        _ => 400,
    }
}

/// Why an attempt failed.
enum Failed {
    /// Nothing was done.
    NotSent(Error),
    /// It may have been done or not.
    InDoubt(Error),
}

impl HttpCluster {
    /// Brokers at these addresses. Nobody is asked yet.
    #[must_use]
    pub fn new(config: HttpConfig) -> HttpCluster {
        let inner = Inner { config, preferred: AtomicUsize::new(0), idle: Mutex::default() };
        HttpCluster { inner: Arc::new(inner) }
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn config(&self) -> &HttpConfig {
        &self.inner.config
    }

    /// Carries a call out, and reads its answer.
    pub(crate) async fn value<T: DeserializeOwned>(&self, call: &Call) -> Result<T> {
        let answer = self.call(call).await?;
        if !(200..300).contains(&answer.status) {
            return Err(refusal(call, &answer));
        }
        let body: &[u8] = if answer.body.is_empty() { b"null" } else { &answer.body };
        serde_json::from_slice(body).map_err(|error| self.malformed(error.to_string()))
    }

    /// Carries a call about several things out. An answer that has a result for each of them is one,
    /// whatever its status.
    pub(crate) async fn values<T: DeserializeOwned>(&self, call: &Call) -> Result<T> {
        let answer = self.call(call).await?;
        match serde_json::from_slice(&answer.body) {
            Ok(results) => Ok(results),
            Err(_) if !(200..300).contains(&answer.status) => Err(refusal(call, &answer)),
            Err(error) => Err(self.malformed(error.to_string())),
        }
    }

    fn malformed(&self, cause: String) -> Error {
        Error::Malformed { address: self.inner.address(self.inner.preferred()).to_owned(), cause }
    }

    /// Tries brokers in turn until one answers with something else than that it cannot just now.
    async fn call(&self, call: &Call) -> Result<Answer> {
        let inner = &*self.inner;
        let deadline = Instant::now() + inner.config.retry_timeout + call.wait;
        let mut failures = 0;
        loop {
            let address = inner.preferred();
            let error = match self.attempt(address, call).await {
                Ok(answer) if !answer.may_pass() => return Ok(answer),
                Ok(answer) if answer.has_results() => return Ok(answer),
                Ok(answer) => refusal(call, &answer),
                Err(Failed::NotSent(error)) => error,
                Err(Failed::InDoubt(error)) if call.is_repeatable => error,
                Err(Failed::InDoubt(error)) => return Err(error),
            };
            inner.turn_from(address);
            failures += 1;
            // Every broker is tried once before the first pause.
            let is_round = failures % inner.config.addresses.len().max(1) == 0;
            let rounds = failures / inner.config.addresses.len().max(1);
            let wait = match is_round {
                true => inner.config.retry_backoff.wait(u32::try_from(rounds).unwrap_or(u32::MAX)),
                false => Duration::ZERO,
            };
            if deadline <= Instant::now() + wait {
                return Err(error);
            }
            sleep(wait).await;
        }
    }

    async fn attempt(&self, address: usize, call: &Call) -> Result<Answer, Failed> {
        let inner = &*self.inner;
        let mut request = inner.request(address, call);
        // A connection that was kept may have been closed meanwhile: then nothing was sent.
        while let Some(kept) = inner.take_idle(address) {
            match inner.send(address, kept, request, call).await {
                Sent::Done(outcome) => return outcome,
                Sent::NotTaken(again) => request = *again,
            }
        }
        let sender = inner.dial(address).await.map_err(Failed::NotSent)?;
        match inner.send(address, sender, request, call).await {
            Sent::Done(outcome) => outcome,
            Sent::NotTaken(_) => Err(Failed::NotSent(Error::Disconnected {
                address: inner.address(address).to_owned(),
                cause: "it was closed at once".to_owned(),
            })),
        }
    }
}

enum Sent {
    Done(Result<Answer, Failed>),
    /// The connection took nothing of it.
    NotTaken(Box<Request<Full<Bytes>>>),
}

impl Inner {
    fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.config.addresses.len().max(1)
    }

    /// The next one, unless somebody has turned away already.
    fn turn_from(&self, address: usize) {
        let next = (address + 1) % self.config.addresses.len().max(1);
        let relaxed = Ordering::Relaxed;
        let _ = self.preferred.compare_exchange(address, next, relaxed, relaxed);
    }

    fn address(&self, index: usize) -> &str {
        self.config.addresses.get(index).map_or("", String::as_str)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().expect("nothing panics while it holds this lock")
    }

    fn take_idle(&self, address: usize) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle();
        idle.retain(|one| one.since.elapsed() < IDLE_AGE_MAX && !one.sender.is_closed());
        let at = idle.iter().rposition(|one| one.address == address && one.sender.is_ready())?;
        Some(idle.swap_remove(at).sender)
    }

    fn keep(&self, address: usize, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(Idle { address, since: Instant::now(), sender });
        }
    }

    async fn dial(&self, index: usize) -> Result<SendRequest<Full<Bytes>>> {
        let address = self.address(index);
        let unreachable = |cause: String| Error::Unreachable { address: address.to_owned(), cause };
        let opened = timeout(self.config.connect_timeout, TcpStream::connect(address)).await;
        let opened = opened
            .map_err(|_| unreachable(format!("no answer in {:?}", self.config.connect_timeout)))?;
        let socket = opened.map_err(|error| unreachable(error.to_string()))?;
        socket.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
        let opened = http1::handshake(TokioIo::new(socket)).await;
        let (sender, connection) = opened.map_err(|error| unreachable(error.to_string()))?;
        // It ends with its sender, or when the broker closes it.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the HTTP API has ended");
            }
        });
        Ok(sender)
    }

    fn request(&self, index: usize, call: &Call) -> Request<Full<Bytes>> {
        Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(header::HOST, self.address(index))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(call.body.clone()))
            .expect("paths are encoded, and addresses were checked")
    }

    async fn send(
        &self,
        index: usize,
        mut sender: SendRequest<Full<Bytes>>,
        request: Request<Full<Bytes>>,
        call: &Call,
    ) -> Sent {
        let address = || self.address(index).to_owned();
        let patience = self.config.request_timeout + call.wait;
        let asked = timeout(patience, async {
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                Err(mut failed) => {
                    return match failed.take_message() {
                        Some(request) => Err(Ok(Box::new(request))),
                        None => Err(Err(failed.into_error().to_string())),
                    };
                }
            };
            let status = response.status().as_u16();
            let read = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = read.map_err(|error| Err(error.to_string()))?.to_bytes();
            Ok(Answer { status, body })
        });
        let in_doubt = |error| Sent::Done(Err(Failed::InDoubt(error)));
        match asked.await {
            Ok(Ok(answer)) => {
                self.keep(index, sender);
                Sent::Done(Ok(answer))
            }
            Ok(Err(Ok(request))) => Sent::NotTaken(request),
            Ok(Err(Err(cause))) => in_doubt(Error::Disconnected { address: address(), cause }),
            Err(_) => in_doubt(Error::TimedOut { doing: call.doing.clone(), after: patience }),
        }
    }
}

impl Answer {
    /// The broker cannot just now.
    fn may_pass(&self) -> bool {
        matches!(self.status, 421 | 503)
    }

    fn has_results(&self) -> bool {
        #[derive(Deserialize)]
        struct Results {
            #[serde(rename = "results")]
            _results: Vec<serde::de::IgnoredAny>,
        }
        serde_json::from_slice::<Results>(&self.body).is_ok()
    }
}

fn refusal(call: &Call, answer: &Answer) -> Error {
    let Ok(Refused { error }) = serde_json::from_slice::<Refused>(&answer.body) else {
        return Error::HttpRefused {
            doing: call.doing.clone(),
            status: answer.status,
            code: "UNKNOWN".to_owned(),
            message: format!("the answer has status {}", answer.status),
            help: Some("is this the HTTP listener of a Towpath broker?".to_owned()),
        };
    };
    let Refusal { code, message, help } = error;
    let (doing, status) = (call.doing.clone(), answer.status);
    Error::HttpRefused { doing, status, code, message, help }
}

/// A name as a piece of a path or query.
pub(crate) fn encoded(name: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_omit_the_port_and_name_the_protocol() {
        let config = HttpConfig::new("a, b:1, http://c:8081/, [::1]").unwrap();
        assert_eq!(config.addresses, ["a:8080", "b:1", "c:8081", "[::1]:8080"]);
        assert_eq!(HttpConfig::new("a:9092").unwrap().addresses, ["a:9092"]);
        assert!(HttpConfig::new(" ").is_err());
    }

    #[test]
    fn names_are_safe_in_paths() {
        assert_eq!(encoded("a-b.c_d~1"), "a-b.c_d~1");
        assert_eq!(encoded("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }
}
