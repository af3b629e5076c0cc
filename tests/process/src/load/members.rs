//! Members of the group: one that stays, one that comes and goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use towpath_client::{
    Assignor, Cluster, Error, GroupConfig, GroupConsumer, OffsetReset, RebalanceEvent,
    TopicPartition,
};

use super::{GROUP, Load, ORDERS};
use crate::history::Place;

/// Runs one member after the other until reading ends.
pub(crate) async fn run(load: Arc<Load>, seed: u64, first: u32, stays: bool) {
    let mut rng = Rng::with_seed(seed);
    let mut member = first;
    while load.is_reading() {
        if let Err(error) = take_part(&load, &mut rng, member, stays).await
            && !error.is_retriable()
            && !matches!(error, Error::TimedOut { .. } | Error::LostMembership { .. })
        {
            load.fail(format!("member {member} ended: {error}"));
            return;
        }
        load.group().ended(member);
        member += 2;
        tokio::time::sleep(Duration::from_millis(rng.u64(10..200))).await;
    }
}

async fn take_part(load: &Arc<Load>, rng: &mut Rng, member: u32, stays: bool) -> Result<(), Error> {
    let config = load.client_config().map_err(|e| Error::InvalidArgument(e.to_string()))?;
    let cluster = Cluster::connect(config).await?;
    let mut consumer = GroupConsumer::new(cluster, group_config(load, member))?;
    let life = Duration::from_millis(if stays { u64::MAX / 4 } else { rng.u64(300..3_000) });
    let began = Instant::now();
    // Leaving while the load still runs is part of it; the last ones stay to read to the end.
    while load.is_reading() && (began.elapsed() < life || !load.is_writing()) {
        let records = match consumer.poll(Duration::from_millis(100)).await {
            Ok(records) => records,
            Err(error) if error.is_retriable() || matches!(error, Error::TimedOut { .. }) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        for record in &records {
            let place = Place::new(&record.topic, record.partition.0);
            load.group().delivered(member, &place, record.offset.0);
            let value = record.value.as_deref().unwrap_or_default();
            load.writers().observed(&place, record.offset.0, value);
        }
        if !records.is_empty() && rng.u8(..3) == 0 {
            commit(load, &mut consumer, member).await;
        }
    }
    commit(load, &mut consumer, member).await;
    if rng.u8(..6) != 0 || !load.is_reading() {
        consumer.close().await?;
    }
    Ok(())
}

/// Commits what was handed out. A failure is normal; the next commit makes up for it.
async fn commit(load: &Load, consumer: &mut GroupConsumer, member: u32) {
    let positions = load.group().committing(member);
    if consumer.commit_sync().await.is_ok() {
        load.group().committed(&positions);
    }
}

fn group_config(load: &Arc<Load>, member: u32) -> GroupConfig {
    let listener = {
        let load = load.clone();
        move |event: &RebalanceEvent| {
            let places = |list: &[TopicPartition]| -> Vec<Place> {
                list.iter().map(|p| Place::new(&p.topic, p.partition.0)).collect()
            };
            let mut group = load.group();
            match event {
                RebalanceEvent::Assigned(list) => {
                    places(list).iter().for_each(|place| group.gained(member, place));
                }
                RebalanceEvent::Revoked(list) | RebalanceEvent::Lost(list) => {
                    places(list).iter().for_each(|place| group.given_up(member, place));
                }
            }
        }
    };
    GroupConfig {
        assignors: vec![Assignor::CooperativeSticky],
        session_timeout: Duration::from_secs(6),
        heartbeat_interval: Duration::from_millis(300),
        poll_interval_max: Duration::from_secs(10),
        reset: OffsetReset::Earliest,
        commit_interval: None,
        listener: Some(Arc::new(listener)),
        ..GroupConfig::new(GROUP, [ORDERS])
    }
}
