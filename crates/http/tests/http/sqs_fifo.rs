//! SQS: FIFO queues, message groups of standard ones, dead letters and what becomes of them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sqs_support::{attributes, bodies, call, ok, queue, receive, refused};
use crate::support::Broker;

async fn fifo(broker: &Broker, more: Value) -> String {
    let mut wanted = json!({"FifoQueue": "true"});
    wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    queue(broker, "jobs.fifo", wanted).await
}

async fn send(broker: &Broker, url: &str, body: &str, group: &str, id: Option<&str>) -> Value {
    let mut message = json!({"QueueUrl": url, "MessageBody": body, "MessageGroupId": group});
    if let Some(id) = id {
        message["MessageDeduplicationId"] = id.into();
    }
    ok(broker, "SendMessage", message).await
}

async fn delete(broker: &Broker, url: &str, message: &Value) {
    let named = json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]});
    ok(broker, "DeleteMessage", named).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_received_in_order_and_by_one_at_a_time() {
    let broker = Broker::start().await;
    let url = fifo(&broker, json!({"ContentBasedDeduplication": "true"})).await;
    let mut numbers = Vec::new();
    for body in ["1", "2", "3"] {
        let sent = send(&broker, &url, body, "a", None).await;
        numbers.push(sent["SequenceNumber"].as_str().unwrap().to_owned());
    }
    assert!(numbers.is_sorted() && numbers.iter().all(|number| number.len() == 20), "{numbers:?}");
    send(&broker, &url, "other", "b", None).await;
    let two = json!({"MaxNumberOfMessages": 2, "AttributeNames": ["All"]});
    let first = receive(&broker, &url, two).await;
    assert_eq!(bodies(&first), ["1", "2"]);
    let system = &first[1]["Attributes"];
    assert_eq!(
        (&system["MessageGroupId"], &system["SequenceNumber"]),
        (&"a".into(), &numbers[1].as_str().into())
    );
    assert_eq!(system["MessageDeduplicationId"].as_str().unwrap().len(), 64);
    // The rest of the group waits, others do not.
    assert_eq!(bodies(&receive(&broker, &url, json!({})).await), ["other"]);
    delete(&broker, &url, &first[0]).await;
    assert!(receive(&broker, &url, json!({})).await.is_empty());
    delete(&broker, &url, &first[1]).await;
    assert_eq!(bodies(&receive(&broker, &url, json!({})).await), ["3"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_is_told_what_the_first_send_was_told() {
    let broker = Broker::start().await;
    let url = fifo(&broker, json!({})).await;
    let first = send(&broker, &url, "1", "a", Some("x")).await;
    let received = receive(&broker, &url, json!({})).await;
    delete(&broker, &url, &received[0]).await;
    // Received and deleted, in another group, with another body: it is the same in all of the queue.
    let repeat = send(&broker, &url, "2", "b", Some("x")).await;
    assert_eq!(
        (&repeat["MessageId"], &repeat["SequenceNumber"]),
        (&first["MessageId"], &first["SequenceNumber"])
    );
    assert_ne!(repeat["MD5OfMessageBody"], first["MD5OfMessageBody"]);
    assert!(receive(&broker, &url, json!({})).await.is_empty());
    let missing = json!({"QueueUrl": url, "MessageBody": "3", "MessageGroupId": "a"});
    let (_, message) = refused(&broker, "SendMessage", missing).await;
    assert!(message.contains("ContentBasedDeduplication enabled or"), "{message}");
    // The SHA-256 of the body, as who sends it may say too.
    let set = json!({"QueueUrl": url, "Attributes": {"ContentBasedDeduplication": "true"}});
    ok(&broker, "SetQueueAttributes", set).await;
    let hash = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
    let said = send(&broker, &url, "other", "a", Some(hash)).await;
    assert_eq!(send(&broker, &url, "1", "a", None).await["MessageId"], said["MessageId"]);
    // After a purge nothing counts as a repeat.
    ok(&broker, "PurgeQueue", json!({"QueueUrl": url})).await;
    assert_ne!(send(&broker, &url, "1", "a", None).await["MessageId"], said["MessageId"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_told_apart_by_group_where_the_queue_is_set_to_that() {
    let broker = Broker::start().await;
    let by_group = json!({
        "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId",
    });
    let url = fifo(&broker, by_group).await;
    let shown = attributes(&broker, &url).await;
    assert_eq!(shown["FifoThroughputLimit"], "perMessageGroupId");
    let a = send(&broker, &url, "1", "a", Some("x")).await;
    let b = send(&broker, &url, "2", "b", Some("x")).await;
    assert_ne!(a["MessageId"], b["MessageId"]);
    assert_eq!(send(&broker, &url, "3", "a", Some("x")).await["MessageId"], a["MessageId"]);
    assert_eq!(receive(&broker, &url, json!({})).await.len(), 2);
    let ours = json!({
        "name": "many.fifo", "partitions": 3, "settings": {"fifo": true, "dedup_scope": "group"},
    });
    broker.post("/queues", &ours.to_string()).await.ok();
    let set = json!({"QueueUrl": "many.fifo", "Attributes": {"DeduplicationScope": "queue"}});
    let (shape, message) = refused(&broker, "SetQueueAttributes", set).await;
    assert_eq!(shape, "InvalidAttributeValue", "{message}");
    assert!(message.contains("The queue has 3 partitions"), "{message}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_is_repeated_by_its_attempt_id() {
    let broker = Broker::start().await;
    let url = fifo(&broker, json!({"ContentBasedDeduplication": "true"})).await;
    for body in ["1", "2"] {
        send(&broker, &url, body, "a", None).await;
    }
    let attempt = json!({"ReceiveRequestAttemptId": "r1", "VisibilityTimeout": 60});
    let first = receive(&broker, &url, attempt.clone()).await;
    let again = receive(&broker, &url, attempt).await;
    let handles = |messages: &[Value]| -> Vec<Value> {
        messages.iter().map(|message| message["ReceiptHandle"].clone()).collect()
    };
    assert_eq!((first.len(), handles(&first)), (2, handles(&again)));
    assert!(receive(&broker, &url, json!({"ReceiveRequestAttemptId": "r2"})).await.is_empty());
    let standard = queue(&broker, "standard", json!({})).await;
    let wanted = json!({"QueueUrl": standard, "ReceiveRequestAttemptId": "r1"});
    let (_, message) = refused(&broker, "ReceiveMessage", wanted).await;
    assert!(message.contains("not valid for this queue type"), "{message}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_queues_refuse_late_deletes_and_delays_of_a_message() {
    let broker = Broker::start().await;
    let more = json!({"ContentBasedDeduplication": "true", "VisibilityTimeout": "1"});
    let url = fifo(&broker, more).await;
    send(&broker, &url, "1", "a", None).await;
    let received = receive(&broker, &url, json!({})).await;
    tokio::time::sleep(Duration::from_millis(1300)).await;
    let late = json!({"QueueUrl": url, "ReceiptHandle": received[0]["ReceiptHandle"]});
    let (shape, message) = refused(&broker, "DeleteMessage", late).await;
    assert_eq!(shape, "InvalidParameterValueException");
    assert!(message.ends_with("Reason: The receipt handle has expired."), "{message}");
    let delayed = json!({
        "QueueUrl": url, "MessageBody": "2", "MessageGroupId": "a", "DelaySeconds": 1,
    });
    let (_, message) = refused(&broker, "SendMessage", delayed).await;
    assert!(message.contains("not valid for this queue type"), "{message}");
    let groupless = json!({"QueueUrl": url, "MessageBody": "2"});
    let (shape, _) = refused(&broker, "SendMessage", groupless).await;
    assert_eq!(shape, "MissingRequiredParameterException");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standard_queue_takes_message_groups_and_orders_nothing_by_them() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({})).await;
    for body in ["1", "2"] {
        send(&broker, &url, body, "tenant", None).await;
    }
    let one = json!({"MaxNumberOfMessages": 1, "AttributeNames": ["MessageGroupId"]});
    let first = receive(&broker, &url, one.clone()).await;
    let second = receive(&broker, &url, one).await;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_eq!(first[0]["Attributes"], json!({"MessageGroupId": "tenant"}));
    broker.stop().await;
}

fn redrive(to: &str, receives: u32) -> String {
    let target = format!("arn:aws:sqs:eu-west-1:000000000000:{to}");
    json!({"deadLetterTargetArn": target, "maxReceiveCount": receives}).to_string()
}

async fn until_there(broker: &Broker, url: &str) -> Vec<Value> {
    let all = json!({
        "AttributeNames": ["All"], "MessageAttributeNames": ["All"], "WaitTimeSeconds": 10,
    });
    receive(broker, url, all).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_keeps_its_id_and_all_that_was_sent() {
    let broker = Broker::start().await;
    let dead = queue(&broker, "dead.fifo", json!({"FifoQueue": "true"})).await;
    let more = json!({"RedrivePolicy": redrive("dead.fifo", 1), "VisibilityTimeout": "0"});
    let url = fifo(&broker, more).await;
    let number = json!({"n": {"DataType": "Number.int", "StringValue": "5"}});
    let message = json!({
        "QueueUrl": url, "MessageBody": "v", "MessageGroupId": "g", "MessageDeduplicationId": "d",
        "MessageAttributes": number,
        "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": "t"}},
    });
    let sent = ok(&broker, "SendMessage", message).await;
    assert_eq!(receive(&broker, &url, json!({})).await.len(), 1);
    assert!(receive(&broker, &url, json!({})).await.is_empty());
    let letters = until_there(&broker, &dead).await;
    let letter = &letters[0];
    assert_eq!((&letter["MessageId"], &letter["Body"]), (&sent["MessageId"], &json!("v")));
    assert_eq!(letter["MessageAttributes"], number);
    assert_eq!(letter["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"]);
    let system = &letter["Attributes"];
    assert_eq!(system["DeadLetterQueueSourceArn"], "arn:aws:sqs:eu-west-1:000000000000:jobs.fifo");
    for (name, value) in [
        ("MessageGroupId", "g"),
        ("MessageDeduplicationId", "d"),
        ("AWSTraceHeader", "t"),
        ("ApproximateReceiveCount", "2"),
    ] {
        assert_eq!(system[name], value, "{name}: {system}");
    }
    let sources = ok(&broker, "ListDeadLetterSourceQueues", json!({"QueueUrl": dead})).await;
    assert_eq!(sources, json!({"queueUrls": [url]}));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_policy_names_a_queue_that_takes_dead_letters() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({})).await;
    let by = |permission: &str, arns: &[&str]| {
        let mut policy = json!({"redrivePermission": permission});
        if !arns.is_empty() {
            policy["sourceQueueArns"] = arns.into();
        }
        json!({"RedriveAllowPolicy": policy.to_string()})
    };
    queue(&broker, "all", by("allowAll", &[])).await;
    queue(&broker, "none", by("denyAll", &[])).await;
    queue(&broker, "one", by("byQueue", &["arn:aws:sqs:us-east-1:123456789012:jobs"])).await;
    queue(&broker, "other", by("byQueue", &["arn:aws:sqs:us-east-1:123456789012:others"])).await;
    queue(&broker, "q.fifo", json!({"FifoQueue": "true"})).await;
    let set = |to: &str| json!({"QueueUrl": url, "Attributes": {"RedrivePolicy": redrive(to, 3)}});
    for (to, words) in [
        ("nothing", "Dead letter target does not exist."),
        ("none", "denied by its RedriveAllowPolicy"),
        ("other", "denied by its RedriveAllowPolicy"),
        ("q.fifo", "must be same type of queue"),
    ] {
        let (shape, message) = refused(&broker, "SetQueueAttributes", set(to)).await;
        assert_eq!(shape, "InvalidParameterValueException", "{to}");
        assert!(message.contains(words), "{to}: {message}");
        let create = json!({
            "QueueName": format!("new-{}", to.replace('.', "-")),
            "Attributes": {"RedrivePolicy": redrive(to, 3)},
        });
        refused(&broker, "CreateQueue", create).await;
    }
    for to in ["all", "one"] {
        ok(&broker, "SetQueueAttributes", set(to)).await;
        let shown = attributes(&broker, &url).await;
        assert_eq!(shown["RedrivePolicy"], redrive(to, 3));
        let ours = broker.get("/queues/jobs").await.ok();
        assert_eq!(ours["settings"]["dead_letter_queue"], to, "{ours}");
    }
    let none = json!({"QueueUrl": url, "Attributes": {"RedrivePolicy": ""}});
    ok(&broker, "SetQueueAttributes", none).await;
    assert!(attributes(&broker, &url).await.get("RedrivePolicy").is_none());
    let ours = broker.get("/queues/jobs").await.ok();
    assert_eq!(ours["settings"]["dead_letter_queue"], "", "{ours}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_task_brings_dead_letters_back() {
    let broker = Broker::start().await;
    let dead = queue(&broker, "dead", json!({})).await;
    let arn = |name: &str| format!("arn:aws:sqs:eu-west-1:000000000000:{name}");
    let start = |source: &str| json!({"SourceArn": arn(source)});
    let (shape, message) = refused(&broker, "StartMessageMoveTask", start("dead")).await;
    assert_eq!(shape, "InvalidParameterValueException");
    assert_eq!(message, "Source queue must be configured as a Dead Letter Queue.");
    for action in ["StartMessageMoveTask", "ListMessageMoveTasks"] {
        let missing = call(&broker, action, &start("nothing")).await;
        assert_eq!(missing.status, 404, "{}", missing.body);
    }
    let more = json!({"RedrivePolicy": redrive("dead", 1), "VisibilityTimeout": "0"});
    let url = queue(&broker, "jobs", more).await;
    for index in 0..3 {
        let message = json!({"QueueUrl": url, "MessageBody": index.to_string()});
        ok(&broker, "SendMessage", message).await;
    }
    for _ in 0..2 {
        receive(&broker, &url, json!({})).await;
    }
    let wait_for = |url: String, count: &'static str| {
        let broker = &broker;
        async move {
            for _ in 0..100 {
                if attributes(broker, &url).await["ApproximateNumberOfMessages"] == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!("{url} has not come to {count} messages");
        }
    };
    wait_for(dead.clone(), "3").await;
    let mut wanted = start("dead");
    wanted["MaxNumberOfMessagesPerSecond"] = 1.into();
    let started = ok(&broker, "StartMessageMoveTask", wanted.clone()).await;
    let (_, message) = refused(&broker, "StartMessageMoveTask", wanted).await;
    assert!(message.starts_with("There is already a task running."), "{message}");
    let listed = ok(&broker, "ListMessageMoveTasks", start("dead")).await;
    let task = &listed["Results"][0];
    assert_eq!(
        (&task["Status"], &task["TaskHandle"], &task["MaxNumberOfMessagesPerSecond"]),
        (&json!("RUNNING"), &started["TaskHandle"], &json!(1))
    );
    let cancel = json!({"TaskHandle": started["TaskHandle"]});
    let cancelled = ok(&broker, "CancelMessageMoveTask", cancel.clone()).await;
    assert!(cancelled["ApproximateNumberOfMessagesMoved"].is_u64(), "{cancelled}");
    let again = call(&broker, "CancelMessageMoveTask", &cancel).await;
    assert_eq!(again.status, 404, "{}", again.body);
    let (_, message) =
        refused(&broker, "CancelMessageMoveTask", json!({"TaskHandle": "none"})).await;
    assert!(message.contains("TaskHandle is invalid"), "{message}");

    // All of them, each to where it came from.
    ok(&broker, "StartMessageMoveTask", start("dead")).await;
    wait_for(url, "3").await;
    let listed = ok(&broker, "ListMessageMoveTasks", {
        let mut wanted = start("dead");
        wanted["MaxResults"] = 10.into();
        wanted
    });
    let listed = listed.await;
    let results = listed["Results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{listed}");
    assert_eq!(results[1]["Status"], "CANCELLED");
    assert!(results[1].get("TaskHandle").is_none());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permissions_are_kept_as_statements_of_a_policy() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({})).await;
    let add = json!({
        "QueueUrl": url, "Label": "a", "AWSAccountIds": ["111111111111"],
        "Actions": ["SendMessage"],
    });
    ok(&broker, "AddPermission", add.clone()).await;
    let policy = attributes(&broker, &url).await["Policy"].as_str().unwrap().to_owned();
    assert!(policy.contains(r#""Sid":"a""#), "{policy}");
    let (_, message) = refused(&broker, "AddPermission", add).await;
    assert!(message.ends_with("Already exists."), "{message}");
    let remove = json!({"QueueUrl": url, "Label": "a"});
    ok(&broker, "RemovePermission", remove.clone()).await;
    assert!(attributes(&broker, &url).await.get("Policy").is_none());
    let (_, message) = refused(&broker, "RemovePermission", remove).await;
    assert!(message.ends_with("can't find label."), "{message}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_have_bounds_and_are_no_attributes() {
    let broker = Broker::start().await;
    let created = json!({"QueueName": "jobs", "tags": {"a": "1"}});
    let url = ok(&broker, "CreateQueue", created).await["QueueUrl"].as_str().unwrap().to_owned();
    let more: Value =
        (0..50).map(|at| (format!("k{at}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let (_, message) = refused(&broker, "TagQueue", json!({"QueueUrl": url, "Tags": more})).await;
    assert!(message.contains("Too many tags"), "{message}");
    ok(&broker, "UntagQueue", json!({"QueueUrl": url, "TagKeys": ["a"]})).await;
    assert_eq!(ok(&broker, "ListQueueTags", json!({"QueueUrl": url})).await, json!({}));
    broker.stop().await;
}
