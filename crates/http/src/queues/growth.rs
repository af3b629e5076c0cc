//! Queues that have too much to do get more partitions.
//!
//! Each broker looks at the partitions that it leads, and asks the metadata for more (`towpath_queue::Growth` says when).
//! The request names how many there are to be: of brokers that see the same at once one is heard. What is sent goes to
//! the new ones as soon as a broker knows of them; they take over the subscriptions (`take_over.rs`); and receivers
//! that wait look for them (`receive.rs`).
//!
//! A queue whose messages are limited grows only while what it holds fits into one partition's new share: what the old
//! ones hold beyond theirs would come on top of the limit.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;
use towpath_driver::Clock;
use towpath_metadata::{MorePartitions, Reply, Request};
use towpath_model::TopicId;
use towpath_model::properties::QueueConfig;
use towpath_queue::{Growth, GrowthRule, Load};

use crate::app::{App, TopicView};

use super::look::stats;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Adds partitions until the broker stops.
pub(crate) async fn grow_queues(app: App) {
    let mut stop = app.stop.clone();
    let mut seen: BTreeMap<TopicId, Growth> = BTreeMap::new();
    loop {
        tokio::select! {
            _ = stop.changed() => return,
            () = sleep(LOOK_EVERY) => {}
        }
        let loads = app.node.driver().queue_loads();
        seen.retain(|topic, _| loads.contains_key(topic));
        for (topic, (led, messages_per_second)) in loads {
            let Some((queue, load)) = look_at(&app, topic, led, messages_per_second) else {
                continue;
            };
            let rule = rule_of(&queue.config.queue);
            let now = app.node.driver().clock().now().time;
            let growth = seen.entry(topic).or_default();
            if let Some(partitions) = growth.look(now, &load, &rule) {
                grow(&app, &queue, &load, partitions).await;
            }
        }
    }
}

fn rule_of(config: &QueueConfig) -> GrowthRule {
    GrowthRule {
        rate: config.growth_rate,
        after: config.growth_after,
        partitions_max: config.partitions_max,
    }
}

/// Nothing where it does not grow by itself.
fn look_at(app: &App, id: TopicId, led: u32, rate: f64) -> Option<(TopicView, Load)> {
    let image = app.node.driver().image();
    let topic = image.topic_by_id(id)?;
    // Whoever places partitions by hand wants to choose where they are.
    if topic.partitions.iter().any(|partition| partition.placed_by_hand) {
        return None;
    }
    let brokers = image.brokers().filter(|broker| !broker.fenced).count();
    let queue = app.queue(topic.name.as_str()).ok().filter(|queue| queue.id == id)?;
    if queue.config.queue.given_up {
        return None;
    }
    let load = Load {
        partitions: queue.partitions.get(),
        led,
        messages_per_second: rate,
        brokers: u32::try_from(brokers).unwrap_or(u32::MAX),
    };
    Some((queue, load))
}

async fn grow(app: &App, queue: &TopicView, load: &Load, partitions: u32) {
    if !fits_new_shares(app, queue, partitions).await {
        return tracing::info!(queue = %queue.name, partitions = load.partitions,
            "the queue has more to do than queue.growth.rate, and gets no more partitions while it holds more than \
             one of them could take of its limits");
    }
    let name = queue.name.to_string();
    let count = i32::try_from(partitions).unwrap_or(i32::MAX);
    let topics = vec![MorePartitions { name, count, assignments: None }];
    let asked = Request::CreatePartitions { topics, validate_only: false };
    let why = match app.node.ask_metadata(asked).await {
        Ok(Reply::CreatedPartitions(results)) => match results.into_iter().next() {
            Some((_, Ok(_))) => None,
            Some((_, Err(refusal))) => Some(refusal.to_string()),
            None => Some("the metadata gave no answer".to_owned()),
        },
        Ok(_) => Some("the metadata gave an answer out of turn".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let (before, rate) = (load.partitions, load.of_one().round());
    match why {
        None => tracing::info!(queue = %queue.name, before, partitions, messages_per_second = rate,
            wanted = queue.config.queue.growth_rate, after = ?queue.config.queue.growth_after,
            "the queue gets more partitions: each of those that are led here had more messages per second than \
             queue.growth.rate, for queue.growth.after.ms"),
        // Another broker was faster, or there is a limit; if it still has too much to do later, it is asked again.
        Some(reason) => tracing::info!(queue = %queue.name, before, partitions, reason,
            "the queue has more to do than queue.growth.rate, and gets no more partitions now"),
    }
}

/// Whether each partition holds no more than its share of what the queue takes, once there are so many.
async fn fits_new_shares(app: &App, queue: &TopicView, partitions: u32) -> bool {
    let config = &queue.config.queue;
    if config.limit_messages.is_none() && config.limit_bytes.is_none() {
        return true;
    }
    let Ok(held) = stats(app, queue, None, true).await else { return false };
    let fits = |present: u64, limit: Option<u64>| {
        limit.is_none_or(|limit| present <= limit / u64::from(partitions))
    };
    held.partitions_missing.is_empty()
        && fits(held.depth(), config.limit_messages)
        && fits(held.bytes, config.limit_bytes)
}
