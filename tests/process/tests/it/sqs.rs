//! SQS on three real brokers: any of them serves any queue, and what clients have set survives kills.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use towpath_process::{BrokerProcess, http};

use crate::cluster::{Cluster, WHOLE_PATIENCE};
use crate::sigv4::Signing;
use crate::support::{eventually, stop};

const ID: &str = "PROCESS";
const SECRET: &str = "of-tests-of-processes";

impl Cluster {
    fn start_with_keys(&self) -> Vec<BrokerProcess> {
        let keys = format!("{ID} {SECRET}");
        let member = |id| self.member(id).variable("TOWPATH_SQS_KEYS", &keys).begin().unwrap();
        let starting: Vec<_> = (1..=3).map(member).collect();
        starting.into_iter().map(|broker| broker.ready(WHOLE_PATIENCE).unwrap()).collect()
    }

    fn try_sqs(&self, id: usize, action: &str, body: &Value) -> anyhow::Result<http::Answer> {
        let address = self.places[id - 1].addresses.http;
        let (host, body) = (address.to_string(), body.to_string());
        let signing = Signing { id: ID, secret: SECRET, host: &host, ahead: 0 };
        http::post_with(address, &signing.headers(action, &body), &body)
    }

    fn sqs(&self, id: usize, action: &str, body: Value) -> Value {
        let answer = self.try_sqs(id, action, &body).unwrap();
        answer.success().unwrap_or_else(|error| panic!("{action} {body} at {id}: {error}"))
    }

    fn receive_all(&self, id: usize, queue: &str, more: &Value) -> Vec<Value> {
        let mut wanted = json!({"QueueUrl": queue, "MaxNumberOfMessages": 10});
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut all = Vec::new();
        loop {
            let received = self.sqs(id, "ReceiveMessage", wanted.clone());
            let Some(messages) = received.get("Messages") else { return all };
            all.extend(messages.as_array().unwrap().clone());
        }
    }

    fn attributes(&self, id: usize, queue: &str) -> Option<Value> {
        let wanted = json!({"QueueUrl": queue, "AttributeNames": ["All"]});
        let answer = self.try_sqs(id, "GetQueueAttributes", &wanted).ok()?.success().ok()?;
        Some(answer["Attributes"].clone())
    }
}

