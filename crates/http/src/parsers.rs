//! The parsers of what callers send, by themselves: for those who feed them with what no caller sends.

use axum::http::Uri;

use crate::api_error::{ApiError, Code};
use crate::body::{parse_json, parse_query};
use crate::message::Publish;
use crate::{
    commit_offsets, committed_offsets, create_topic, find_offsets, list_topics, read_messages,
};

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Body of a publish.
    Messages,
    /// Body of a commit.
    Offsets,
    /// Body that creates a topic.
    Topic,
    /// Query of a read.
    ReadQuery,
    /// Query of a listing.
    ListQuery,
    /// Query that looks for offsets.
    OffsetsQuery,
    /// Query about a group.
    GroupQuery,
    /// A point in time.
    Timestamp,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 8] = [
        Part::Messages,
        Part::Offsets,
        Part::Topic,
        Part::ReadQuery,
        Part::ListQuery,
        Part::OffsetsQuery,
        Part::GroupQuery,
        Part::Timestamp,
    ];

    /// Parses. Returns how many things were in it, which is 1 where there can be only one.
    ///
    /// # Errors
    /// The code that a caller gets.
    pub fn parse(self, bytes: &[u8]) -> Result<usize, Code> {
        let text = || std::str::from_utf8(bytes).map_err(|_| Code::InvalidParameter);
        let uri = || Uri::try_from(format!("/?{}", text()?)).map_err(|_| Code::InvalidParameter);
        let one = |parsed: Result<(), ApiError>| parsed.map(|()| 1).map_err(|error| error.code);
        match self {
            Part::Messages => match Publish::parse(bytes).map_err(|error| error.code)? {
                Publish::One(_) => Ok(1),
                Publish::Many(messages) => Ok(messages.len()),
            },
            Part::Offsets => {
                let commits = commit_offsets::parse(bytes).map_err(|error| error.code)?;
                Ok(commits.len())
            }
            Part::Topic => one(parse_json::<create_topic::Wanted>(bytes).map(drop)),
            Part::ReadQuery => one(parse_query::<read_messages::Query>(&uri()?).map(drop)),
            Part::ListQuery => one(parse_query::<list_topics::Query>(&uri()?).map(drop)),
            Part::OffsetsQuery => one(parse_query::<find_offsets::Query>(&uri()?).map(drop)),
            Part::GroupQuery => one(parse_query::<committed_offsets::Query>(&uri()?).map(drop)),
            Part::Timestamp => one(find_offsets::read_timestamp(text()?).map(drop)),
        }
    }
}
