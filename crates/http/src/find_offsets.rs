//! `GET /topics/{topic}/offsets?timestamp=`: where in each partition a moment lies. Each partition's leader
//! is asked; who was asked by another broker tells of what it leads.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_driver::{OffsetAnswer, OffsetQuery};
use towpath_model::{PartitionIndex, Timestamp, TopicPartition};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;
use crate::captured::Captured;
use crate::forward::{ask_each, is_hop, leader_of};
use crate::refusals;
use crate::time::parse_rfc3339;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    timestamp: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TopicOffsets {
    topic: String,
    partition_offsets: Vec<PartitionOffset>,
}

#[derive(Serialize, Deserialize)]
struct PartitionOffset {
    partition: i32,
    offset: i64,
    /// Of the record there; null where the offset is that of the next record to come.
    timestamp: Option<i64>,
}

/// What a `timestamp` asks for.
pub(crate) fn read_timestamp(text: &str) -> Result<OffsetQuery, ApiError> {
    match text {
        "earliest" => return Ok(OffsetQuery::Earliest),
        "latest" => return Ok(OffsetQuery::Latest),
        _ => {}
    }
    let millis = text.parse::<i64>().ok().map(Timestamp);
    // A plus sign in a query stands for a space.
    let time = millis.or_else(|| parse_rfc3339(text)).or_else(|| parse_rfc3339(&plus(text)));
    time.filter(|time| 0 <= time.0).map(OffsetQuery::AtOrAfter).ok_or_else(|| {
        let message = format!("{text:?} is no time since 1970");
        ApiError::new(Code::InvalidParameter, message).with_help(
            "milliseconds since 1970, RFC 3339 such as 2026-11-29T17:41:35Z, earliest or latest",
        )
    })
}

fn plus(text: &str) -> String {
    match text.rsplit_once(' ') {
        Some((time, offset)) => format!("{time}+{offset}"),
        None => text.to_owned(),
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(topic): Captured<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<TopicOffsets>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let wanted = read_timestamp(query.timestamp.as_deref().unwrap_or("latest"))?;
    let topic = app.topic(&topic)?;
    let (mut partition_offsets, mut elsewhere) = (Vec::new(), BTreeSet::new());
    let me = app.node.driver().broker_id();
    for partition in (0..topic.partitions.get()).filter_map(|p| i32::try_from(p).ok()) {
        let id = topic.partition(PartitionIndex(partition));
        if let Some(leader) = leader_of(&app, id).filter(|leader| *leader != me) {
            elsewhere.insert(leader);
            continue;
        }
        let found = match find(&app, id, wanted).await? {
            Some(found) => Some(found),
            None => find(&app, id, OffsetQuery::Latest).await?,
        };
        partition_offsets.extend(found.map(|found| PartitionOffset {
            partition,
            offset: found.offset.0,
            timestamp: found.timestamp.map(|timestamp| timestamp.0),
        }));
    }
    if !is_hop(&headers) {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let leaders = elsewhere.into_iter().map(|leader| (leader, Bytes::new()));
        for (_, told) in ask_each::<TopicOffsets>(&app, &Method::GET, path, leaders).await {
            partition_offsets.extend(told?.partition_offsets);
        }
        partition_offsets.sort_by_key(|found| found.partition);
        if partition_offsets.len() < topic.partitions.get() as usize {
            let message = format!("partitions of {} have just changed their leaders", topic.name);
            return Err(ApiError::new(Code::Unavailable, message).with_help("try again"));
        }
    }
    Ok(Json(TopicOffsets { topic: topic.name.as_str().to_owned(), partition_offsets }))
}

async fn find(
    app: &App,
    id: TopicPartition,
    query: OffsetQuery,
) -> Result<Option<OffsetAnswer>, ApiError> {
    let found = app.node.find_offset(id, None, false, query).await;
    found.map_err(|refusal| refusals::of_fetch(&refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_named_in_four_ways() {
        assert_eq!(read_timestamp("earliest").unwrap(), OffsetQuery::Earliest);
        assert_eq!(read_timestamp("latest").unwrap(), OffsetQuery::Latest);
        assert_eq!(read_timestamp("1000").unwrap(), OffsetQuery::AtOrAfter(Timestamp(1000)));
        let second = OffsetQuery::AtOrAfter(Timestamp(1000));
        assert_eq!(read_timestamp("1970-01-01T00:00:01Z").unwrap(), second);
        assert_eq!(read_timestamp("1970-01-01T01:00:01 01:00").unwrap(), second);
        assert_eq!(read_timestamp("-1").unwrap_err().code, Code::InvalidParameter);
        assert_eq!(read_timestamp("soon").unwrap_err().code, Code::InvalidParameter);
    }
}
