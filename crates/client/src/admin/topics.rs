//! Topics: create, delete, grow, trim.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use towpath_model::{BrokerId, Offset};
use towpath_protocol::messages::{
    CreatableTopic, CreatableTopicConfig, CreatePartitionsRequest, CreatePartitionsResponse,
    CreatePartitionsTopic, CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsPartition,
    DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic, DeleteTopicState,
    DeleteTopicsRequest, DeleteTopicsResponse,
};
use towpath_protocol::{ErrorCode, Uuid};

use super::{Admin, check, only};
use crate::cluster::Lane;
use crate::error::{Error, Result};
use crate::image::Topic;
use crate::record::TopicPartition;

/// A topic to be.
#[derive(Debug, Clone, Default)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; the broker's default if `None`.
    pub partitions: Option<i32>,
    /// How many replicas; the broker's default if `None`.
    pub replicas: Option<i16>,
    /// Configuration that differs from the broker's.
    pub configs: BTreeMap<String, String>,
}

/// A topic that was created, or would have been.
#[derive(Debug, Clone)]
pub struct CreatedTopic {
    /// Its permanent identity; zero where the broker does not tell.
    pub id: Uuid,
    /// How many partitions it got; −1 where the broker does not tell.
    pub partitions: i32,
    /// How many replicas each has; −1 where the broker does not tell.
    pub replicas: i16,
}

/// How long a new topic may take to show up in metadata before we stop waiting for that.
const VISIBLE_PATIENCE: Duration = Duration::from_secs(10);

impl Admin {
    /// Every topic there is, internal ones included.
    pub async fn topics(&self) -> Result<BTreeMap<Arc<str>, Arc<Topic>>> {
        Ok(self.cluster.refresh_all().await?.topics.clone())
    }

    /// One topic, asked anew.
    pub async fn topic(&self, name: &str) -> Result<Arc<Topic>> {
        let name: Arc<str> = name.into();
        let errors = self.cluster.refresh(std::slice::from_ref(&name)).await?;
        match errors.get(&name) {
            Some(ErrorCode::UnknownTopicOrPartition) => {
                Err(Error::UnknownTopic { topic: name.to_string() })
            }
            Some(code) if !code.is_retriable() => {
                Err(Error::refused(format!("looking up topic {name:?}"), *code, None))
            }
            _ => self.cluster.topic(&name, false, self.cluster.config().request_timeout).await,
        }
    }

    /// Creates a topic and waits until it can be used. `validate_only` asks whether that would work.
    pub async fn create_topic(&self, new: &NewTopic, validate_only: bool) -> Result<CreatedTopic> {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: &new.name,
                num_partitions: new.partitions.unwrap_or(-1),
                replication_factor: new.replicas.unwrap_or(-1),
                configs: new
                    .configs
                    .iter()
                    .map(|(name, value)| CreatableTopicConfig { name, value: Some(value) })
                    .collect(),
                ..Default::default()
            }],
            timeout_ms: self.timeout_ms(),
            validate_only,
        };
        let doing = || format!("creating topic {:?}", new.name);
        let answer = self.cluster.call_any(&request).await?;
        let response: CreateTopicsResponse<'_> = answer.read()?;
        let created = only(response.topics, doing)?;
        check(doing, created.error_code, created.error_message)?;
        if !validate_only {
            self.wait_until_usable(&new.name, new.partitions.unwrap_or(1)).await?;
        }
        Ok(CreatedTopic {
            id: created.topic_id,
            partitions: created.num_partitions,
            replicas: created.replication_factor,
        })
    }

    /// Metadata lags behind changes; whoever creates a topic wants to use it next.
    async fn wait_until_usable(&self, name: &str, partitions: i32) -> Result<()> {
        let deadline = Instant::now() + VISIBLE_PATIENCE;
        let names = [Arc::from(name)];
        loop {
            let errors = self.cluster.refresh(&names).await?;
            let image = self.cluster.image();
            let is_usable = errors.is_empty()
                && image.topics.get(name).is_some_and(|topic| {
                    usize::try_from(partitions).is_ok_and(|n| n <= topic.partitions.len())
                        && topic.partitions.iter().all(|partition| partition.leader.is_some())
                });
            if is_usable || deadline <= Instant::now() {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Deletes a topic and everything in it.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        let connection = self.cluster.any().await?;
        let version = connection.version_of::<DeleteTopicsRequest<'_>>()?;
        // From version 6 on, a topic may be named by its id instead (KIP-516).
        let mut request =
            DeleteTopicsRequest { timeout_ms: self.timeout_ms(), ..Default::default() };
        if version < 6 {
            request.topic_names = vec![name];
        } else {
            request.topics = vec![DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO }];
        }
        let doing = || format!("deleting topic {name:?}");
        let answer = connection.call_version(version, &request).await?;
        let response: DeleteTopicsResponse<'_> = answer.read()?;
        let deleted = only(response.responses, doing)?;
        if ErrorCode::from(deleted.error_code) == ErrorCode::UnknownTopicOrPartition {
            return Err(Error::UnknownTopic { topic: name.to_owned() });
        }
        check(doing, deleted.error_code, deleted.error_message)
    }

    /// Raises a topic's partition count to `total`. Keys then map to other partitions than before.
    pub async fn create_partitions(
        &self,
        name: &str,
        total: i32,
        validate_only: bool,
    ) -> Result<()> {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic { name, count: total, assignments: None }],
            timeout_ms: self.timeout_ms(),
            validate_only,
        };
        let doing = || format!("adding partitions to topic {name:?}");
        let answer = self.cluster.call_any(&request).await?;
        let response: CreatePartitionsResponse<'_> = answer.read()?;
        let result = only(response.results, doing)?;
        check(doing, result.error_code, result.error_message)?;
        if validate_only { Ok(()) } else { self.wait_until_usable(name, total).await }
    }

    /// Deletes all records before an offset, per partition (`None`: all that are readable). Returns
    /// the new log start offsets.
    pub async fn delete_records(
        &self,
        before: &BTreeMap<TopicPartition, Option<Offset>>,
    ) -> Result<BTreeMap<TopicPartition, Offset>> {
        let mut by_leader: BTreeMap<BrokerId, BTreeMap<&str, Vec<DeleteRecordsPartition>>> =
            BTreeMap::new();
        for (place, offset) in before {
            let leader = self.cluster.leader(&place.topic, place.partition).await?;
            by_leader.entry(leader).or_default().entry(&place.topic).or_default().push(
                DeleteRecordsPartition {
                    partition_index: place.partition.0,
                    offset: offset.map_or(-1, |offset| offset.0),
                },
            );
        }
        let mut starts = BTreeMap::new();
        for (leader, topics) in by_leader {
            let topic = |(name, partitions)| DeleteRecordsTopic { name, partitions };
            let request = DeleteRecordsRequest {
                topics: topics.into_iter().map(topic).collect(),
                timeout_ms: self.timeout_ms(),
            };
            let answer = self.cluster.call_broker(leader, Lane::Ordinary, &request).await?;
            let response: DeleteRecordsResponse<'_> = answer.read()?;
            for topic in &response.topics {
                for partition in &topic.partitions {
                    let place = TopicPartition::new(topic.name, partition.partition_index);
                    let doing = || format!("deleting records of {place}");
                    check(doing, partition.error_code, None)?;
                    starts.insert(place, Offset(partition.low_watermark));
                }
            }
        }
        Ok(starts)
    }
}
