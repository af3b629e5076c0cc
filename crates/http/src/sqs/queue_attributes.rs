//! GetQueueAttributes and SetQueueAttributes, and what a redrive policy must hold to.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;
use towpath_sqs::actions::{GetQueueAttributes, SetQueueAttributes};
use towpath_sqs::refusals as words;
use towpath_sqs::{
    Answer, DeduplicationScope, Error, ErrorKind, QueueArn, QueueAttribute, QueueAttributes,
    QueueFacts, QueueName, RedrivePermission,
};

use crate::queues::{QueueStats, set_if_unchanged, stats};

use super::attributes::{ATTRIBUTES, Kept, changes};
use super::call::Call;
use super::queue::{SqsQueue, find};
use super::refusals;

/// What is counted when somebody asks for it.
const COUNTS: [QueueAttribute; 3] = [
    QueueAttribute::ApproximateNumberOfMessages,
    QueueAttribute::ApproximateNumberOfMessagesDelayed,
    QueueAttribute::ApproximateNumberOfMessagesNotVisible,
];

/// How often a change is tried that others get in the way of, and after which time.
const TRIES_MAX: u32 = 100;
const TRIED_EVERY: Duration = Duration::from_millis(20);

impl Call<'_> {
    pub(super) async fn get_queue_attributes(
        &self,
        wanted: GetQueueAttributes,
    ) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let counts = match COUNTS.iter().any(|count| wanted.attributes.contains(count)) {
            true => stats(self.app, &queue.topic, None, true).await.map_err(refusals::of)?,
            false => QueueStats::default(),
        };
        let facts = QueueFacts {
            arn: self.arn(wanted.queue.name),
            created_at: queue.kept.created_at,
            last_modified_at: queue.kept.last_modified_at,
            messages: counts.ready,
            messages_not_visible: counts.in_flight,
            messages_delayed: counts.delayed,
        };
        let shown = queue.attributes().shown(&facts, &wanted.attributes);
        Ok(Answer::GetQueueAttributes(shown))
    }

    pub(super) async fn set_queue_attributes(
        &self,
        wanted: SetQueueAttributes,
    ) -> Result<Answer, Error> {
        until_unchanged(|| self.try_to_set_attributes(&wanted)).await?;
        Ok(Answer::SetQueueAttributes)
    }

    async fn try_to_set_attributes(&self, wanted: &SetQueueAttributes) -> Result<bool, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let attributes = queue.attributes().with(&wanted.changes)?;
        if wanted.changes.attributes().any(|one| one == QueueAttribute::RedrivePolicy) {
            self.check_redrive(&wanted.queue.name, &attributes).await?;
        }
        check_scope(&queue, &attributes)?;
        self.set_attributes(&queue, attributes).await
    }

    /// Gives a queue other attributes, if they are still those that were read. Says whether they are.
    pub(super) async fn set_attributes(
        &self,
        queue: &SqsQueue,
        attributes: QueueAttributes,
    ) -> Result<bool, Error> {
        let before = &*queue.kept;
        let read = (ATTRIBUTES, &*queue.text);
        // This broker may be behind: that nothing changes is for those to say who decide.
        let changes = if attributes == before.attributes {
            BTreeMap::new()
        } else {
            let last_modified_at = self.now_seconds();
            changes(before, &Kept { attributes, last_modified_at, ..before.clone() })
        };
        set_if_unchanged(self.app, queue.name(), changes, read).await.map_err(refusals::of)
    }

    /// Whether the dead-letter queue is there, of the same kind, and takes dead letters of this queue.
    pub(super) async fn check_redrive(
        &self,
        source: &QueueName,
        attributes: &QueueAttributes,
    ) -> Result<(), Error> {
        let Some(policy) = &attributes.redrive_policy else { return Ok(()) };
        let target = match find(self.app, &policy.target().name) {
            Some(target) => target,
            None => self
                .queue_named(&policy.target().name)
                .await
                .map_err(|_| words::dead_letter_target_does_not_exist(policy.as_str()))?,
        };
        if target.is_fifo() != attributes.fifo.is_some() {
            return Err(words::dead_letter_target_of_other_kind(policy.as_str()));
        }
        if !takes(&target, source) {
            return Err(words::dead_letter_target_not_allowed(policy.as_str()));
        }
        Ok(())
    }
}

/// Tries a change that reads something first until nobody has changed that in between: this broker may hear of it a
/// little later than whoever refuses the change.
///
/// # Errors
/// What the change comes to; or when it was tried often enough.
pub(super) async fn until_unchanged<F>(change: impl Fn() -> F) -> Result<(), Error>
where
    F: Future<Output = Result<bool, Error>>,
{
    for _ in 0..TRIES_MAX {
        if change().await? {
            return Ok(());
        }
        sleep(TRIED_EVERY).await;
    }
    let message = "Others change the same queue all the time. Try again.";
    Err(Error::new(ErrorKind::ServiceUnavailable, message))
}

/// Whether a dead-letter queue takes dead letters of a queue. Account and region do not count: there is one
/// of each, whatever clients call it.
fn takes(target: &SqsQueue, source: &QueueName) -> bool {
    let permission =
        target.attributes().redrive_allow_policy.as_ref().map(|policy| policy.permission());
    match permission {
        None | Some(RedrivePermission::AllowAll) => true,
        Some(RedrivePermission::DenyAll) => false,
        Some(RedrivePermission::ByQueue(arns)) => {
            let mut named = arns.iter().filter_map(|arn| QueueArn::parse(arn));
            named.any(|arn| arn.name == *source)
        }
    }
}

/// Ids that are unique in all of a queue need it to have one partition.
fn check_scope(queue: &SqsQueue, attributes: &QueueAttributes) -> Result<(), Error> {
    let is_of_queue = |attributes: &QueueAttributes| {
        attributes.fifo.is_some_and(|fifo| fifo.deduplication_scope == DeduplicationScope::Queue)
    };
    let partitions = queue.topic.partitions.get();
    if partitions == 1 || !is_of_queue(attributes) || is_of_queue(queue.attributes()) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidAttributeValue,
        format!(
            "Invalid value for the parameter DeduplicationScope. Reason: The queue has {partitions} \
             partitions, and deduplication ids can only be compared within each. Create a queue with \
             the scope queue."
        ),
    ))
}