fn bodies(messages: &[Value]) -> BTreeSet<String> {
    messages.iter().map(|message| message["Body"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn any_broker_serves_any_queue_of_sqs() {
    let cluster = Cluster::of(3);
    let mut brokers: Vec<_> = cluster.start_with_keys().into_iter().map(Some).collect();
    cluster.wait_until_whole(3);
    let attributes = json!({"VisibilityTimeout": "600", "MaximumMessageSize": "2048"});
    let wanted = json!({"QueueName": "jobs", "Attributes": attributes, "tags": {"team": "b"}});
    cluster.sqs(2, "CreateQueue", wanted);
    // Known at once by all, each of which calls it by its own address.
    for id in 1..=3 {
        let found = cluster.sqs(id, "GetQueueUrl", json!({"QueueName": "jobs"}));
        let address = cluster.places[id - 1].addresses.http;
        assert_eq!(found["QueueUrl"], format!("http://{address}/000000000000/jobs"));
    }
    cluster.wait_until_whole(3);

    let number = json!({"n": {"DataType": "Number.int", "StringValue": "5"}});
    let mut sent = BTreeSet::new();
    for n in 0..30 {
        let message = json!({
            "QueueUrl": "jobs", "MessageBody": n.to_string(), "MessageAttributes": number,
        });
        let told = cluster.sqs(n % 3 + 1, "SendMessage", message);
        sent.insert((told["MessageId"].to_string(), told["MD5OfMessageAttributes"].to_string()));
    }
    assert_eq!(cluster.attributes(3, "jobs").unwrap()["ApproximateNumberOfMessages"], "30");
    // One broker gives out all, also what the others lead: the same ids, attributes and checksums.
    let all = json!({"MessageAttributeNames": ["All"], "WaitTimeSeconds": 1});
    let received = cluster.receive_all(1, "jobs", &all);
    let told = |message: &Value| {
        (message["MessageId"].to_string(), message["MD5OfMessageAttributes"].to_string())
    };
    assert_eq!(received.iter().map(told).collect::<BTreeSet<_>>(), sent);
    assert!(received.iter().all(|message| message["MessageAttributes"] == number));
    // Settled at another one.
    for chunk in received[..20].chunks(10) {
        let entry = |(at, message): (usize, &Value)| json!({"Id": at.to_string(), "ReceiptHandle": message["ReceiptHandle"]});
        let entries: Vec<Value> = chunk.iter().enumerate().map(entry).collect();
        let delete = json!({"QueueUrl": "jobs", "Entries": entries});
        let deleted = cluster.sqs(3, "DeleteMessageBatch", delete);
        assert_eq!(deleted["Successful"].as_array().unwrap().len(), 10, "{deleted}");
    }

    // Killed: sends and receives go on, and what was held stays held.
    brokers[1].take().unwrap().kill().unwrap();
    let after = json!({"QueueUrl": "jobs", "MessageBody": "after"});
    cluster.sqs(1, "SendMessage", after);
    eventually(WHOLE_PATIENCE, || {
        let shown = cluster.attributes(3, "jobs")?;
        (shown["ApproximateNumberOfMessagesNotVisible"] == "10"
            && shown["ApproximateNumberOfMessages"] == "1")
            .then_some(())
    });
    let rest = cluster.receive_all(3, "jobs", &json!({}));
    assert_eq!(bodies(&rest), BTreeSet::from(["after".to_owned()]));

    // All of them killed: what was set is there when they come back.
    brokers.drain(..).flatten().for_each(|broker| broker.kill().unwrap());
    let brokers = cluster.start_with_keys();
    let shown = eventually(WHOLE_PATIENCE, || cluster.attributes(2, "jobs"));
    for (name, value) in attributes.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
    let tags = cluster.sqs(1, "ListQueueTags", json!({"QueueUrl": "jobs"}));
    assert_eq!(tags, json!({"Tags": {"team": "b"}}));
    brokers.into_iter().for_each(stop);
}

#[test]
fn a_fifo_queue_is_one_whichever_broker_is_asked() {
    let cluster = Cluster::of(3);
    let brokers = cluster.start_with_keys();
    cluster.wait_until_whole(3);
    let attributes = json!({
        "FifoQueue": "true", "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId",
    });
    let wanted = json!({"QueueName": "jobs.fifo", "Attributes": attributes});
    cluster.sqs(1, "CreateQueue", wanted);
    let queue = json!({"name": "jobs.fifo"});
    let shown = http::get(cluster.places[0].addresses.http, "/queues/jobs.fifo").unwrap();
    assert_eq!(shown.success().unwrap()["partitions"], 3, "{queue}");
    cluster.wait_until_whole(3);
    let message = |body: usize, group: usize| {
        json!({
            "QueueUrl": "jobs.fifo", "MessageBody": body.to_string(),
            "MessageGroupId": format!("group-{group}"),
        })
    };
    for body in 0..5 {
        for group in 0..6 {
            let first = cluster.sqs((body + group) % 3 + 1, "SendMessage", message(body, group));
            let repeat = cluster.sqs(body % 3 + 1, "SendMessage", message(body, group));
            assert_eq!(repeat["MessageId"], first["MessageId"]);
            assert_eq!(repeat["SequenceNumber"], first["SequenceNumber"]);
        }
    }
    // A receive is repeated at whichever broker, by its name.
    let attempt = json!({
        "QueueUrl": "jobs.fifo", "ReceiveRequestAttemptId": "again", "MaxNumberOfMessages": 10,
        "VisibilityTimeout": 2,
    });
    let handles = |id: usize| -> Vec<Value> {
        let received = cluster.sqs(id, "ReceiveMessage", attempt.clone());
        let messages = received["Messages"].as_array().unwrap();
        messages.iter().map(|message| message["ReceiptHandle"].clone()).collect()
    };
    let first = handles(1);
    assert_eq!([handles(2), handles(3)], [first.clone(), first]);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    // One after the other of each group, at whichever broker.
    let mut next = [0; 6];
    for turn in 0.. {
        let wanted = json!({
            "QueueUrl": "jobs.fifo", "AttributeNames": ["MessageGroupId"], "WaitTimeSeconds": 1,
            "MaxNumberOfMessages": 3,
        });
        let received = cluster.sqs(turn % 3 + 1, "ReceiveMessage", wanted);
        let Some(messages) = received.get("Messages") else { break };
        for message in messages.as_array().unwrap() {
            let group = message["Attributes"]["MessageGroupId"].as_str().unwrap();
            let group: usize = group.strip_prefix("group-").unwrap().parse().unwrap();
            assert_eq!(message["Body"], next[group].to_string(), "group {group}");
            next[group] += 1;
            let named = json!({"QueueUrl": "jobs.fifo", "ReceiptHandle": message["ReceiptHandle"]});
            let deleted = cluster.try_sqs((turn + 1) % 3 + 1, "DeleteMessage", &named).unwrap();
            assert_eq!(deleted.status, 200);
        }
    }
    assert_eq!(next, [5; 6]);
    brokers.into_iter().for_each(stop);
}
