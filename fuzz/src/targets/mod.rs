//! The parsers of bytes that come from sockets and disks.

mod batches;
mod blobs;
mod directory;
mod folds;
mod frames;
mod http;

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
    http::HTTP,
];
