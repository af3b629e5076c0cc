//! AWS's limits, as its documentation and its service model of SQS say them.

use std::ops::RangeInclusive;

/// Bytes of a message, and of all messages of a batch: body, attribute names, types and values.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1_048_576;
pub(crate) const BATCH_ENTRIES_MAX: usize = 10;
pub(crate) const BATCH_ENTRY_ID_CHARS_MAX: usize = 80;
pub(crate) const MESSAGE_ATTRIBUTES_MAX: usize = 10;
/// Bytes of a message attribute's name, and of its type.
pub(crate) const ATTRIBUTE_NAME_BYTES_MAX: usize = 256;
pub(crate) const QUEUE_NAME_CHARS_MAX: usize = 80;
pub(crate) const LABEL_CHARS_MAX: usize = 80;
/// Of MessageGroupId, MessageDeduplicationId and ReceiveRequestAttemptId.
pub(crate) const FIFO_ID_CHARS_MAX: usize = 128;
pub(crate) const TAGS_MAX: usize = 50;
pub(crate) const TAG_KEY_CHARS_MAX: usize = 128;
pub(crate) const TAG_VALUE_CHARS_MAX: usize = 256;
pub(crate) const PERMISSION_ACTIONS_MAX: usize = 7;
pub(crate) const SOURCE_QUEUES_MAX: usize = 10;

pub(crate) const RECEIVED_MESSAGES: RangeInclusive<i32> = 1..=10;
pub(crate) const LISTED_QUEUES: RangeInclusive<i32> = 1..=1000;
pub(crate) const LISTED_MOVE_TASKS: RangeInclusive<i32> = 1..=10;
pub(crate) const MOVED_MESSAGES_PER_SECOND: RangeInclusive<i32> = 1..=500;
pub(crate) const RECEIVES_BEFORE_DEAD: RangeInclusive<u64> = 1..=1000;

pub(crate) const WAIT_SECONDS: RangeInclusive<i32> = 0..=20;
pub(crate) const VISIBILITY_SECONDS: RangeInclusive<i32> = 0..=43_200;
pub(crate) const DELAY_SECONDS: RangeInclusive<i32> = 0..=900;
pub(crate) const RETENTION_SECONDS: RangeInclusive<i32> = 60..=1_209_600;
pub(crate) const KMS_REUSE_SECONDS: RangeInclusive<i32> = 60..=86_400;
pub(crate) const MAXIMUM_MESSAGE_BYTES: RangeInclusive<i32> = 1024..=1_048_576;
