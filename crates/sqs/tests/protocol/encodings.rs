//! One request in two encodings is one request, whatever is in it.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};
use towpath_sqs::{Request, decode};

use crate::support::{form, get, json};

/// A value of a form, with every byte escaped that is no letter or digit.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").unwrap();
        }
        out
    })
}

fn encoded(pairs: &[(String, String)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// An attribute as both encodings have it.
#[derive(Debug, Clone)]
struct Attribute {
    data_type: String,
    field: &'static str,
    value: String,
}

fn attribute() -> impl Strategy<Value = Attribute> {
    let attribute =
        |data_type: &str, field, value| Attribute { data_type: data_type.to_owned(), field, value };
    prop_oneof![
        any::<String>().prop_map(move |text| attribute("String", "StringValue", text)),
        any::<i64>().prop_map(move |number| attribute(
            "Number.i",
            "StringValue",
            number.to_string()
        )),
        any::<Vec<u8>>().prop_map(move |bytes| {
            attribute("Binary", "BinaryValue", BASE64_STANDARD.encode(bytes))
        }),
        ".*".prop_map(move |data_type| attribute(&data_type, "StringValue", "x".to_owned())),
    ]
}

#[derive(Debug, Clone)]
struct Message {
    body: String,
    delay: Option<i32>,
    group: Option<String>,
    attributes: BTreeMap<String, Attribute>,
}

fn message() -> impl Strategy<Value = Message> {
    let attributes = prop::collection::btree_map("[a-zA-Z._-]{0,8}", attribute(), 0..12);
    let group = prop::option::of("[!-~]{0,5}|.*");
    (any::<String>(), prop::option::of(-2..1000), group, attributes)
        .prop_map(|(body, delay, group, attributes)| Message { body, delay, group, attributes })
}

impl Message {
    fn json(&self) -> Value {
        let attributes = self.attributes.iter().map(|(name, attribute)| {
            let Attribute { data_type, field, value } = attribute;
            (name.clone(), json!({"DataType": data_type, *field: value}))
        });
        let attributes: serde_json::Map<String, Value> = attributes.collect();
        json!({
            "MessageBody": self.body,
            "DelaySeconds": self.delay,
            "MessageGroupId": self.group,
            "MessageAttributes": attributes,
        })
    }

    /// Numbers of list elements leave gaps, and are not in order.
    fn pairs(&self, prefix: &str) -> Vec<(String, String)> {
        let mut pairs = vec![(format!("{prefix}MessageBody"), self.body.clone())];
        if let Some(delay) = self.delay {
            pairs.push((format!("{prefix}DelaySeconds"), delay.to_string()));
        }
        if let Some(group) = &self.group {
            pairs.push((format!("{prefix}MessageGroupId"), group.clone()));
        }
        for (number, (name, attribute)) in self.attributes.iter().enumerate() {
            let Attribute { data_type, field, value } = attribute;
            let element = format!("{prefix}MessageAttribute.{}", 100 - 3 * number);
            pairs.push((format!("{element}.Value.DataType"), data_type.clone()));
            pairs.push((format!("{element}.Name"), name.clone()));
            pairs.push((format!("{element}.Value.{field}"), value.clone()));
        }
        pairs
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_message_is_the_same_in_both(message in message()) {
        let mut object = message.json();
        object["QueueUrl"] = json!("http://q/1/jobs");
        let mut pairs = message.pairs("");
        pairs.push(("Action".to_owned(), "SendMessage".to_owned()));
        let from_json = json("SendMessage", &object);
        prop_assert_eq!(&from_json, &form("/1/jobs", &encoded(&pairs)));
        prop_assert_eq!(&from_json, &get("/1/jobs", &encoded(&pairs)));
    }

    #[test]
    fn a_batch_is_the_same_in_both(
        messages in prop::collection::vec(("[a-c_-]{0,2}", message()), 0..12),
    ) {
        let entry = |(id, message): &(String, Message)| {
            let mut entry = message.json();
            entry["Id"] = json!(id);
            entry
        };
        let entries: Vec<Value> = messages.iter().map(entry).collect();
        let mut pairs = vec![("Action".to_owned(), "SendMessageBatch".to_owned())];
        for (number, (id, message)) in messages.iter().enumerate() {
            let prefix = format!("SendMessageBatchRequestEntry.{}.", 2 * number + 1);
            pairs.push((format!("{prefix}Id"), id.clone()));
            pairs.extend(message.pairs(&prefix));
        }
        let from_json = json("SendMessageBatch", &json!({"QueueUrl": "/1/jobs", "Entries": entries}));
        prop_assert_eq!(from_json, form("/1/jobs", &encoded(&pairs)));
    }

    #[test]
    fn attributes_of_a_queue_are_the_same_in_both(
        attributes in prop::collection::btree_map(
            "(DelaySeconds|FifoQueue|VisibilityTimeout|MaximumMessageSize|All|Policy|x)",
            "(true|false|0|30|2000|-1|\\{\\}|.*)",
            0..4,
        ),
        tags in prop::collection::btree_map(".{0,4}", ".{0,4}", 0..3),
        name in "[a-z]{1,3}(\\.fifo)?",
    ) {
        let object = json!({"QueueName": name, "Attributes": attributes, "tags": tags});
        let mut pairs = vec![
            ("Action".to_owned(), "CreateQueue".to_owned()),
            ("QueueName".to_owned(), name),
        ];
        for (number, (name, value)) in attributes.into_iter().enumerate() {
            pairs.push((format!("Attribute.{}.Name", number + 1), name));
            pairs.push((format!("Attribute.{}.Value", number + 1), value));
        }
        for (number, (key, value)) in tags.into_iter().enumerate() {
            pairs.push((format!("Tag.{}.Key", number + 1), key));
            pairs.push((format!("Tag.{}.Value", number + 1), value));
        }
        prop_assert_eq!(json("CreateQueue", &object), form("/", &encoded(&pairs)));
    }

    #[test]
    fn no_bytes_are_too_strange(
        target in prop::option::of("AmazonSQS.(SendMessage|ReceiveMessage)|.*"),
        path in ".*",
        query in "(Action=[A-Z][a-z]{1,5}&)?.*",
        body in any::<Vec<u8>>(),
    ) {
        let incoming = towpath_sqs::Incoming {
            method: "POST",
            path: &path,
            query: &query,
            target: target.as_deref(),
            body: &body,
        };
        let _ = decode(&incoming);
    }
}

#[test]
fn the_queue_is_in_the_parameter_or_in_the_path() {
    let queue = |request: Result<Request, _>| {
        let request = request.unwrap();
        let queue = request.queue().unwrap();
        (queue.account.clone(), queue.name.to_string())
    };
    let jobs = |account: Option<&str>| (account.map(ToOwned::to_owned), "jobs".to_owned());
    assert_eq!(queue(form("/1/jobs", "Action=PurgeQueue")), jobs(Some("1")));
    assert_eq!(queue(form("/queue/jobs", "Action=PurgeQueue")), jobs(None));
    assert_eq!(queue(form("/jobs", "Action=PurgeQueue")), jobs(None));
    let named = "Action=PurgeQueue&QueueUrl=http%3A%2F%2Fq%2F2%2Fjobs";
    assert_eq!(queue(form("/1/other", named)), jobs(Some("2")));
    assert_eq!(queue(get("/", named)), jobs(Some("2")));
}

#[test]
fn a_list_of_one_may_lack_its_number() {
    let numbered = form("/1/jobs", "Action=GetQueueAttributes&AttributeName.1=All").unwrap();
    let plain = form("/1/jobs", "Action=GetQueueAttributes&AttributeName=All").unwrap();
    assert_eq!(numbered, plain);
    let numbered = "Action=SetQueueAttributes&Attribute.1.Name=DelaySeconds&Attribute.1.Value=40";
    let plain = "Action=SetQueueAttributes&Attribute.Name=DelaySeconds&Attribute.Value=40";
    assert_eq!(form("/1/jobs", numbered), form("/1/jobs", plain));
    assert!(form("/1/jobs", plain).is_ok());
}
