//! AWS's words for what only the queue, or its keeper, can know.

use crate::error::{Error, ErrorKind};
use crate::queue_attributes::QueueAttribute;
use crate::queue_name::QueueName;

/// The queue that the request names is not there. In the Query encoding the text ends in "for this
/// wsdl version."
pub fn queue_does_not_exist() -> Error {
    Error::new(ErrorKind::QueueDoesNotExist, "The specified queue does not exist.")
}

/// CreateQueue found a queue whose `attribute` has another value than was asked for.
pub fn queue_exists(attribute: QueueAttribute) -> Error {
    Error::new(
        ErrorKind::QueueNameExists,
        format!(
            "A queue already exists with the same name and a different value for attribute {}",
            attribute.name()
        ),
    )
}

/// A queue of this name was deleted less than 60 seconds ago.
pub fn queue_deleted_recently() -> Error {
    Error::new(
        ErrorKind::QueueDeletedRecently,
        "You must wait 60 seconds after deleting a queue before you can create another with the \
         same name.",
    )
}

/// The queue was purged less than 60 seconds ago.
pub fn purge_in_progress(queue: &QueueName) -> Error {
    Error::new(
        ErrorKind::PurgeQueueInProgress,
        format!("Only one PurgeQueue operation on {queue} is allowed every 60 seconds."),
    )
}

/// The receipt handle is none of ours, or of another queue.
pub fn receipt_handle_is_invalid(handle: &str) -> Error {
    Error::new(
        ErrorKind::ReceiptHandleIsInvalid,
        format!("The input receipt handle \"{handle}\" is not a valid receipt handle."),
    )
}

/// DeleteMessage on a FIFO queue after the visibility timeout.
pub fn receipt_handle_has_expired(handle: &str) -> Error {
    Error::invalid_value(handle, "ReceiptHandle", "The receipt handle has expired.")
}

/// ChangeMessageVisibility of a message that is deleted, or visible again.
pub fn message_is_not_in_flight(handle: &str) -> Error {
    Error::invalid_value(
        handle,
        "ReceiptHandle",
        "Message does not exist or is not available for visibility timeout change.",
    )
}

/// The message would be hidden for more than 12 hours since it was received.
pub fn visibility_beyond_limit(seconds: u64) -> Error {
    Error::invalid_value(
        seconds,
        "VisibilityTimeout",
        "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
    )
}

/// So many messages of a standard queue are in flight that no more are given out.
pub fn too_many_in_flight() -> Error {
    Error::new(ErrorKind::OverLimit, "Too many messages in flight")
}

/// RedrivePolicy names a queue that is not there. `policy` is its text as it was sent.
pub fn dead_letter_target_does_not_exist(policy: &str) -> Error {
    Error::invalid_value(policy, "RedrivePolicy", "Dead letter target does not exist.")
}

/// RedrivePolicy names a queue of the other kind (FIFO or standard).
pub fn dead_letter_target_of_other_kind(policy: &str) -> Error {
    let reason = "Dead-letter queue must be same type of queue as the source.";
    Error::invalid_value(policy, "RedrivePolicy", reason)
}

/// The dead-letter queue's RedriveAllowPolicy does not allow this source.
pub fn dead_letter_target_not_allowed(policy: &str) -> Error {
    let reason = "Access to the dead-letter queue is denied by its RedriveAllowPolicy.";
    Error::invalid_value(policy, "RedrivePolicy", reason)
}

/// A queue would have more than 50 tags.
pub fn too_many_tags(queue: &QueueName) -> Error {
    Error::invalid_parameter(format!("Too many tags added for queue {queue}."))
}

/// A NextToken that this server has not given out.
pub fn invalid_next_token() -> Error {
    Error::invalid_parameter("Invalid or expired next token.")
}

/// AddPermission with a label that the policy has.
pub fn label_exists(label: &str) -> Error {
    Error::invalid_value(label, "Label", "Already exists.")
}

/// RemovePermission with a label that the policy lacks.
pub fn label_does_not_exist(label: &str) -> Error {
    Error::invalid_value(label, "Label", "can't find label.")
}

/// A move task of a queue that is nobody's dead-letter queue.
pub fn source_is_no_dead_letter_queue() -> Error {
    Error::invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
}

/// A move task of a queue that has one running.
pub fn move_task_is_running() -> Error {
    Error::invalid_parameter(
        "There is already a task running. Only one active task is allowed for a source queue arn \
         at a given time.",
    )
}

/// The queue of a move task is not there; `parameter` is SourceArn or DestinationArn.
pub fn move_task_queue_does_not_exist(parameter: &str) -> Error {
    Error::new(
        ErrorKind::ResourceNotFound,
        format!("The resource that you specified for the {parameter} parameter doesn't exist."),
    )
}

/// CancelMessageMoveTask of a task that is not there, or is not running.
pub fn move_task_does_not_exist() -> Error {
    Error::new(ErrorKind::ResourceNotFound, "Task does not exist.")
}

/// CancelMessageMoveTask with a handle that is none.
pub fn task_handle_is_invalid() -> Error {
    Error::invalid_parameter("Value for parameter TaskHandle is invalid.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_clients_match_on() {
        let queue = QueueName::new("jobs").unwrap();
        assert_eq!(
            purge_in_progress(&queue).message(),
            "Only one PurgeQueue operation on jobs is allowed every 60 seconds."
        );
        assert_eq!(
            queue_exists(QueueAttribute::DelaySeconds).message(),
            "A queue already exists with the same name and a different value for attribute \
             DelaySeconds"
        );
        assert_eq!(
            receipt_handle_has_expired("h").message(),
            "Value h for parameter ReceiptHandle is invalid. Reason: The receipt handle has \
             expired."
        );
        assert_eq!(
            message_is_not_in_flight("h").message(),
            "Value h for parameter ReceiptHandle is invalid. Reason: Message does not exist or is \
             not available for visibility timeout change."
        );
        assert_eq!(
            receipt_handle_is_invalid("h").message(),
            "The input receipt handle \"h\" is not a valid receipt handle."
        );
        assert_eq!(
            move_task_queue_does_not_exist("SourceArn").message(),
            "The resource that you specified for the SourceArn parameter doesn't exist."
        );
    }
}
