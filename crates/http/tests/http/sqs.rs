//! SQS: queues, their attributes, and standard queues' messages, with one broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::sqs_support::{attributes, bodies, call, form, ok, queue, receive, refused};
use crate::support::Broker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_goes_its_way_in_json() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({})).await;
    assert_eq!(url, "http://sqs.localhost:9324/000000000000/jobs");
    let message = json!({
        "QueueUrl": url,
        "MessageBody": "it works <&> \u{1f600}",
        "MessageAttributes": {
            "count": {"DataType": "Number.int", "StringValue": "5"},
            "raw": {"DataType": "Binary", "BinaryValue": "AP8="},
        },
        "MessageSystemAttributes": {
            "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"},
        },
    });
    let answer = call(&broker, "SendMessage", &message).await;
    assert!(answer.head.contains("content-type: application/x-amz-json-1.0"), "{}", answer.head);
    assert!(!answer.head.contains("allow: "), "{}", answer.head);
    assert!(answer.head.contains("x-amzn-requestid: ") && answer.head.contains("\r\ndate: "));
    let sent = answer.ok();
    let id = sent["MessageId"].as_str().unwrap();
    assert_eq!((id.len(), id.matches('-').count()), (36, 4), "{sent}");
    assert!(sent.get("SequenceNumber").is_none(), "{sent}");

    let wanted = json!({
        "AttributeNames": ["All"],
        "MessageAttributeNames": ["All"],
        "VisibilityTimeout": 60,
    });
    let received = receive(&broker, &url, wanted).await;
    let message = &received[0];
    assert_eq!(received.len(), 1);
    assert_eq!(message["Body"], "it works <&> \u{1f600}");
    assert_eq!(message["MessageId"], sent["MessageId"]);
    assert_eq!(message["MD5OfBody"], sent["MD5OfMessageBody"]);
    assert_eq!(message["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"]);
    assert_eq!(
        message["MessageAttributes"],
        json!({
            "count": {"DataType": "Number.int", "StringValue": "5"},
            "raw": {"DataType": "Binary", "BinaryValue": "AP8="},
        })
    );
    let system = &message["Attributes"];
    assert_eq!(
        [&system["ApproximateReceiveCount"], &system["AWSTraceHeader"], &system["SenderId"]],
        ["1", "Root=1", "000000000000"]
    );
    let sent_ms: i64 = system["SentTimestamp"].as_str().unwrap().parse().unwrap();
    let first: i64 = system["ApproximateFirstReceiveTimestamp"].as_str().unwrap().parse().unwrap();
    assert!(sent_ms <= first && first < sent_ms + 30_000, "{system}");

    assert!(receive(&broker, &url, json!({})).await.is_empty());
    let handle = &message["ReceiptHandle"];
    let named = json!({"QueueUrl": url, "ReceiptHandle": handle});
    for _ in 0..2 {
        // Deleting again is no error.
        let deleted = call(&broker, "DeleteMessage", &named).await;
        assert_eq!(deleted.status, 200, "{}", deleted.body);
    }
    let shown = attributes(&broker, &url).await;
    assert_eq!(shown["ApproximateNumberOfMessagesNotVisible"], "0", "{shown}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_goes_its_way_in_a_form() {
    let broker = Broker::start().await;
    let created = form(
        &broker,
        "/",
        &[("Action", "CreateQueue"), ("QueueName", "jobs"), ("Version", "2012-11-05")],
    );
    let created = created.await;
    assert!(created.head.contains("content-type: text/xml"), "{}", created.head);
    let url = "http://sqs.localhost:9324/000000000000/jobs";
    assert!(created.body.contains(&format!("<QueueUrl>{url}</QueueUrl>")), "{}", created.body);
    // Older SDKs post to the queue's URL, and ElasticMQ's users to another path.
    for path in ["/000000000000/jobs", "/queue/jobs"] {
        let sent =
            form(&broker, path, &[("Action", "SendMessage"), ("MessageBody", "a&b\r")]).await;
        assert!(sent.status == 200 && sent.body.contains("<MD5OfMessageBody>"), "{}", sent.body);
        let received = form(&broker, path, &[("Action", "ReceiveMessage")]).await;
        assert!(received.body.contains("<Body>a&amp;b&#xD;</Body>"), "{}", received.body);
        let handle = received.body.split("<ReceiptHandle>").nth(1).unwrap();
        let handle = handle.split('<').next().unwrap();
        let pairs = [("Action", "DeleteMessage"), ("ReceiptHandle", handle)];
        let deleted = form(&broker, path, &pairs).await;
        assert!(deleted.body.contains("<DeleteMessageResponse "), "{}", deleted.body);
    }
    let missing = form(&broker, "/000000000000/nothing", &[("Action", "ReceiveMessage")]).await;
    assert_eq!(missing.status, 400);
    assert!(
        missing.body.contains("<Code>AWS.SimpleQueueService.NonExistentQueue</Code>")
            && missing.body.contains("for this wsdl version."),
        "{}",
        missing.body
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_have_both_names() {
    let broker = Broker::start().await;
    let missing = call(&broker, "GetQueueUrl", &json!({"QueueName": "nothing"})).await;
    assert_eq!(missing.status, 400);
    let query_error = "x-amzn-query-error: aws.simplequeueservice.nonexistentqueue;sender";
    assert!(missing.head.contains(query_error), "{}", missing.head);
    assert_eq!(
        missing.json(),
        json!({
            "__type": "com.amazonaws.sqs#QueueDoesNotExist",
            "message": "The specified queue does not exist.",
        })
    );
    let unknown = call(&broker, "Dance", &json!({})).await;
    assert!(unknown.json()["__type"].as_str().unwrap().ends_with("#InvalidAction"));
    let broken = broker
        .raw(
            format!(
                "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                 x-amz-target: AmazonSQS.ListQueues\r\nauthorization: {}\r\n\
                 content-length: 1\r\n\r\n{{",
                crate::sqs_support::ANYBODY
            )
            .as_bytes(),
        )
        .await;
    assert_eq!(broken.status, 400, "{}", broken.body);
    assert!(broken.json()["__type"].as_str().unwrap().ends_with("#SerializationException"));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_created_once_and_found_again() {
    let broker = Broker::start().await;
    let wanted = json!({"VisibilityTimeout": "7", "ReceiveMessageWaitTimeSeconds": "1"});
    let url = queue(&broker, "jobs", wanted.clone()).await;
    // What is not said does not count.
    assert_eq!(queue(&broker, "jobs", wanted).await, url);
    assert_eq!(queue(&broker, "jobs", json!({})).await, url);
    let other = json!({"QueueName": "jobs", "Attributes": {"VisibilityTimeout": "8"}});
    let (shape, message) = refused(&broker, "CreateQueue", other).await;
    assert_eq!(shape, "QueueNameExists");
    assert_eq!(
        message,
        "A queue already exists with the same name and a different value for attribute \
         VisibilityTimeout"
    );
    // A topic that is no queue.
    broker.post("/topics", r#"{"name":"plain"}"#).await.ok();
    let (shape, message) = refused(&broker, "CreateQueue", json!({"QueueName": "plain"})).await;
    assert_eq!(shape, "QueueNameExists", "{message}");
    let (shape, _) = refused(&broker, "GetQueueUrl", json!({"QueueName": "plain"})).await;
    assert_eq!(shape, "QueueDoesNotExist");
    // Its own.
    let named = json!({"QueueUrl": url});
    assert_eq!(call(&broker, "DeleteQueue", &named).await.status, 200);
    let (shape, _) = refused(&broker, "DeleteQueue", named).await;
    assert_eq!(shape, "QueueDoesNotExist");
    queue(&broker, "jobs", json!({"VisibilityTimeout": "8"})).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_are_set_shown_and_kept_over_a_restart() {
    let broker = Broker::start().await;
    let policy = r#"{"Version":"2012-10-17"}"#;
    let url = queue(&broker, "jobs", json!({"DelaySeconds": "3", "Policy": policy})).await;
    let before = attributes(&broker, &url).await;
    assert_eq!(
        (&before["QueueArn"], &before["MaximumMessageSize"], &before["VisibilityTimeout"]),
        (&json!("arn:aws:sqs:eu-west-1:000000000000:jobs"), &json!("1048576"), &json!("30")),
    );
    assert_eq!(before["CreatedTimestamp"], before["LastModifiedTimestamp"]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let changes = json!({
        "VisibilityTimeout": "9",
        "MessageRetentionPeriod": "60",
        "MaximumMessageSize": "1024",
        "ReceiveMessageWaitTimeSeconds": "2",
        "KmsMasterKeyId": "alias/aws/sqs",
        "Policy": "",
    });
    let set = json!({"QueueUrl": url, "Attributes": changes});
    assert_eq!(call(&broker, "SetQueueAttributes", &set).await.status, 200);
    ok(&broker, "TagQueue", json!({"QueueUrl": url, "Tags": {"team": "b", "x": ""}})).await;
    ok(&broker, "UntagQueue", json!({"QueueUrl": url, "TagKeys": ["x", "y"]})).await;

    let after = attributes(&broker, &url).await;
    for (name, value) in changes.as_object().unwrap() {
        let expected = Some(value).filter(|value| **value != "");
        assert_eq!(after.get(name), expected, "{name}");
    }
    assert_eq!(after["DelaySeconds"], "3");
    assert_eq!(after["CreatedTimestamp"], before["CreatedTimestamp"]);
    assert_ne!(after["LastModifiedTimestamp"], before["LastModifiedTimestamp"]);
    // The same queue over our own API, and what is set there.
    let ours = broker.get("/queues/jobs").await.ok();
    assert_eq!(ours["settings"]["visibility_timeout_ms"], 9000, "{ours}");
    let patch = r#"{"settings":{"visibility_timeout_ms":11000}}"#;
    broker.request("PATCH", "/queues/jobs", patch).await.ok();

    let broker = broker.restart().await;
    let again = attributes(&broker, &url).await;
    assert_eq!(again["VisibilityTimeout"], "11");
    for name in ["MaximumMessageSize", "KmsMasterKeyId", "CreatedTimestamp", "DelaySeconds"] {
        assert_eq!(again[name], after[name], "{name}");
    }
    let tags = ok(&broker, "ListQueueTags", json!({"QueueUrl": url})).await;
    assert_eq!(tags, json!({"Tags": {"team": "b"}}));

    let one = json!({"QueueUrl": url, "AttributeNames": ["DelaySeconds"]});
    let one = ok(&broker, "GetQueueAttributes", one).await;
    assert_eq!(one, json!({"Attributes": {"DelaySeconds": "3"}}));
    let unknown = json!({"QueueUrl": url, "AttributeNames": ["Colour"]});
    let (shape, message) = refused(&broker, "GetQueueAttributes", unknown).await;
    assert_eq!(
        (shape.as_str(), message.as_str()),
        ("InvalidAttributeName", "Unknown Attribute Colour.")
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_of_our_own_api_are_there_too() {
    let broker = Broker::start().await;
    let ours = json!({"name": "ours", "settings": {"visibility_timeout_ms": 5000, "delay_ms": 0}});
    broker.post("/queues", &ours.to_string()).await.ok();
    // SQS cannot name it.
    broker.post("/queues", r#"{"name":"o.urs"}"#).await.ok();
    let listed = ok(&broker, "ListQueues", json!({})).await;
    assert_eq!(listed, json!({"QueueUrls": ["http://sqs.localhost:9324/000000000000/ours"]}));
    let url = "ours";
    assert_eq!(attributes(&broker, url).await["VisibilityTimeout"], "5");
    let message = json!({"value": "v", "group": "g", "headers": {"trace": "1"}, "priority": 3});
    broker.post("/queues/ours/messages", &message.to_string()).await.ok();
    broker
        .post("/queues/ours/messages", r#"{"value":"/w==","value_encoding":"base64"}"#)
        .await
        .ok();
    let wanted = json!({"MessageAttributeNames": ["All"], "AttributeNames": ["MessageGroupId"]});
    let mut received = receive(&broker, url, wanted).await;
    received.sort_by_key(|message| message["Body"].to_string());
    assert_eq!(bodies(&received), ["/w==", "v"]);
    assert_eq!(received[1]["Attributes"], json!({"MessageGroupId": "g"}));
    let trace = json!({"trace": {"DataType": "String", "StringValue": "1"}});
    assert_eq!(received[1]["MessageAttributes"], trace);
    // What SQS has received, our own API deletes.
    let receipts = json!({"receipts": [received[0]["ReceiptHandle"]]});
    broker.post("/queues/ours/delete", &receipts.to_string()).await.ok();
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_listed_by_prefix_and_page_by_page() {
    let broker = Broker::start().await;
    for name in ["b-2", "a-1", "b-1", "b-3"] {
        queue(&broker, name, json!({})).await;
    }
    let names = |listed: &Value| -> Vec<String> {
        let urls = listed["QueueUrls"].as_array().cloned().unwrap_or_default();
        let name = |url: &Value| url.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        urls.iter().map(name).collect()
    };
    let all = ok(&broker, "ListQueues", json!({})).await;
    assert_eq!(names(&all), ["a-1", "b-1", "b-2", "b-3"]);
    let page = json!({"QueueNamePrefix": "b-", "MaxResults": 2});
    let first = ok(&broker, "ListQueues", page).await;
    assert_eq!(names(&first), ["b-1", "b-2"]);
    let next = json!({
        "QueueNamePrefix": "b-", "MaxResults": 2, "NextToken": first["NextToken"],
    });
    let second = ok(&broker, "ListQueues", next).await;
    assert_eq!((names(&second), second.get("NextToken")), (vec!["b-3".to_owned()], None));
    let none = ok(&broker, "ListQueues", json!({"QueueNamePrefix": "c"})).await;
    assert_eq!(none, json!({}));
    let (shape, _) =
        refused(&broker, "ListQueues", json!({"NextToken": "%", "MaxResults": 1})).await;
    assert_eq!(shape, "InvalidParameterValueException");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_batch_are_answered_one_by_one() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({"MaximumMessageSize": "1024"})).await;
    let entries = json!([
        {"Id": "a", "MessageBody": "1"},
        {"Id": "b", "MessageBody": "x".repeat(1025)},
        {"Id": "c", "MessageBody": "2", "DelaySeconds": 901},
        {"Id": "d", "MessageBody": "3", "MessageDeduplicationId": "d"},
        {"Id": "e", "MessageBody": "4"},
    ]);
    let sent = ok(&broker, "SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await;
    let ids = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["Id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&sent["Successful"]), ["a", "e"]);
    assert_eq!(ids(&sent["Failed"]), ["b", "c", "d"]);
    assert_eq!(
        sent["Failed"][0],
        json!({
            "Id": "b", "SenderFault": true, "Code": "InvalidParameterValue",
            "Message": "One or more parameters are invalid. Reason: Message must be shorter than \
                        1024 bytes.",
        })
    );
    let received = receive(&broker, &url, json!({})).await;
    assert_eq!(received.len(), 2);
    let handle = |index: usize| received[index]["ReceiptHandle"].clone();
    let entries = json!([
        {"Id": "a", "ReceiptHandle": handle(0), "VisibilityTimeout": 0},
        {"Id": "b", "ReceiptHandle": "none", "VisibilityTimeout": 5},
        {"Id": "c", "ReceiptHandle": handle(1), "VisibilityTimeout": 43200},
    ]);
    let change = json!({"QueueUrl": url, "Entries": entries});
    let changed = ok(&broker, "ChangeMessageVisibilityBatch", change).await;
    assert_eq!(ids(&changed["Successful"]), ["a"]);
    // Twelve hours altogether, and a moment of them is over.
    let failed = &changed["Failed"];
    assert_eq!(ids(failed), ["b", "c"], "{changed}");
    assert_eq!(failed[0]["Code"], "ReceiptHandleIsInvalid");
    assert!(failed[1]["Message"].as_str().unwrap().contains("beyond the limit [43200 seconds]"));
    let entries = json!([
        {"Id": "a", "ReceiptHandle": handle(1)},
        {"Id": "b", "ReceiptHandle": "none"},
    ]);
    let delete = json!({"QueueUrl": url, "Entries": entries});
    let deleted = ok(&broker, "DeleteMessageBatch", delete).await;
    assert_eq!(
        (ids(&deleted["Successful"]), ids(&deleted["Failed"])),
        (vec!["a".into()], vec!["b".into()])
    );
    let (shape, _) =
        refused(&broker, "SendMessageBatch", json!({"QueueUrl": url, "Entries": []})).await;
    assert_eq!(shape, "EmptyBatchRequest");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visibility_ends_is_changed_and_is_not_remembered() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({"VisibilityTimeout": "1"})).await;
    ok(&broker, "SendMessage", json!({"QueueUrl": url, "MessageBody": "v"})).await;
    let first = receive(&broker, &url, json!({})).await;
    let started = Instant::now();
    // Wakes when the time of the first receive is over.
    let wanted = json!({"WaitTimeSeconds": 10, "VisibilityTimeout": 60, "AttributeNames": ["All"]});
    let second = receive(&broker, &url, wanted).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(second[0]["Attributes"]["ApproximateReceiveCount"], "2");
    let change = |handle: &Value, seconds: u32| json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": seconds});
    let stale = change(&first[0]["ReceiptHandle"], 5);
    let (shape, message) = refused(&broker, "ChangeMessageVisibility", stale).await;
    assert_eq!(shape, "InvalidParameterValueException", "{message}");
    let now = change(&second[0]["ReceiptHandle"], 0);
    assert_eq!(call(&broker, "ChangeMessageVisibility", &now).await.status, 200);
    let third = receive(&broker, &url, json!({})).await;
    assert_eq!(bodies(&third), ["v"]);
    // As the queue has it again; the handle of before is worth nothing, and no error to delete with.
    let delete = json!({"QueueUrl": url, "ReceiptHandle": first[0]["ReceiptHandle"]});
    assert_eq!(call(&broker, "DeleteMessage", &delete).await.status, 200);
    let fourth = receive(&broker, &url, json!({"WaitTimeSeconds": 5})).await;
    assert_eq!(bodies(&fourth), ["v"]);
    // The last handle deletes, even after its time.
    tokio::time::sleep(Duration::from_millis(1300)).await;
    let delete = json!({"QueueUrl": url, "ReceiptHandle": fourth[0]["ReceiptHandle"]});
    assert_eq!(call(&broker, "DeleteMessage", &delete).await.status, 200);
    assert!(receive(&broker, &url, json!({"WaitTimeSeconds": 1})).await.is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_waits_as_the_queue_says_and_wakes_when_something_is_sent() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({"ReceiveMessageWaitTimeSeconds": "10"})).await;
    let started = Instant::now();
    assert!(receive(&broker, &url, json!({"WaitTimeSeconds": 0})).await.is_empty());
    assert!(started.elapsed() < Duration::from_secs(5));
    let sent = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ok(&broker, "SendMessage", json!({"QueueUrl": url, "MessageBody": "v"})).await
    };
    let (received, _) = tokio::join!(receive(&broker, &url, json!({})), sent);
    assert_eq!(bodies(&received), ["v"]);
    assert!(started.elapsed() < Duration::from_secs(8));
    // And when a delay is over: that of the message counts more than that of the queue.
    let set = json!({"QueueUrl": url, "Attributes": {"DelaySeconds": "900"}});
    ok(&broker, "SetQueueAttributes", set).await;
    let delayed = json!({"QueueUrl": url, "MessageBody": "later", "DelaySeconds": 1});
    ok(&broker, "SendMessage", delayed).await;
    let shown = attributes(&broker, &url).await;
    assert_eq!(shown["ApproximateNumberOfMessagesDelayed"], "1", "{shown}");
    assert_eq!(bodies(&receive(&broker, &url, json!({})).await), ["later"]);
    let (shape, _) =
        refused(&broker, "ReceiveMessage", json!({"QueueUrl": url, "WaitTimeSeconds": 21})).await;
    assert_eq!(shape, "InvalidParameterValueException");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_forgets_what_is_there_held_and_delayed() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({})).await;
    let entries = json!([
        {"Id": "a", "MessageBody": "1"},
        {"Id": "b", "MessageBody": "2", "DelaySeconds": 900},
        {"Id": "c", "MessageBody": "3"},
    ]);
    ok(&broker, "SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await;
    receive(&broker, &url, json!({"MaxNumberOfMessages": 1})).await;
    assert_eq!(call(&broker, "PurgeQueue", &json!({"QueueUrl": url})).await.status, 200);
    let shown = attributes(&broker, &url).await;
    for count in ["", "Delayed", "NotVisible"] {
        assert_eq!(shown[format!("ApproximateNumberOfMessages{count}")], "0", "{shown}");
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_the_largest_size_fits() {
    let broker = Broker::start().await;
    let url = queue(&broker, "jobs", json!({})).await;
    let body = "x".repeat(1_048_576);
    ok(&broker, "SendMessage", json!({"QueueUrl": url, "MessageBody": body})).await;
    let received = receive(&broker, &url, json!({})).await;
    assert_eq!(received[0]["Body"].as_str().unwrap().len(), body.len());
    let more = json!({"QueueUrl": url, "MessageBody": body + "x"});
    let (_, message) = refused(&broker, "SendMessage", more).await;
    assert!(message.ends_with("Message must be shorter than 1048576 bytes."), "{message}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_change_one_queue_at_once_lose_nothing() {
    let broker = Arc::new(Broker::start().await);
    let url = queue(&broker, "q", json!({})).await;
    let all_at_once = async |calls: Vec<(&'static str, Value)>| {
        let mut under_way = JoinSet::new();
        for (action, body) in calls {
            let broker = Arc::clone(&broker);
            under_way.spawn(async move { ok(&broker, action, body).await });
        }
        under_way.join_all().await;
    };
    let attributes = [
        ("MaximumMessageSize", "2048"),
        ("ReceiveMessageWaitTimeSeconds", "7"),
        ("KmsMasterKeyId", "k"),
        // Kept also when it comes before the key, without which it is not shown.
        ("KmsDataKeyReusePeriodSeconds", "60"),
        ("DelaySeconds", "3"),
    ];
    let sets = attributes.map(|(name, value)| {
        ("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": { name: value }}))
    });
    let tags: Vec<String> = (0..12).map(|n| format!("tag{n}")).collect();
    let tagged =
        tags.iter().map(|tag| ("TagQueue", json!({"QueueUrl": url, "Tags": { tag: "x" }})));
    all_at_once(sets.into_iter().chain(tagged).collect()).await;
    let wanted = json!({"QueueUrl": url, "AttributeNames": ["All"]});
    let shown = ok(&broker, "GetQueueAttributes", wanted).await;
    for (name, value) in attributes {
        assert_eq!(shown["Attributes"][name], value, "{shown}");
    }
    let shown = ok(&broker, "ListQueueTags", json!({ "QueueUrl": url })).await;
    assert!(tags.iter().all(|tag| shown["Tags"][tag] == "x"), "{shown}");
    let gone = tags.iter().map(|tag| ("UntagQueue", json!({"QueueUrl": url, "TagKeys": [tag]})));
    all_at_once(gone.collect()).await;
    let shown = ok(&broker, "ListQueueTags", json!({ "QueueUrl": url })).await;
    assert!(shown["Tags"].as_object().is_none_or(serde_json::Map::is_empty), "{shown}");
}
