//! What a caller is told when something does not work: a stable code, a sentence, and what to do.
//!
//! The codes are part of the API: `docs/http.md` and `/openapi.json` list them, and tests compare
//! the three. A code is never renamed; new ones may come.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// A stable code of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The body is not JSON, or not of the shape that the path takes.
    InvalidJson,
    /// The fields contradict each other, or one is missing.
    InvalidRequest,
    /// Something in the path or the query is not what it should be.
    InvalidParameter,
    /// A key, value or header is not in the encoding that its field names.
    InvalidEncoding,
    /// Not a topic's name.
    InvalidTopicName,
    /// A topic's configuration or number of partitions is not possible.
    InvalidConfig,
    /// The topic does not take such a message.
    InvalidMessage,
    /// Not a group's name, or a note that is too long.
    InvalidGroup,
    /// Not a `producer_id`.
    InvalidProducer,
    /// Not a receipt, or one of another queue.
    InvalidReceipt,
    /// The broker keeps this topic for itself.
    TopicInternal,
    /// `delete.topic.enable` is off.
    TopicDeletionDisabled,
    /// A web page of another origin may not change anything here.
    OriginNotAllowed,
    /// No such path.
    NotFound,
    /// No such topic.
    TopicNotFound,
    /// No such queue.
    QueueNotFound,
    /// No such task.
    TaskNotFound,
    /// The queue has no such subscription.
    SubscriptionNotFound,
    /// No such group.
    GroupNotFound,
    /// No such node.
    NodeNotFound,
    /// No such partition of the topic.
    PartitionNotFound,
    /// The path exists, the method on it does not.
    MethodNotAllowed,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The topic exists already.
    TopicExists,
    /// The topic is not worked as a queue.
    NotAQueue,
    /// The delivery that a receipt proves is over.
    ReceiptStale,
    /// The `sequence` is older than what is remembered of the producer.
    SequenceStale,
    /// The queue is emptied and then deleted, and takes no more messages.
    QueueGivenUp,
    /// Another task stands in the way.
    TaskActive,
    /// The task has ended.
    TaskOver,
    /// The group has members, and only they may commit.
    GroupActive,
    /// The node still leads or holds partitions.
    NodeNotEmpty,
    /// The node still runs, and was not drained.
    NodeLive,
    /// Nobody would be left to hold partitions.
    LastNode,
    /// The body, or the number of things in it, is larger than the limit.
    BodyTooLarge,
    /// The message is larger than the topic takes.
    MessageTooLarge,
    /// The body is compressed.
    EncodingNotSupported,
    /// There are no records at this offset.
    OffsetOutOfRange,
    /// A broker was asked for what another one leads; nothing has been done.
    Misdirected,
    /// The headers are larger, or more, than the limit.
    HeadersTooLarge,
    /// A limit of the cluster is reached, such as the number of topics.
    LimitReached,
    /// The queue holds as much as it may.
    QueueFull,
    /// The stored records are damaged; they are never served.
    RecordsDamaged,
    /// Something that was not foreseen.
    Internal,
    /// The data directory has failed.
    StorageFailed,
    /// The data directory has too little room for records.
    DiskFull,
    /// Too few replicas are in sync.
    NotEnoughReplicas,
    /// The partition or state is not served at the moment.
    Unavailable,
    /// Too much at once.
    Overloaded,
    /// Another request of the same producer is still under way.
    ProducerBusy,
    /// The broker stops.
    Stopping,
    /// Written, but not known to be safe in time.
    NotCommittedInTime,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 52] = [
        Code::InvalidJson,
        Code::InvalidRequest,
        Code::InvalidParameter,
        Code::InvalidEncoding,
        Code::InvalidTopicName,
        Code::InvalidConfig,
        Code::InvalidMessage,
        Code::InvalidGroup,
        Code::InvalidProducer,
        Code::InvalidReceipt,
        Code::TopicInternal,
        Code::TopicDeletionDisabled,
        Code::OriginNotAllowed,
        Code::NotFound,
        Code::TopicNotFound,
        Code::QueueNotFound,
        Code::TaskNotFound,
        Code::SubscriptionNotFound,
        Code::GroupNotFound,
        Code::NodeNotFound,
        Code::PartitionNotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::TopicExists,
        Code::NotAQueue,
        Code::ReceiptStale,
        Code::SequenceStale,
        Code::QueueGivenUp,
        Code::TaskActive,
        Code::TaskOver,
        Code::GroupActive,
        Code::NodeNotEmpty,
        Code::NodeLive,
        Code::LastNode,
        Code::BodyTooLarge,
        Code::MessageTooLarge,
        Code::EncodingNotSupported,
        Code::OffsetOutOfRange,
        Code::Misdirected,
        Code::HeadersTooLarge,
        Code::LimitReached,
        Code::QueueFull,
        Code::RecordsDamaged,
        Code::Internal,
        Code::StorageFailed,
        Code::DiskFull,
        Code::NotEnoughReplicas,
        Code::Unavailable,
        Code::Overloaded,
        Code::ProducerBusy,
        Code::Stopping,
        Code::NotCommittedInTime,
    ];

    /// As callers see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::InvalidJson => "INVALID_JSON",
            Code::InvalidRequest => "INVALID_REQUEST",
            Code::InvalidParameter => "INVALID_PARAMETER",
            Code::InvalidEncoding => "INVALID_ENCODING",
            Code::InvalidTopicName => "INVALID_TOPIC_NAME",
            Code::InvalidConfig => "INVALID_CONFIG",
            Code::InvalidMessage => "INVALID_MESSAGE",
            Code::InvalidGroup => "INVALID_GROUP",
            Code::InvalidProducer => "INVALID_PRODUCER",
            Code::InvalidReceipt => "INVALID_RECEIPT",
            Code::TopicInternal => "TOPIC_INTERNAL",
            Code::TopicDeletionDisabled => "TOPIC_DELETION_DISABLED",
            Code::OriginNotAllowed => "ORIGIN_NOT_ALLOWED",
            Code::NotFound => "NOT_FOUND",
            Code::TopicNotFound => "TOPIC_NOT_FOUND",
            Code::QueueNotFound => "QUEUE_NOT_FOUND",
            Code::TaskNotFound => "TASK_NOT_FOUND",
            Code::SubscriptionNotFound => "SUBSCRIPTION_NOT_FOUND",
            Code::GroupNotFound => "GROUP_NOT_FOUND",
            Code::NodeNotFound => "NODE_NOT_FOUND",
            Code::PartitionNotFound => "PARTITION_NOT_FOUND",
            Code::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Code::RequestTimeout => "REQUEST_TIMEOUT",
            Code::TopicExists => "TOPIC_EXISTS",
            Code::NotAQueue => "NOT_A_QUEUE",
            Code::ReceiptStale => "RECEIPT_STALE",
            Code::SequenceStale => "SEQUENCE_STALE",
            Code::QueueGivenUp => "QUEUE_GIVEN_UP",
            Code::TaskActive => "TASK_ACTIVE",
            Code::TaskOver => "TASK_OVER",
            Code::GroupActive => "GROUP_ACTIVE",
            Code::NodeNotEmpty => "NODE_NOT_EMPTY",
            Code::NodeLive => "NODE_LIVE",
            Code::LastNode => "LAST_NODE",
            Code::BodyTooLarge => "BODY_TOO_LARGE",
            Code::MessageTooLarge => "MESSAGE_TOO_LARGE",
            Code::EncodingNotSupported => "ENCODING_NOT_SUPPORTED",
            Code::OffsetOutOfRange => "OFFSET_OUT_OF_RANGE",
            Code::Misdirected => "MISDIRECTED",
            Code::HeadersTooLarge => "HEADERS_TOO_LARGE",
            Code::LimitReached => "LIMIT_REACHED",
            Code::QueueFull => "QUEUE_FULL",
            Code::RecordsDamaged => "RECORDS_DAMAGED",
            Code::Internal => "INTERNAL",
            Code::StorageFailed => "STORAGE_FAILED",
            Code::DiskFull => "DISK_FULL",
            Code::NotEnoughReplicas => "NOT_ENOUGH_REPLICAS",
            Code::Unavailable => "UNAVAILABLE",
            Code::Overloaded => "OVERLOADED",
            Code::ProducerBusy => "PRODUCER_BUSY",
            Code::Stopping => "STOPPING",
            Code::NotCommittedInTime => "NOT_COMMITTED_IN_TIME",
        }
    }

    /// The HTTP status that goes with it.
    #[must_use]
    pub fn status(self) -> StatusCode {
        let status = match self {
            Code::InvalidJson
            | Code::InvalidRequest
            | Code::InvalidParameter
            | Code::InvalidEncoding
            | Code::InvalidTopicName
            | Code::InvalidConfig
            | Code::InvalidMessage
            | Code::InvalidGroup
            | Code::InvalidProducer
            | Code::InvalidReceipt => 400,
            Code::TopicInternal | Code::TopicDeletionDisabled | Code::OriginNotAllowed => 403,
            Code::NotFound
            | Code::TopicNotFound
            | Code::QueueNotFound
            | Code::TaskNotFound
            | Code::SubscriptionNotFound
            | Code::GroupNotFound
            | Code::NodeNotFound
            | Code::PartitionNotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::RequestTimeout => 408,
            Code::TopicExists
            | Code::NotAQueue
            | Code::ReceiptStale
            | Code::SequenceStale
            | Code::QueueGivenUp
            | Code::TaskActive
            | Code::TaskOver
            | Code::GroupActive
            | Code::NodeNotEmpty
            | Code::NodeLive
            | Code::LastNode => 409,
            Code::BodyTooLarge | Code::MessageTooLarge => 413,
            Code::EncodingNotSupported => 415,
            Code::OffsetOutOfRange => 416,
            Code::Misdirected => 421,
            Code::HeadersTooLarge => 431,
            Code::LimitReached => 422,
            Code::QueueFull => 429,
            Code::RecordsDamaged | Code::Internal => 500,
            Code::StorageFailed
            | Code::DiskFull
            | Code::NotEnoughReplicas
            | Code::Unavailable
            | Code::Overloaded
            | Code::ProducerBusy
            | Code::Stopping => 503,
            Code::NotCommittedInTime => 504,
        };
        StatusCode::from_u16(status).expect("each is a status of HTTP")
    }

    /// Whether the same request may work a little later.
    fn is_passing(self) -> bool {
        matches!(self.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
    }
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ApiError {
    #[serde(serialize_with = "as_text")]
    pub(crate) code: Code,
    /// What is wrong, in terms of the request.
    pub(crate) message: String,
    /// What to do about it, where we know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) help: Option<Cow<'static, str>>,
    /// For offsets out of range: what there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<OffsetRange>,
}

/// The offsets that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct OffsetRange {
    pub(crate) log_start_offset: i64,
    pub(crate) high_watermark: i64,
}

