//! The HTTP API over real sockets, in front of a broker in this process.

mod api;
mod lag;
mod manners;
mod metrics;
mod nodes;
mod open_metrics;
mod patience;
mod queue_fairness;
mod queue_figures;
mod queue_limits;
mod queues;
mod sigv4;
mod sqs;
mod sqs_access;
mod sqs_fifo;
mod sqs_move_tasks;
mod sqs_support;
mod subscriptions;
mod support;
mod tasks;
