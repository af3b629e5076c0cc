//! Queues that have too much to do get more partitions.
//!
//! Each broker looks at the partitions that it leads, and asks the metadata for more (`towpath_queue::Growth` says when).
//! The request names how many there are to be: of brokers that see the same at once one is heard. What is sent goes to
//! the new ones as soon as a broker knows of them; they take over the subscriptions (`take_over.rs`); and receivers
//! that wait look for them (`receive.rs`).
//!
//! A queue whose messages are limited grows only while what it holds fits into one partition's new share: what the old
//! ones hold beyond theirs would come on top of the limit. And no share gets smaller than a batch.

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
use super::subscriptions::names_of;

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
            "the queue has more to do than queue.growth.rate, and gets no more partitions: each would have too little \
             of its limits for the largest batch or 1000 messages, or less than the queue holds now");
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

/// Whether partitions can work with their share of what the queue takes, once there are so many: each holds no more
/// than that, for any subscription, and can be sent something at all.
async fn fits_new_shares(app: &App, queue: &TopicView, partitions: u32) -> bool {
    let config = &queue.config.queue;
    if config.limit_messages.is_none() && config.limit_bytes.is_none() {
        return true;
    }
    if !are_shares_enough(config, queue.config.max_message_bytes, partitions) {
        return false;
    }
    let Ok(names) = names_of(app, queue).await else { return false };
    for subscription in std::iter::once(None).chain(names.iter().map(|name| Some(name.as_str()))) {
        let Ok(held) = stats(app, queue, subscription, true).await else { return false };
        let fits = |present: u64, limit: Option<u64>| {
            limit.is_none_or(|limit| present <= limit / u64::from(partitions))
        };
        let is_known = held.partitions_missing.is_empty();
        if !is_known
            || !fits(held.depth(), config.limit_messages)
            || !fits(held.bytes, config.limit_bytes)
        {
            return false;
        }
    }
    true
}

/// Messages that a partition's share of `queue.limit.messages` has, at least.
const SHARE_MESSAGES_MIN: u64 = 1_000;

/// Whether a share takes the largest batch. Partitions are never taken away again, so it would be refused for ever.
fn are_shares_enough(config: &QueueConfig, batch_bytes_max: u32, partitions: u32) -> bool {
    let takes = |limit: Option<u64>, least: u64| {
        limit.is_none_or(|limit| least <= limit / u64::from(partitions))
    };
    takes(config.limit_bytes, batch_bytes_max.into())
        && takes(config.limit_messages, SHARE_MESSAGES_MIN)
}

#[cfg(test)]
mod tests {
    use towpath_model::properties::TopicConfig;

    use super::*;

    #[test]
    fn no_share_gets_too_small_for_a_batch() {
        let are_enough = |limit_messages, limit_bytes, partitions| {
            let config = TopicConfig::default().queue;
            let config = QueueConfig { limit_messages, limit_bytes, ..config };
            are_shares_enough(&config, 500, partitions)
        };
        assert!(are_enough(None, None, 100));
        assert!(are_enough(None, Some(1_500), 3) && !are_enough(None, Some(1_499), 3));
        assert!(are_enough(Some(3_000), None, 3) && !are_enough(Some(2_999), None, 3));
    }
}
