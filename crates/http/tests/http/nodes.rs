//! The cluster and its nodes over HTTP, as far as one broker is a cluster; `tests/process` has several.

use serde_json::{Value, json};

use crate::support::Broker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_alone_is_a_cluster_of_one_node() {
    let broker = Broker::start().await;
    broker.post("/topics/t/messages", r#"{"value":"v"}"#).await.ok();
    let cluster = broker.get("/cluster").await.ok();
    assert_eq!((&cluster["controller"], &cluster["moves"]), (&json!(1), &json!(0)));
    assert_eq!(cluster["nodes"], json!({"registered": 1, "states": {"live": 1}}));
    assert_eq!(cluster["quorum"]["voters"][0]["lag"], 0, "{cluster}");
    assert_eq!(cluster["partitions"]["offline"], 0);
    assert!(3 <= cluster["partitions"]["count"].as_u64().unwrap(), "{cluster}");
    assert!(cluster["cluster_id"].is_string());

    let nodes = broker.get("/nodes").await.ok();
    let node = broker.get("/nodes/1").await.ok();
    let same = ["node", "state", "partitions_led", "replicas", "quorum", "version"];
    assert!(same.iter().all(|name| nodes["nodes"][0][name] == node[name]), "{nodes}");
    assert_eq!((&node["state"], &node["quorum"]), (&json!("live"), &json!("voter")));
    assert_eq!((&node["drain"], &node["absent_since"]), (&Value::Null, &Value::Null));
    assert_eq!(node["partitions_led"], cluster["partitions"]["count"]);
    let own = broker.get("/nodes/1/self").await.ok();
    assert_eq!(own["directories"][0]["state"], "ok", "{own}");
    assert!(0 < own["directories"][0]["stored_bytes"].as_u64().unwrap(), "{own}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_node_cannot_go() {
    let broker = Broker::start().await;
    broker.get("/nodes/2").await.refused(404, "NODE_NOT_FOUND");
    broker.get("/nodes/x").await.refused(400, "INVALID_PARAMETER");
    broker.get("/nodes/1?verbose").await.refused(400, "INVALID_PARAMETER");
    broker.post("/nodes/1/drain", "").await.refused(409, "LAST_NODE");
    broker.post("/nodes/7/drain", "").await.refused(404, "NODE_NOT_FOUND");
    let undrained = broker.post("/nodes/1/undrain", "").await.ok();
    assert_eq!(undrained["state"], "live");
    broker.request("DELETE", "/nodes/1", "").await.refused(409, "NODE_LIVE");
    broker.request("DELETE", "/nodes/2", "").await.refused(404, "NODE_NOT_FOUND");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_can_ask_what_they_need_of_each_others_partitions() {
    let broker = Broker::start().await;
    let body = r#"{"value":"v","partition":1,"producer_id":"shop","sequence":1}"#;
    broker.post("/topics/t/messages", body).await.ok();
    let asked = json!({"offsets": [
        {"topic": "t", "partition": 1, "offset": 0}, {"topic": "t", "partition": 0, "offset": 0},
    ]});
    let lags = broker.post("/lag", &asked.to_string()).await.ok();
    assert_eq!(
        (&lags["lags"][0]["lag_records"], &lags["lags"][1]["lag_records"]),
        (&json!(1), &json!(0))
    );
    let unknown = json!({"offsets": [{"topic": "t", "partition": 9, "offset": 0}]});
    broker.post("/lag", &unknown.to_string()).await.refused(404, "PARTITION_NOT_FOUND");

    // The first producer that the cluster has given a number.
    let mut found = Value::Null;
    for producer in 0..2_000 {
        let path = format!("/topics/t/partitions/1/producers/{producer}");
        found = broker.get(&path).await.ok();
        if found["epoch"] == 0 {
            break;
        }
    }
    assert_eq!(found["batches"][0]["base_offset"], 0, "{found}");
    assert_eq!(
        (&found["batches"][0]["end_offset"], &found["high_watermark"]),
        (&json!(1), &json!(1))
    );
    broker.get("/topics/t/partitions/1/producers/x").await.refused(400, "INVALID_PARAMETER");
    broker.post("/topics/t/partitions/1/batches", "no batch").await.refused(400, "INVALID_MESSAGE");
    let internal = "/topics/__consumer_offsets/partitions/0/batches";
    broker.post(internal, "").await.refused(403, "TOPIC_INTERNAL");
    broker.stop().await;
}
