//! Where a queue's partitions are led.

use std::collections::BTreeMap;

use towpath_driver::NotCoordinator;
use towpath_model::{BrokerId, PartitionIndex, TopicName};
use towpath_server::Unavailable;

use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView, refuse_internal};
use crate::forward::leader_of;
use crate::refusals;

/// The partitions of a queue, by who leads them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// This broker.
    pub(crate) here: Vec<PartitionIndex>,
    /// Others.
    pub(crate) elsewhere: BTreeMap<BrokerId, Vec<PartitionIndex>>,
    /// Nobody, at the moment.
    pub(crate) nowhere: Vec<PartitionIndex>,
}

impl App {
    /// The queue of this name.
    ///
    /// # Errors
    /// When there is none, or a topic of this name that is no queue.
    pub(crate) fn queue(&self, name: &str) -> Result<TopicView, ApiError> {
        refuse_internal(name)?;
        let topic = self.topic(name).map_err(|error| match TopicName::new(name) {
            Ok(_) => no_queue(name),
            Err(_) => error,
        })?;
        if topic.config.queue_enable {
            return Ok(topic);
        }
        let message = format!("topic {name:?} is not worked as a queue");
        Err(ApiError::new(Code::NotAQueue, message).with_help(format!(
            "make it one: PATCH /queues/{name} {{\"configs\":{{\"queue.enable\":true}}}}"
        )))
    }
}

pub(super) fn no_queue(name: &str) -> ApiError {
    ApiError::new(Code::QueueNotFound, format!("queue {name:?} does not exist"))
        .with_help(format!("create it: POST /queues {{\"name\":\"{name}\"}}"))
}

impl Places {
    /// As this broker knows it.
    pub(crate) fn of(app: &App, queue: &TopicView) -> Places {
        let me = app.node.driver().broker_id();
        let mut places = Places::default();
        for partition in queue.partition_indexes() {
            match leader_of(app, queue.partition(partition)) {
                Some(leader) if leader == me => places.here.push(partition),
                Some(leader) => places.elsewhere.entry(leader).or_default().push(partition),
                None => places.nowhere.push(partition),
            }
        }
        places
    }

    /// For who was asked by a hop: others are not asked.
    pub(crate) fn only_here(self) -> Places {
        Places { here: self.here, ..Places::default() }
    }
}

/// A broker was asked by a hop for a queue of which it leads nothing.
pub(crate) fn no_leader(queue: &TopicView) -> ApiError {
    let message = format!("no partition of queue {:?} has a leader", queue.name.as_str());
    ApiError::new(Code::Unavailable, message).with_help("try again")
}

pub(crate) fn no_subscription(name: impl std::fmt::Debug) -> ApiError {
    let message = format!("the queue has no subscription {name:?}");
    ApiError::new(Code::SubscriptionNotFound, message)
}

/// Why deliveries could not be looked at.
pub(crate) fn not_asked(error: NotCoordinator) -> ApiError {
    refusals::of_unavailable(Unavailable::NotCoordinator(error))
}
