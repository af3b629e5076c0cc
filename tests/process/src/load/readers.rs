//! A reader without a group, which is given every record of every partition once.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use towpath_client::{Bound, Cluster, Error, FetchConfig, OffsetSpec, Reader, TopicPartition};

use super::{EVENTS, EVENTS_PARTITIONS, Load, ORDERS, ORDERS_PARTITIONS, is_passing};
use crate::history::Place;

/// How long one poll waits.
const POLL: Duration = Duration::from_millis(100);
/// The longest life of a reader; the next one begins at the first record again.
const LIFE_MS: std::ops::Range<u64> = 10_000..60_000;

/// Runs one reader after the other until reading ends.
pub(crate) async fn run(load: Arc<Load>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while load.is_reading() {
        let life = Duration::from_millis(rng.u64(LIFE_MS));
        match tokio::time::timeout(life, read(&load)).await {
            Ok(Err(error)) if !is_passing(&error) => {
                load.fail(format!("a reader ended: {error}"));
                return;
            }
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn read(load: &Arc<Load>) -> Result<(), Error> {
    let config = load.client_config().map_err(|e| Error::InvalidArgument(e.to_string()))?;
    let cluster = Cluster::connect(config).await?;
    let of = |topic: &'static str, partitions: i32| {
        (0..partitions).map(move |p| TopicPartition::new(topic, p))
    };
    let partitions: Vec<TopicPartition> =
        of(ORDERS, ORDERS_PARTITIONS).chain(of(EVENTS, EVENTS_PARTITIONS)).collect();
    let start = Bound::Spec(OffsetSpec::Earliest);
    let config = FetchConfig::default();
    let mut reader = Reader::open(&cluster, &partitions, start, Bound::Never, config).await?;
    while load.is_reading() {
        let records = match reader.next(POLL).await {
            Ok(records) => records.unwrap_or_default(),
            Err(error) if is_passing(&error) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        for record in &records {
            let place = Place::new(&record.topic, record.partition.0);
            let value = record.value.as_deref().unwrap_or_default();
            load.writers().observed(&place, record.offset.0, value);
        }
    }
    Ok(())
}
