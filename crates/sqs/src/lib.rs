//! The protocol of Amazon SQS, API version 2012-11-05, without a queue behind it: bytes to typed
//! [`Request`]s and typed [`Answer`]s to bytes, in both encodings; AWS's limits and its words for
//! what breaks them; the MD5s that clients check; and signatures (SigV4, [`sigv4`]).
//!
//! ```text
//!   Incoming ──decode──▶ Request ──(the caller asks its queues)──▶ Answer or Error ──▶ HttpAnswer
//!                                                                      encode_… ──┘
//! ```
//!
//! It does no IO, reads no clock and knows no queue. Decoding checks whatever the request alone
//! decides; what depends on the queue's attributes, such as which parameters a FIFO queue takes, is
//! checked by [`SendMessage::check`] and its like; for what only the queue itself knows there are
//! [`refusals`]. The surprise: the same error has two names, one per encoding, and clients match on
//! either, in both (see [`ErrorKind`]).

mod action;
pub mod actions;
mod arn;
mod error;
mod hexadecimal;
mod limits;
mod md5_of;
mod message_attributes;
mod queue_attributes;
mod queue_name;
pub mod record_headers;
mod redrive;
pub mod refusals;
pub mod sigv4;
mod wire;

pub use action::Action;
pub use actions::{
    Answer, BatchEntry, BatchRefusal, ChangeMessageVisibility, ChangeMessageVisibilityBatch,
    CreateQueue, DeleteMessage, DeleteMessageBatch, MoveTask, NewMessage, ReceiveMessage,
    ReceivedMessage, Request, SendMessage, SendMessageBatch, Sent,
};
pub use arn::QueueArn;
pub use error::{Error, ErrorKind};
pub use md5_of::{md5_of_body, md5_of_message_attributes, md5_of_system_attributes};
pub use message_attributes::{
    AttributeFilter, AttributeValue, DataType, MessageAttribute, MessageAttributes,
    SystemAttribute, SystemAttributeFilter,
};
pub use queue_attributes::{
    DeduplicationScope, Fifo, FifoThroughputLimit, QueueAttribute, QueueAttributeChanges,
    QueueAttributes, QueueFacts,
};
pub use queue_name::{QueueName, QueueReference};
pub use redrive::{RedriveAllowPolicy, RedrivePermission, RedrivePolicy};
pub use wire::{Encoding, HttpAnswer, Incoming, decode, encode_answer, encode_error};
