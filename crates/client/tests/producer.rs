//! The producer against a broker that fails as it is told: every record arrives once and in order, or
//! the caller hears why not.

mod fake;

use std::time::Duration;

use towpath_client::{
    Backoff, ClientConfig, Cluster, Compression, Error, ErrorCode, OnFull, OutgoingRecord,
    Producer, ProducerConfig,
};

use crate::fake::{FakeBroker, Fault, State};

async fn cluster(broker: &FakeBroker) -> Cluster {
    let mut config = ClientConfig::new(&broker.address).unwrap();
    config.retry_backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(5));
    config.reconnect_backoff = config.retry_backoff;
    Cluster::connect(config).await.unwrap()
}

/// Batches of about four records, so that several are on their way.
fn config() -> ProducerConfig {
    ProducerConfig {
        batch_bytes: 140,
        request_bytes_max: 10_000,
        linger: Duration::ZERO,
        ..ProducerConfig::default()
    }
}

async fn send(
    broker: &FakeBroker,
    config: ProducerConfig,
    values: impl IntoIterator<Item = String>,
) -> Vec<Result<i64, Error>> {
    let producer = Producer::new(cluster(broker).await, config).unwrap();
    let mut deliveries = Vec::new();
    for value in values {
        deliveries.push(producer.send(OutgoingRecord::new("t", value)).await.unwrap());
    }
    let mut outcomes = Vec::new();
    for delivery in deliveries {
        outcomes.push(delivery.await.map(|delivered| delivered.offset.map_or(-1, |o| o.0)));
    }
    producer.close(Duration::from_secs(10)).await.unwrap();
    outcomes
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{i:06}")).collect()
}

fn with_faults(faults: impl IntoIterator<Item = Fault>) -> State {
    State { faults: faults.into_iter().collect(), ..State::default() }
}

async fn all_arrive_once_and_in_order(faults: Vec<Fault>) {
    let broker = FakeBroker::start(with_faults(faults.clone())).await;
    let outcomes = send(&broker, config(), numbered(60)).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.as_ref().ok(), Some(&(at as i64)), "record {at}, {faults:?}");
    }
    assert_eq!(broker.values(), numbered(60), "{faults:?}");
}

#[tokio::test]
async fn a_healthy_broker_gets_everything() {
    all_arrive_once_and_in_order(vec![]).await;
}

#[tokio::test]
async fn a_lost_answer_does_not_double_records() {
    all_arrive_once_and_in_order(vec![Fault::None, Fault::HangUpAfter]).await;
}

#[tokio::test]
async fn a_lost_request_does_not_reorder_records() {
    all_arrive_once_and_in_order(vec![Fault::None, Fault::HangUp, Fault::None]).await;
}

#[tokio::test]
async fn the_first_batch_cannot_be_overtaken() {
    let refuse = Fault::Refuse(ErrorCode::NotEnoughReplicas);
    all_arrive_once_and_in_order(vec![refuse, Fault::None, refuse]).await;
}

#[tokio::test]
async fn a_refusal_after_the_append_is_recognised_as_a_repeat() {
    let after = Fault::RefuseAfter(ErrorCode::NotEnoughReplicasAfterAppend);
    all_arrive_once_and_in_order(vec![Fault::None, after, Fault::None, after]).await;
}

/// Every mix of faults, from many seeds; the seed is in the message of a failure.
#[tokio::test]
async fn no_mix_of_faults_loses_doubles_or_reorders() {
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let faults: Vec<Fault> = (0..random.usize(1..25))
            .map(|_| match random.u8(0..9) {
                0 => Fault::HangUp,
                1 => Fault::HangUpAfter,
                2 => Fault::Refuse(ErrorCode::NotLeaderOrFollower),
                3 => Fault::Refuse(ErrorCode::NotEnoughReplicas),
                4 => Fault::RefuseAfter(ErrorCode::RequestTimedOut),
                _ => Fault::None,
            })
            .collect();
        let broker = FakeBroker::start(with_faults(faults.clone())).await;
        let outcomes = send(&broker, config(), numbered(80)).await;
        assert!(outcomes.iter().all(Result::is_ok), "seed {seed}: {outcomes:?}");
        assert_eq!(broker.values(), numbered(80), "seed {seed}: {faults:?}");
    }
}

