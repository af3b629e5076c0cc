//! ChangeMessageVisibility and ChangeMessageVisibilityBatch.

use std::time::Duration;

use super::batch::{self, BatchEntry};
use crate::error::Error;
use crate::limits::VISIBILITY_SECONDS;
use crate::queue_name::QueueReference;
use crate::wire::Fields;

/// Hides a message that was received for longer, or gives it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeMessageVisibility {
    /// The queue.
    pub queue: QueueReference,
    /// Which message, and how long.
    pub change: VisibilityChange,
}

/// Which message is hidden, and how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibilityChange {
    /// Proof of the receive, as it was given out; not empty.
    pub receipt_handle: String,
    /// From now on, up to 12 hours; zero gives it back at once.
    pub timeout: Duration,
}

impl ChangeMessageVisibility {
    pub(super) fn read(fields: &mut Fields) -> Result<ChangeMessageVisibility, Error> {
        let queue = fields.queue()?;
        Ok(ChangeMessageVisibility { queue, change: VisibilityChange::read(fields)? })
    }
}

impl VisibilityChange {
    fn read(fields: &mut Fields) -> Result<VisibilityChange, Error> {
        let receipt_handle = fields.required("ReceiptHandle")?;
        let seconds = fields.integer("VisibilityTimeout")?;
        let seconds = seconds.ok_or_else(|| Error::missing("VisibilityTimeout"))?;
        Ok(VisibilityChange { receipt_handle, timeout: check_visibility(seconds)? })
    }
}

pub(super) fn check_visibility(seconds: i32) -> Result<Duration, Error> {
    if VISIBILITY_SECONDS.contains(&seconds) {
        Ok(Duration::from_secs(seconds as u64))
    } else {
        let reason = "Must be >= 0 and <= 43200, if provided.";
        Err(Error::invalid_value(seconds, "VisibilityTimeout", reason))
    }
}

/// Changes how long up to ten messages are hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeMessageVisibilityBatch {
    /// The queue.
    pub queue: QueueReference,
    /// Which messages, and how long.
    pub entries: Vec<BatchEntry<VisibilityChange>>,
}

impl ChangeMessageVisibilityBatch {
    pub(super) fn read(fields: &mut Fields) -> Result<ChangeMessageVisibilityBatch, Error> {
        let queue = fields.queue()?;
        let element = "ChangeMessageVisibilityBatchRequestEntry";
        let entries = batch::read_entries(fields, element, VisibilityChange::read)?;
        Ok(ChangeMessageVisibilityBatch { queue, entries })
    }
}
