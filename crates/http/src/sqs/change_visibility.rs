//! ChangeMessageVisibility and ChangeMessageVisibilityBatch.

use std::time::Duration;

use towpath_sqs::actions::VisibilityChange;
use towpath_sqs::refusals as words;
use towpath_sqs::{
    Answer, BatchEntry, ChangeMessageVisibility, ChangeMessageVisibilityBatch, Error,
};

use crate::api_error::{ApiError, Code};
use crate::queues::{Settled, Verb};

use super::call::Call;
use super::refusals;

impl Call<'_> {
    pub(super) async fn change_visibility(
        &self,
        wanted: ChangeMessageVisibility,
    ) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let VisibilityChange { receipt_handle, timeout } = wanted.change;
        let mut results =
            self.settled(&queue, &Verb::Extend, vec![(receipt_handle, timeout)]).await;
        let (handle, result) = results.remove(0);
        changed(&handle, timeout, result)?;
        Ok(Answer::ChangeMessageVisibility)
    }

    pub(super) async fn change_visibility_batch(
        &self,
        wanted: ChangeMessageVisibilityBatch,
    ) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let entries = wanted.entries.into_iter();
        let entries = entries.map(|BatchEntry { id, asked }| BatchEntry {
            id,
            asked: asked.map(|change| (change.receipt_handle, change.timeout)),
        });
        let (successful, failed) =
            self.settled_batch(&queue, &Verb::Extend, entries.collect(), changed).await;
        Ok(Answer::ChangeMessageVisibilityBatch { successful, failed })
    }
}

fn changed(
    handle: &str,
    timeout: Duration,
    result: Result<Settled, ApiError>,
) -> Result<(), Error> {
    match result.map_err(|error| (error.code, error)) {
        Ok(Settled {}) => Ok(()),
        Err((Code::ReceiptStale, _)) => Err(words::message_is_not_in_flight(handle)),
        Err((Code::LimitReached, _)) => Err(words::visibility_beyond_limit(timeout.as_secs())),
        Err((Code::InvalidReceipt, _)) => Err(words::receipt_handle_is_invalid(handle)),
        Err((_, error)) => Err(refusals::of(error)),
    }
}
