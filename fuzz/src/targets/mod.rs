//! The parsers of bytes that come from sockets and disks, and the broker behind them.

mod batches;
mod blobs;
mod broker;
mod directory;
mod folds;
mod frames;
mod http;
mod leftovers;
mod peers;
mod sqs;

use crate::target::Target;

/// All of them.
pub const ALL: &[Target] = &[
    frames::REQUESTS,
    frames::RESPONSES,
    batches::BATCHES,
    batches::DECOMPRESSION,
    batches::PRODUCED,
    blobs::BLOBS,
    folds::GROUPS,
    folds::PUBLISHERS,
    folds::METADATA,
    directory::DIRECTORY,
    leftovers::LEFTOVERS,
    http::HTTP,
    sqs::SQS,
    peers::PEERS,
    broker::BROKER,
];
