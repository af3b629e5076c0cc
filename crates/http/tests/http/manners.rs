//! What happens to requests that are wrong, and to peers that speak something else.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;

use crate::support::Broker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mistake_has_its_code() {
    let broker = Broker::start_with(true, &[("num.partitions", "1")]).await;
    broker.post("/topics", r#"{"name":"t"}"#).await.ok();
    let get = async |path: &str, status: u16, code: &str| {
        broker.get(path).await.refused(status, code);
    };
    let post = async |path: &str, body: &str, status: u16, code: &str| {
        broker.post(path, body).await.refused(status, code);
    };
    get("/nothing", 404, "NOT_FOUND").await;
    get("/topics/t/partitions/7/messages", 404, "PARTITION_NOT_FOUND").await;
    get("/topics/t/partitions/x/messages", 400, "INVALID_PARAMETER").await;
    get("/topics/t/partitions/0/messages?offset=9", 416, "OFFSET_OUT_OF_RANGE").await;
    get("/topics/t/partitions/0/messages?offset=-1", 400, "INVALID_PARAMETER").await;
    get("/topics/t/partitions/0/messages?offset=0&group=g", 400, "INVALID_PARAMETER").await;
    get("/topics/t/partitions/0/messages?wait_ms=30001", 400, "INVALID_PARAMETER").await;
    get("/topics/t/partitions/0/messages?max_bytes=0", 400, "INVALID_PARAMETER").await;
    get("/topics/t/partitions/0/messages?ofset=0", 400, "INVALID_PARAMETER").await;
    get("/topics/t/offsets?timestamp=soon", 400, "INVALID_PARAMETER").await;
    get("/topics/a%20b", 400, "INVALID_TOPIC_NAME").await;
    get("/topics/%ff", 400, "INVALID_PARAMETER").await;
    get("/topics?limit=0", 400, "INVALID_PARAMETER").await;

    let messages = "/topics/t/messages";
    post(messages, "", 400, "INVALID_JSON").await;
    post(messages, "{", 400, "INVALID_JSON").await;
    post(messages, r#"{"value":1}"#, 400, "INVALID_JSON").await;
    post(messages, r#"{"value":"!","value_encoding":"base64"}"#, 400, "INVALID_ENCODING").await;
    post(messages, r#"{"value":"a","producer_id":"x"}"#, 400, "INVALID_REQUEST").await;
    let nameless = r#"{"value":"a","producer_id":"","sequence":1}"#;
    post(messages, nameless, 400, "INVALID_PRODUCER").await;
    post(messages, r#"{"value":"a","partition":3}"#, 404, "PARTITION_NOT_FOUND").await;
    let large = format!(r#"{{"value":"{}"}}"#, "a".repeat(2 << 20));
    post(messages, &large, 413, "MESSAGE_TOO_LARGE").await;
    post(
        "/topics/a b/messages".replace(' ', "%20").as_str(),
        r#"{"value":"a"}"#,
        400,
        "INVALID_TOPIC_NAME",
    )
    .await;
    let internal = "/topics/__consumer_offsets/messages";
    post(internal, r#"{"value":"a"}"#, 403, "TOPIC_INTERNAL").await;

    post("/topics", r#"{"name":"a/b"}"#, 400, "INVALID_TOPIC_NAME").await;
    post("/topics", r#"{"name":"x","partitions":0}"#, 400, "INVALID_CONFIG").await;
    post("/topics", r#"{"name":"x","configs":{"retention.ms":"x"}}"#, 400, "INVALID_CONFIG").await;
    post("/topics", r#"{"name":"x","configs":{"retension.ms":1}}"#, 400, "INVALID_CONFIG").await;
    post("/topics", r#"{"name":"__towpath_x"}"#, 403, "TOPIC_INTERNAL").await;
    let offsets = "/groups/g/offsets";
    let negative = r#"{"topic":"t","partition":0,"offset":-1}"#;
    post(offsets, negative, 400, "INVALID_REQUEST").await;
    let no_partition = r#"{"topic":"t","partition":4,"offset":0}"#;
    post(offsets, no_partition, 404, "PARTITION_NOT_FOUND").await;

    let wrong = broker.request("PUT", "/topics/t", "").await;
    assert!(wrong.head.contains("allow: "), "{}", wrong.head);
    wrong.refused(405, "METHOD_NOT_ALLOWED");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_out_of_range_says_what_there_is() {
    let broker = Broker::start_with(true, &[]).await;
    broker.post("/topics/t/messages", r#"{"value":"a"}"#).await.ok();
    let path = "/topics/t/partitions/0/messages?offset=5";
    let error = broker.get(path).await.refused(416, "OFFSET_OUT_OF_RANGE");
    assert_eq!(error["error"]["range"]["log_start_offset"], 0);
    assert_eq!(error["error"]["range"]["high_watermark"], 1);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_and_headers_are_bounded() {
    let broker = Broker::start_with(true, &[]).await;
    let head = |extra: &str| {
        format!("POST /topics/t/messages HTTP/1.1\r\nhost: l\r\nconnection: close\r\n{extra}\r\n")
    };
    let declared = broker.raw(head("content-length: 16777217\r\n").as_bytes()).await;
    declared.refused(413, "BODY_TOO_LARGE");
    let mut chunked = head("transfer-encoding: chunked\r\n").into_bytes();
    for _ in 0..17 {
        chunked.extend(b"100000\r\n");
        chunked.extend(vec![b' '; 1 << 20]);
        chunked.extend(b"\r\n");
    }
    broker.raw(&chunked).await.refused(413, "BODY_TOO_LARGE");
    let zipped =
        broker.raw(head("content-encoding: gzip\r\ncontent-length: 0\r\n").as_bytes()).await;
    zipped.refused(415, "ENCODING_NOT_SUPPORTED");
    let long = format!("x: {}\r\n", "a".repeat(20_000));
    broker.raw(head(&long).as_bytes()).await.refused(431, "HEADERS_TOO_LARGE");
    let many: String = (0..150).map(|n| format!("x-{n}: 1\r\n")).collect();
    broker.raw(head(&many).as_bytes()).await.refused(431, "HEADERS_TOO_LARGE");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_pages_of_others_may_not_publish() {
    let broker = Broker::start_with(true, &[]).await;
    let request = "POST /topics/t/messages HTTP/1.1\r\nhost: localhost:8080\r\n\
        origin: http://evil.example\r\nconnection: close\r\ncontent-length: 13\r\n\r\n{\"value\":\"a\"}";
    broker.raw(request.as_bytes()).await.refused(403, "ORIGIN_NOT_ALLOWED");
    let own = request.replace("http://evil.example", "http://localhost:8080");
    broker.raw(own.as_bytes()).await.ok();
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_cost_only_their_own_connection() {
    let broker = Broker::start_with(true, &[]).await;
    // A TLS hello is answered by a TLS alert, a Kafka frame and nonsense by nothing.
    assert!(broker.exchange(&[0x16, 0x03, 0x01, 0x00, 0xa5, 0x01]).await.starts_with('\u{15}'));
    let kafka = [0, 0, 0, 16, 0, 18, 0, 3, 0, 0, 0, 1, 0, 6];
    assert_eq!(broker.exchange(&kafka).await, "");
    assert_eq!(broker.exchange(&[0xfe; 100]).await, "");
    let broken = broker.exchange(b"THIS is not HTTP\r\n\r\n").await;
    assert!(broken.starts_with("HTTP/1.1 400"), "{broken}");
    assert_eq!(broker.get("/livez").await.status, 200);
    let metrics = broker.get("/metrics").await.body;
    assert!(metrics.contains("towpath_http_connections_refused_total 4"), "{metrics}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_tells_living_from_ready() {
    let broker = Broker::start_with(true, &[]).await;
    assert_eq!(broker.get("/livez").await.body, "ok\n");
    for path in ["/readyz", "/healthz"] {
        assert_eq!(broker.get(path).await.body, "ok\n");
    }
    assert!(broker.get("/readyz?verbose").await.body.contains("[+] data directory\n"));
    broker.readiness.set_stopping();
    let stopping = broker.get("/readyz").await;
    assert_eq!((stopping.status, stopping.body.as_str()), (503, "[-] not stopping\nnot ready\n"));
    assert_eq!(broker.get("/livez").await.status, 200);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_and_the_description_are_served() {
    let broker = Broker::start_with(true, &[]).await;
    broker.post("/topics/t/messages", r#"{"value":"a"}"#).await.ok();
    broker.post("/groups/g/offsets", r#"{"topic":"t","partition":0,"offset":0}"#).await.ok();
    let answer = broker.get("/metrics").await;
    assert!(answer.head.contains("application/openmetrics-text"));
    for series in [
        "towpath_records_appended_total 1",
        "towpath_topic_high_watermark{topic=\"t\"} 1",
        "towpath_topic_partitions{topic=\"t\"} 1",
        "towpath_groups 1",
        "towpath_ready 1",
        "towpath_http_publish_seconds_count 1",
        "towpath_http_requests_total{method=\"POST\",route=\"/topics/{topic}/messages\",status=\"200\"} 1",
        "process_start_time_seconds ",
        "towpath_build_info{version=",
        "# EOF",
    ] {
        assert!(answer.body.contains(series), "{series} is missing in\n{}", answer.body);
    }
    let names: Vec<&str> =
        answer.body.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "a name twice");

    let document: Value = broker.get("/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(broker.get("/").await.body.contains("curl http://localhost/topics"));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_has_too_many_connections_is_told_so() {
    let broker = Broker::start_with(true, &[("max.connections.per.ip", "2")]).await;
    let first = TcpStream::connect(broker.address).await.unwrap();
    let _second = TcpStream::connect(broker.address).await.unwrap();
    let refused = broker.raw(b"").await;
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    let message = refused.refused(503, "OVERLOADED");
    assert!(message.to_string().contains("max.connections.per.ip"), "{message}");
    drop(first);
    let is_served = async { while broker.exchange(GET_LIVEZ).await.starts_with("HTTP/1.1 503") {} };
    tokio::time::timeout(Duration::from_secs(20), is_served).await.expect("room is given back");
}

const GET_LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nhost: l\r\nconnection: close\r\n\r\n";
