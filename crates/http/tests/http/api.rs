//! The HTTP API from outside: one test per promise of `docs/http.md`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::Broker;
use serde_json::{Value, json};

const MESSAGES: &str = "/topics/t/messages";

fn read_path(partition: i64, query: &str) -> String {
    format!("/topics/t/partitions/{partition}/messages?{query}")
}

fn values(answer: &Value) -> Vec<&str> {
    let messages = answer["messages"].as_array().unwrap();
    messages.iter().map(|message| message["value"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_is_read_back() {
    let broker = Broker::start().await;
    let body = r#"{"key":"k","value":"it works","headers":{"trace":"1"},"timestamp":1000}"#;
    let published = broker.post(MESSAGES, body).await.ok();
    assert_eq!(published["offset"], 0);
    assert_eq!(published["timestamp"], 1000);
    let partition = published["partition"].as_i64().unwrap();

    let read = broker.get(&read_path(partition, "offset=0")).await.ok();
    let message = json!({
        "offset": 0, "timestamp": 1000, "key": "k", "value": "it works",
        "headers": [{"name": "trace", "value": "1"}],
    });
    assert_eq!(read, json!({"messages": [message], "next_offset": 1, "high_watermark": 1}));
    let nothing_more = broker.get(&read_path(partition, "offset=1")).await.ok();
    assert_eq!(nothing_more, json!({"messages": [], "next_offset": 1, "high_watermark": 1}));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_text_come_back_as_base64() {
    let broker = Broker::start().await;
    let body = r#"{"key":"AQ==","key_encoding":"base64","value":"/w","value_encoding":"base64",
        "partition":0}"#;
    broker.post(MESSAGES, body).await.ok();
    broker.post(MESSAGES, r#"{"value":null,"key":"k","partition":0}"#).await.ok();
    let read = broker.get(&read_path(0, "")).await.ok();
    let first = &read["messages"][0];
    assert_eq!((&first["value"], &first["value_encoding"]), (&json!("/w=="), &json!("base64")));
    // The byte 1 is UTF-8.
    assert_eq!((&first["key"], &first["key_encoding"]), (&json!("\u{1}"), &Value::Null));
    assert_eq!(read["messages"][1]["value"], Value::Null);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_messages_are_published_in_order() {
    let broker = Broker::start().await;
    let messages: Vec<_> = (0..1000).map(|n| json!({"value": n.to_string(), "key": "k"})).collect();
    let answer = broker.post(MESSAGES, &json!({"messages": messages}).to_string()).await.ok();
    let results = answer["results"].as_array().unwrap();
    let partition = results[0]["partition"].as_i64().unwrap();
    for (offset, result) in results.iter().enumerate() {
        assert_eq!(result["offset"], offset);
        assert_eq!(result["partition"], partition);
    }
    let mut next = 0;
    let mut all = Vec::new();
    while all.len() < 1000 {
        let query = format!("offset={next}&max_bytes=500");
        let read = broker.get(&read_path(partition, &query)).await.ok();
        all.extend(values(&read).into_iter().map(|value| value.parse::<usize>().unwrap()));
        next = read["next_offset"].as_i64().unwrap();
    }
    assert!(all.into_iter().eq(0..1000));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_message_does_not_hold_up_the_others_and_is_not_overlooked() {
    let broker = Broker::start().await;
    broker.post("/topics", r#"{"name":"t","configs":{"cleanup.policy":"compact"}}"#).await.ok();
    let body = r#"{"messages":[{"value":"a","key":"k","partition":0},
        {"value":"b","partition":0},{"value":"c","key":"k","partition":0}]}"#;
    let answer = broker.post(MESSAGES, body).await.refused(400, "INVALID_MESSAGE");
    assert_eq!(answer["results"][0]["offset"], 0);
    assert_eq!(answer["results"][1]["error"]["code"], "INVALID_MESSAGE");
    assert_eq!(answer["results"][2]["offset"], 1);
    assert_eq!(values(&broker.get(&read_path(0, "")).await.ok()), ["a", "c"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_answers_the_first_result_across_restarts_too() {
    let broker = Broker::start().await;
    let body = |sequence: i64| {
        format!(r#"{{"value":"{sequence}","producer_id":"shop","sequence":{sequence}}}"#)
    };
    let first = broker.post(MESSAGES, &body(5)).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let again = broker.post(MESSAGES, &body(5)).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    // Gaps are legal.
    let later = broker.post(MESSAGES, &body(50)).await;
    assert_eq!(later.status, 200, "{}", later.body);

    let broker = broker.restart().await;
    for (sequence, expected) in [(5, &first.body), (50, &later.body)] {
        let again = broker.post(MESSAGES, &body(sequence)).await;
        assert_eq!((again.status, &again.body), (200, expected));
    }
    broker.post(MESSAGES, &body(51)).await.ok();
    broker.post(MESSAGES, &body(49)).await.refused(409, "SEQUENCE_STALE");
    broker.post(MESSAGES, &body(1)).await.refused(409, "SEQUENCE_STALE");

    let mut found = Vec::new();
    for partition in 0..3 {
        let read = broker.get(&read_path(partition, "")).await.ok();
        found.extend(values(&read).into_iter().map(str::to_owned));
    }
    found.sort();
    assert_eq!(found, ["5", "50", "51"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_message_sent_many_times_at_once_is_published_once() {
    let broker = Broker::start().await;
    broker.post("/topics", r#"{"name":"t"}"#).await.ok();
    let body = r#"{"value":"x","producer_id":7,"sequence":1}"#;
    let all = futures(&broker, body, 16).await;
    let bodies: BTreeSet<_> = all.into_iter().collect();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    let offsets = broker.get("/topics/t/offsets").await.ok();
    let ends = offsets["partition_offsets"].as_array().unwrap();
    assert_eq!(ends.iter().map(|end| end["offset"].as_i64().unwrap()).sum::<i64>(), 1);
    broker.stop().await;
}

async fn futures(broker: &Broker, body: &'static str, count: usize) -> Vec<String> {
    let mut tasks = tokio::task::JoinSet::new();
    let address = broker.address;
    for _ in 0..count {
        tasks.spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
            let length = body.len();
            let text = format!(
                "POST {MESSAGES} HTTP/1.1\r\nhost: l\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            socket.write_all(text.as_bytes()).await.unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await.unwrap();
            answer.split_once("\r\n\r\n").unwrap().1.to_owned()
        });
    }
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_messages_of_one_producer_keep_their_order() {
    let broker = Broker::start().await;
    let message =
        |n: i64| json!({"value": n.to_string(), "partition": 0, "producer_id": 1, "sequence": n});
    let messages: Vec<_> = (0..30).map(message).collect();
    let body = json!({"messages": messages}).to_string();
    let first = broker.post(MESSAGES, &body).await.ok();
    let again = broker.post(MESSAGES, &body).await.ok();
    assert_eq!(first, again);
    let read = broker.get(&read_path(0, "")).await.ok();
    let expected: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    assert_eq!(values(&read), expected);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_for_the_next_message() {
    let broker = Broker::start().await;
    broker.post("/topics", r#"{"name":"t","partitions":1}"#).await.ok();
    let path = read_path(0, "wait_ms=20000");
    let (read, ()) = tokio::join!(broker.get(&path), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        broker.post(MESSAGES, r#"{"value":"late"}"#).await.ok();
    });
    assert_eq!(values(&read.ok()), ["late"]);

    let begun = Instant::now();
    let nothing = broker.get(&read_path(0, "offset=1&wait_ms=200")).await.ok();
    assert_eq!(nothing["messages"], json!([]));
    assert!(Duration::from_millis(200) <= begun.elapsed());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_ends_long_polls_with_an_empty_answer() {
    let broker = Broker::start().await;
    broker.post("/topics", r#"{"name":"t","partitions":1}"#).await.ok();
    let address = broker.address;
    let poll = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let path = read_path(0, "wait_ms=30000");
        let text = format!("GET {path} HTTP/1.1\r\nhost: l\r\n\r\n");
        socket.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    broker.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(4));
    let answer = poll.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#""messages":[]"#), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_reads_on_from_where_it_has_committed() {
    let broker = Broker::start().await;
    for value in ["a", "b", "c"] {
        broker.post(MESSAGES, &format!(r#"{{"value":"{value}","partition":0}}"#)).await.ok();
    }
    let first = broker.get(&read_path(0, "group=g")).await.ok();
    assert_eq!(values(&first), ["a", "b", "c"]);
    let commit = r#"{"topic":"t","partition":0,"offset":2}"#;
    let committed = broker.post("/groups/g/offsets", commit).await.ok();
    assert_eq!(committed["offsets"][0]["offset"], 2);
    assert_eq!(values(&broker.get(&read_path(0, "group=g")).await.ok()), ["c"]);

    let shown = broker.get("/groups/g/offsets?topic=t").await.ok();
    let offsets = shown["offsets"].as_array().unwrap();
    assert_eq!(offsets.len(), 1);
    assert_eq!((&offsets[0]["topic"], &offsets[0]["offset"]), (&json!("t"), &json!(2)));
    assert_eq!(broker.get("/groups/other/offsets").await.ok()["offsets"], json!([]));

    let broker = broker.restart().await;
    assert_eq!(values(&broker.get(&read_path(0, "group=g")).await.ok()), ["c"]);
    let list = r#"{"offsets":[{"topic":"t","partition":0,"offset":0},
        {"topic":"t","partition":1,"offset":0,"metadata":"m"}]}"#;
    broker.post("/groups/g/offsets", list).await.ok();
    assert_eq!(values(&broker.get(&read_path(0, "group=g")).await.ok()), ["a", "b", "c"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_found_by_time() {
    let broker = Broker::start().await;
    for (value, timestamp) in [("a", 1000), ("b", 2000), ("c", 3000)] {
        let body = json!({"value": value, "partition": 0, "timestamp": timestamp}).to_string();
        broker.post(MESSAGES, &body).await.ok();
    }
    let of = |answer: &Value| answer["partition_offsets"][0].clone();
    let check = async |query: &str, offset: i64, timestamp: Value| {
        let answer = broker.get(&format!("/topics/t/offsets?{query}")).await.ok();
        let expected = json!({"partition": 0, "offset": offset, "timestamp": timestamp});
        assert_eq!(of(&answer), expected, "{query}");
    };
    check("timestamp=earliest", 0, Value::Null).await;
    check("timestamp=1500", 1, json!(2000)).await;
    check("timestamp=1970-01-01T00:00:03Z", 2, json!(3000)).await;
    check("timestamp=1970-01-01T01:00:03%2B01:00", 2, json!(3000)).await;
    check("timestamp=latest", 3, Value::Null).await;
    check("timestamp=4000", 3, Value::Null).await;
    check("", 3, Value::Null).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_created_shown_listed_and_deleted() {
    let broker = Broker::start().await;
    let wanted = r#"{"name":"t","partitions":2,"configs":{"retention.ms":60000}}"#;
    let created = broker.post("/topics", wanted).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let shown = broker.get("/topics/t").await.ok();
    assert_eq!(created.json(), shown);
    assert_eq!(shown["partitions"].as_array().unwrap().len(), 2);
    assert_eq!(shown["retention_ms"], 60000);
    assert_eq!(shown["configs"], json!({"retention.ms": "60000"}));
    assert!(shown["durability"].as_str().unwrap().contains("on disk"));
    broker.post("/topics", wanted).await.refused(409, "TOPIC_EXISTS");

    for name in ["a", "z"] {
        broker.post("/topics", &json!({"name": name}).to_string()).await.ok();
    }
    // Brings an internal topic into being, which must not be listed.
    broker.post("/groups/g/offsets", r#"{"topic":"t","partition":0,"offset":0}"#).await.ok();
    let names = |answer: &Value| -> Vec<String> {
        let topics = answer["topics"].as_array().unwrap();
        topics.iter().map(|topic| topic["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = broker.get("/topics").await.ok();
    assert_eq!(
        (names(&all), &all["next"]),
        (vec!["a".into(), "t".into(), "z".into()], &Value::Null)
    );
    let first = broker.get("/topics?limit=2").await.ok();
    assert_eq!((names(&first), &first["next"]), (vec!["a".into(), "t".into()], &json!("t")));
    let rest = broker.get("/topics?after=t").await.ok();
    assert_eq!(names(&rest), ["z"]);

    assert_eq!(broker.request("DELETE", "/topics/t", "").await.status, 204);
    broker.get("/topics/t").await.refused(404, "TOPIC_NOT_FOUND");
    broker.request("DELETE", "/topics/t", "").await.refused(404, "TOPIC_NOT_FOUND");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_publishing_creates_topics_and_only_where_it_may() {
    let broker = Broker::start_with(false, &[]).await;
    broker.post(MESSAGES, r#"{"value":"a"}"#).await.refused(404, "TOPIC_NOT_FOUND");
    broker.stop().await;

    let broker = Broker::start().await;
    broker.get(&read_path(0, "")).await.refused(404, "TOPIC_NOT_FOUND");
    broker.get("/topics/t/offsets").await.refused(404, "TOPIC_NOT_FOUND");
    let commit = r#"{"topic":"t","partition":0,"offset":0}"#;
    broker.post("/groups/g/offsets", commit).await.refused(404, "TOPIC_NOT_FOUND");
    broker.post(MESSAGES, r#"{"value":"a"}"#).await.ok();
    assert_eq!(broker.get("/topics").await.ok()["topics"].as_array().unwrap().len(), 1);
    broker.stop().await;
}

/// What a broker leaves behind that dies between the intent and its result.
async fn begin_without_an_end(broker: &Broker, append: bool) {
    use towpath_coordinator::publishers::{Publisher, Reply, Request};
    use towpath_metadata as metadata;
    use towpath_model::{PartitionIndex, Timestamp, TopicPartition};

    let node = &broker.node;
    node.ensure_publishers_topic().await.unwrap();
    let allocated = node.ask_metadata(metadata::Request::AllocateProducerId).await;
    let Ok(metadata::Reply::AllocatedProducerId(id)) = allocated else { panic!("{allocated:?}") };
    let (topic, config) = {
        let image = node.driver().image();
        let topic = image.topic("t").unwrap();
        (topic.id, image.effective_config(topic))
    };
    let publisher = Publisher { topic, name: "shop".into() };
    let begin = Request::Begin {
        publisher: publisher.clone(),
        sequence: 5,
        partition: PartitionIndex(1),
        producer_id: Some(id),
    };
    let begun = node.ask_publisher(&publisher, begin).await;
    let Ok(Reply::Append(intent)) = begun else { panic!("{begun:?}") };
    if append {
        let mut builder =
            towpath_records::BatchBuilder::new(towpath_records::Compression::None, Timestamp(1000));
        builder.set_producer(intent.producer_id, intent.producer_epoch, intent.producer_sequence);
        builder.append(Timestamp(1000), None, Some(b"first"), []).unwrap();
        let place = TopicPartition { topic, partition: intent.partition };
        let acks = towpath_replication::Acks::All;
        let appended = node.append(place, &config, &mut builder.build(), acks).unwrap();
        node.acknowledged(appended, Duration::from_secs(10)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_result_was_lost_in_a_crash_is_not_published_again() {
    let broker = Broker::start().await;
    broker.post("/topics", r#"{"name":"t","partitions":3}"#).await.ok();
    begin_without_an_end(&broker, true).await;
    let broker = broker.restart().await;
    let body = r#"{"value":"again","producer_id":"shop","sequence":5,"partition":0}"#;
    let expected = json!({"partition": 1, "offset": 0, "timestamp": 1000});
    assert_eq!(broker.post(MESSAGES, body).await.ok(), expected);
    assert_eq!(broker.post(MESSAGES, body).await.ok(), expected);
    assert_eq!(values(&broker.get(&read_path(1, "")).await.ok()), ["first"]);
    assert_eq!(values(&broker.get(&read_path(0, "")).await.ok()), Vec::<&str>::new());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_only_intended_before_a_crash_is_published_once() {
    let broker = Broker::start().await;
    broker.post("/topics", r#"{"name":"t","partitions":3}"#).await.ok();
    begin_without_an_end(&broker, false).await;
    let broker = broker.restart().await;
    let body = r#"{"value":"again","producer_id":"shop","sequence":5,"partition":1}"#;
    let first = broker.post(MESSAGES, body).await.ok();
    assert_eq!((&first["partition"], &first["offset"]), (&json!(1), &json!(0)));
    assert_eq!(broker.post(MESSAGES, body).await.ok(), first);
    assert_eq!(values(&broker.get(&read_path(1, "")).await.ok()), ["again"]);
    broker.stop().await;
}

#[tokio::test]
async fn a_publisher_that_hangs_up_is_not_kept_waiting_when_it_comes_back() {
    let broker = Broker::start_with(true, &[]).await;
    let body = |n: usize| format!(r#"{{"value":"x","producer_id":"p{n}","sequence":1}}"#);
    broker.post(MESSAGES, &body(0)).await.ok();
    for n in 1..10 {
        let body = body(n);
        let mut socket = tokio::net::TcpStream::connect(broker.address).await.unwrap();
        let request = format!(
            "POST {MESSAGES} HTTP/1.1\r\nhost: l\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        tokio::io::AsyncWriteExt::write_all(&mut socket, request.as_bytes()).await.unwrap();
        drop(socket);
        let begun = Instant::now();
        broker.post(MESSAGES, &body).await.ok();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    broker.stop().await;
}
