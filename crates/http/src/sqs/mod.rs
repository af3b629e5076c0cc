//! Amazon SQS: its 23 actions over the queues of this cluster, on the port of HTTP and on one of its own.
//!
//! ```text
//! bytes ─▶ who signed it? ─▶ crates/sqs reads it ─▶ a file per action asks ../queues/ ─▶ crates/sqs writes the answer
//! ```
//!
//! A queue is the same one here and over our own API: what SQS calls an attribute is a property of its
//! topic (`attributes.rs`). What surprises: nothing here is passed on to another broker as SQS; the shared
//! services ask other brokers for what those lead, so any broker serves any queue.

mod access;
mod attributes;
mod call;
mod change_visibility;
mod create_queue;
mod delete_message;
mod list_queues;
mod message_id;
mod move_tasks;
mod permissions;
mod queue;
mod queue_attributes;
mod receive_message;
mod refusals;
mod send_message;
mod settings;
mod tags;

pub use settings::{AccessKeys, InvalidAccessKeys, SqsSettings};

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use towpath_sqs::{
    Answer, Encoding, Error, HttpAnswer, Incoming, decode, encode_answer, encode_error,
};

use crate::answer::charged;
use crate::api_error::ApiError;
use crate::app::App;
use crate::body::read_body;
use crate::memory::Share;

use call::Call;
pub(crate) use queue::KnownQueues;

const TARGET: &str = "x-amz-target";
const TARGET_PREFIX: &[u8] = b"AmazonSQS.";

/// Whether a request on the port of HTTP is one of SQS. No operation of ours has such a path, or takes
/// such a header.
pub(crate) fn is_sqs<B>(request: &axum::http::Request<B>) -> bool {
    let headers = request.headers();
    if headers.get(TARGET).is_some_and(|target| target.as_bytes().starts_with(TARGET_PREFIX)) {
        return true;
    }
    is_path_of_sqs(request.uri().path())
        && (has_action(request.uri().query()) || is_form(request.method(), headers))
}

/// `/`, `/{account}/{queue}`, `/queue/{queue}`.
fn is_path_of_sqs(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    match (segments.next(), segments.next(), segments.next()) {
        (None, ..) => true,
        (Some(account), Some(_), None) => {
            account == "queue" || account.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    }
}

fn has_action(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("Action=")))
}

fn is_form(method: &Method, headers: &HeaderMap) -> bool {
    let form = "application/x-www-form-urlencoded";
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_form = content_type.is_some_and(|given| {
        given.get(..form.len()).is_some_and(|given| given.eq_ignore_ascii_case(form))
    });
    method == Method::POST && is_form
}

/// What becomes of a request of SQS, and which action it was, for those who count.
pub(crate) async fn handle(app: &App, request: Request) -> (Response, &'static str) {
    let request_id = app.request_ids.next();
    let (parts, body) = request.into_parts();
    let mut counted = "sqs";
    let encoding =
        if parts.headers.contains_key(TARGET) { Encoding::Json } else { Encoding::Query };
    let answered = answer(app, parts, body, &mut counted).await;
    let response = match answered {
        Ok((answer, shares)) => response(encode_answer(&answer, encoding, &request_id), shares),
        Err(error) => {
            if !error.kind().is_senders_fault()
                && let Some(suppressed) = app.node.may_complain()
            {
                tracing::warn!(%request_id, suppressed, "an SQS request failed: {error}");
            }
            response(encode_error(&error, encoding, &request_id), Vec::new())
        }
    };
    (response, counted)
}

/// A refusal that comes before the request is read.
pub(crate) fn refuse(app: &App, error: ApiError, headers: &HeaderMap) -> Response {
    let encoding = if headers.contains_key(TARGET) { Encoding::Json } else { Encoding::Query };
    let request_id = app.request_ids.next();
    response(encode_error(&refusals::of(error), encoding, &request_id), Vec::new())
}

async fn answer(
    app: &App,
    parts: Parts,
    body: Body,
    counted: &mut &'static str,
) -> Result<(Answer, Vec<Share>), Error> {
    let body = read_body(&app.memory, &parts.headers, body).await;
    let (body, share) = body.map_err(refusals::of)?;
    let signer = access::signer(app, &parts, &body)?;
    let request = decode(&Incoming {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        target: target(&parts)?,
        body: &body,
    })?;
    *counted = request.action().name();
    let call = Call::new(app, &parts, signer);
    // What was read of the body is about as large, and lives as long. Headers hold the buffer that the request was
    // read into, and this may wait for long.
    drop((body, parts));
    let answered = call.carry_out(request).await;
    drop(share);
    answered
}

fn target(parts: &Parts) -> Result<Option<&str>, Error> {
    let target = parts.headers.get(TARGET).map(HeaderValue::to_str).transpose();
    target.map_err(|_| refusals::malformed("X-Amz-Target is no text."))
}

fn response(answer: HttpAnswer, shares: Vec<Share>) -> Response {
    let mut response = Response::new(charged(answer.body, shares));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    for (name, value) in answer.headers {
        // Codes and ids are plain words.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = axum::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn requests_of_sqs_are_told_from_ours() {
        let json = ("x-amz-target", "AmazonSQS.ListQueues");
        let form = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        for (method, uri, headers) in [
            ("POST", "/", vec![json]),
            ("POST", "/000000000000/jobs", vec![json]),
            ("POST", "/", vec![form]),
            ("POST", "/queue/jobs", vec![form]),
            ("GET", "/?Action=ListQueues&Version=2012-11-05", vec![]),
            ("GET", "/000000000000/jobs.fifo?Version=2012-11-05&Action=ReceiveMessage", vec![]),
        ] {
            assert!(is_sqs(&request(method, uri, &headers)), "{method} {uri}");
        }
        for (method, uri, headers) in [
            ("GET", "/", vec![]),
            ("POST", "/", vec![]),
            ("POST", "/topics/jobs", vec![form]),
            ("POST", "/queues", vec![form]),
            ("GET", "/queues/jobs?Action=ListQueues", vec![]),
            ("POST", "/", vec![("x-amz-target", "DynamoDB_20120810.ListTables")]),
        ] {
            assert!(!is_sqs(&request(method, uri, &headers)), "{method} {uri}");
        }
    }
}
