//! Our own client while brokers of its cluster come and go.

use std::time::{Duration, Instant};

use towpath_client::{
    Admin, ClientConfig, Cluster as Client, GroupConfig, GroupConsumer, OffsetReset,
    OutgoingRecord, Producer, ProducerConfig, Record,
};

use crate::cluster::Cluster;

const PATIENCE: Duration = Duration::from_secs(60);
const GROUP: &str = "readers";
const PARTITIONS: i32 = 3;

/// Sends numbers `from..to` to each partition, and waits until all are acknowledged.
async fn send(producer: &Producer, from: usize, to: usize) {
    let mut deliveries = Vec::new();
    for number in from..to {
        for partition in 0..PARTITIONS {
            let record = OutgoingRecord::new("topic", number.to_string()).partition(partition);
            deliveries.push(producer.send(record).await.unwrap());
        }
    }
    producer.flush().await.unwrap();
    for delivery in deliveries {
        delivery.await.unwrap();
    }
}

/// Polls until each partition has given `count` numbers, each once and in order.
async fn receive(consumer: &mut GroupConsumer, seen: &mut [Vec<usize>; 3], count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while seen.iter().any(|numbers| numbers.len() < count) {
        assert!(Instant::now() < deadline, "{:?}", seen.each_ref().map(Vec::len));
        for Record { partition, value, .. } in
            consumer.poll(Duration::from_millis(200)).await.unwrap()
        {
            let number = std::str::from_utf8(&value.unwrap()).unwrap().parse().unwrap();
            let numbers = &mut seen[usize::try_from(partition.0).unwrap()];
            assert_eq!(number, numbers.len(), "partition {partition}");
            numbers.push(number);
        }
    }
    consumer.commit_sync().await.unwrap();
}

#[test]
fn producer_and_consumer_follow_leaders_and_coordinators_from_broker_to_broker() {
    let mut cluster = Cluster::start();
    cluster.create("topic", &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]], &[]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let client = || {
        let mut config = ClientConfig::new(&cluster.bootstrap()).unwrap();
        config.request_timeout = Duration::from_secs(5);
        runtime.block_on(Client::connect(config)).unwrap()
    };
    let (sending, reading) = (client(), client());
    let inside = runtime.enter();
    let producer = Producer::new(sending, ProducerConfig::default()).unwrap();
    let mut config = GroupConfig::new(GROUP, ["topic"]);
    config.reset = OffsetReset::Earliest;
    let mut consumer = GroupConsumer::new(reading.clone(), config).unwrap();
    drop(inside);
    let mut seen = [Vec::new(), Vec::new(), Vec::new()];

    runtime.block_on(send(&producer, 0, 50));
    runtime.block_on(receive(&mut consumer, &mut seen, 50));
    let coordinator = runtime.block_on(reading.coordinator(GROUP)).unwrap().0;
    cluster.kill(coordinator);
    runtime.block_on(send(&producer, 50, 100));
    runtime.block_on(receive(&mut consumer, &mut seen, 100));
    let elsewhere = runtime.block_on(reading.coordinator(GROUP)).unwrap().0;
    assert_ne!(elsewhere, coordinator);

    // The other two are then the ones that were there all the time.
    cluster.start_again(coordinator);
    (0..PARTITIONS).for_each(|partition| cluster.in_sync("topic", partition, &[1, 2, 3]));
    cluster.kill(elsewhere);
    runtime.block_on(send(&producer, 100, 150));
    runtime.block_on(receive(&mut consumer, &mut seen, 150));
    runtime.block_on(consumer.close()).unwrap();
    runtime.block_on(producer.close(PATIENCE)).unwrap();
}

#[test]
fn brokers_that_could_lead_without_loss_are_named() {
    let mut cluster = Cluster::start();
    cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "3")]);
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let config = ClientConfig::new(&cluster.bootstrap()).unwrap();
    let admin = Admin::new(runtime.block_on(Client::connect(config)).unwrap());
    assert!(runtime.block_on(admin.eligible_leaders("topic")).unwrap().is_empty());
    cluster.kill(3);
    cluster.in_sync("topic", 0, &[1, 2]);
    let eligible = runtime.block_on(admin.eligible_leaders("topic")).unwrap();
    let named: Vec<(i32, Vec<i32>)> = eligible
        .into_iter()
        .map(|(partition, brokers)| (partition.0, brokers.into_iter().map(|id| id.0).collect()))
        .collect();
    assert_eq!(named, [(0, vec![3])]);
}
