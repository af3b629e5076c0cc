//! What a request may cost, and what happens at each bound. Constants, because no operator can
//! choose them better: whoever needs more speaks the Kafka protocol.

use std::time::Duration;

/// Most bytes of a request's body; beyond: `BODY_TOO_LARGE`.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most connections at once; beyond: `OVERLOADED`, and the connection is closed. A receiver that waits for a message
/// holds one all the time.
pub(crate) const CONNECTIONS_MAX: usize = 12_000;

/// Most bytes of a request's headers; beyond: `HEADERS_TOO_LARGE`.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Most headers of a request; beyond: `HEADERS_TOO_LARGE`.
pub(crate) const HEADERS_MAX: usize = 100;

/// Bytes and headers that the parser itself takes, so that our own answer comes first.
pub(crate) const PARSER_BYTES_MAX: usize = 32 * 1024;
pub(crate) const PARSER_HEADERS_MAX: usize = 512;

/// How long a connection may take for the head of a request, its idle time before it included;
/// beyond: the connection is closed.
pub(crate) const HEAD_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a small body may take to arrive; beyond: `REQUEST_TIMEOUT`.
pub(crate) const BODY_WAIT_MAX: Duration = Duration::from_secs(30);

/// The slowest rate at which a large body may arrive, in bytes per second.
pub(crate) const SLOWEST_BYTES_PER_S: usize = 64 * 1024;

/// A client that takes none of its answer for this long is gone.
pub(crate) const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// How long requests that are under way may take to end when the broker stops.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Most messages in one request; beyond: `BODY_TOO_LARGE`.
pub(crate) const MESSAGES_MAX: usize = 10_000;

/// Most messages or receipts in one request about a queue; beyond: `INVALID_JSON`.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 500;

/// Bytes of messages in the answer to one receive or peek, if it has more than one message.
pub(crate) const QUEUE_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The largest answer of another broker to a receive or peek: a message of the largest size, escaped.
pub(crate) const QUEUE_ANSWER_BYTES_MAX: usize = 100 * 1024 * 1024;

/// How long a receive may wait for messages.
pub(crate) const RECEIVE_WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a received message may be hidden from others by one receive or extension.
pub(crate) const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Most queues in one listing; the rest is behind `after`.
pub(crate) const LISTED_QUEUES_MAX: usize = 1_000;
/// Subscriptions of a queue besides its own.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 100;

/// Most record headers of one message; beyond: `INVALID_JSON`.
pub(crate) const RECORD_HEADERS_MAX: usize = 1_000;

/// Most offsets in one commit; beyond: `INVALID_JSON`.
pub(crate) const COMMITS_MAX: usize = 10_000;

/// Most topics in one listing; the rest is behind `after`.
pub(crate) const LISTED_TOPICS_MAX: usize = 1_000;

/// Most groups in one listing; the rest is behind `after`.
pub(crate) const LISTED_GROUPS_MAX: usize = 1_000;

/// Most partitions in which groups are looked at for one answer; the others are counted.
pub(crate) const LAGS_MAX: usize = 20_000;

/// Most topics with series of their own in `/metrics`; the others are only counted.
pub(crate) const METRIC_TOPICS_MAX: usize = 1_000;

/// Most partitions that `/metrics` looks at; the others are only counted.
pub(crate) const METRIC_PARTITIONS_MAX: usize = 5_000;

/// Most groups with series of their own in `/metrics`; the others only count in the totals.
pub(crate) const METRIC_GROUPS_MAX: usize = 1_000;

/// Most groups in partitions with series of their own in `/metrics`; the others are only counted.
pub(crate) const METRIC_LAGS_MAX: usize = 5_000;

/// What a read returns when it does not say, and the most it may ask for, in bytes of keys,
/// values and record headers.
pub(crate) const READ_BYTES_DEFAULT: usize = 1024 * 1024;
pub(crate) const READ_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest batch after decompression: a bomb ends here, whatever it declares.
pub(crate) const PLAIN_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Batches that are larger than this after decompression are decompressed one at a time.
pub(crate) const SMALL_PLAIN_BYTES_MAX: usize = 1024 * 1024;

/// How long a read may wait for records.
pub(crate) const READ_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a publish waits until its records are safe; beyond: `NOT_COMMITTED_IN_TIME`.
pub(crate) const COMMIT_WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a publish waits for another one of the same producer; beyond: `PRODUCER_BUSY`.
pub(crate) const PRODUCER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Bytes of bodies and answers in memory at once, over all connections.
pub(crate) const MEMORY_BYTES: usize = 256 * 1024 * 1024;

/// How long a request waits for its share of that memory; beyond: `OVERLOADED`.
pub(crate) const MEMORY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Reads that are decoded at once; the others wait.
pub(crate) const DECODES_MAX: usize = 4;

/// How long a body of `bytes` may take to arrive.
pub(crate) fn arrival_max(bytes: usize) -> Duration {
    BODY_WAIT_MAX.max(Duration::from_secs((bytes / SLOWEST_BYTES_PER_S) as u64))
}

const _: () = assert!(HEADER_BYTES_MAX < PARSER_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX <= MEMORY_BYTES);
const _: () = assert!(READ_BYTES_DEFAULT <= READ_BYTES_MAX);
