//! TagQueue, UntagQueue, ListQueueTags.

use std::collections::BTreeMap;

use towpath_sqs::actions::{TagQueue, UntagQueue};
use towpath_sqs::{Answer, Error, QueueReference};

use crate::queues::set_if_unchanged;

use super::attributes::{TAGS, texts};
use super::call::Call;
use super::queue_attributes::until_unchanged;
use super::refusals;

impl Call<'_> {
    pub(super) async fn list_queue_tags(&self, queue: QueueReference) -> Result<Answer, Error> {
        Ok(Answer::ListQueueTags(self.tags_of(&queue).await?.tags()))
    }

    pub(super) async fn tag_queue(&self, wanted: TagQueue) -> Result<Answer, Error> {
        until_unchanged(|| self.try_to_tag(&wanted)).await?;
        Ok(Answer::TagQueue)
    }

    async fn try_to_tag(&self, wanted: &TagQueue) -> Result<bool, Error> {
        let before = self.tags_of(&wanted.queue).await?;
        self.set_tags(&wanted.queue, &before, &wanted.added_to(&before.tags())?).await
    }

    pub(super) async fn untag_queue(&self, wanted: UntagQueue) -> Result<Answer, Error> {
        until_unchanged(|| self.try_to_untag(&wanted)).await?;
        Ok(Answer::UntagQueue)
    }

    async fn try_to_untag(&self, wanted: &UntagQueue) -> Result<bool, Error> {
        let before = self.tags_of(&wanted.queue).await?;
        let mut tags = before.tags();
        tags.retain(|key, _| !wanted.keys.contains(key));
        self.set_tags(&wanted.queue, &before, &tags).await
    }

    async fn tags_of(&self, queue: &QueueReference) -> Result<TagsText, Error> {
        let queue = self.queue(queue).await?;
        let image = self.app.node.driver().image();
        let text = image.topic_by_id(queue.topic.id).and_then(|topic| topic.overrides.get(TAGS));
        Ok(TagsText(text.cloned().unwrap_or_default()))
    }

    /// Says whether the tags were still those that were read; others are left as they are.
    async fn set_tags(
        &self,
        queue: &QueueReference,
        before: &TagsText,
        tags: &BTreeMap<String, String>,
    ) -> Result<bool, Error> {
        let text = serde_json::to_string(tags).expect("texts are JSON");
        let change = BTreeMap::from([(TAGS.to_owned(), (!tags.is_empty()).then_some(text))]);
        let done = set_if_unchanged(self.app, queue.name.as_str(), change, (TAGS, &before.0));
        done.await.map_err(refusals::of)
    }
}

/// What a queue's [`TAGS`] say.
struct TagsText(String);

impl TagsText {
    fn tags(&self) -> BTreeMap<String, String> {
        texts(&self.0)
    }
}
