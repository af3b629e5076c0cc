//! SendMessage and SendMessageBatch.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::batch::{self, BatchEntry};
use crate::error::{Error, ErrorKind};
use crate::hexadecimal::hexadecimal;
use crate::limits::{DELAY_SECONDS, FIFO_ID_CHARS_MAX, MESSAGE_BYTES_MAX};
use crate::md5_of::{md5_of_body, md5_of_message_attributes, md5_of_system_attributes};
use crate::message_attributes::{INVALID_CHARACTERS, MessageAttributes, is_message_text};
use crate::queue_attributes::QueueAttributes;
use crate::queue_name::QueueReference;
use crate::wire::{Fields, Writer};

/// Sends a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendMessage {
    /// The queue.
    pub queue: QueueReference,
    /// What is sent.
    pub message: NewMessage,
}

/// A message as its sender gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Not empty, and of characters that XML can carry.
    pub body: String,
    /// How long it is hidden first, up to 15 minutes; else the queue says.
    pub delay: Option<Duration>,
    /// What it carries beside.
    pub attributes: MessageAttributes,
    /// The system attribute `AWSTraceHeader`.
    pub trace_header: Option<String>,
    /// Which messages are the same; 1 to 128 characters.
    pub deduplication_id: Option<String>,
    /// Which messages are kept in order, or of a standard queue the tenant; 1 to 128 characters.
    pub group_id: Option<String>,
}

impl SendMessage {
    pub(super) fn read(fields: &mut Fields) -> Result<SendMessage, Error> {
        Ok(SendMessage { queue: fields.queue()?, message: NewMessage::read(fields)? })
    }

    /// Checks what depends on the queue: see [`NewMessage::check`].
    ///
    /// # Errors
    /// What to answer.
    pub fn check(&self, queue: &QueueAttributes) -> Result<(), Error> {
        self.message.check_ids(queue)?;
        self.message.check(queue)
    }
}

impl NewMessage {
    fn read(fields: &mut Fields) -> Result<NewMessage, Error> {
        let body = fields.required("MessageBody")?;
        if !is_message_text(&body) {
            return Err(Error::new(ErrorKind::InvalidMessageContents, INVALID_CHARACTERS));
        }
        let attributes = fields.structure_map("MessageAttributes", "MessageAttribute")?;
        Ok(NewMessage {
            body,
            delay: delay(fields)?,
            attributes: MessageAttributes::read(attributes)?,
            trace_header: trace_header(fields)?,
            deduplication_id: read_id(fields, "MessageDeduplicationId")?,
            group_id: read_id(fields, "MessageGroupId")?,
        })
    }

    /// What counts against MaximumMessageSize: body and attributes, in bytes. System attributes do
    /// not.
    pub fn size_bytes(&self) -> usize {
        self.body.len() + self.attributes.size_bytes()
    }

    /// By which id a FIFO queue tells messages apart: what the sender says, or else the SHA-256 of
    /// the body where the queue is set to that.
    pub fn deduplication_id(&self, queue: &QueueAttributes) -> Option<String> {
        let is_content_based = queue.fifo.is_some_and(|fifo| fifo.content_based_deduplication);
        self.deduplication_id
            .clone()
            .or_else(|| is_content_based.then(|| hexadecimal(&Sha256::digest(&self.body))))
    }

