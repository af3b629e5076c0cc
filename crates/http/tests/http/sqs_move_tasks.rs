//! SQS: dead letters are brought back by move tasks.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::sqs_support::{attributes, bodies, ok, queue, receive, refused};
use crate::support::Broker;

const DEAD: &str = "arn:aws:sqs:eu-west-1:000000000000:dead";
const OTHER: &str = "arn:aws:sqs:eu-west-1:000000000000:other";

/// The queue `jobs`, of which this many messages lie in `dead`; gives the URLs of both.
async fn with_dead_letters(broker: &Broker, many: usize) -> (String, String) {
    let dead = queue(broker, "dead", json!({})).await;
    queue(broker, "other", json!({})).await;
    let policy = json!({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1}).to_string();
    let jobs = queue(broker, "jobs", json!({ "RedrivePolicy": policy })).await;
    for number in 0..many {
        let body = format!("message-{number}");
        ok(broker, "SendMessage", json!({"QueueUrl": jobs, "MessageBody": body})).await;
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while ready(broker, &dead).await != many.to_string() {
        receive(broker, &jobs, json!({"VisibilityTimeout": 0})).await;
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(100)).await;
    }
    (jobs, dead)
}

async fn ready(broker: &Broker, url: &str) -> String {
    let attributes = attributes(broker, url).await;
    attributes["ApproximateNumberOfMessages"].as_str().unwrap().to_owned()
}

async fn newest(broker: &Broker) -> Value {
    let listed = ok(broker, "ListMessageMoveTasks", json!({"SourceArn": DEAD})).await;
    listed["Results"][0].clone()
}

async fn ended(broker: &Broker) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let task = newest(broker).await;
        if task["Status"] != "RUNNING" {
            return task;
        }
        assert!(Instant::now() < deadline, "{task}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_go_back_to_where_they_came_from() {
    let broker = Broker::start().await;
    let (jobs, dead) = with_dead_letters(&broker, 2).await;
    let started = ok(&broker, "StartMessageMoveTask", json!({"SourceArn": DEAD})).await;
    assert!(started["TaskHandle"].is_string(), "{started}");
    let mut task = ended(&broker).await;
    assert!(task.as_object_mut().unwrap().remove("StartedTimestamp").unwrap().is_u64());
    assert_eq!(
        task,
        json!({
            "Status": "COMPLETED",
            "SourceArn": DEAD,
            "ApproximateNumberOfMessagesMoved": 2,
            "ApproximateNumberOfMessagesToMove": 2,
        })
    );
    let back = receive(&broker, &jobs, json!({"MessageSystemAttributeNames": ["All"]})).await;
    let mut there = bodies(&back);
    there.sort_unstable();
    assert_eq!(there, ["message-0", "message-1"]);
    let told = &back[0]["Attributes"];
    assert_eq!(told["ApproximateReceiveCount"], "1", "{told}");
    assert_eq!(told.get("DeadLetterQueueSourceArn"), None, "{told}");
    assert_eq!(ready(&broker, &dead).await, "0");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_task_keeps_its_rate_and_is_cancelled_once() {
    let broker = Broker::start().await;
    let (_, dead) = with_dead_letters(&broker, 8).await;
    let wanted =
        json!({"SourceArn": DEAD, "DestinationArn": OTHER, "MaxNumberOfMessagesPerSecond": 1});
    let started = ok(&broker, "StartMessageMoveTask", wanted.clone()).await;
    let (shape, message) = refused(&broker, "StartMessageMoveTask", wanted.clone()).await;
    assert_eq!(shape, "InvalidParameterValueException");
    assert!(message.starts_with("There is already a task running."), "{message}");
    sleep(Duration::from_millis(2500)).await;
    let running = newest(&broker).await;
    assert_eq!(
        [&running["Status"], &running["TaskHandle"], &running["DestinationArn"]],
        [&json!("RUNNING"), &started["TaskHandle"], &json!(OTHER)]
    );
    assert_eq!(running["MaxNumberOfMessagesPerSecond"], 1);
    assert_eq!(running["ApproximateNumberOfMessagesToMove"], 8);
    let cancelled = ok(&broker, "CancelMessageMoveTask", started.clone()).await;
    assert!(cancelled["ApproximateNumberOfMessagesMoved"].as_u64().unwrap() <= 3, "{cancelled}");
    let (shape, message) = refused(&broker, "CancelMessageMoveTask", started).await;
    assert_eq!((&*shape, &*message), ("ResourceNotFoundException", "Task does not exist."));
    sleep(Duration::from_secs(1)).await;
    let after = newest(&broker).await;
    assert_eq!((&after["Status"], after.get("TaskHandle")), (&json!("CANCELLED"), None));
    let moved = after["ApproximateNumberOfMessagesMoved"].as_u64().unwrap();
    assert!((1..=3).contains(&moved), "{after}");
    assert_eq!(ready(&broker, &dead).await, (8 - moved).to_string());

    // The destination goes: it has failed, and what was on its way is not lost.
    ok(&broker, "StartMessageMoveTask", wanted).await;
    ok(&broker, "DeleteQueue", json!({"QueueUrl": "http://x/000000000000/other"})).await;
    let failed = ended(&broker).await;
    assert_eq!(
        [&failed["Status"], &failed["FailureReason"]],
        [&json!("FAILED"), &json!("AWS.SimpleQueueService.NonExistentQueue")]
    );
    let wanted = json!({"SourceArn": DEAD, "MaxResults": 10});
    let all = ok(&broker, "ListMessageMoveTasks", wanted).await;
    assert_eq!(all["Results"].as_array().unwrap().len(), 2);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_refused_in_the_words_of_sqs() {
    let broker = Broker::start().await;
    with_dead_letters(&broker, 0).await;
    let gone = "arn:aws:sqs:eu-west-1:000000000000:gone";
    let wanted = json!({"SourceArn": DEAD, "DestinationArn": gone});
    let (shape, message) = refused(&broker, "StartMessageMoveTask", wanted).await;
    assert_eq!(shape, "ResourceNotFoundException");
    assert!(message.contains("for the DestinationArn parameter doesn't exist"), "{message}");
    let id = "10f57157-fc38-4da9-a113-4de7e12d05dd";
    for (source, words) in [(gone, "for the SourceArn parameter"), (DEAD, "Task does not exist.")] {
        let handle = json!({"taskId": id, "sourceArn": source}).to_string();
        let wanted = json!({"TaskHandle": STANDARD.encode(handle)});
        let (shape, message) = refused(&broker, "CancelMessageMoveTask", wanted).await;
        assert_eq!(shape, "ResourceNotFoundException");
        assert!(message.contains(words), "{message}");
    }
    let none = ok(&broker, "ListMessageMoveTasks", json!({"SourceArn": DEAD})).await;
    assert!(none.get("Results").is_none_or(|results| results == &json!([])), "{none}");
    broker.stop().await;
}
