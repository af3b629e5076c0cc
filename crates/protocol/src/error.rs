//! Why bytes are not a message, or a message cannot be bytes.
//!
//! Errors name the field as `Message.field` or `Struct.field` and the position in the input, so
//! that a log line is enough to see what a client sent wrongly.

use thiserror::Error;

/// The input is not the message it claims to be. Positions count bytes from the start of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The input ends inside the field.
    #[error("{field} at byte {position} needs {needed} bytes, {available} are left")]
    UnexpectedEnd {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        position: usize,
        /// Bytes it needs.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// The field is null in a version that does not allow it.
    #[error("{field} at byte {position} is null, which this version does not allow")]
    NullNotAllowed {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        position: usize,
    },
    /// A length below −1.
    #[error("{field} at byte {position} has the length {length}")]
    NegativeLength {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        position: usize,
        /// The length given.
        length: i32,
    },
    /// More elements or tagged fields than we take, or than the remaining bytes can hold.
    #[error("{field} at byte {position} claims {count} elements, at most {limit} are possible")]
    TooManyElements {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        position: usize,
        /// How many it claims.
        count: usize,
        /// How many there can be.
        limit: usize,
    },
    /// The elements would take more memory than the size of the input justifies.
    #[error("{field} at byte {position} would take {wanted} bytes of memory, {left} are left")]
    TooLarge {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        position: usize,
        /// Memory the elements would take, in bytes.
        wanted: usize,
        /// Memory that this input may still take, in bytes.
        left: usize,
    },
    /// A string longer than the protocol allows, whatever its length prefix can say.
    #[error("{field} at byte {position} has {len} bytes, at most {limit} are allowed")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        position: usize,
        /// Its length in bytes.
        len: usize,
        /// The longest allowed, in bytes.
        limit: usize,
    },
    /// A string that is not UTF-8.
    #[error("{field} at byte {position} is not UTF-8")]
    InvalidUtf8 {
        /// Which field.
        field: &'static str,
        /// Where its text begins.
        position: usize,
    },
    /// A variable-length number of more than five bytes or 32 bits.
    #[error("{field} at byte {position} is a variable-length number beyond 32 bits")]
    VarintTooLong {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        position: usize,
    },
    /// A tagged field whose content is shorter than the size it gave.
    #[error("tagged {field} ends at byte {position}, {unread} bytes before its stated size")]
    TagSize {
        /// Which struct.
        field: &'static str,
        /// Where its content ended.
        position: usize,
        /// How many bytes of it were left.
        unread: usize,
    },
    /// The message is complete, the input is not.
    #[error("{count} bytes follow the end of the message at byte {position}")]
    TrailingBytes {
        /// Where the message ends.
        position: usize,
        /// How many bytes follow.
        count: usize,
    },
    /// A version that the message does not have.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// Which message.
        message: &'static str,
        /// Which version.
        version: i16,
    },
    /// An API that we do not know; its header cannot be read.
    #[error("unknown API key {key}")]
    UnknownApi {
        /// The key in the header.
        key: i16,
    },
}

/// The message cannot be written in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The field says something that this version has no place for.
    #[error("{field} is set, but version {version} does not have it")]
    FieldNotInVersion {
        /// Which field.
        field: &'static str,
        /// Which version.
        version: i16,
    },
    /// The field is null in a version that does not allow it.
    #[error("{field} is null, which this version does not allow")]
    NullNotAllowed {
        /// Which field.
        field: &'static str,
    },
    /// Longer than its length prefix can say.
    #[error("{field} has {len} bytes or elements, at most {limit} can be written")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// Its length.
        len: usize,
        /// The longest that can be written.
        limit: usize,
    },
    /// A frame of more than 2 GiB.
    #[error("a frame of {len} bytes is beyond the protocol's 2147483647")]
    FrameTooLarge {
        /// Its length without the prefix.
        len: usize,
    },
    /// A file region inside something that is not a frame.
    #[error("{field} refers to a file region, which only a frame can carry")]
    RegionNotAllowed {
        /// Which field.
        field: &'static str,
    },
    /// A version that the message does not have.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// Which message.
        message: &'static str,
        /// Which version.
        version: i16,
    },
}