#[tokio::test]
async fn a_batch_above_the_brokers_limit_is_halved_until_it_fits() {
    let state = State { batch_bytes_max: Some(200), ..State::default() };
    let broker = FakeBroker::start(state).await;
    let config = ProducerConfig {
        batch_bytes: 4000,
        linger: Duration::from_millis(20),
        compression: Compression::None,
        ..config()
    };
    let outcomes = send(&broker, config, numbered(100)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(broker.values(), numbered(100));
}

#[tokio::test]
async fn a_refused_batch_leaves_no_gap_for_those_behind_it() {
    let broker = FakeBroker::start(with_faults([
        Fault::None,
        Fault::Refuse(ErrorCode::InvalidRecord),
        Fault::None,
    ]))
    .await;
    let outcomes = send(&broker, config(), numbered(60)).await;
    let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let kept: Vec<String> = numbered(60)
        .into_iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| outcome.is_ok())
        .map(|(value, _)| value)
        .collect();
    assert!(0 < refused && refused < 10, "{outcomes:?}");
    assert_eq!(broker.values(), kept);
}

#[tokio::test]
async fn a_fenced_producer_stops_and_says_so() {
    let broker =
        FakeBroker::start(with_faults([Fault::None, Fault::Refuse(ErrorCode::ProducerFenced)]))
            .await;
    let producer = Producer::new(cluster(&broker).await, config()).unwrap();
    let mut last = Ok(());
    for value in numbered(60) {
        match producer.send(OutgoingRecord::new("t", value)).await {
            Ok(delivery) => last = delivery.await.map(|_| ()),
            Err(error) => last = Err(error),
        }
    }
    assert!(matches!(last, Err(Error::ProducerStopped { .. })), "{last:?}");
}

#[tokio::test]
async fn an_undeliverable_record_is_given_up_in_time() {
    let broker =
        FakeBroker::start(with_faults(vec![Fault::Refuse(ErrorCode::NotEnoughReplicas); 10_000]))
            .await;
    let config = ProducerConfig {
        request_timeout: Duration::from_millis(200),
        delivery_timeout: Duration::from_millis(400),
        ..config()
    };
    let outcomes = send(&broker, config, numbered(1)).await;
    let error = outcomes[0].as_ref().expect_err("the broker never took it");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("NOT_ENOUGH_REPLICAS"), "{error}");

    let faults = vec![Fault::RefuseAfter(ErrorCode::RequestTimedOut); 10_000];
    let broker = FakeBroker::start(with_faults(faults)).await;
    let config = ProducerConfig {
        request_timeout: Duration::from_millis(200),
        delivery_timeout: Duration::from_millis(400),
        ..self::config()
    };
    let outcomes = send(&broker, config, numbered(1)).await;
    assert!(matches!(outcomes[0], Err(Error::DeliveryUnknown { .. })), "{outcomes:?}");
}

#[tokio::test]
async fn a_full_buffer_sheds_or_blocks_until_its_deadline() {
    let broker =
        FakeBroker::start(with_faults(vec![Fault::Refuse(ErrorCode::NotEnoughReplicas); 10_000]))
            .await;
    let small = ProducerConfig { buffer_bytes: 1000, ..config() };
    let fill = async |producer: &Producer| loop {
        let record = OutgoingRecord::new("t", "x".repeat(50));
        if let Err(error) = producer.send(record).await {
            return error;
        }
    };
    let shedding = ProducerConfig { on_full: OnFull::Shed, ..small.clone() };
    let producer = Producer::new(cluster(&broker).await, shedding).unwrap();
    assert!(matches!(fill(&producer).await, Error::BufferFull { buffer_bytes: 1000 }));

    let patience = Duration::from_millis(150);
    let blocking = ProducerConfig { on_full: OnFull::Block(patience), ..small };
    let producer = Producer::new(cluster(&broker).await, blocking).unwrap();
    let started = std::time::Instant::now();
    assert!(matches!(fill(&producer).await, Error::BufferFull { .. }));
    assert!(patience <= started.elapsed());
}

#[tokio::test]
async fn an_older_broker_is_asked_again_in_a_version_it_knows() {
    let state = State { api_versions_max: Some(3), ..State::default() };
    let broker = FakeBroker::start(state).await;
    cluster(&broker).await;
    let asked = broker.state.lock().unwrap().versions_asked.clone();
    assert_eq!(&asked[..2], [5, 3]);
}
