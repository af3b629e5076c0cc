//! ReceiveMessage.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use towpath_queue::{DEAD_RECEIVES, DEAD_SOURCE, DEDUP_ID, FIRST_DEDUP_ID, FIRST_SENT};
use towpath_server::StoredMessage;
use towpath_sqs::record_headers::from_record_headers;
use towpath_sqs::{Answer, QueueName, ReceiveMessage, ReceivedMessage, SystemAttribute};

use crate::api_error::Code;
use crate::queues::{Handed, WrittenReceive, receive, short_name};

use super::attributes::ACCOUNT;
use super::call::{Answered, Call};
use super::message_id::{of_stored, sequence_number};
use super::queue::SqsQueue;
use super::refusals;
use super::send_message::TRACE_HEADER;

impl Call<'_> {
    pub(super) async fn receive_message(&self, wanted: ReceiveMessage) -> Answered {
        let queue = self.queue(&wanted.queue).await?;
        wanted.check(queue.attributes())?;
        let wait = wanted.wait.unwrap_or(queue.attributes().receive_wait);
        // Where anybody is let in, this is whatever somebody has said.
        let holder = short_name(&self.signer.access_key_id);
        let receiving = WrittenReceive {
            max: wanted.messages_max,
            wait_ms: milliseconds(wait),
            visibility_ms: wanted.visibility_timeout.map(milliseconds),
            subscription: None,
            holder: Some(holder.to_owned()).filter(|id| !id.is_empty()),
            attempt_id: wanted.attempt_id.clone(),
            repeats_only: false,
            all_headers: true,
        };
        let handout = match receive(self.app, &queue.topic, &receiving, true).await {
            Ok(handout) => handout,
            // AWS says so of standard queues only.
            Err(error) if error.code == Code::LimitReached && queue.is_fifo() => {
                return Ok((Answer::ReceiveMessage(Vec::new()), Vec::new()));
            }
            Err(error) if error.code == Code::LimitReached => {
                return Err(towpath_sqs::refusals::too_many_in_flight());
            }
            Err(error) => return Err(refusals::of(error)),
        };
        let (handed, shares) = handout.take();
        let show = |handed: &Handed| wanted.shown(self.received(&queue, &wanted, handed));
        Ok((Answer::ReceiveMessage(handed.iter().map(show).collect()), shares))
    }

    fn received(
        &self,
        queue: &SqsQueue,
        wanted: &ReceiveMessage,
        handed: &Handed,
    ) -> ReceivedMessage {
        let stored = &handed.stored;
        let headers = stored.headers.iter().map(|(name, value)| (&name[..], value.as_deref()));
        let mut system_attributes = BTreeMap::new();
        for attribute in SystemAttribute::ALL {
            if wanted.system_attributes.selects(attribute)
                && let Some(value) = self.system_attribute(queue, handed, attribute)
            {
                system_attributes.insert(attribute, value);
            }
        }
        ReceivedMessage {
            message_id: of_stored(queue.topic.id, handed.receipt.partition, stored),
            receipt_handle: handed.receipt.to_string(),
            body: body(stored),
            attributes: from_record_headers(headers),
            system_attributes,
        }
    }

    fn system_attribute(
        &self,
        queue: &SqsQueue,
        handed: &Handed,
        attribute: SystemAttribute,
    ) -> Option<String> {
        let stored = &handed.stored;
        match attribute {
            SystemAttribute::SenderId => Some(ACCOUNT.to_owned()),
            // A dead letter of a FIFO queue counts as sent anew, as with AWS.
            SystemAttribute::SentTimestamp => {
                let first = header(stored, FIRST_SENT).filter(|_| !queue.is_fifo());
                first.or_else(|| Some(stored.timestamp.0.to_string()))
            }
            SystemAttribute::ApproximateFirstReceiveTimestamp => {
                Some(handed.first_received_ms.to_string())
            }
            SystemAttribute::ApproximateReceiveCount => {
                // Over all queues that the message was in.
                let before = header(stored, DEAD_RECEIVES).and_then(|count| count.parse().ok());
                Some(handed.receives.saturating_add(before.unwrap_or(0u32)).to_string())
            }
            SystemAttribute::SequenceNumber => {
                queue.is_fifo().then(|| sequence_number(stored.offset))
            }
            SystemAttribute::MessageGroupId => {
                let key = stored.key.as_deref().filter(|key| !key.is_empty())?;
                Some(String::from_utf8_lossy(key).into_owned())
            }
            SystemAttribute::MessageDeduplicationId => {
                header(stored, DEDUP_ID).or_else(|| header(stored, FIRST_DEDUP_ID))
            }
            SystemAttribute::AWSTraceHeader => header(stored, TRACE_HEADER),
            SystemAttribute::DeadLetterQueueSourceArn => {
                let source = QueueName::new(&header(stored, DEAD_SOURCE)?)?;
                Some(self.arn(source).to_string())
            }
        }
    }
}

/// What was sent, as a text: what no client of SQS can have sent, bytes that are no text, is base64.
fn body(stored: &StoredMessage) -> String {
    let value = stored.value.as_deref().unwrap_or_default();
    match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => BASE64_STANDARD.encode(value),
    }
}

fn header(stored: &StoredMessage, name: &[u8]) -> Option<String> {
    let (_, value) = stored.headers.iter().rfind(|(given, _)| **given == *name)?;
    String::from_utf8(value.as_deref()?.to_vec()).ok()
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
