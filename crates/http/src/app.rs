//! What every handler has at hand.

use std::num::NonZeroU32;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::Uri;
use tokio::sync::{Semaphore, watch};
use towpath_metadata::{NewTopic, Refusal, Topic};
use towpath_model::properties::TopicConfig;
use towpath_model::{PartitionIndex, TopicId, TopicName, TopicPartition, is_internal_topic};
use towpath_server::{Node, random_uuid};
use towpath_sqs::sigv4::SigningKeys;

use crate::api_error::{ApiError, Code};
use crate::health::Readiness;
use crate::limits::DECODES_MAX;
use crate::memory::Memory;
use crate::metrics::HttpMetrics;
use crate::partition_choice::Turns;
use crate::refusals;
use crate::request_ids::RequestIds;
use crate::sqs::{KnownQueues, SqsSettings};

/// Shared by all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) node: Arc<Node>,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Arc<HttpMetrics>,
    pub(crate) memory: Memory,
    pub(crate) turns: Arc<Turns>,
    /// Reads that are decoded at once.
    pub(crate) decodes: Arc<Semaphore>,
    /// Changes when the broker stops: long polls end then.
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) started_at: Duration,
    /// Requests must call this machine `localhost` or by an address.
    pub(crate) has_local_names_only: bool,
    /// The listener can only be reached from this machine.
    pub(crate) is_on_loopback: bool,
    /// The listener serves SQS and nothing else.
    pub(crate) is_for_sqs: bool,
    pub(crate) sqs: Arc<SqsSettings>,
    /// What is remembered of signatures.
    pub(crate) signing_keys: Arc<RwLock<SigningKeys>>,
    pub(crate) known_queues: Arc<KnownQueues>,
    pub(crate) request_ids: Arc<RequestIds>,
}

/// A topic at the moment of a request.
pub(crate) struct TopicView {
    pub(crate) name: TopicName,
    pub(crate) id: TopicId,
    pub(crate) partitions: NonZeroU32,
    pub(crate) config: TopicConfig,
}

impl TopicView {
    pub(crate) fn partition(&self, partition: PartitionIndex) -> TopicPartition {
        TopicPartition { topic: self.id, partition }
    }

    /// All of its partitions.
    pub(crate) fn partition_indexes(&self) -> impl Iterator<Item = PartitionIndex> + use<> {
        (0..self.partitions.get()).filter_map(|index| i32::try_from(index).ok()).map(PartitionIndex)
    }

    pub(crate) fn no_partition(&self, asked: impl std::fmt::Display) -> ApiError {
        let message = format!("topic {:?} has no partition {asked}", self.name.as_str());
        let last = self.partitions.get() - 1;
        ApiError::new(Code::PartitionNotFound, message)
            .with_help(format!("its partitions are 0 to {last}"))
    }

    /// The partition that a path names.
    pub(crate) fn partition_in_path(&self, text: &str) -> Result<TopicPartition, ApiError> {
        let Ok(index) = text.parse::<i32>() else {
            let message = format!("{text:?} is no number of a partition");
            return Err(ApiError::new(Code::InvalidParameter, message));
        };
        let exists = u32::try_from(index).is_ok_and(|index| index < self.partitions.get());
        let id = self.partition(PartitionIndex(index));
        exists.then_some(id).ok_or_else(|| self.no_partition(index))
    }
}

impl App {
    pub(crate) fn new(node: Arc<Node>, readiness: Readiness, stop: watch::Receiver<bool>) -> App {
        App {
            node,
            readiness,
            metrics: Arc::default(),
            memory: Memory::new(),
            turns: Arc::default(),
            decodes: Arc::new(Semaphore::new(DECODES_MAX)),
            stop,
            started_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            has_local_names_only: false,
            is_on_loopback: false,
            is_for_sqs: false,
            sqs: Arc::default(),
            signing_keys: Arc::default(),
            known_queues: Arc::default(),
            request_ids: Arc::new(RequestIds::beginning_with(random_uuid())),
        }
    }

    /// The topic of this name.
    pub(crate) fn topic(&self, name: &str) -> Result<TopicView, ApiError> {
        let image = self.node.driver().image();
        let topic = image.topic(name).ok_or_else(|| no_topic(name))?;
        let config = image.effective_config(topic);
        Ok(TopicView {
            name: topic.name.clone(),
            id: topic.id,
            partitions: partition_count(topic),
            config,
        })
    }

    /// The topic of this name, created where publishing may do so.
    pub(crate) async fn topic_to_publish_to(&self, name: &str) -> Result<TopicView, ApiError> {
        refuse_internal(name)?;
        match self.topic(name) {
            Err(error) if error.code == Code::TopicNotFound => {}
            found => return found,
        }
        if !self.node.http_creates_topics() {
            return Err(no_topic(name).with_help(format!(
                "create it: towpath topic create {name}, or POST /topics {{\"name\":\"{name}\"}}"
            )));
        }
        let asked = vec![NewTopic::named(name, random_uuid())];
        let created = self.node.create_topics(asked).await.map_err(refusals::of_unavailable)?;
        match created.into_iter().next() {
            Some((_, Ok(_) | Err(Refusal::TopicExists(_)))) => self.topic(name),
            Some((_, Err(refusal))) => Err(refusals::of_metadata(&refusal)),
            None => Err(ApiError::new(Code::Internal, "creating the topic was not answered")),
        }
    }
}

/// Refuses names of topics that the broker keeps for itself.
pub(crate) fn refuse_internal(name: &str) -> Result<(), ApiError> {
    if !is_internal_topic(name) {
        return Ok(());
    }
    let message = format!("topic {name:?} is the broker's own; it can only be read");
    Err(ApiError::new(Code::TopicInternal, message))
}

fn no_topic(name: &str) -> ApiError {
    match TopicName::new(name) {
        Ok(_) => ApiError::new(Code::TopicNotFound, format!("topic {name:?} does not exist"))
            .with_help(
                "GET /topics lists the topics; publishing creates one only in `towpath dev`",
            ),
        Err(invalid) => ApiError::new(Code::InvalidTopicName, invalid.to_string()),
    }
}

pub(crate) fn partition_count(topic: &Topic) -> NonZeroU32 {
    let count = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
    // A topic is created with its partitions, in one record.
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

/// Fails on a query where a path takes none.
pub(crate) fn refuse_query(uri: &Uri) -> Result<(), ApiError> {
    match uri.query() {
        None | Some("") => Ok(()),
        Some(query) => {
            let message = format!("this path takes no parameters, and got {query:?}");
            Err(ApiError::new(Code::InvalidParameter, message))
        }
    }
}
