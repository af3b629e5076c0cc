//! Refusals as SQS spells them: one kind, two names, a status and a text.

use std::borrow::Cow;

/// A refusal to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?}: {message}")]
pub struct Error {
    kind: ErrorKind,
    message: Cow<'static, str>,
}

impl Error {
    /// A refusal in these words.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        Error { kind, message: message.into() }
    }

    /// Which error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Its text, as clients get it in JSON.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn invalid_parameter(message: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::InvalidParameterValue, message)
    }

    /// AWS's usual sentence about a value.
    pub(crate) fn invalid_value(
        value: impl std::fmt::Display,
        parameter: &str,
        reason: &str,
    ) -> Error {
        Error::invalid_parameter(format!(
            "Value {value} for parameter {parameter} is invalid. Reason: {reason}"
        ))
    }

    pub(crate) fn missing(parameter: &str) -> Error {
        let message = format!("The request must contain the parameter {parameter}.");
        Error::new(ErrorKind::MissingRequiredParameter, message)
    }

    pub(crate) fn not_for_this_queue_type(value: impl std::fmt::Display, parameter: &str) -> Error {
        let reason = "The request include parameter that is not valid for this queue type.";
        Error::invalid_value(value, parameter, reason)
    }
}

/// Which error: of the API's model, the two that it uses without modelling them, and those that all
/// AWS services share.
///
/// Every one has two names: that of its *shape*, which JSON bodies carry (`__type`), and the *code*
/// from the time of the Query encoding, which XML bodies carry, and JSON answers in the header
/// `x-amzn-query-error`. SDKs since November 2023 report the one, older ones and boto3 the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "AWS's names")]
pub enum ErrorKind {
    AccessDenied,
    BatchEntryIdsNotDistinct,
    BatchRequestTooLong,
    EmptyBatchRequest,
    ExpiredToken,
    IncompleteSignature,
    InternalError,
    InvalidAction,
    InvalidAddress,
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidBatchEntryId,
    InvalidClientTokenId,
    InvalidIdFormat,
    InvalidMessageContents,
    InvalidParameterValue,
    InvalidSecurity,
    MalformedInput,
    MessageNotInflight,
    MissingAction,
    MissingAuthenticationToken,
    MissingRequiredParameter,
    OverLimit,
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
    ReceiptHandleIsInvalid,
    RequestExpired,
    RequestThrottled,
    ResourceNotFound,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    Throttling,
    TooManyEntriesInBatchRequest,
    UnsupportedOperation,
}

/// Shapes of the API's own model.
const MODEL: &str = "com.amazonaws.sqs#";
/// Shapes that AWS's framework brings.
const FRAMEWORK: &str = "com.amazon.coral.service#";
/// What most of the legacy codes begin with.
const LEGACY: &str = "AWS.SimpleQueueService.";

struct Row {
    namespace: &'static str,
    shape: &'static str,
    /// Before `code`, or nothing.
    prefix: &'static str,
    code: &'static str,
    status: u16,
}

const fn own(shape: &'static str, status: u16) -> Row {
    Row { namespace: MODEL, shape, prefix: "", code: shape, status }
}

const fn legacy(shape: &'static str, code: &'static str, status: u16) -> Row {
    Row { namespace: MODEL, shape, prefix: LEGACY, code, status }
}

