//! Requests by hand.

use serde_json::Value;
use towpath_sqs::{Error, HttpAnswer, Incoming, Request, decode};

/// Posts an object to an action.
pub(crate) fn json(action: &str, body: &Value) -> Result<Request, Error> {
    let target = format!("AmazonSQS.{action}");
    let body = body.to_string();
    decode(&Incoming {
        method: "POST",
        path: "/",
        query: "",
        target: Some(&target),
        body: body.as_bytes(),
    })
}

/// Posts a form to a path.
pub(crate) fn form(path: &str, body: &str) -> Result<Request, Error> {
    decode(&Incoming { method: "POST", path, query: "", target: None, body: body.as_bytes() })
}

/// Gets a path with a query string.
pub(crate) fn get(path: &str, query: &str) -> Result<Request, Error> {
    decode(&Incoming { method: "GET", path, query, target: None, body: b"" })
}

/// The refusal of a request in JSON, as `Kind: text`.
pub(crate) fn refusal(action: &str, body: &Value) -> String {
    json(action, body).expect_err("it should be refused").to_string()
}

pub(crate) fn body(answer: &HttpAnswer) -> &str {
    std::str::from_utf8(&answer.body).expect("answers are texts")
}
