//! SendMessage and SendMessageBatch.

use towpath_model::{Offset, PartitionIndex};
use towpath_queue::Delay;
use towpath_sqs::record_headers::to_record_headers;
use towpath_sqs::{
    Answer, BatchEntry, BatchRefusal, Error, NewMessage, SendMessage, SendMessageBatch, Sent,
};

use crate::message::PublishedMessage;
use crate::queues::{NewQueueMessage, send};

use super::call::Call;
use super::message_id::{message_id, sequence_number};
use super::queue::SqsQueue;
use super::refusals;

/// Carries the system attribute AWSTraceHeader.
pub(super) const TRACE_HEADER: &[u8] = b"towpath-sqs-trace";

impl Call<'_> {
    pub(super) async fn send_message(&self, wanted: SendMessage) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        wanted.check(queue.attributes())?;
        let (sent, message) = prepare(&queue, wanted.message);
        let mut results = send(self.app, &queue.topic, vec![message]).await;
        let published = results.remove(0).map_err(refusals::of)?;
        Ok(Answer::SendMessage(told(&queue, sent, &published)))
    }

    pub(super) async fn send_message_batch(
        &self,
        wanted: SendMessageBatch,
    ) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        wanted.check(queue.attributes())?;
        let (mut failed, mut prepared, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for BatchEntry { id, asked } in wanted.entries {
            let checked = asked.and_then(|message| {
                message.check(queue.attributes())?;
                Ok(message)
            });
            match checked {
                Ok(message) => {
                    let (sent, message) = prepare(&queue, message);
                    prepared.push((id, sent));
                    messages.push(message);
                }
                Err(error) => failed.push(BatchRefusal { id, error }),
            }
        }
        let results = send(self.app, &queue.topic, messages).await;
        let mut successful = Vec::with_capacity(results.len());
        for ((id, sent), result) in prepared.into_iter().zip(results) {
            match result {
                Ok(published) => successful.push((id, told(&queue, sent, &published))),
                Err(error) => failed.push(BatchRefusal { id, error: refusals::of(error) }),
            }
        }
        Ok(Answer::SendMessageBatch { successful, failed })
    }
}

/// What the sender will be told, but for the place that is not known yet, and the message for the queue.
fn prepare(queue: &SqsQueue, message: NewMessage) -> (Sent, NewQueueMessage) {
    let sent = Sent::new(&message, String::new(), None);
    let dedup_id = message.deduplication_id(queue.attributes()).map(String::into_bytes);
    let attributes = to_record_headers(&message.attributes).into_iter();
    let mut headers: Vec<_> =
        attributes.map(|(name, value)| (name.into_bytes(), Some(value))).collect();
    let trace = message.trace_header.map(String::into_bytes);
    headers.extend(trace.map(|trace| (TRACE_HEADER.to_vec(), Some(trace))));
    // FIFO queues take no delay of a message, only that of the queue; a zero says nothing there.
    let delay = message.delay.filter(|_| !queue.is_fifo()).map(Delay::For);
    let message = NewQueueMessage {
        value: Some(message.body.into_bytes()),
        group: message.group_id.map(String::into_bytes),
        headers,
        delay,
        ttl: None,
        priority: None,
        dedup_id: dedup_id.filter(|_| queue.is_fifo()),
    };
    (sent, message)
}

/// A repeat is told what the first one was told.
fn told(queue: &SqsQueue, sent: Sent, published: &PublishedMessage) -> Sent {
    let offset = Offset(published.duplicate_of.unwrap_or(published.offset));
    let partition = PartitionIndex(published.partition);
    Sent {
        message_id: message_id(queue.topic.id, partition, offset),
        sequence_number: queue.is_fifo().then(|| sequence_number(offset)),
        ..sent
    }
}