    /// Checks what depends on the queue and refuses this message alone: its size, and what the
    /// queue's type does not take.
    ///
    /// # Errors
    /// What to answer, or what to put into [`super::BatchRefusal`].
    pub fn check(&self, queue: &QueueAttributes) -> Result<(), Error> {
        let bytes_max = queue.maximum_message_bytes;
        if (bytes_max as usize) < self.size_bytes() {
            return Err(Error::invalid_parameter(format!(
                "One or more parameters are invalid. Reason: Message must be shorter than \
                 {bytes_max} bytes."
            )));
        }
        match (self.delay, &self.deduplication_id) {
            (Some(delay), _) if queue.fifo.is_some() && !delay.is_zero() => {
                Err(Error::not_for_this_queue_type(delay.as_secs(), "DelaySeconds"))
            }
            (_, Some(id)) if queue.fifo.is_none() => {
                Err(Error::not_for_this_queue_type(id, "MessageDeduplicationId"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a FIFO queue gets the ids that it needs. For want of them AWS refuses a batch as
    /// a whole.
    fn check_ids(&self, queue: &QueueAttributes) -> Result<(), Error> {
        if queue.fifo.is_none() {
            return Ok(());
        }
        if self.group_id.is_none() {
            return Err(Error::missing("MessageGroupId"));
        }
        if self.deduplication_id(queue).is_none() {
            return Err(Error::invalid_parameter(
                "The queue should either have ContentBasedDeduplication enabled or \
                 MessageDeduplicationId provided explicitly",
            ));
        }
        Ok(())
    }
}

fn delay(fields: &mut Fields) -> Result<Option<Duration>, Error> {
    match fields.integer("DelaySeconds")? {
        Some(seconds) if !DELAY_SECONDS.contains(&seconds) => {
            let reason = "DelaySeconds must be >= 0 and <= 900.";
            Err(Error::invalid_value(seconds, "DelaySeconds", reason))
        }
        seconds => Ok(seconds.map(|seconds| Duration::from_secs(seconds as u64))),
    }
}

/// Reads MessageSystemAttributes, of which senders can set one.
fn trace_header(fields: &mut Fields) -> Result<Option<String>, Error> {
    let attributes = fields.structure_map("MessageSystemAttributes", "MessageSystemAttribute")?;
    let mut header = None;
    for (name, mut fields) in attributes {
        if name != "AWSTraceHeader" {
            return Err(Error::invalid_parameter(format!(
                "Message system attribute name '{name}' is invalid."
            )));
        }
        if fields.text("DataType")?.as_deref() != Some("String") {
            return Err(Error::invalid_parameter(format!(
                "The type of message (system) attribute '{name}' is invalid. You must use only \
                 the following supported type prefixes: String."
            )));
        }
        let value = fields.text("StringValue")?.filter(|value| !value.is_empty());
        let value = value.filter(|value| is_message_text(value));
        header = Some(value.ok_or_else(|| {
            Error::invalid_parameter(format!(
                "Message (system) attribute '{name}' must contain a non-empty value of type \
                 'String'."
            ))
        })?);
    }
    Ok(header)
}

/// Reads MessageGroupId, MessageDeduplicationId or ReceiveRequestAttemptId.
pub(super) fn read_id(fields: &mut Fields, parameter: &str) -> Result<Option<String>, Error> {
    let Some(id) = fields.text(parameter)? else { return Ok(None) };
    let fits = (1..=FIFO_ID_CHARS_MAX).contains(&id.len());
    if fits && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(Some(id));
    }
    let reason = format!(
        "{parameter} can only include alphanumeric and punctuation characters. 1 to \
         {FIFO_ID_CHARS_MAX} in length."
    );
    Err(Error::invalid_value(&id, parameter, &reason))
}

/// Sends up to ten messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendMessageBatch {
    /// The queue.
    pub queue: QueueReference,
    /// What is sent. Check each with [`NewMessage::check`].
    pub entries: Vec<BatchEntry<NewMessage>>,
}

impl SendMessageBatch {
    pub(super) fn read(fields: &mut Fields) -> Result<SendMessageBatch, Error> {
        let queue = fields.queue()?;
        let entries =
            batch::read_entries(fields, "SendMessageBatchRequestEntry", NewMessage::read)?;
        let sizes = entries.iter().flat_map(|entry| &entry.asked).map(NewMessage::size_bytes);
        let bytes: usize = sizes.sum();
        if MESSAGE_BYTES_MAX < bytes {
            return Err(Error::new(
                ErrorKind::BatchRequestTooLong,
                format!(
                    "Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have \
                     sent {bytes} bytes."
                ),
            ));
        }
        Ok(SendMessageBatch { queue, entries })
    }

    /// Checks what depends on the queue and refuses the whole batch.
    ///
    /// # Errors
    /// What to answer.
    pub fn check(&self, queue: &QueueAttributes) -> Result<(), Error> {
        let messages = self.entries.iter().flat_map(|entry| &entry.asked);
        messages.into_iter().try_for_each(|message| message.check_ids(queue))
    }
}

/// What the sender of a message is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The message's id.
    pub message_id: String,
    /// MD5 of what came in as the body.
    pub md5_of_body: String,
    /// MD5 of what came in as attributes, if any did.
    pub md5_of_attributes: Option<String>,
    /// MD5 of what came in as system attributes, if any did.
    pub md5_of_system_attributes: Option<String>,
    /// 20 digits, in FIFO queues.
    pub sequence_number: Option<String>,
}

impl Sent {
    /// Tells of this message that it was stored under an id, and in a FIFO queue with a number.
    pub fn new(message: &NewMessage, message_id: String, sequence_number: Option<String>) -> Sent {
        Sent {
            message_id,
            md5_of_body: md5_of_body(&message.body),
            md5_of_attributes: md5_of_message_attributes(&message.attributes),
            md5_of_system_attributes: md5_of_system_attributes(message.trace_header.as_deref()),
            sequence_number,
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text("MessageId", &self.message_id);
        writer.text("MD5OfMessageBody", &self.md5_of_body);
        writer.optional("MD5OfMessageAttributes", self.md5_of_attributes.as_deref());
        writer.optional("MD5OfMessageSystemAttributes", self.md5_of_system_attributes.as_deref());
        writer.optional("SequenceNumber", self.sequence_number.as_deref());
    }
}
