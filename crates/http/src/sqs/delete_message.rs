//! DeleteMessage and DeleteMessageBatch.

use std::time::Duration;

use towpath_sqs::refusals as words;
use towpath_sqs::{Answer, BatchEntry, BatchRefusal, DeleteMessage, DeleteMessageBatch, Error};

use crate::api_error::{ApiError, Code};
use crate::queues::{Named, Settled, Verb, settle};

use super::call::Call;
use super::queue::SqsQueue;
use super::refusals;

impl Call<'_> {
    pub(super) async fn delete_message(&self, wanted: DeleteMessage) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let handles = vec![(wanted.receipt_handle, Duration::ZERO)];
        let mut results = self.settled(&queue, &Verb::Delete, handles).await;
        let (handle, result) = results.remove(0);
        deleted(&queue, &handle, result)?;
        Ok(Answer::DeleteMessage)
    }

    pub(super) async fn delete_message_batch(
        &self,
        wanted: DeleteMessageBatch,
    ) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let entries = wanted.entries.into_iter();
        let entries = entries.map(|BatchEntry { id, asked }| BatchEntry {
            id,
            asked: asked.map(|handle| (handle, Duration::ZERO)),
        });
        let (successful, failed) = self
            .settled_batch(&queue, &Verb::Delete, entries.collect(), |handle, _, result| {
                deleted(&queue, handle, result)
            })
            .await;
        Ok(Answer::DeleteMessageBatch { successful, failed })
    }

    /// Settles messages by their handles; the results are in their order.
    pub(super) async fn settled(
        &self,
        queue: &SqsQueue,
        verb: &Verb,
        handles: Vec<(String, Duration)>,
    ) -> Vec<(String, Result<Settled, ApiError>)> {
        let named = handles.iter().map(|(handle, visibility)| {
            Ok(Named { receipt: handle.parse()?, visibility: *visibility })
        });
        let results = settle(self.app, &queue.topic, verb, named.collect(), true).await;
        handles.into_iter().map(|(handle, _)| handle).zip(results).collect()
    }

    /// Settles the entries of a batch that can be read: the ids of those that were, and of those that were
    /// not why.
    pub(super) async fn settled_batch(
        &self,
        queue: &SqsQueue,
        verb: &Verb,
        entries: Vec<BatchEntry<(String, Duration)>>,
        judge: impl Fn(&str, Duration, Result<Settled, ApiError>) -> Result<(), Error>,
    ) -> (Vec<String>, Vec<BatchRefusal>) {
        let (mut ids, mut handles, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for BatchEntry { id, asked } in entries {
            match asked {
                Ok((handle, visibility)) => {
                    ids.push((id, visibility));
                    handles.push((handle, visibility));
                }
                Err(error) => failed.push(BatchRefusal { id, error }),
            }
        }
        let results = self.settled(queue, verb, handles).await;
        let mut successful = Vec::with_capacity(results.len());
        for ((id, visibility), (handle, result)) in ids.into_iter().zip(results) {
            match judge(&handle, visibility, result) {
                Ok(()) => successful.push(id),
                Err(error) => failed.push(BatchRefusal { id, error }),
            }
        }
        (successful, failed)
    }
}

/// A standard queue takes a handle whose time is over: somebody else may have the message, and deletes it.
fn deleted(queue: &SqsQueue, handle: &str, result: Result<Settled, ApiError>) -> Result<(), Error> {
    match result {
        Ok(Settled {}) => Ok(()),
        Err(error) if error.code == Code::ReceiptStale && !queue.is_fifo() => Ok(()),
        Err(error) if error.code == Code::ReceiptStale => {
            Err(words::receipt_handle_has_expired(handle))
        }
        Err(error) if error.code == Code::InvalidReceipt => {
            Err(words::receipt_handle_is_invalid(handle))
        }
        Err(error) => Err(refusals::of(error)),
    }
}
