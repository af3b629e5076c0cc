//! What clients ask and what they are answered, a file per family of actions.

mod batch;
mod change_visibility;
mod delete_message;
mod move_tasks;
mod permissions;
mod queues;
mod receive_message;
mod send_message;
mod tags;

use std::collections::BTreeMap;

pub use self::batch::{BatchEntry, BatchRefusal};
pub use self::change_visibility::{
    ChangeMessageVisibility, ChangeMessageVisibilityBatch, VisibilityChange,
};
pub use self::delete_message::{DeleteMessage, DeleteMessageBatch};
pub use self::move_tasks::{ListMessageMoveTasks, MoveTask, MoveTaskStatus, StartMessageMoveTask};
pub use self::permissions::{AddPermission, RemovePermission};
pub use self::queues::{
    CreateQueue, GetQueueAttributes, GetQueueUrl, ListDeadLetterSourceQueues, ListQueues, Page,
    SetQueueAttributes,
};
pub use self::receive_message::{ReceiveMessage, ReceivedMessage};
pub use self::send_message::{NewMessage, SendMessage, SendMessageBatch, Sent};
pub use self::tags::{TagQueue, UntagQueue};
use crate::action::Action;
use crate::error::Error;
use crate::queue_name::QueueReference;
use crate::wire::{Fields, KEY_VALUE, NAME_VALUE, Writer};

/// A request that is well-formed and within AWS's limits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "AWS's names of its actions")]
pub enum Request {
    AddPermission(AddPermission),
    /// The task's handle.
    CancelMessageMoveTask(String),
    ChangeMessageVisibility(ChangeMessageVisibility),
    ChangeMessageVisibilityBatch(ChangeMessageVisibilityBatch),
    CreateQueue(CreateQueue),
    DeleteMessage(DeleteMessage),
    DeleteMessageBatch(DeleteMessageBatch),
    DeleteQueue(QueueReference),
    GetQueueAttributes(GetQueueAttributes),
    GetQueueUrl(GetQueueUrl),
    ListDeadLetterSourceQueues(ListDeadLetterSourceQueues),
    ListMessageMoveTasks(ListMessageMoveTasks),
    ListQueueTags(QueueReference),
    ListQueues(ListQueues),
    PurgeQueue(QueueReference),
    ReceiveMessage(ReceiveMessage),
    RemovePermission(RemovePermission),
    SendMessage(SendMessage),
    SendMessageBatch(SendMessageBatch),
    SetQueueAttributes(SetQueueAttributes),
    StartMessageMoveTask(StartMessageMoveTask),
    TagQueue(TagQueue),
    UntagQueue(UntagQueue),
}

impl Request {
    pub(crate) fn read(action: Action, mut fields: Fields) -> Result<Request, Error> {
        let fields = &mut fields;
        Ok(match action {
            Action::AddPermission => Request::AddPermission(AddPermission::read(fields)?),
            Action::CancelMessageMoveTask => {
                Request::CancelMessageMoveTask(fields.required("TaskHandle")?)
            }
            Action::ChangeMessageVisibility => {
                Request::ChangeMessageVisibility(ChangeMessageVisibility::read(fields)?)
            }
            Action::ChangeMessageVisibilityBatch => {
                Request::ChangeMessageVisibilityBatch(ChangeMessageVisibilityBatch::read(fields)?)
            }
            Action::CreateQueue => Request::CreateQueue(CreateQueue::read(fields)?),
            Action::DeleteMessage => Request::DeleteMessage(DeleteMessage::read(fields)?),
            Action::DeleteMessageBatch => {
                Request::DeleteMessageBatch(DeleteMessageBatch::read(fields)?)
            }
            Action::DeleteQueue => Request::DeleteQueue(fields.queue()?),
            Action::GetQueueAttributes => {
                Request::GetQueueAttributes(GetQueueAttributes::read(fields)?)
            }
            Action::GetQueueUrl => Request::GetQueueUrl(GetQueueUrl::read(fields)?),
            Action::ListDeadLetterSourceQueues => {
                Request::ListDeadLetterSourceQueues(ListDeadLetterSourceQueues::read(fields)?)
            }
            Action::ListMessageMoveTasks => {
                Request::ListMessageMoveTasks(ListMessageMoveTasks::read(fields)?)
            }
            Action::ListQueueTags => Request::ListQueueTags(fields.queue()?),
            Action::ListQueues => Request::ListQueues(ListQueues::read(fields)?),
            Action::PurgeQueue => Request::PurgeQueue(fields.queue()?),
            Action::ReceiveMessage => Request::ReceiveMessage(ReceiveMessage::read(fields)?),
            Action::RemovePermission => Request::RemovePermission(RemovePermission::read(fields)?),
            Action::SendMessage => Request::SendMessage(SendMessage::read(fields)?),
            Action::SendMessageBatch => Request::SendMessageBatch(SendMessageBatch::read(fields)?),
            Action::SetQueueAttributes => {
                Request::SetQueueAttributes(SetQueueAttributes::read(fields)?)
            }
            Action::StartMessageMoveTask => {
                Request::StartMessageMoveTask(StartMessageMoveTask::read(fields)?)
            }
            Action::TagQueue => Request::TagQueue(TagQueue::read(fields)?),
            Action::UntagQueue => Request::UntagQueue(UntagQueue::read(fields)?),
        })
    }

