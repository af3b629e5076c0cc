//! Any broker answers any request: what concerns a partition or a group that another one leads is
//! passed on to that one, and its answer is passed back.
//!
//! ```text
//! client ─▶ any broker ── hop ─▶ the one that leads       never further
//!                      ◀─ 421 ── it does not (any more): asked again once, after a look at the metadata
//! ```
//!
//! Who leads is looked up in this broker's copy of the metadata, which follows within milliseconds. A
//! request that came by a hop is never passed on: at worst a client is told to try again.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};

use crate::api_error::{ApiError, Code, Failed};
use crate::app::App;
use crate::body::read_body;
use crate::limits::{BODY_BYTES_MAX, COMMIT_WAIT_MAX, READ_WAIT_MAX};
use crate::refusals;

/// Names the broker that passed a request on.
pub(crate) const HOP: HeaderName = HeaderName::from_static("towpath-forwarded-by");

/// How long a broker may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// How long its answer may take: as long as the longest request, and some.
const ANSWER_MAX: Duration = Duration::from_secs(35);
const _: () = assert!(READ_WAIT_MAX.as_secs() < ANSWER_MAX.as_secs());
const _: () = assert!(COMMIT_WAIT_MAX.as_secs() < ANSWER_MAX.as_secs());
/// How long the metadata has to follow a change before a broker is asked again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What a request is about, if that lies at one broker.
enum Subject {
    Partition { topic: String, partition: i32 },
    Group(String),
    Node(BrokerId),
}

impl Subject {
    fn of(route: &str, method: &Method, parameters: &RawPathParams) -> Option<Subject> {
        let parameter = |wanted: &str| {
            let mut found = parameters.iter().filter(|(name, _)| *name == wanted);
            found.next().map(|(_, value)| value.to_owned())
        };
        match route {
            "/topics/{topic}/partitions/{partition}/messages"
            | "/topics/{topic}/partitions/{partition}/batches"
            | "/topics/{topic}/partitions/{partition}/producers/{producer}" => {
                Some(Subject::Partition {
                    topic: parameter("topic")?,
                    partition: parameter("partition")?.parse().ok()?,
                })
            }
            "/queues/{queue}/partitions/{partition}/select"
            | "/queues/{queue}/partitions/{partition}/dispose"
            | "/queues/{queue}/partitions/{partition}/subscriptions" => Some(Subject::Partition {
                topic: parameter("queue")?,
                partition: parameter("partition")?.parse().ok()?,
            }),
            "/groups/{group}/offsets" => Some(Subject::Group(parameter("group")?)),
            "/groups/{group}/lag" if method == Method::GET => {
                Some(Subject::Group(parameter("group")?))
            }
            "/nodes/{node}/self" | "/nodes/{node}/restart" => {
                Some(Subject::Node(BrokerId(parameter("node")?.parse().ok()?)))
            }
            _ => None,
        }
    }

    /// Makes the place for the first commit of a cluster: only then it is known who takes it.
    async fn make(&self, app: &App, method: &Method) -> Result<(), ApiError> {
        match self {
            Subject::Group(_) if method == Method::POST => {
                app.node.ensure_offsets_topic().await.map_err(refusals::of_unavailable)
            }
            _ => Ok(()),
        }
    }

    /// The broker that leads it; `None`: nobody does, or there is no such thing.
    fn owner(&self, app: &App) -> Option<BrokerId> {
        let driver = app.node.driver();
        let id = match self {
            Subject::Group(group) => driver.group_place(group).ok()?,
            Subject::Partition { topic, partition } => {
                let topic = driver.image().topic(topic)?.id;
                TopicPartition { topic, partition: PartitionIndex(*partition) }
            }
            Subject::Node(node) => return driver.image().broker(*node).map(|broker| broker.id),
        };
        leader_of(app, id)
    }
}

