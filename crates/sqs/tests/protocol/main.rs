//! Bytes in and bytes out, as clients see them.

mod answers;
mod captured;
mod encodings;
mod refusals;
mod signatures;
mod support;
