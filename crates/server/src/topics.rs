//! Topics that come into being because somebody needs them.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use towpath_broker::{OFFSETS_TOPIC, PUBLISHERS_TOPIC};
use towpath_coordinator::publishers::Publisher;
use towpath_coordinator::{groups, publishers};
use towpath_driver::NotCoordinator;
use towpath_metadata::{CreatedTopic, NewTopic, Refusal, Reply, Request};
use towpath_model::TopicPartition;

use crate::node::{Node, Unavailable, random_uuid};

/// Partitions of the topic that holds HTTP publishers' results.
const PUBLISHERS_PARTITIONS: i32 = 10;
/// How long a partition that was just created, or is led here since a moment, may take to be opened.
const OPENING_MAX: Duration = Duration::from_secs(2);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// An hour: so much, and the newest state, is all that a start has to read.
const INTERNAL_COMPACTION_LAG_MS: &str = "3600000";

impl Node {
    /// Creates topics with everything left to the cluster; those that exist already are refused.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
    ) -> Result<Vec<(String, Result<CreatedTopic, Refusal>)>, Unavailable> {
        let request = Request::CreateTopics { topics, validate_only: false };
        match self.ask_metadata(request).await? {
            Reply::CreatedTopics(created) => Ok(created),
            _ => Err(Unavailable::Resigned),
        }
    }

    /// Makes sure that groups have a place.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ensure_offsets_topic(&self) -> Result<(), Unavailable> {
        let config = self.broker_config();
        let segment_bytes = config.offsets_topic_segment_bytes.to_string();
        self.ensure_internal(OFFSETS_TOPIC, config.offsets_topic_partitions, &segment_bytes).await
    }

    /// Makes sure that the results of HTTP publishers have a place.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ensure_publishers_topic(&self) -> Result<(), Unavailable> {
        self.ensure_internal(PUBLISHERS_TOPIC, PUBLISHERS_PARTITIONS, "16777216").await
    }

    async fn ensure_internal(
        &self,
        name: &str,
        partitions: i32,
        segment_bytes: &str,
    ) -> Result<(), Unavailable> {
        if self.driver().image().topic(name).is_some() {
            return Ok(());
        }
        let config = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let topic = NewTopic {
            partitions,
            internal: true,
            configs: vec![
                config("cleanup.policy", "compact"),
                config("compression.type", "producer"),
                config("segment.bytes", segment_bytes),
                config("max.compaction.lag.ms", INTERNAL_COMPACTION_LAG_MS),
            ],
            ..NewTopic::named(name, random_uuid())
        };
        let created = self.create_topics(vec![topic]).await?;
        match created.into_iter().next() {
            Some((_, Ok(_) | Err(Refusal::TopicExists(_)))) => Ok(()),
            other => {
                tracing::error!(topic = name, answer = ?other, "an internal topic is refused");
                Err(Unavailable::NotCoordinator(NotCoordinator::NoTopic))
            }
        }
    }

    /// Asks a group's coordinator, making its topic first where it is missing.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask_group_creating(
        &self,
        group: &str,
        request: groups::Request,
    ) -> Result<groups::Reply, Unavailable> {
        self.ensure_offsets_topic().await?;
        let place = || self.driver().group_place(group);
        self.once_open(place, || self.ask_group(group, request.clone())).await
    }

    /// Asks the state of an HTTP publisher, making its topic first where it is missing.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask_publisher_creating(
        &self,
        publisher: &Publisher,
        request: publishers::Request,
    ) -> Result<publishers::Reply, Unavailable> {
        self.ensure_publishers_topic().await?;
        let place = || self.driver().publisher_place(publisher);
        self.once_open(place, || self.ask_publisher(publisher, request.clone())).await
    }

    /// Asks a state; again and again while this broker is about to lead it, and does not yet.
    async fn once_open<R, F: Future<Output = Result<R, Unavailable>>>(
        &self,
        place: impl Fn() -> Result<TopicPartition, NotCoordinator>,
        ask: impl Fn() -> F,
    ) -> Result<R, Unavailable> {
        let deadline = Instant::now() + OPENING_MAX;
        loop {
            match ask().await {
                Err(Unavailable::NotCoordinator(NotCoordinator::NotLeader))
                    if self.is_to_lead(place()) && Instant::now() < deadline => {}
                answered => return answered,
            }
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    fn is_to_lead(&self, place: Result<TopicPartition, NotCoordinator>) -> bool {
        let image = self.driver().image();
        let leader = place.ok().and_then(|place| image.partition(place)?.leader);
        leader == Some(image.me())
    }
}
