//! Which path does what. The list is the API: a test compares it with `openapi.json`.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX};
use crate::{
    accept_loss, append_batch, balance, commit_offsets, committed_offsets, create_topic,
    delete_topic, drain_node, find_offsets, forward, front_page, group_lag, health, list_groups,
    list_losses, list_moves, list_nodes, list_replicas, list_sizes, list_topics, measure_lag,
    metrics, node_self, openapi, publish_messages, queues, read_messages, remove_node,
    restart_node, set_format_level, show_cluster, show_node, show_producer, show_topic, sqs, tasks,
};

/// One operation.
pub(crate) struct Route {
    /// As `openapi.json` writes it, in small letters.
    #[cfg_attr(not(test), expect(dead_code, reason = "the router knows it from the action"))]
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    action: MethodRouter<App>,
}

fn route(method: &'static str, path: &'static str, action: MethodRouter<App>) -> Route {
    Route { method, path, action }
}

/// Every operation.
pub(crate) fn routes() -> Vec<Route> {
    const MESSAGES: &str = "/topics/{topic}/messages";
    const REPLICAS: &str = "/topics/{topic}/partitions/{partition}/replicas";
    const LOSS: &str = "/topics/{topic}/partitions/{partition}/accept-loss";
    const MOVE: &str = "/cluster/moves/{topic}/{partition}";
    const READ: &str = "/topics/{topic}/partitions/{partition}/messages";
    const BATCHES: &str = "/topics/{topic}/partitions/{partition}/batches";
    const PRODUCER: &str = "/topics/{topic}/partitions/{partition}/producers/{producer}";
    const GROUP_OFFSETS: &str = "/groups/{group}/offsets";
    let mut all = vec![
        route("get", "/", get(front_page::handle)),
        route("get", "/topics", get(list_topics::handle)),
        route("post", "/topics", post(create_topic::handle)),
        route("get", "/topics/{topic}", get(show_topic::handle)),
        route("delete", "/topics/{topic}", delete(delete_topic::handle)),
        route("post", MESSAGES, post(publish_messages::handle)),
        route("get", READ, get(read_messages::handle)),
        route("post", BATCHES, post(append_batch::handle)),
        route("get", PRODUCER, get(show_producer::handle)),
        route("get", "/topics/{topic}/offsets", get(find_offsets::handle)),
        route("get", REPLICAS, get(list_replicas::handle)),
        route("get", LOSS, get(accept_loss::propose)),
        route("post", LOSS, post(accept_loss::accept)),
        route("get", "/groups", get(list_groups::handle)),
        route("get", "/groups/{group}/lag", get(group_lag::handle)),
        route("post", "/lag", post(measure_lag::handle)),
        route("get", "/losses", get(list_losses::handle)),
        route("get", GROUP_OFFSETS, get(committed_offsets::handle)),
        route("post", GROUP_OFFSETS, post(commit_offsets::handle)),
        route("get", "/cluster", get(show_cluster::handle)),
        route("get", "/cluster/moves", get(list_moves::handle)),
        route("delete", MOVE, delete(list_moves::cancel)),
        route("get", "/cluster/balance", get(balance::plan)),
        route("post", "/cluster/balance", post(balance::carry_out)),
        route("get", "/cluster/sizes", get(list_sizes::handle)),
        route("get", "/cluster/losses", get(accept_loss::list)),
        route("post", "/cluster/format-level", post(set_format_level::handle)),
        route("get", "/nodes", get(list_nodes::handle)),
        route("get", "/nodes/{node}", get(show_node::handle)),
        route("delete", "/nodes/{node}", delete(remove_node::handle)),
        route("post", "/nodes/{node}/drain", post(drain_node::drain)),
        route("post", "/nodes/{node}/undrain", post(drain_node::undrain)),
        route("post", "/nodes/{node}/restart", post(restart_node::handle)),
        route("get", "/nodes/{node}/self", get(node_self::handle)),
        route("get", "/openapi.json", get(openapi::handle)),
        route("get", "/metrics", get(metrics::handle)),
        route("get", "/livez", get(health::live)),
        route("get", "/readyz", get(health::ready)),
        route("get", "/healthz", get(health::ready)),
    ];
    let more = queues::routes().into_iter().chain(tasks::routes());
    all.extend(more.map(|(method, path, action)| route(method, path, action)));
    all
}

/// What answers the requests of a listener. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    app: Arc<App>,
    router: TowerToHyperService<Router>,
}

impl Front {
    pub(crate) fn new(app: App) -> Front {
        let router = TowerToHyperService::new(router(app.clone()));
        Front { app: Arc::new(app), router }
    }

    pub(crate) fn app(&self) -> &App {
        &self.app
    }
}

impl Service<hyper::Request<Incoming>> for Front {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    /// SQS has no paths to choose by, and needs no router.
    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        if !self.app.is_for_sqs && !sqs::is_sqs(&request) {
            return Box::pin(self.router.call(request));
        }
        let app = Arc::clone(&self.app);
        Box::pin(async move { Ok(admit_sqs(&app, request.map(Body::new)).await) })
    }
}

/// Everything but SQS.
fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in routes() {
        router = router.route(route.path, route.action);
    }
    router
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(app.clone(), forward::route))
        .layer(middleware::from_fn_with_state(app.clone(), admit))
        .with_state(app)
}

/// Checks what holds for every request, and counts it.
async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let refused = check_headers(request.headers())
        .and_then(|()| check_host(app.has_local_names_only, request.headers()))
        .and_then(|()| check_origin(&method, request.headers()))
        .and_then(|()| check_started(&app, request.uri().path()));
    let response = match refused {
        Ok(()) => {
            // What the action does between two waits may touch a disk.
            let mut action = std::pin::pin!(next.run(request));
            let act =
                |context: &mut Context<'_>| app.node.guarded(|| action.as_mut().poll(context));
            std::future::poll_fn(act).await
        }
        Err(error) => error.into_response(),
    };
    // Anything else is not counted by name, or strangers could make up series without end.
    let route = matched.as_ref().map_or("none", MatchedPath::as_str);
    app.metrics.count(&method, route, response.status());
    response
}

