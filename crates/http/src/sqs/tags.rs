//! TagQueue, UntagQueue, ListQueueTags.

use std::collections::BTreeMap;

use towpath_sqs::actions::{TagQueue, UntagQueue};
use towpath_sqs::{Answer, Error, QueueReference};

use crate::queues::set;

use super::attributes::{TAGS, texts};
use super::call::Call;
use super::refusals;

impl Call<'_> {
    pub(super) async fn list_queue_tags(&self, queue: QueueReference) -> Result<Answer, Error> {
        Ok(Answer::ListQueueTags(self.tags_of(&queue).await?))
    }

    pub(super) async fn tag_queue(&self, wanted: TagQueue) -> Result<Answer, Error> {
        let tags = self.tags_of(&wanted.queue).await?;
        self.set_tags(&wanted.queue, &wanted.added_to(&tags)?).await?;
        Ok(Answer::TagQueue)
    }

    pub(super) async fn untag_queue(&self, wanted: UntagQueue) -> Result<Answer, Error> {
        let mut tags = self.tags_of(&wanted.queue).await?;
        tags.retain(|key, _| !wanted.keys.contains(key));
        self.set_tags(&wanted.queue, &tags).await?;
        Ok(Answer::UntagQueue)
    }

    async fn tags_of(&self, queue: &QueueReference) -> Result<BTreeMap<String, String>, Error> {
        let queue = self.queue(queue).await?;
        let image = self.app.node.driver().image();
        let text = image.topic_by_id(queue.topic.id).and_then(|topic| topic.overrides.get(TAGS));
        Ok(text.map_or_else(BTreeMap::new, |text| texts(text)))
    }

    async fn set_tags(
        &self,
        queue: &QueueReference,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let text = serde_json::to_string(tags).expect("texts are JSON");
        let change = BTreeMap::from([(TAGS.to_owned(), (!tags.is_empty()).then_some(text))]);
        set(self.app, queue.name.as_str(), change).await.map_err(refusals::of)
    }
}
