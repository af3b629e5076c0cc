//! A client of SQS of few words, in both encodings.

use serde_json::{Value, json};

use crate::support::{Answer, Broker};

/// What SDKs send beside: nobody looks at the signature where everybody is let in.
pub(crate) const ANYBODY: &str = "AWS4-HMAC-SHA256 Credential=me/20261130/eu-west-1/sqs/aws4_request, \
                                  SignedHeaders=host;x-amz-date, Signature=00";

/// Posts JSON.
pub(crate) async fn call(broker: &Broker, action: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST / HTTP/1.1\r\nhost: sqs.localhost:9324\r\nconnection: close\r\n\
         content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}\r\n\
         x-amzn-query-mode: true\r\nauthorization: {ANYBODY}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    broker.raw(request.as_bytes()).await
}

/// Posts JSON that is not refused.
pub(crate) async fn ok(broker: &Broker, action: &str, body: Value) -> Value {
    let answer = call(broker, action, &body).await;
    assert_eq!(answer.status, 200, "{action} {body}: {}", answer.body);
    answer.json()
}

/// Posts JSON that is refused: the shape of the error and its text.
pub(crate) async fn refused(broker: &Broker, action: &str, body: Value) -> (String, String) {
    let answer = call(broker, action, &body).await;
    assert!(300 <= answer.status, "{action} {body}: {}", answer.body);
    let json = answer.json();
    let shape = json["__type"].as_str().unwrap().split('#').next_back().unwrap().to_owned();
    (shape, json["message"].as_str().unwrap().to_owned())
}

/// Posts a form, as clients from before November 2023 do.
pub(crate) async fn form(broker: &Broker, path: &str, pairs: &[(&str, &str)]) -> Answer {
    let body = encoded(pairs);
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: sqs.localhost:9324\r\nconnection: close\r\n\
         content-type: application/x-www-form-urlencoded; charset=utf-8\r\n\
         authorization: {ANYBODY}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    broker.raw(request.as_bytes()).await
}

/// Pairs as a form or a query has them.
pub(crate) fn encoded(pairs: &[(&str, &str)]) -> String {
    let escape = |text: &str| {
        let escaped = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        });
        escaped.collect::<String>()
    };
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Creates a queue and gives its URL.
pub(crate) async fn queue(broker: &Broker, name: &str, attributes: Value) -> String {
    let created =
        ok(broker, "CreateQueue", json!({"QueueName": name, "Attributes": attributes})).await;
    created["QueueUrl"].as_str().unwrap().to_owned()
}

/// Receives what is there.
pub(crate) async fn receive(broker: &Broker, url: &str, more: Value) -> Vec<Value> {
    let mut wanted = json!({"QueueUrl": url, "MaxNumberOfMessages": 10});
    wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let received = ok(broker, "ReceiveMessage", wanted).await;
    received.get("Messages").map_or_else(Vec::new, |messages| messages.as_array().unwrap().clone())
}

/// What the messages say.
pub(crate) fn bodies(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["Body"].as_str().unwrap()).collect()
}

/// A queue's attributes.
pub(crate) async fn attributes(broker: &Broker, url: &str) -> Value {
    let wanted = json!({"QueueUrl": url, "AttributeNames": ["All"]});
    ok(broker, "GetQueueAttributes", wanted).await["Attributes"].clone()
}
