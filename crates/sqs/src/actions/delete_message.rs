//! DeleteMessage and DeleteMessageBatch.

use super::batch::{self, BatchEntry};
use crate::error::Error;
use crate::queue_name::QueueReference;
use crate::wire::Fields;

/// Deletes a message that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteMessage {
    /// The queue.
    pub queue: QueueReference,
    /// Proof of the receive, as it was given out; not empty.
    pub receipt_handle: String,
}

impl DeleteMessage {
    pub(super) fn read(fields: &mut Fields) -> Result<DeleteMessage, Error> {
        Ok(DeleteMessage {
            queue: fields.queue()?,
            receipt_handle: fields.required("ReceiptHandle")?,
        })
    }
}

/// Deletes up to ten messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteMessageBatch {
    /// The queue.
    pub queue: QueueReference,
    /// Receipt handles.
    pub entries: Vec<BatchEntry<String>>,
}

impl DeleteMessageBatch {
    pub(super) fn read(fields: &mut Fields) -> Result<DeleteMessageBatch, Error> {
        let queue = fields.queue()?;
        let handle = |entry: &mut Fields| entry.required("ReceiptHandle");
        let entries = batch::read_entries(fields, "DeleteMessageBatchRequestEntry", handle)?;
        Ok(DeleteMessageBatch { queue, entries })
    }
}
