//! One call: which action, by whom, and how this server is called by them.

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

impl<'a> Call<'a> {
    pub(super) fn new(app: &'a App, parts: &Parts, signer: Signer) -> Call<'a> {
        let base_url = match &app.sqs.advertised {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => used_url(parts),
        };
        Call { app, signer, base_url }
    }

    pub(super) async fn carry_out(&self, request: Request) -> Answered {
        let answer = match request {
            Request::ReceiveMessage(receive) => return self.receive_message(receive).await,
            Request::SendMessage(send) => self.send_message(send).await,
            Request::SendMessageBatch(send) => self.send_message_batch(send).await,
            Request::DeleteMessage(delete) => self.delete_message(delete).await,
            Request::DeleteMessageBatch(delete) => self.delete_message_batch(delete).await,
            Request::ChangeMessageVisibility(change) => self.change_visibility(change).await,
            Request::ChangeMessageVisibilityBatch(change) => {
                self.change_visibility_batch(change).await
            }
            Request::CreateQueue(create) => self.create_queue(create).await,
            Request::DeleteQueue(queue) => self.delete_queue(&queue).await,
            Request::PurgeQueue(queue) => self.purge_queue(&queue).await,
            Request::GetQueueUrl(get) => self.get_queue_url(&get.name).await,
            Request::ListQueues(list) => self.list_queues(&list),
            Request::ListDeadLetterSourceQueues(list) => self.list_source_queues(&list).await,
            Request::GetQueueAttributes(get) => self.get_queue_attributes(get).await,
            Request::SetQueueAttributes(set) => self.set_queue_attributes(set).await,
            Request::ListQueueTags(queue) => self.list_queue_tags(&queue).await,
            Request::TagQueue(tag) => self.tag_queue(tag).await,
            Request::UntagQueue(untag) => self.untag_queue(untag).await,
            Request::AddPermission(add) => self.add_permission(add).await,
            Request::RemovePermission(remove) => self.remove_permission(remove).await,
            Request::StartMessageMoveTask(start) => self.start_move_task(start).await,
            Request::ListMessageMoveTasks(list) => self.list_move_tasks(list).await,
            Request::CancelMessageMoveTask(handle) => self.cancel_move_task(handle).await,
        };
        answer.map(|answer| (answer, Vec::new()))
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

    pub(super) async fn get_queue_url(&self, name: &QueueName) -> Result<Answer, Error> {
        self.queue_named(name).await?;
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
