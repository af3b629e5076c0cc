//! How far groups are behind, over HTTP: numbers, forecasts, and what was lost.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Broker;

async fn publish(broker: &Broker, topic: &str, messages: usize) {
    let messages: Vec<Value> = (0..messages).map(|n| json!({"value": n.to_string()})).collect();
    let body = json!({"messages": messages}).to_string();
    broker.post(&format!("/topics/{topic}/messages"), &body).await.ok();
}

async fn commit(broker: &Broker, group: &str, topic: &str, offset: i64) {
    let body = json!({"topic": topic, "partition": 0, "offset": offset}).to_string();
    broker.post(&format!("/groups/{group}/offsets"), &body).await.ok();
}

async fn create(broker: &Broker, topic: &str, configs: Value) {
    let body = json!({"name": topic, "partitions": 1, "configs": configs}).to_string();
    assert_eq!(broker.post("/topics", &body).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_is_shown_in_records_seconds_and_parts_of_retention() {
    let broker = Broker::start().await;
    create(&broker, "orders", json!({"retention.ms": 60_000, "retention.bytes": 1_000_000})).await;
    publish(&broker, "orders", 10).await;
    commit(&broker, "billing", "orders", 4).await;
    commit(&broker, "audit", "orders", 10).await;
    tokio::time::sleep(Duration::from_millis(30)).await;

    let lag = broker.get("/groups/billing/lag").await.ok();
    let partition = &lag["partitions"][0];
    assert_eq!(partition["lag_records"], 6);
    assert_eq!(
        (&partition["committed_offset"], &partition["high_watermark"]),
        (&json!(4), &json!(10))
    );
    let seconds = partition["lag_seconds"].as_f64().unwrap();
    assert!((0.03..30.0).contains(&seconds), "{lag}");
    let ratio = partition["retention_ratio"].as_f64().unwrap();
    assert!(0.0 < ratio && ratio < 0.5, "{lag}");
    let left = partition["time_to_loss_seconds"].as_u64().unwrap();
    assert!((30..60).contains(&left), "{lag}");
    assert_eq!((&lag["omitted"], &lag["losses"]), (&json!(0), &json!([])));

    let all = broker.get("/groups").await.ok();
    let names: Vec<_> = all["groups"].as_array().unwrap().iter().map(|g| &g["group"]).collect();
    assert_eq!(names, ["audit", "billing"]);
    let audit = &all["groups"][0];
    assert_eq!((&audit["lag_records"], &audit["lag_seconds"]), (&json!(0), &json!(0.0)));
    assert_eq!(audit["time_to_loss_seconds"], Value::Null);
    assert_eq!((&audit["state"], &audit["members"]), (&json!("Empty"), &json!(0)));
    assert_eq!(all["groups"][1]["lag_records"], 6);

    let page = broker.get("/groups?limit=1").await.ok();
    assert_eq!((page["groups"].as_array().unwrap().len(), &page["next"]), (1, &json!("audit")));
    let rest = broker.get("/groups?limit=1&after=audit").await.ok();
    assert_eq!((&rest["groups"][0]["group"], &rest["next"]), (&json!("billing"), &Value::Null));
    broker.get("/groups?limit=0").await.refused(400, "INVALID_PARAMETER");
    broker.get("/groups/nobody/lag").await.refused(404, "GROUP_NOT_FOUND");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_takes_from_a_group_is_named_and_what_is_held_stays() {
    let properties = [("log.retention.check.interval.ms", "100")];
    let broker = Broker::start_with(true, &properties).await;
    create(&broker, "gone", json!({"retention.ms": 1})).await;
    create(&broker, "held", json!({"retention.ms": 1, "retention.guard": "hold"})).await;
    for topic in ["gone", "held"] {
        // Registered before there is anything to lose.
        commit(&broker, "slow", topic, 0).await;
        publish(&broker, topic, 5).await;
        commit(&broker, "slow", topic, 2).await;
    }
    let mut losses = Value::Null;
    for _ in 0..200 {
        losses = broker.get("/losses").await.ok()["losses"].take();
        if losses[0]["last_offset"] == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let loss = &losses[0];
    assert_eq!((&loss["group"], &loss["topic"]), (&json!("slow"), &json!("gone")), "{losses}");
    assert_eq!((&loss["partition"], &loss["last_offset"]), (&json!(0), &json!(4)));
    assert_eq!(loss["cause"], "retention_time");
    let first = loss["first_offset"].as_i64().unwrap();
    assert!(first <= 2, "{loss}");

    let lag = broker.get("/groups/slow/lag").await.ok();
    let of = |topic: &str| {
        let rows = lag["partitions"].as_array().unwrap();
        rows.iter().find(|row| row["topic"] == topic).unwrap().clone()
    };
    assert_eq!((&of("gone")["lost_records"], &of("gone")["lag_records"]), (&json!(3), &json!(0)));
    assert_eq!((&of("held")["lost_records"], &of("held")["lag_records"]), (&json!(0), &json!(3)));
    assert_eq!(of("held")["log_start_offset"].as_i64().map(|start| start <= 2), Some(true));
    assert!(0.5 <= of("held")["retention_ratio"].as_f64().unwrap());
    assert_eq!(lag["losses"], losses);
    let read = "/topics/gone/partitions/0/messages?group=slow";
    broker.get(read).await.refused(416, "OFFSET_OUT_OF_RANGE");

    // What was read goes.
    commit(&broker, "slow", "held", 5).await;
    for _ in 0..200 {
        let topic = broker.get("/topics/held").await.ok();
        if topic["partitions"][0]["log_start_offset"] == 5 {
            broker.stop().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("records that every group has read are held");
}