/// Who leads a partition, as far as is known here.
pub(crate) fn leader_of(app: &App, id: TopicPartition) -> Option<BrokerId> {
    app.node.driver().image().partition(id)?.leader
}

/// Whether a request was passed on by another broker.
pub(crate) fn is_hop(headers: &HeaderMap) -> bool {
    headers.contains_key(HOP)
}

/// The controller's answer to a question that only it can answer in full; `None`: this broker is to
/// answer, because it is the controller, another broker has asked it, or the controller does not answer.
pub(crate) async fn by_controller(app: &App, headers: &HeaderMap, uri: &Uri) -> Option<Response> {
    let driver = app.node.driver();
    let controller =
        driver.controller().filter(|id| *id != driver.broker_id() && !is_hop(headers))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let answer = ask(app, controller, &Method::GET, path, Bytes::new()).await.ok()?;
    (!answer.status().is_server_error()).then_some(answer)
}

/// Asks another broker for a value.
///
/// # Errors
/// When it cannot be asked, or answers something else.
pub(crate) async fn ask_value<T: DeserializeOwned>(
    app: &App,
    broker: BrokerId,
    method: &Method,
    path: &str,
    body: Bytes,
) -> Result<T, ApiError> {
    let asked = ask(app, broker, method, path, body).await;
    read_value(broker, path, asked.map_err(NotAsked::into_error)?).await
}

/// Reads what a broker has answered; an error of this API is passed on as it is.
pub(crate) async fn read_value<T: DeserializeOwned>(
    broker: BrokerId,
    path: &str,
    answer: Response,
) -> Result<T, ApiError> {
    let status = answer.status();
    let body = to_bytes(answer.into_body(), BODY_BYTES_MAX).await.unwrap_or_default();
    if status.is_success()
        && let Ok(value) = serde_json::from_slice(&body)
    {
        return Ok(value);
    }
    if let Ok(Refused { error }) = serde_json::from_slice(&body) {
        return Err(error.into_error());
    }
    let message = format!("broker {broker} answers {path} with status {status}");
    Err(ApiError::new(Code::Unavailable, message).with_help("try again"))
}

#[derive(Deserialize)]
struct Refused {
    error: Failed,
}

/// The other brokers that count as there.
pub(crate) fn others_there(app: &App) -> Vec<BrokerId> {
    let image = app.node.driver().image();
    let others = image.brokers().filter(|broker| broker.id != image.me() && !broker.fenced);
    others.map(|broker| broker.id).collect()
}

/// Asks several brokers the same, each with a body of its own, all at once.
pub(crate) async fn ask_each<T: DeserializeOwned + Send + 'static>(
    app: &App,
    method: &Method,
    path: &str,
    bodies: impl IntoIterator<Item = (BrokerId, Bytes)>,
) -> Vec<(BrokerId, Result<T, ApiError>)> {
    let mut asked = JoinSet::new();
    for (broker, body) in bodies {
        let (app, method, path) = (app.clone(), method.clone(), path.to_owned());
        asked.spawn(async move { (broker, ask_value(&app, broker, &method, &path, body).await) });
    }
    asked.join_all().await
}

/// Answers here what lies here, and passes on the rest.
pub(crate) async fn route(
    State(app): State<App>,
    matched: Option<MatchedPath>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let me = app.node.driver().broker_id();
    let route = matched.as_ref().map_or("", MatchedPath::as_str);
    // What cannot be read is for the action to refuse, in its own words.
    let subject = parameters.ok().and_then(|p| Subject::of(route, request.method(), &p));
    let Some(subject) = subject else { return next.run(request).await };
    // Both of their own: what is answered here may wait for long, and has no room for them.
    if let Err(error) = Box::pin(subject.make(&app, request.method())).await {
        return error.into_response();
    }
    match subject.owner(&app) {
        Some(owner) if owner != me && is_hop(request.headers()) => misdirected(me).into_response(),
        Some(owner) if owner != me => Box::pin(pass_on(&app, &subject, owner, request))
            .await
            .unwrap_or_else(IntoResponse::into_response),
        _ => next.run(request).await,
    }
}

