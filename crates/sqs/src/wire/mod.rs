//! Bytes on HTTP to requests, and answers to bytes.
//!
//! There are two encodings of everything: AWS JSON 1.0, which SDKs speak since November 2023, and
//! Query (a form, answered in XML), which older ones and boto3 up to April 2024 speak. The header
//! `X-Amz-Target` tells them apart. Every action is read once, from [`Fields`], which come from
//! either; and written once, to a [`Writer`] of either.

mod fields;
mod form;
mod writer;

use serde_json::Value;

pub(crate) use self::fields::{Fields, KEY_VALUE, NAME_VALUE};
pub(crate) use self::form::{pairs as query_parameters, unescape};
pub(crate) use self::writer::Writer;
use crate::action::Action;
use crate::actions::{Answer, Request};
use crate::error::{Error, ErrorKind};
use crate::queue_name::QueueReference;
use crate::refusals;

/// Before the action in `X-Amz-Target`.
const TARGET_PREFIX: &str = "AmazonSQS.";

/// How a client has encoded its request, and wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// AWS JSON 1.0.
    Json,
    /// A form or a query string, answered in XML.
    Query,
}

/// A request as it came over HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'a> {
    /// `POST`, or `GET`.
    pub method: &'a str,
    /// The path, as it was sent: it may name the queue.
    pub path: &'a str,
    /// What follows the `?`, as it was sent, or nothing.
    pub query: &'a str,
    /// The header `X-Amz-Target`.
    pub target: Option<&'a str>,
    /// All of the body.
    pub body: &'a [u8],
}

impl Incoming<'_> {
    /// In which encoding it is, and so in which it is to be answered, even if it cannot be read.
    pub fn encoding(&self) -> Encoding {
        if self.target.is_some() { Encoding::Json } else { Encoding::Query }
    }
}

/// Reads a request and checks it against all that does not depend on the queue.
///
/// The queue is that of the parameter `QueueUrl`, or else that of the path: older SDKs post to the
/// queue's URL.
///
/// # Errors
/// What to answer, with [`encode_error`].
pub fn decode(incoming: &Incoming<'_>) -> Result<Request, Error> {
    let path_queue = QueueReference::from_path(incoming.path);
    let (action, mut fields) = match incoming.target {
        Some(target) => (action_of_target(target)?, json_fields(incoming)?),
        None => query_fields(incoming)?,
    };
    fields.set_path_queue(path_queue);
    Request::read(action, fields)
}

fn action_of_target(target: &str) -> Result<Action, Error> {
    let name = target.strip_prefix(TARGET_PREFIX).unwrap_or(target);
    Action::by_name(name).ok_or_else(|| unknown_action(name))
}

fn json_fields(incoming: &Incoming<'_>) -> Result<Fields, Error> {
    if incoming.method != "POST" {
        return Err(malformed("Requests in JSON are posted."));
    }
    if incoming.body.is_empty() {
        return Ok(Fields::json(serde_json::Map::new()));
    }
    match serde_json::from_slice(incoming.body) {
        Ok(Value::Object(object)) => Ok(Fields::json(object)),
        Ok(_) => Err(malformed("The body is no JSON object.")),
        Err(error) => Err(malformed(format!("The body is no JSON: {error}"))),
    }
}

fn query_fields(incoming: &Incoming<'_>) -> Result<(Action, Fields), Error> {
    let mut pairs = form::pairs(incoming.query)?;
    match incoming.method {
        "GET" => {}
        "POST" => {
            let body = std::str::from_utf8(incoming.body)
                .map_err(|_| malformed("The body is no UTF-8 text."))?;
            pairs.extend(form::pairs(body)?);
        }
        _ => return Err(malformed("Requests are posted, or got.")),
    }
    let mut fields = Fields::query(pairs);
    let Some(name) = fields.text("Action")? else {
        return Err(Error::new(
            ErrorKind::MissingAction,
            "The request must contain the parameter Action.",
        ));
    };
    let action = Action::by_name(&name).ok_or_else(|| unknown_action(&name))?;
    Ok((action, fields))
}

fn unknown_action(name: &str) -> Error {
    let message = format!("The action {name} is not valid for this endpoint.");
    Error::new(ErrorKind::InvalidAction, message)
}

pub(crate) fn malformed(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::MalformedInput, message)
}

/// An answer as it goes out over HTTP. A `Date` belongs to it too: SDKs correct their clocks by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// Names and values, Content-Type and request id among them.
    pub headers: Vec<(&'static str, String)>,
    /// All of the body.
    pub body: Vec<u8>,
}

const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

/// Writes the answer to an action that was carried out. `request_id` is for people who compare logs.
pub fn encode_answer(answer: &Answer, encoding: Encoding, request_id: &str) -> HttpAnswer {
    let body = match encoding {
        Encoding::Json => {
            let mut writer = Writer::json();
            answer.write(&mut writer);
            writer.finish()
        }
        Encoding::Query => {
            let name = answer.action().name();
            let mut writer = Writer::xml();
            writer.open_xml(&format!("{name}Response xmlns=\"{NAMESPACE}\""));
            if answer.has_result() {
                writer.open_xml(&format!("{name}Result"));
                answer.write(&mut writer);
                writer.close_xml(&format!("{name}Result"));
            }
            writer.open_xml("ResponseMetadata");
            writer.text("RequestId", request_id);
            writer.close_xml("ResponseMetadata");
            writer.close_xml(&format!("{name}Response"));
            writer.finish()
        }
    };
    HttpAnswer { status: 200, headers: headers(encoding, request_id), body }
}

/// Writes a refusal. It carries both names of the error where the encoding has room for both.
pub fn encode_error(error: &Error, encoding: Encoding, request_id: &str) -> HttpAnswer {
    let kind = error.kind();
    let fault = if kind.is_senders_fault() { "Sender" } else { "Receiver" };
    let mut headers = headers(encoding, request_id);
    let body = match encoding {
        Encoding::Json => {
            headers.push(("x-amzn-query-error", format!("{};{fault}", kind.code())));
            let mut writer = Writer::json();
            writer.text("__type", &kind.qualified_shape());
            writer.text("message", error.message());
            writer.finish()
        }
        Encoding::Query => {
            let mut writer = Writer::xml();
            writer.open_xml(&format!("ErrorResponse xmlns=\"{NAMESPACE}\""));
            writer.open_xml("Error");
            writer.text("Type", fault);
            writer.text("Code", &kind.code());
            writer.text("Message", message_in_query(error));
            writer.open_xml("Detail");
            writer.close_xml("Detail");
            writer.close_xml("Error");
            writer.text("RequestId", request_id);
            writer.close_xml("ErrorResponse");
            writer.finish()
        }
    };
    HttpAnswer { status: kind.status(), headers, body }
}

/// AWS has kept one older text.
fn message_in_query(error: &Error) -> &str {
    if *error == refusals::queue_does_not_exist() {
        "The specified queue does not exist for this wsdl version."
    } else {
        error.message()
    }
}

fn headers(encoding: Encoding, request_id: &str) -> Vec<(&'static str, String)> {
    let content_type = match encoding {
        Encoding::Json => "application/x-amz-json-1.0",
        Encoding::Query => "text/xml",
    };
    vec![("content-type", content_type.to_owned()), ("x-amzn-requestid", request_id.to_owned())]
}
