//! A writer that has a record of every partition on its way all the time, with default settings: who
//! looks at its acknowledgements sees how long each partition was silent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use towpath_client::{Cluster, Error, OutgoingRecord, Producer, ProducerConfig};

use super::writers::OnItsWay;
use super::{EVENTS, EVENTS_PARTITIONS, Load, ORDERS, ORDERS_PARTITIONS, Unanswered};

/// Between two records of a partition.
const PACE: Duration = Duration::from_millis(5);
/// How long the last records may take.
const CLOSE_PATIENCE: Duration = Duration::from_secs(60);
const VALUE_BYTES: usize = 100;

/// Writes until writing ends.
pub(crate) async fn run(load: Arc<Load>) {
    if let Err(error) = write(&load).await {
        load.fail(format!("the steady writer ended: {error}"));
    }
}

async fn write(load: &Arc<Load>) -> Result<(), Error> {
    let config = load.client_config().map_err(|e| Error::InvalidArgument(e.to_string()))?;
    let producer = Producer::new(Cluster::connect(config).await?, ProducerConfig::default())?;
    let writer = load.writers().new_writer();
    let mut told = JoinSet::new();
    let mut next = tokio::time::interval(PACE);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while load.is_writing() {
        next.tick().await;
        let may_send = load.may_send().await;
        for (topic, partitions) in [(ORDERS, ORDERS_PARTITIONS), (EVENTS, EVENTS_PARTITIONS)] {
            for partition in 0..partitions {
                let stamp = load.sending(topic, writer, partition);
                let record = OutgoingRecord::new(topic, stamp.to_value(VALUE_BYTES));
                let (counted, sent) = (Unanswered::count(load), Instant::now());
                let way = OnItsWay { counted, topic, stamp, sent };
                let delivery = producer.send(record.partition(partition)).await?;
                told.spawn(async move { way.answered(&delivery.await) });
            }
        }
        drop(may_send);
        while told.try_join_next().is_some() {}
    }
    producer.close(CLOSE_PATIENCE).await?;
    while told.join_next().await.is_some() {}
    Ok(())
}
