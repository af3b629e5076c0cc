//! CreateQueue, DeleteQueue, PurgeQueue.

use std::collections::BTreeMap;

use towpath_sqs::refusals::queue_exists;
use towpath_sqs::{
    Answer, CreateQueue, DeduplicationScope, Error, ErrorKind, QueueAttributes, QueueReference,
};

use crate::api_error::Code;
use crate::delete_topic;
use crate::queues::{create, purge};

use super::attributes::{self, Kept, TAGS};
use super::call::Call;
use super::queue::{SqsQueue, find};
use super::refusals;

impl Call<'_> {
    pub(super) async fn create_queue(&self, wanted: CreateQueue) -> Result<Answer, Error> {
        self.check_started()?;
        if let Some(queue) = find(self.app, &wanted.name) {
            return self.found(&wanted, &queue);
        }
        self.check_redrive(&wanted.name, &wanted.attributes).await?;
        let now = self.now_seconds();
        let kept =
            Kept { attributes: wanted.attributes.clone(), created_at: now, last_modified_at: now };
        let properties = attributes::properties(&kept).into_iter();
        let mut configs: BTreeMap<String, String> =
            properties.map(|(name, value)| (name.to_owned(), value)).collect();
        if !wanted.tags.is_empty() {
            let tags = serde_json::to_string(&wanted.tags).expect("texts are JSON");
            configs.insert(TAGS.to_owned(), tags);
        }
        let partitions = partitions(&wanted.attributes);
        match create(self.app, wanted.name.as_str(), partitions, configs).await {
            Ok(()) => Ok(Answer::CreateQueue { queue_url: self.url(wanted.name.as_str()) }),
            Err(error) if error.code == Code::TopicExists => {
                // Somebody else was faster, or it is no queue.
                match self.queue_named(&wanted.name).await {
                    Ok(queue) => self.found(&wanted, &queue),
                    Err(_) => Err(Error::new(
                        ErrorKind::QueueNameExists,
                        format!("There is a topic {} which is not worked as a queue.", wanted.name),
                    )),
                }
            }
            Err(error) => Err(refusals::of(error)),
        }
    }

    /// What is there is what was asked for, or something else.
    fn found(&self, wanted: &CreateQueue, queue: &SqsQueue) -> Result<Answer, Error> {
        match queue.attributes().differs_from(&wanted.asked) {
            Some(attribute) => Err(queue_exists(attribute)),
            None => Ok(Answer::CreateQueue { queue_url: self.url(queue.name()) }),
        }
    }

    pub(super) async fn delete_queue(&self, queue: QueueReference) -> Result<Answer, Error> {
        let queue = self.queue(&queue).await?;
        match delete_topic::delete(self.app, queue.topic.id).await {
            Ok(_) => Ok(Answer::DeleteQueue),
            Err(error) => Err(refusals::of(error)),
        }
    }

    pub(super) async fn purge_queue(&self, queue: QueueReference) -> Result<Answer, Error> {
        let queue = self.queue(&queue).await?;
        purge(self.app, &queue.topic, None, true).await.map_err(refusals::of)?;
        Ok(Answer::PurgeQueue)
    }
}

/// A FIFO queue whose deduplication ids are unique in all of it has one partition: each only knows its own.
/// Nothing: as usual.
fn partitions(attributes: &QueueAttributes) -> Option<i32> {
    let fifo = attributes.fifo.as_ref()?;
    (fifo.deduplication_scope == DeduplicationScope::Queue).then_some(1)
}
