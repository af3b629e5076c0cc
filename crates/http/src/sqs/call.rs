//! One call: which action, by whom, and how this server is called by them.

use std::pin::Pin;
use std::time::Duration;

use axum::http::header;
use axum::http::request::Parts;
use tokio::time::sleep;
use towpath_driver::Clock;
use towpath_sqs::sigv4::Signer;
use towpath_sqs::{Answer, Error, QueueArn, QueueName, QueueReference, Request};

use crate::app::App;
use crate::memory::Share;

use super::attributes::{ACCOUNT, REGION, arn};
use super::queue::{SqsQueue, find};
use super::{queue, refusals};

/// How long a queue that was created at another broker has to become known here.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A call that is being carried out.
pub(super) struct Call<'a> {
    pub(super) app: &'a App,
    pub(super) signer: Signer,
    /// What the URLs of queues begin with.
    base_url: String,
}

/// What an action has to say, and the memory that its answer takes until it is sent.
pub(super) type Answered = Result<(Answer, Vec<Share>), Error>;

/// An action that is being carried out.
type Action<'c> = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send + 'c>>;

impl<'a> Call<'a> {
    pub(super) fn new(app: &'a App, parts: &Parts, signer: Signer) -> Call<'a> {
        let base_url = match &app.sqs.advertised {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => used_url(parts),
        };
        Call { app, signer, base_url }
    }

    pub(super) async fn carry_out(&self, request: Request) -> Answered {
        // Each on the heap: a receive that waits takes no more memory than it needs itself.
        let action: Action<'_> = match request {
            Request::ReceiveMessage(receive) => {
                return Box::pin(self.receive_message(receive)).await;
            }
            Request::SendMessage(send) => Box::pin(self.send_message(send)),
            Request::SendMessageBatch(send) => Box::pin(self.send_message_batch(send)),
            Request::DeleteMessage(delete) => Box::pin(self.delete_message(delete)),
            Request::DeleteMessageBatch(delete) => Box::pin(self.delete_message_batch(delete)),
            Request::ChangeMessageVisibility(change) => Box::pin(self.change_visibility(change)),
            Request::ChangeMessageVisibilityBatch(change) => {
                Box::pin(self.change_visibility_batch(change))
            }
            Request::CreateQueue(create) => Box::pin(self.create_queue(create)),
            Request::DeleteQueue(queue) => Box::pin(self.delete_queue(queue)),
            Request::PurgeQueue(queue) => Box::pin(self.purge_queue(queue)),
            Request::GetQueueUrl(get) => Box::pin(self.get_queue_url(get.name)),
            Request::ListQueues(list) => Box::pin(self.list_queues(list)),
            Request::ListDeadLetterSourceQueues(list) => Box::pin(self.list_source_queues(list)),
            Request::GetQueueAttributes(get) => Box::pin(self.get_queue_attributes(get)),
            Request::SetQueueAttributes(set) => Box::pin(self.set_queue_attributes(set)),
            Request::ListQueueTags(queue) => Box::pin(self.list_queue_tags(queue)),
            Request::TagQueue(tag) => Box::pin(self.tag_queue(tag)),
            Request::UntagQueue(untag) => Box::pin(self.untag_queue(untag)),
            Request::AddPermission(add) => Box::pin(self.add_permission(add)),
            Request::RemovePermission(remove) => Box::pin(self.remove_permission(remove)),
            Request::StartMessageMoveTask(start) => Box::pin(self.start_move_task(start)),
            Request::ListMessageMoveTasks(list) => Box::pin(self.list_move_tasks(list)),
            Request::CancelMessageMoveTask(handle) => Box::pin(self.cancel_move_task(handle)),
        };
        action.await.map(|answer| (answer, Vec::new()))
    }

    /// The queue that a request is about. All queues are in the one account: whichever the URL names.
    pub(super) async fn queue(&self, reference: &QueueReference) -> Result<SqsQueue, Error> {
        self.queue_named(&reference.name).await
    }

    pub(super) async fn queue_named(&self, name: &QueueName) -> Result<SqsQueue, Error> {
        self.check_started()?;
        if let Some(queue) = find(self.app, name) {
            return Ok(queue);
        }
        if 1 < self.app.node.driver().image().broker_count() {
            sleep(LOOK_AGAIN_AFTER).await;
        }
        find(self.app, name).ok_or_else(towpath_sqs::refusals::queue_does_not_exist)
    }

    /// A broker that has not come to its cluster would say of queues that they do not exist.
    pub(super) fn check_started(&self) -> Result<(), Error> {
        match self.app.readiness.is_starting() {
            true => Err(refusals::starting()),
            false => Ok(()),
        }
    }

    /// As clients call a queue.
    pub(super) fn url(&self, name: &str) -> String {
        format!("{}/{ACCOUNT}/{name}", self.base_url)
    }

    pub(super) fn arn(&self, name: QueueName) -> QueueArn {
        let region = if self.signer.region.is_empty() { REGION } else { &self.signer.region };
        arn(region, name)
    }

    /// In seconds since 1970.
    pub(super) fn now_seconds(&self) -> u64 {
        u64::try_from(self.app.node.driver().clock().now().wall.0 / 1000).unwrap_or_default()
    }

    pub(super) async fn get_queue_url(&self, name: QueueName) -> Result<Answer, Error> {
        self.queue_named(&name).await?;
        Ok(Answer::GetQueueUrl { queue_url: self.url(name.as_str()) })
    }

    pub(super) fn names(
        &self,
        prefix: &str,
        after: &str,
        max: usize,
        takes: impl Fn(&towpath_model::properties::QueueConfig) -> bool,
    ) -> (Vec<String>, bool) {
        queue::names(self.app, prefix, after, max, takes)
    }
}

/// The address that a client has used. A proxy that speaks TLS says so in `X-Forwarded-Proto`.
fn used_url(parts: &Parts) -> String {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = match text("x-forwarded-proto") {
        Some("https") => "https",
        _ => "http",
    };
    let host = parts.uri.authority().map(axum::http::uri::Authority::as_str);
    let host = host.or_else(|| text(header::HOST.as_str())).unwrap_or("localhost");
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_queues_begin_with_the_address_that_the_client_used() {
        let used = |headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::builder().uri("/");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            used_url(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(used(&[("host", "queues.example.org:9324")]), "http://queues.example.org:9324");
        assert_eq!(
            used(&[("host", "sqs.example.org"), ("x-forwarded-proto", "https")]),
            "https://sqs.example.org"
        );
        assert_eq!(used(&[("host", "a"), ("x-forwarded-proto", "gopher")]), "http://a");
    }
}
