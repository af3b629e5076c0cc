//! What our own services refuse, as SQS calls it.

use towpath_sqs::refusals::queue_does_not_exist;
use towpath_sqs::{Error, ErrorKind};

use crate::api_error::{ApiError, Code};

/// A refusal of ours that has no case of its own.
pub(super) fn of(error: ApiError) -> Error {
    let kind = match error.code {
        Code::QueueNotFound
        | Code::NotAQueue
        | Code::TopicNotFound
        | Code::InvalidTopicName
        // It is about to be so.
        | Code::QueueGivenUp => return queue_does_not_exist(),
        Code::InvalidJson
        | Code::InvalidEncoding
        | Code::EncodingNotSupported
        | Code::RequestTimeout
        | Code::HeadersTooLarge
        | Code::BodyTooLarge => ErrorKind::MalformedInput,
        Code::LimitReached | Code::QueueFull => ErrorKind::OverLimit,
        Code::OriginNotAllowed | Code::TopicDeletionDisabled | Code::TopicInternal => {
            ErrorKind::AccessDenied
        }
        // The same may work in a moment, and SDKs try it again by themselves.
        Code::Misdirected
        | Code::NotEnoughReplicas
        | Code::Unavailable
        | Code::Overloaded
        | Code::ProducerBusy
        | Code::Stopping
        | Code::StorageFailed
        | Code::DiskFull
        | Code::NotCommittedInTime => ErrorKind::ServiceUnavailable,
        Code::RecordsDamaged | Code::Internal => ErrorKind::InternalError,
        _ => ErrorKind::InvalidParameterValue,
    };
    Error::new(kind, error.message)
}

/// A request that cannot be read.
pub(super) fn malformed(message: &'static str) -> Error {
    Error::new(ErrorKind::MalformedInput, message)
}

/// The broker has not come to its cluster yet.
pub(super) fn starting() -> Error {
    Error::new(
        ErrorKind::ServiceUnavailable,
        "The server is starting: it has not come to its cluster yet. Try again.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_is_not() {
        let kind = |code| of(ApiError::new(code, "")).kind();
        assert_eq!(kind(Code::QueueNotFound), ErrorKind::QueueDoesNotExist);
        for code in Code::ALL {
            let is_passing = code.status().as_u16() == 503 || code == Code::Misdirected;
            if is_passing {
                assert_eq!(kind(code), ErrorKind::ServiceUnavailable, "{code:?}");
            }
        }
        assert_eq!(kind(Code::InvalidJson), ErrorKind::MalformedInput);
    }
}