fn as_text<S: serde::Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.as_str())
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> ApiError {
        ApiError { code, message: message.into(), help: None, range: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<Cow<'static, str>>) -> ApiError {
        self.help = Some(help.into());
        self
    }

    /// Says where in the request it is wrong, such as `messages[3]`.
    pub(crate) fn at(mut self, place: &str) -> ApiError {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The body of the answer.
    pub(crate) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a ApiError,
        }
        serde_json::to_string(&Body { error: self }).expect("texts and numbers are JSON")
    }
}

/// An error as another broker tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Failed {
    code: String,
    message: String,
    help: Option<String>,
}

impl Failed {
    pub(crate) fn into_error(self) -> ApiError {
        let code = Code::ALL.into_iter().find(|code| code.as_str() == self.code);
        let error = ApiError::new(code.unwrap_or(Code::Internal), self.message);
        match self.help {
            Some(help) => error.with_help(help),
            None => error,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        let mut body = self.to_json();
        body.push('\n');
        let mut response =
            (self.code.status(), [(header::CONTENT_TYPE, json)], body).into_response();
        if self.code.is_passing() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.code == Code::RequestTimeout || self.code == Code::BodyTooLarge {
            // What is left of the request is not read.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_name_and_an_error_status() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| 400 <= code.status().as_u16()));
    }

    #[test]
    fn an_error_is_one_json_object() {
        let error = ApiError::new(Code::TopicNotFound, "topic \"a\" does not exist");
        let help = error.clone().with_help("create it");
        assert_eq!(
            error.to_json(),
            r#"{"error":{"code":"TOPIC_NOT_FOUND","message":"topic \"a\" does not exist"}}"#
        );
        assert!(help.to_json().ends_with(r#","help":"create it"}}"#));
    }
}
