//! Work queues over Towpath's own HTTP API: a client, and a worker that stands on it.
//!
//! ```text
//!   QueueWorker    handlers, leases, a circuit breaker
//!       │
//!     Queue        send, receive, delete, extend, release, reject
//!       │
//!   HttpCluster    kept connections to any of several brokers
//! ```

mod batch;
mod client;
mod discover;
mod http;
mod message;
mod worker;

pub use client::{Queue, ReceiveOptions, Settled};
pub use http::{HttpCluster, HttpConfig};
pub use message::{OutgoingMessage, QueueMessage, SentMessage};
pub use worker::{
    BreakerConfig, BreakerState, HandlerError, QueueWorker, Work, WorkerConfig, WorkerHandle,
    WorkerStats,
};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
