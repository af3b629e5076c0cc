//! `POST /groups/{group}/offsets`: note how far a group has processed. Only for groups without
//! members: members commit through their own protocol.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use towpath_coordinator::groups::{CommitOffsets, CommitPartition, CommitTopic, Reply, Request};
use towpath_model::{Offset, PartitionIndex};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::{AtMost, parse_json, read_body};
use crate::captured::Captured;
use crate::limits::COMMITS_MAX;
use crate::refusals;

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Commit {
    topic: String,
    partition: i32,
    /// The next offset to process.
    offset: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commits {
    offsets: AtMost<COMMITS_MAX, Commit>,
}

/// Enough of the body to know which of the two it is.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    offsets: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize)]
pub(crate) struct Committed {
    group: String,
    offsets: Vec<Commit>,
}

pub(crate) fn parse(body: &[u8]) -> Result<Vec<Commit>, ApiError> {
    let kind: Kind = parse_json(body)?;
    match kind.offsets {
        None => Ok(vec![parse_json(body)?]),
        Some(_) => Ok(parse_json::<Commits>(body)?.offsets.0),
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(group): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Committed>, ApiError> {
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let offsets = parse(&bytes)?;
    if offsets.is_empty() {
        return Err(ApiError::new(Code::InvalidRequest, "offsets is empty"));
    }
    let request = CommitOffsets {
        group: group.as_str().into(),
        member_id: "".into(),
        group_instance_id: None,
        generation: None,
        retention: None,
        knows_group_id_not_found: true,
        topics: topics(&app, &offsets)?,
    };
    let asked = app.node.ask_group_creating(&group, Request::CommitOffsets(request)).await;
    match asked.map_err(refusals::of_unavailable)? {
        Reply::CommitOffsets(Ok(topics)) => {
            let mut results = topics.iter().flat_map(|topic| &topic.partitions);
            match results.find_map(|(_, result)| result.err()) {
                Some(refusal) => Err(refusals::of_group(refusal)),
                None => Ok(Json(Committed { group, offsets })),
            }
        }
        Reply::CommitOffsets(Err(refusal)) => Err(refusals::of_group(refusal)),
        _ => Err(ApiError::new(Code::Internal, "the group gave an answer out of turn")),
    }
}

/// Checks that everything named exists, before anything is committed.
fn topics(app: &App, offsets: &[Commit]) -> Result<Vec<CommitTopic>, ApiError> {
    let mut topics: Vec<CommitTopic> = Vec::new();
    for commit in offsets {
        let topic = app.topic(&commit.topic)?;
        let exists = u32::try_from(commit.partition).is_ok_and(|p| p < topic.partitions.get());
        if !exists {
            return Err(topic.no_partition(commit.partition));
        }
        if commit.offset < 0 {
            let message = "offset is negative; it is the next one to process, from 0 on";
            return Err(ApiError::new(Code::InvalidRequest, message));
        }
        let partition = CommitPartition {
            partition: PartitionIndex(commit.partition),
            offset: Offset(commit.offset),
            leader_epoch: None,
            metadata: commit.metadata.as_deref().unwrap_or_default().into(),
        };
        match topics.iter_mut().find(|known| known.id == topic.id) {
            Some(known) => known.partitions.push(partition),
            None => topics.push(CommitTopic {
                name: topic.name.as_str().into(),
                id: topic.id,
                partitions: vec![partition],
            }),
        }
    }
    Ok(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_offset_or_a_list_is_taken() {
        let one = parse(br#"{"topic":"t","partition":0,"offset":5}"#).unwrap();
        assert_eq!((one.len(), one[0].offset), (1, 5));
        let two = br#"{"offsets":[{"topic":"t","partition":0,"offset":5},
            {"topic":"t","partition":1,"offset":6,"metadata":"m"}]}"#;
        assert_eq!(parse(two).unwrap().len(), 2);
        assert_eq!(parse(br#"{"topic":"t"}"#).unwrap_err().code, Code::InvalidJson);
    }
}