    /// Which action it asks for.
    pub fn action(&self) -> Action {
        match self {
            Request::AddPermission(_) => Action::AddPermission,
            Request::CancelMessageMoveTask(_) => Action::CancelMessageMoveTask,
            Request::ChangeMessageVisibility(_) => Action::ChangeMessageVisibility,
            Request::ChangeMessageVisibilityBatch(_) => Action::ChangeMessageVisibilityBatch,
            Request::CreateQueue(_) => Action::CreateQueue,
            Request::DeleteMessage(_) => Action::DeleteMessage,
            Request::DeleteMessageBatch(_) => Action::DeleteMessageBatch,
            Request::DeleteQueue(_) => Action::DeleteQueue,
            Request::GetQueueAttributes(_) => Action::GetQueueAttributes,
            Request::GetQueueUrl(_) => Action::GetQueueUrl,
            Request::ListDeadLetterSourceQueues(_) => Action::ListDeadLetterSourceQueues,
            Request::ListMessageMoveTasks(_) => Action::ListMessageMoveTasks,
            Request::ListQueueTags(_) => Action::ListQueueTags,
            Request::ListQueues(_) => Action::ListQueues,
            Request::PurgeQueue(_) => Action::PurgeQueue,
            Request::ReceiveMessage(_) => Action::ReceiveMessage,
            Request::RemovePermission(_) => Action::RemovePermission,
            Request::SendMessage(_) => Action::SendMessage,
            Request::SendMessageBatch(_) => Action::SendMessageBatch,
            Request::SetQueueAttributes(_) => Action::SetQueueAttributes,
            Request::StartMessageMoveTask(_) => Action::StartMessageMoveTask,
            Request::TagQueue(_) => Action::TagQueue,
            Request::UntagQueue(_) => Action::UntagQueue,
        }
    }

    /// The queue that it is about, where it names one by its URL.
    pub fn queue(&self) -> Option<&QueueReference> {
        match self {
            Request::AddPermission(request) => Some(&request.queue),
            Request::ChangeMessageVisibility(request) => Some(&request.queue),
            Request::ChangeMessageVisibilityBatch(request) => Some(&request.queue),
            Request::DeleteMessage(request) => Some(&request.queue),
            Request::DeleteMessageBatch(request) => Some(&request.queue),
            Request::DeleteQueue(queue)
            | Request::ListQueueTags(queue)
            | Request::PurgeQueue(queue) => Some(queue),
            Request::GetQueueAttributes(request) => Some(&request.queue),
            Request::ListDeadLetterSourceQueues(request) => Some(&request.queue),
            Request::ReceiveMessage(request) => Some(&request.queue),
            Request::RemovePermission(request) => Some(&request.queue),
            Request::SendMessage(request) => Some(&request.queue),
            Request::SendMessageBatch(request) => Some(&request.queue),
            Request::SetQueueAttributes(request) => Some(&request.queue),
            Request::TagQueue(request) => Some(&request.queue),
            Request::UntagQueue(request) => Some(&request.queue),
            Request::CancelMessageMoveTask(_)
            | Request::CreateQueue(_)
            | Request::GetQueueUrl(_)
            | Request::ListMessageMoveTasks(_)
            | Request::ListQueues(_)
            | Request::StartMessageMoveTask(_) => None,
        }
    }
}