async fn pass_on(
    app: &App,
    subject: &Subject,
    owner: BrokerId,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let (bytes, _share) = read_body(&app.memory, &parts.headers, body).await?;
    let asked = ask(app, owner, &parts.method, &path, bytes.clone()).await;
    // It does not lead any more, or is gone: by now it may be known who does.
    let is_stale = match &asked {
        Ok(response) => response.status() == StatusCode::MISDIRECTED_REQUEST,
        Err(NotAsked::NotSent(_)) => true,
        Err(NotAsked::NotAnswered(_)) => false,
    };
    if is_stale {
        sleep(LOOK_AGAIN_AFTER).await;
        let owner = subject.owner(app).unwrap_or(owner);
        return match ask(app, owner, &parts.method, &path, bytes).await {
            Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST => {
                Err(misdirected(owner))
            }
            asked => asked.map_err(NotAsked::into_error),
        };
    }
    asked.map_err(NotAsked::into_error)
}

/// Why there is no answer of another broker.
pub(crate) enum NotAsked {
    /// It has not got the request: asking another one is safe.
    NotSent(ApiError),
    /// It may have done what was asked.
    NotAnswered(ApiError),
}

impl NotAsked {
    pub(crate) fn into_error(self) -> ApiError {
        let (NotAsked::NotSent(error) | NotAsked::NotAnswered(error)) = self;
        error
    }
}

/// Nothing has been done: this broker does not lead what the request is about.
pub(crate) fn misdirected(broker: BrokerId) -> ApiError {
    let message = format!("broker {broker} does not lead what the request is about");
    ApiError::new(Code::Misdirected, message).with_help("try again: leaderships have just changed")
}

/// Asks another broker.
pub(crate) async fn ask(
    app: &App,
    broker: BrokerId,
    method: &Method,
    path: &str,
    body: Bytes,
) -> Result<Response, NotAsked> {
    let error = |what: &str| {
        ApiError::new(Code::Unavailable, format!("broker {broker} {what}")).with_help("try again")
    };
    let not_sent = |what: &str| NotAsked::NotSent(error(what));
    let address = app.node.driver().image().broker(broker).and_then(|b| b.address("HTTP").cloned());
    let Some(address) = address else {
        return Err(not_sent("has not said where it serves HTTP (--advertise-http)"));
    };
    let host = match address.host.contains(':') {
        true => format!("[{}]:{}", address.host, address.port),
        false => format!("{}:{}", address.host, address.port),
    };
    let unreachable = || not_sent(&format!("cannot be reached at http://{host}"));
    let dialled = timeout(CONNECT_MAX, TcpStream::connect((address.host.as_str(), address.port)));
    let socket = dialled.await.ok().and_then(Result::ok).ok_or_else(unreachable)?;
    let shaken = http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = shaken.map_err(|_| unreachable())?;
    // Ends with its one answer, or when nobody reads that.
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, &host)
        .header(header::CONNECTION, HeaderValue::from_static("close"))
        .header(header::CONTENT_LENGTH, body.len())
        .header(HOP, app.node.driver().broker_id().0)
        .body(Body::from(body))
        .map_err(|_| not_sent("cannot be asked this"))?;
    let not_answered = |what: &str| NotAsked::NotAnswered(error(what));
    match timeout(ANSWER_MAX, sender.send_request(request)).await {
        Ok(Ok(response)) => {
            let (mut parts, body) = response.into_parts();
            // They are about the connection between brokers.
            for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
                parts.headers.remove(name);
            }
            Ok(Response::from_parts(parts, Body::new(body)))
        }
        Ok(Err(_)) => Err(not_answered("broke off while it was asked")),
        Err(_) => Err(not_answered(&format!("does not answer within {ANSWER_MAX:?}"))),
    }
}
