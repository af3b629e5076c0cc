//! AddPermission and RemovePermission: statements of a policy that is kept and shown. It lets nobody in and
//! keeps nobody out: whoever has an access key may do everything.

use towpath_sqs::actions::{AddPermission, RemovePermission};
use towpath_sqs::{Answer, Error, QueueAttributes};

use super::call::Call;
use super::queue::SqsQueue;
use super::queue_attributes::until_unchanged;

impl Call<'_> {
    pub(super) async fn add_permission(&self, wanted: AddPermission) -> Result<Answer, Error> {
        until_unchanged(|| self.try_to_add_permission(&wanted)).await?;
        Ok(Answer::AddPermission)
    }

    async fn try_to_add_permission(&self, wanted: &AddPermission) -> Result<bool, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let arn = self.arn(wanted.queue.name.clone());
        let policy = wanted.added_to(queue.attributes().policy.as_deref(), &arn)?;
        self.set_policy(&queue, Some(policy)).await
    }

    pub(super) async fn remove_permission(
        &self,
        wanted: RemovePermission,
    ) -> Result<Answer, Error> {
        until_unchanged(|| self.try_to_remove_permission(&wanted)).await?;
        Ok(Answer::RemovePermission)
    }

    async fn try_to_remove_permission(&self, wanted: &RemovePermission) -> Result<bool, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let policy = wanted.taken_from(queue.attributes().policy.as_deref())?;
        self.set_policy(&queue, policy).await
    }

    async fn set_policy(&self, queue: &SqsQueue, policy: Option<String>) -> Result<bool, Error> {
        let attributes = QueueAttributes { policy, ..queue.attributes().clone() };
        self.set_attributes(queue, attributes).await
    }
}