/// What an action that was carried out has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "AWS's names of its actions")]
pub enum Answer {
    AddPermission,
    CancelMessageMoveTask {
        /// How many messages were moved before it stopped.
        moved: u64,
    },
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch {
        /// The ids of the entries that were carried out.
        successful: Vec<String>,
        failed: Vec<BatchRefusal>,
    },
    CreateQueue {
        queue_url: String,
    },
    DeleteMessage,
    DeleteMessageBatch {
        /// The ids of the entries that were carried out.
        successful: Vec<String>,
        failed: Vec<BatchRefusal>,
    },
    DeleteQueue,
    /// See [`crate::QueueAttributes::shown`].
    GetQueueAttributes(BTreeMap<&'static str, String>),
    GetQueueUrl {
        queue_url: String,
    },
    ListDeadLetterSourceQueues(Page),
    ListMessageMoveTasks(Vec<MoveTask>),
    ListQueueTags(BTreeMap<String, String>),
    ListQueues(Page),
    PurgeQueue,
    ReceiveMessage(Vec<ReceivedMessage>),
    RemovePermission,
    SendMessage(Sent),
    SendMessageBatch {
        /// By the ids of the entries.
        successful: Vec<(String, Sent)>,
        failed: Vec<BatchRefusal>,
    },
    SetQueueAttributes,
    StartMessageMoveTask {
        task_handle: String,
    },
    TagQueue,
    UntagQueue,
}

impl Answer {
    /// Which action it answers.
    pub fn action(&self) -> Action {
        match self {
            Answer::AddPermission => Action::AddPermission,
            Answer::CancelMessageMoveTask { .. } => Action::CancelMessageMoveTask,
            Answer::ChangeMessageVisibility => Action::ChangeMessageVisibility,
            Answer::ChangeMessageVisibilityBatch { .. } => Action::ChangeMessageVisibilityBatch,
            Answer::CreateQueue { .. } => Action::CreateQueue,
            Answer::DeleteMessage => Action::DeleteMessage,
            Answer::DeleteMessageBatch { .. } => Action::DeleteMessageBatch,
            Answer::DeleteQueue => Action::DeleteQueue,
            Answer::GetQueueAttributes(_) => Action::GetQueueAttributes,
            Answer::GetQueueUrl { .. } => Action::GetQueueUrl,
            Answer::ListDeadLetterSourceQueues(_) => Action::ListDeadLetterSourceQueues,
            Answer::ListMessageMoveTasks(_) => Action::ListMessageMoveTasks,
            Answer::ListQueueTags(_) => Action::ListQueueTags,
            Answer::ListQueues(_) => Action::ListQueues,
            Answer::PurgeQueue => Action::PurgeQueue,
            Answer::ReceiveMessage(_) => Action::ReceiveMessage,
            Answer::RemovePermission => Action::RemovePermission,
            Answer::SendMessage(_) => Action::SendMessage,
            Answer::SendMessageBatch { .. } => Action::SendMessageBatch,
            Answer::SetQueueAttributes => Action::SetQueueAttributes,
            Answer::StartMessageMoveTask { .. } => Action::StartMessageMoveTask,
            Answer::TagQueue => Action::TagQueue,
            Answer::UntagQueue => Action::UntagQueue,
        }
    }

    /// Whether the action has a result at all; in XML those without one lack the element.
    pub(crate) fn has_result(&self) -> bool {
        !matches!(
            self,
            Answer::AddPermission
                | Answer::ChangeMessageVisibility
                | Answer::DeleteMessage
                | Answer::DeleteQueue
                | Answer::PurgeQueue
                | Answer::RemovePermission
                | Answer::SetQueueAttributes
                | Answer::TagQueue
                | Answer::UntagQueue
        )
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        match self {
            Answer::AddPermission
            | Answer::ChangeMessageVisibility
            | Answer::DeleteMessage
            | Answer::DeleteQueue
            | Answer::PurgeQueue
            | Answer::RemovePermission
            | Answer::SetQueueAttributes
            | Answer::TagQueue
            | Answer::UntagQueue => {}
            Answer::CancelMessageMoveTask { moved } => {
                writer.number("ApproximateNumberOfMessagesMoved", *moved);
            }
            Answer::ChangeMessageVisibilityBatch { successful, failed } => {
                let element = "ChangeMessageVisibilityBatchResultEntry";
                batch::write_ids(writer, element, successful);
                batch::write_failed(writer, failed);
            }
            Answer::DeleteMessageBatch { successful, failed } => {
                batch::write_ids(writer, "DeleteMessageBatchResultEntry", successful);
                batch::write_failed(writer, failed);
            }
            Answer::CreateQueue { queue_url } | Answer::GetQueueUrl { queue_url } => {
                writer.text("QueueUrl", queue_url);
            }
            Answer::GetQueueAttributes(attributes) if attributes.is_empty() => {}
            Answer::GetQueueAttributes(attributes) => {
                let pairs = attributes.iter().map(|(name, value)| (*name, value.as_str()));
                writer.map("Attributes", "Attribute", &NAME_VALUE, pairs);
            }
            Answer::ListDeadLetterSourceQueues(page) => page.write(writer, "queueUrls", true),
            Answer::ListQueues(page) => page.write(writer, "QueueUrls", false),
            Answer::ListMessageMoveTasks(tasks) => move_tasks::write(writer, tasks),
            Answer::ListQueueTags(tags) if tags.is_empty() => {}
            Answer::ListQueueTags(tags) => {
                let pairs = tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                writer.map("Tags", "Tag", &KEY_VALUE, pairs);
            }
            Answer::ReceiveMessage(messages) => receive_message::write(writer, messages),
            Answer::SendMessage(sent) => sent.write(writer),
            Answer::SendMessageBatch { successful, failed } => {
                let element = "SendMessageBatchResultEntry";
                writer.structures("Successful", element, successful, |writer, (id, sent)| {
                    writer.text("Id", id);
                    sent.write(writer);
                });
                batch::write_failed(writer, failed);
            }
            Answer::StartMessageMoveTask { task_handle } => writer.text("TaskHandle", task_handle),
        }
    }
}