/// The same for requests of SQS, whose refusals look otherwise.
async fn admit_sqs(app: &App, request: Request) -> Response {
    let (method, headers) = (request.method().clone(), request.headers());
    let refused = check_headers(headers)
        .and_then(|()| check_host(app.has_local_names_only, headers))
        .and_then(|()| check_origin(&method, headers));
    let (response, route) = match refused {
        Ok(()) => {
            let mut action = std::pin::pin!(sqs::handle(app, request));
            let act =
                |context: &mut Context<'_>| app.node.guarded(|| action.as_mut().poll(context));
            std::future::poll_fn(act).await
        }
        Err(error) => (sqs::refuse(app, error, headers), "sqs"),
    };
    app.metrics.count(&method, route, response.status());
    response
}

/// Until the cluster counts this broker as one that is there, it does not know which of its metadata
/// is committed, and would say of topics that they do not exist.
fn check_started(app: &App, path: &str) -> Result<(), ApiError> {
    const RESTS_ON_METADATA: [&str; 5] = ["/topics", "/queues", "/tasks", "/groups", "/losses"];
    let rests = RESTS_ON_METADATA.iter().any(|prefix| path.starts_with(prefix));
    if !rests || !app.readiness.is_starting() {
        return Ok(());
    }
    let message = "the broker is starting: it has not come to its cluster yet";
    Err(ApiError::new(Code::Unavailable, message)
        .with_help("try again, or ask another broker; /readyz says when it is ready"))
}

fn check_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes <= HEADER_BYTES_MAX && headers.len() <= HEADERS_MAX {
        return Ok(());
    }
    let message = format!("{} headers with {bytes} bytes", headers.len());
    Err(ApiError::new(Code::HeadersTooLarge, message)
        .with_help(format!("at most {HEADERS_MAX} headers with {HEADER_BYTES_MAX} bytes")))
}

/// Where only programs of this machine are expected, they call it by a local name.
fn check_host(has_local_names_only: bool, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(host) = headers.get("host").filter(|_| has_local_names_only) else { return Ok(()) };
    let host = host.to_str().unwrap_or_default();
    if is_local_name(host) {
        return Ok(());
    }
    Err(ApiError::new(Code::OriginNotAllowed, format!("this server is not called {host:?}"))
        .with_help("use localhost or an address; `towpath serve` answers to every name"))
}

/// `localhost`, a name below it, or an address; each with or without a port.
fn is_local_name(host: &str) -> bool {
    let port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_number);
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok() && port(rest);
    }
    let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
    let name = name.to_ascii_lowercase();
    let is_local = name == "localhost"
        || name.ends_with(".localhost")
        // What containers call the machine that they run on.
        || name == "host.docker.internal"
        || name.parse::<Ipv4Addr>().is_ok();
    is_local && port(rest)
}

fn is_number(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// A web page that somebody merely visits can send requests to this machine from inside their
/// browser. Browsers say so by `Origin`; programs do not send it.
fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get("origin") else { return Ok(()) };
    if method.is_safe() {
        return Ok(());
    }
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_own = origin.split_once("://").is_some_and(|(_, origin)| origin == host);
    if is_own && !host.is_empty() {
        return Ok(());
    }
    let message = format!("a page of {origin:?} may not change anything here");
    Err(ApiError::new(Code::OriginNotAllowed, message)
        .with_help("send the request from a server, or from a page of this address"))
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::new(Code::NotFound, format!("there is nothing at {}", uri.path()))
        .with_help("GET / says what lives where, /openapi.json says it in full")
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("{method} is not possible on {}", uri.path()))
        .with_help("the Allow header names the methods that are")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_local_names_are_local() {
        for host in [
            "localhost",
            "localhost:8080",
            "LocalHost:80",
            "a.localhost",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:8080",
            "192.168.1.7:80",
            "host.docker.internal:8080",
        ] {
            assert!(is_local_name(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost:",
            "localhost:x",
            "[::1",
            "[evil]",
            "evil.example:localhost",
        ] {
            assert!(!is_local_name(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_origins_may_look_but_not_change() {
        let foreign = headers(&[("origin", "http://evil.example"), ("host", "localhost:8080")]);
        let own = headers(&[("origin", "http://localhost:8080"), ("host", "localhost:8080")]);
        let sandboxed = headers(&[("origin", "null"), ("host", "localhost:8080")]);
        assert!(check_origin(&Method::GET, &foreign).is_ok());
        assert_eq!(check_origin(&Method::POST, &foreign).unwrap_err().code, Code::OriginNotAllowed);
        assert!(check_origin(&Method::POST, &sandboxed).is_err());
        assert!(check_origin(&Method::POST, &own).is_ok());
        assert!(check_origin(&Method::POST, &HeaderMap::new()).is_ok());
    }

    #[test]
    fn many_or_large_headers_are_refused() {
        let mut many = HeaderMap::new();
        for index in 0..=HEADERS_MAX {
            let name = axum::http::HeaderName::try_from(format!("x-{index}")).unwrap();
            many.insert(name, "1".parse().unwrap());
        }
        assert_eq!(check_headers(&many).unwrap_err().code, Code::HeadersTooLarge);
        let mut large = HeaderMap::new();
        large.insert("x", "a".repeat(HEADER_BYTES_MAX).parse().unwrap());
        assert!(check_headers(&large).is_err());
    }
}
