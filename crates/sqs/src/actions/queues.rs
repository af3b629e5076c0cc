//! Queues themselves: CreateQueue, GetQueueUrl, ListQueues, ListDeadLetterSourceQueues,
//! GetQueueAttributes, SetQueueAttributes. DeleteQueue and PurgeQueue say no more than which queue.

use std::collections::{BTreeMap, BTreeSet};

use super::tags;
use crate::error::Error;
use crate::limits::LISTED_QUEUES;
use crate::queue_attributes::{
    QueueAttribute, QueueAttributeChanges, QueueAttributes, ask_for_fifo,
};
use crate::queue_name::{QueueName, QueueReference};
use crate::refusals;
use crate::wire::{Fields, KEY_VALUE, NAME_VALUE, Writer};

/// Creates a queue, or finds the one that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateQueue {
    /// Its name.
    pub name: QueueName,
    /// What it is to be, if it is new.
    pub attributes: QueueAttributes,
    /// What was asked for, to compare with a queue that is there
    /// ([`QueueAttributes::differs_from`]).
    pub asked: QueueAttributeChanges,
    /// Its tags, if it is new.
    pub tags: BTreeMap<String, String>,
}

impl CreateQueue {
    pub(super) fn read(fields: &mut Fields) -> Result<CreateQueue, Error> {
        let name = queue_name(fields)?;
        let attributes = fields.map("Attributes", "Attribute", &NAME_VALUE)?;
        let tags = fields.map("tags", "Tag", &KEY_VALUE)?;
        let is_fifo = ask_for_fifo(&attributes);
        let asked = QueueAttributeChanges::new(attributes, is_fifo)?;
        let attributes = QueueAttributes::defaults(is_fifo).with(&asked)?;
        let name = QueueName::to_create(&name, is_fifo)?;
        tags::check(&tags)?;
        tags::check_count(&name, tags.len())?;
        Ok(CreateQueue { name, attributes, asked, tags })
    }
}

fn queue_name(fields: &mut Fields) -> Result<String, Error> {
    match fields.text("QueueName")? {
        None => Err(Error::invalid_parameter(
            "Value for parameter QueueName is invalid. Reason: Must specify a queue name.",
        )),
        Some(name) if name.is_empty() => {
            Err(Error::invalid_parameter("Queue name cannot be empty"))
        }
        Some(name) => Ok(name),
    }
}

/// Asks for the URL of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetQueueUrl {
    /// The queue's name.
    pub name: QueueName,
    /// The account of its owner, if it is not the caller's.
    pub account: Option<String>,
}

impl GetQueueUrl {
    pub(super) fn read(fields: &mut Fields) -> Result<GetQueueUrl, Error> {
        let name = queue_name(fields)?;
        let account = fields.text("QueueOwnerAWSAccountId")?;
        let name = QueueName::new(&name).ok_or_else(refusals::queue_does_not_exist)?;
        Ok(GetQueueUrl { name, account: account.filter(|account| !account.is_empty()) })
    }
}

/// Asks which queues there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQueues {
    /// What their names begin with; may be empty.
    pub name_prefix: String,
    /// How many, 1 to 1,000. Only if the client says so is there a next page.
    pub queues_max: Option<u32>,
    /// Where the page begins: what an answer said.
    pub next_token: Option<String>,
}

impl ListQueues {
    pub(super) fn read(fields: &mut Fields) -> Result<ListQueues, Error> {
        Ok(ListQueues {
            name_prefix: fields.text("QueueNamePrefix")?.unwrap_or_default(),
            queues_max: queues_max(fields)?,
            next_token: next_token(fields)?,
        })
    }
}

/// Asks which queues send their dead letters to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListDeadLetterSourceQueues {
    /// The dead-letter queue.
    pub queue: QueueReference,
    /// How many, 1 to 1,000. Only if the client says so is there a next page.
    pub queues_max: Option<u32>,
    /// Where the page begins: what an answer said.
    pub next_token: Option<String>,
}

impl ListDeadLetterSourceQueues {
    pub(super) fn read(fields: &mut Fields) -> Result<ListDeadLetterSourceQueues, Error> {
        Ok(ListDeadLetterSourceQueues {
            queue: fields.queue()?,
            queues_max: queues_max(fields)?,
            next_token: next_token(fields)?,
        })
    }
}

fn queues_max(fields: &mut Fields) -> Result<Option<u32>, Error> {
    match fields.integer("MaxResults")? {
        Some(max) if !LISTED_QUEUES.contains(&max) => Err(Error::invalid_parameter(
            "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer \
             between 1 and 1000.",
        )),
        max => Ok(max.map(|max| max as u32)),
    }
}

fn next_token(fields: &mut Fields) -> Result<Option<String>, Error> {
    Ok(fields.text("NextToken")?.filter(|token| !token.is_empty()))
}

/// Some queues of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Their URLs.
    pub queue_urls: Vec<String>,
    /// Where the next page begins, if there is one.
    pub next_token: Option<String>,
}

impl Page {
    /// `is_shown_empty`: one of the two actions leaves an empty list out.
    pub(super) fn write(&self, writer: &mut Writer, list: &str, is_shown_empty: bool) {
        if is_shown_empty || !self.queue_urls.is_empty() {
            writer.texts(list, "QueueUrl", &self.queue_urls);
        }
        writer.optional("NextToken", self.next_token.as_deref());
    }
}

/// Asks what a queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetQueueAttributes {
    /// The queue.
    pub queue: QueueReference,
    /// What of it.
    pub attributes: BTreeSet<QueueAttribute>,
}

impl GetQueueAttributes {
    pub(super) fn read(fields: &mut Fields) -> Result<GetQueueAttributes, Error> {
        let queue = fields.queue()?;
        let names = fields.texts("AttributeNames", "AttributeName")?;
        Ok(GetQueueAttributes { queue, attributes: QueueAttribute::asked_for(&names)? })
    }
}

/// Changes what a queue is. Apply it with [`QueueAttributes::with`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetQueueAttributes {
    /// The queue.
    pub queue: QueueReference,
    /// What is to be otherwise.
    pub changes: QueueAttributeChanges,
}

impl SetQueueAttributes {
    pub(super) fn read(fields: &mut Fields) -> Result<SetQueueAttributes, Error> {
        let queue = fields.queue()?;
        let attributes = fields.map("Attributes", "Attribute", &NAME_VALUE)?;
        if attributes.is_empty() {
            return Err(Error::missing("Attributes"));
        }
        let changes = QueueAttributeChanges::new(attributes, queue.name.is_fifo())?;
        Ok(SetQueueAttributes { queue, changes })
    }
}