const fn common(shape: &'static str, code: &'static str, status: u16) -> Row {
    Row { namespace: FRAMEWORK, shape, prefix: "", code, status }
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [ErrorKind; 36] = [
        ErrorKind::AccessDenied,
        ErrorKind::BatchEntryIdsNotDistinct,
        ErrorKind::BatchRequestTooLong,
        ErrorKind::EmptyBatchRequest,
        ErrorKind::ExpiredToken,
        ErrorKind::IncompleteSignature,
        ErrorKind::InternalError,
        ErrorKind::InvalidAction,
        ErrorKind::InvalidAddress,
        ErrorKind::InvalidAttributeName,
        ErrorKind::InvalidAttributeValue,
        ErrorKind::InvalidBatchEntryId,
        ErrorKind::InvalidClientTokenId,
        ErrorKind::InvalidIdFormat,
        ErrorKind::InvalidMessageContents,
        ErrorKind::InvalidParameterValue,
        ErrorKind::InvalidSecurity,
        ErrorKind::MalformedInput,
        ErrorKind::MessageNotInflight,
        ErrorKind::MissingAction,
        ErrorKind::MissingAuthenticationToken,
        ErrorKind::MissingRequiredParameter,
        ErrorKind::OverLimit,
        ErrorKind::PurgeQueueInProgress,
        ErrorKind::QueueDeletedRecently,
        ErrorKind::QueueDoesNotExist,
        ErrorKind::QueueNameExists,
        ErrorKind::ReceiptHandleIsInvalid,
        ErrorKind::RequestExpired,
        ErrorKind::RequestThrottled,
        ErrorKind::ResourceNotFound,
        ErrorKind::ServiceUnavailable,
        ErrorKind::SignatureDoesNotMatch,
        ErrorKind::Throttling,
        ErrorKind::TooManyEntriesInBatchRequest,
        ErrorKind::UnsupportedOperation,
    ];

    /// The name of its shape, without a namespace: `QueueDoesNotExist`.
    pub fn shape(self) -> &'static str {
        self.row().shape
    }

    /// What stands in `__type`: `com.amazonaws.sqs#QueueDoesNotExist`.
    pub fn qualified_shape(self) -> String {
        let row = self.row();
        [row.namespace, row.shape].concat()
    }

    /// The code of the Query encoding: `AWS.SimpleQueueService.NonExistentQueue`. It is also what
    /// entries of a batch fail with, in both encodings.
    pub fn code(self) -> String {
        let row = self.row();
        [row.prefix, row.code].concat()
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        self.row().status
    }

    /// Whether the client is to blame, as opposed to us: `Sender` or `Receiver`.
    pub fn is_senders_fault(self) -> bool {
        self.row().status < 500
    }

    fn row(self) -> Row {
        match self {
            ErrorKind::QueueDoesNotExist => legacy("QueueDoesNotExist", "NonExistentQueue", 400),
            ErrorKind::QueueNameExists => {
                Row { code: "QueueAlreadyExists", ..own("QueueNameExists", 400) }
            }
            ErrorKind::QueueDeletedRecently => {
                legacy("QueueDeletedRecently", "QueueDeletedRecently", 400)
            }
            ErrorKind::PurgeQueueInProgress => {
                legacy("PurgeQueueInProgress", "PurgeQueueInProgress", 403)
            }
            ErrorKind::MessageNotInflight => {
                legacy("MessageNotInflight", "MessageNotInflight", 400)
            }
            ErrorKind::BatchEntryIdsNotDistinct => {
                legacy("BatchEntryIdsNotDistinct", "BatchEntryIdsNotDistinct", 400)
            }
            ErrorKind::BatchRequestTooLong => {
                legacy("BatchRequestTooLong", "BatchRequestTooLong", 400)
            }
            ErrorKind::EmptyBatchRequest => legacy("EmptyBatchRequest", "EmptyBatchRequest", 400),
            ErrorKind::InvalidBatchEntryId => {
                legacy("InvalidBatchEntryId", "InvalidBatchEntryId", 400)
            }
            ErrorKind::TooManyEntriesInBatchRequest => {
                legacy("TooManyEntriesInBatchRequest", "TooManyEntriesInBatchRequest", 400)
            }
            ErrorKind::UnsupportedOperation => {
                legacy("UnsupportedOperation", "UnsupportedOperation", 400)
            }
            ErrorKind::OverLimit => own("OverLimit", 403),
            ErrorKind::RequestThrottled => own("RequestThrottled", 403),
            ErrorKind::ResourceNotFound => own("ResourceNotFoundException", 404),
            ErrorKind::InvalidAttributeName => own("InvalidAttributeName", 400),
            ErrorKind::InvalidAttributeValue => own("InvalidAttributeValue", 400),
            ErrorKind::InvalidMessageContents => own("InvalidMessageContents", 400),
            ErrorKind::InvalidIdFormat => own("InvalidIdFormat", 400),
            ErrorKind::ReceiptHandleIsInvalid => own("ReceiptHandleIsInvalid", 400),
            ErrorKind::InvalidAddress => own("InvalidAddress", 400),
            ErrorKind::InvalidSecurity => own("InvalidSecurity", 400),
            ErrorKind::InvalidParameterValue => {
                common("InvalidParameterValueException", "InvalidParameterValue", 400)
            }
            ErrorKind::MissingRequiredParameter => {
                common("MissingRequiredParameterException", "MissingParameter", 400)
            }
            ErrorKind::MalformedInput => common("SerializationException", "MalformedInput", 400),
            ErrorKind::AccessDenied => common("AccessDeniedException", "AccessDenied", 403),
            ErrorKind::ExpiredToken => common("ExpiredTokenException", "ExpiredToken", 403),
            ErrorKind::InvalidClientTokenId => {
                common("InvalidClientTokenId", "InvalidClientTokenId", 403)
            }
            ErrorKind::SignatureDoesNotMatch => {
                common("SignatureDoesNotMatch", "SignatureDoesNotMatch", 403)
            }
            ErrorKind::MissingAuthenticationToken => {
                common("MissingAuthenticationToken", "MissingAuthenticationToken", 403)
            }
            ErrorKind::IncompleteSignature => {
                common("IncompleteSignature", "IncompleteSignature", 400)
            }
            ErrorKind::RequestExpired => common("RequestExpired", "RequestExpired", 400),
            ErrorKind::InvalidAction => common("InvalidAction", "InvalidAction", 400),
            ErrorKind::MissingAction => common("MissingAction", "MissingAction", 400),
            ErrorKind::Throttling => common("ThrottlingException", "Throttling", 400),
            ErrorKind::ServiceUnavailable => {
                common("ServiceUnavailable", "ServiceUnavailable", 503)
            }
            ErrorKind::InternalError => common("InternalFailure", "InternalError", 500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_are_those_of_the_service_models() {
        let names = |kind: ErrorKind| (kind.qualified_shape(), kind.code(), kind.status());
        let row = |shape: &str, code: &str, status| (shape.to_owned(), code.to_owned(), status);
        assert_eq!(
            names(ErrorKind::QueueDoesNotExist),
            row(
                "com.amazonaws.sqs#QueueDoesNotExist",
                "AWS.SimpleQueueService.NonExistentQueue",
                400
            )
        );
        assert_eq!(
            names(ErrorKind::QueueNameExists),
            row("com.amazonaws.sqs#QueueNameExists", "QueueAlreadyExists", 400)
        );
        assert_eq!(
            names(ErrorKind::PurgeQueueInProgress),
            row(
                "com.amazonaws.sqs#PurgeQueueInProgress",
                "AWS.SimpleQueueService.PurgeQueueInProgress",
                403
            )
        );
        assert_eq!(
            names(ErrorKind::ResourceNotFound),
            row("com.amazonaws.sqs#ResourceNotFoundException", "ResourceNotFoundException", 404)
        );
        assert_eq!(
            names(ErrorKind::InvalidParameterValue),
            row(
                "com.amazon.coral.service#InvalidParameterValueException",
                "InvalidParameterValue",
                400
            )
        );
        assert_eq!(
            names(ErrorKind::MissingRequiredParameter),
            row(
                "com.amazon.coral.service#MissingRequiredParameterException",
                "MissingParameter",
                400
            )
        );
    }

    #[test]
    fn no_two_kinds_share_a_name() {
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            for other in &ErrorKind::ALL[..index] {
                assert_ne!(kind.shape(), other.shape());
                assert_ne!(kind.code(), other.code());
            }
        }
    }
}
