//! `GET /queues/{queue}/peek`: look at messages without taking them, in every state.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Deserialize;
use towpath_model::{Offset, PartitionIndex};
use towpath_queue::PeekFilter;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;
use crate::captured::Captured;
use crate::forward::is_hop;
use crate::limits::QUEUE_MESSAGES_MAX;

use super::look::{Peek, peek, peek_in};

/// Messages of an answer, if nothing is said.
const PEEKED_USUAL: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    state: Option<String>,
    from: Option<String>,
    max: Option<usize>,
    subscription: Option<String>,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let wanted = parse_query::<Query>(&uri)?.read()?;
    let (seen, shares) = match is_hop(&headers) {
        true => {
            let (seen, share) = peek_in(&app, &queue, &wanted).await?;
            (seen, vec![share])
        }
        false => peek(&app, &queue, &wanted).await?,
    };
    Ok(Json(seen).charged_all(shares))
}

impl Query {
    fn read(self) -> Result<Peek, ApiError> {
        let invalid = |message: &str| Err(ApiError::new(Code::InvalidParameter, message));
        let filter = match self.state.as_deref() {
            None => PeekFilter::Any,
            Some("ready") => PeekFilter::Ready,
            Some("held") => PeekFilter::Held,
            Some("delayed") => PeekFilter::Delayed,
            Some("moving") => PeekFilter::Moving,
            Some(_) => return invalid("state is ready, held, delayed or moving"),
        };
        let from = match self.from.as_deref() {
            None => Some((PartitionIndex(0), Offset::ZERO)),
            Some(from) => read_place(from),
        };
        let Some(from) = from else { return invalid("from is the `next` of a peek, or an id") };
        let max = self.max.unwrap_or(PEEKED_USUAL);
        if max == 0 || QUEUE_MESSAGES_MAX < max {
            return invalid(&format!("max is 1 to {QUEUE_MESSAGES_MAX}"));
        }
        Ok(Peek { filter, from, max, subscription: self.subscription })
    }
}

fn read_place(text: &str) -> Option<(PartitionIndex, Offset)> {
    let (partition, offset) = text.split_once('-')?;
    let (partition, offset) = (partition.parse::<i32>().ok()?, offset.parse::<i64>().ok()?);
    let exists = 0 <= partition && 0 <= offset;
    exists.then_some((PartitionIndex(partition), Offset(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Peek, ApiError> {
        parse_query::<Query>(&format!("/queues/q/peek?{query}").parse().unwrap())?.read()
    }

    #[test]
    fn a_peek_begins_anywhere_and_is_bounded() {
        let usual = read("").unwrap();
        assert_eq!((usual.filter, usual.max), (PeekFilter::Any, PEEKED_USUAL));
        let from = read("from=2-9000000000&state=held&max=500").unwrap();
        assert_eq!(from.from, (PartitionIndex(2), Offset(9_000_000_000)));
        for query in ["max=0", "max=501", "state=dead", "from=x", "from=-1-0", "from=0--1"] {
            assert_eq!(read(query).unwrap_err().code, Code::InvalidParameter, "{query}");
        }
    }
}
