//! ReceiveMessage.

use std::collections::BTreeMap;
use std::time::Duration;

use super::change_visibility::check_visibility;
use super::send_message::read_id;
use crate::error::Error;
use crate::limits::{RECEIVED_MESSAGES, WAIT_SECONDS};
use crate::md5_of::{md5_of_body, md5_of_message_attributes};
use crate::message_attributes::{
    AttributeFilter, AttributeValue, MessageAttributes, SystemAttribute, SystemAttributeFilter,
};
use crate::queue_attributes::QueueAttributes;
use crate::queue_name::QueueReference;
use crate::wire::{Fields, NAME_VALUE, Writer};

/// Receives messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveMessage {
    /// The queue.
    pub queue: QueueReference,
    /// How many, 1 to 10.
    pub messages_max: u32,
    /// How long they are hidden from others, up to 12 hours; else the queue says.
    pub visibility_timeout: Option<Duration>,
    /// How long to wait for one, up to 20 seconds; else the queue says.
    pub wait: Option<Duration>,
    /// Which of the sender's attributes to give out.
    pub attributes: AttributeFilter,
    /// Which of the system's attributes to give out.
    pub system_attributes: SystemAttributeFilter,
    /// By which a FIFO queue gives out the same messages again; 1 to 128 characters.
    pub attempt_id: Option<String>,
}

impl ReceiveMessage {
    pub(super) fn read(fields: &mut Fields) -> Result<ReceiveMessage, Error> {
        let queue = fields.queue()?;
        let messages_max = fields.integer("MaxNumberOfMessages")?.unwrap_or(1);
        if !RECEIVED_MESSAGES.contains(&messages_max) {
            let reason = "Must be between 1 and 10, if provided.";
            return Err(Error::invalid_value(messages_max, "MaxNumberOfMessages", reason));
        }
        let wait = fields.integer("WaitTimeSeconds")?;
        if let Some(seconds) = wait.filter(|seconds| !WAIT_SECONDS.contains(seconds)) {
            let reason = "Must be >= 0 and <= 20, if provided.";
            return Err(Error::invalid_value(seconds, "WaitTimeSeconds", reason));
        }
        let visibility_timeout = fields.integer("VisibilityTimeout")?;
        let names = fields.texts("AttributeNames", "AttributeName")?;
        let system_names =
            fields.texts("MessageSystemAttributeNames", "MessageSystemAttributeName")?;
        let message_names = fields.texts("MessageAttributeNames", "MessageAttributeName")?;
        Ok(ReceiveMessage {
            queue,
            messages_max: messages_max as u32,
            visibility_timeout: visibility_timeout.map(check_visibility).transpose()?,
            wait: wait.map(|seconds| Duration::from_secs(seconds as u64)),
            attributes: AttributeFilter::new(message_names),
            system_attributes: SystemAttributeFilter::new(names.iter().chain(&system_names)),
            attempt_id: read_id(fields, "ReceiveRequestAttemptId")?,
        })
    }

    /// Checks what depends on the queue.
    ///
    /// # Errors
    /// What to answer: only FIFO queues take ReceiveRequestAttemptId.
    pub fn check(&self, queue: &QueueAttributes) -> Result<(), Error> {
        match &self.attempt_id {
            Some(id) if queue.fifo.is_none() => {
                Err(Error::not_for_this_queue_type(id, "ReceiveRequestAttemptId"))
            }
            _ => Ok(()),
        }
    }

    /// Leaves out of a message what this receiver has not asked for.
    #[must_use]
    pub fn shown(&self, mut message: ReceivedMessage) -> ReceivedMessage {
        message.attributes = message.attributes.selected(&self.attributes);
        message.system_attributes.retain(|name, _| self.system_attributes.selects(*name));
        message
    }
}

/// A message as it is given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Its id, the same for every receive.
    pub message_id: String,
    /// Proof of this receive.
    pub receipt_handle: String,
    /// What was sent.
    pub body: String,
    /// What was sent beside.
    pub attributes: MessageAttributes,
    /// What the system knows of it.
    pub system_attributes: BTreeMap<SystemAttribute, String>,
}

pub(super) fn write(writer: &mut Writer, messages: &[ReceivedMessage]) {
    if !messages.is_empty() {
        writer.structures("Messages", "Message", messages, write_message);
    }
}

fn write_message(writer: &mut Writer, message: &ReceivedMessage) {
    writer.text("MessageId", &message.message_id);
    writer.text("ReceiptHandle", &message.receipt_handle);
    writer.text("MD5OfBody", &md5_of_body(&message.body));
    writer.text("Body", &message.body);
    if !message.system_attributes.is_empty() {
        let pairs = message.system_attributes.iter();
        let pairs = pairs.map(|(name, value)| (name.name(), value.as_str()));
        writer.map("Attributes", "Attribute", &NAME_VALUE, pairs);
    }
    if let Some(md5) = md5_of_message_attributes(&message.attributes) {
        writer.text("MD5OfMessageAttributes", &md5);
        let attributes = message.attributes.iter();
        writer.structure_map(
            "MessageAttributes",
            "MessageAttribute",
            attributes,
            |writer, attribute| {
                match attribute.value() {
                    AttributeValue::Text(text) => writer.text("StringValue", text),
                    AttributeValue::Binary(bytes) => writer.bytes("BinaryValue", bytes),
                }
                writer.text("DataType", attribute.data_type().as_str());
            },
        );
    }
}
