//! `POST /topics/{topic}/partitions/{partition}/accept-loss`: an operator gives up what is on no replica
//! that can come back, and the best one that is left leads; `GET` says what that would mean, and changes
//! nothing. `GET /cluster/losses` lists what was given up, for good.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use towpath_metadata::{AcceptedLoss, LossAcceptance, Refusal, Reply, Request, Survivor};
use towpath_model::{BrokerId, Offset, TopicPartition};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::body::parse_query;
use crate::captured::Captured;
use crate::list_replicas::{self, Replica};
use crate::refusals;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    by: Option<String>,
    next_offset: Option<i64>,
    #[serde(default)]
    even_if_returning: bool,
}

/// What accepting the loss would mean.
#[derive(Serialize)]
pub(crate) struct Proposal {
    topic: String,
    partition: i32,
    /// Whose replica would lead.
    node: i32,
    /// Records from here on would be lost.
    lost_from: i64,
    /// Where new records would begin; null where an operator has to say it, because nothing is left.
    resume_at: Option<i64>,
    /// Nodes with a replica that holds everything, and that may come back.
    may_return: Vec<i32>,
    #[serde(skip)]
    partition_epoch: i32,
}

/// A loss that was accepted.
#[derive(Serialize)]
pub(crate) struct LossView {
    topic: String,
    partition: i32,
    node: i32,
    leader_epoch: i32,
    lost_from: i64,
    resume_at: i64,
    /// Milliseconds since 1970.
    at: i64,
    by: String,
}

#[derive(Serialize)]
pub(crate) struct AcceptedLosses {
    losses: Vec<LossView>,
}

impl LossView {
    fn of(loss: &AcceptedLoss) -> LossView {
        LossView {
            topic: loss.topic.to_string(),
            partition: loss.partition.partition.0,
            node: loss.leader.0,
            leader_epoch: loss.leader_epoch.0,
            lost_from: loss.lost_from.0,
            resume_at: loss.resume_at.0,
            at: loss.at.0,
            by: loss.by.clone(),
        }
    }
}

pub(crate) async fn list(
    State(app): State<App>,
    uri: Uri,
) -> Result<Json<AcceptedLosses>, ApiError> {
    refuse_query(&uri)?;
    let image = app.node.driver().image();
    let mut losses: Vec<LossView> = image.accepted_losses().map(LossView::of).collect();
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.at));
    Ok(Json(AcceptedLosses { losses }))
}

pub(crate) async fn propose(
    State(app): State<App>,
    Captured((topic, partition)): Captured<(String, String)>,
    uri: Uri,
) -> Result<Json<Proposal>, ApiError> {
    refuse_query(&uri)?;
    let id = app.topic(&topic)?.partition_in_path(&partition)?;
    look(&app, &topic, id).await.map(Json)
}

pub(crate) async fn accept(
    State(app): State<App>,
    Captured((topic, partition)): Captured<(String, String)>,
    uri: Uri,
) -> Result<Json<LossView>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let id = app.topic(&topic)?.partition_in_path(&partition)?;
    let proposal = look(&app, &topic, id).await?;
    let resume_at = resume_at(&proposal, query.next_offset)?;
    let request = Request::AcceptLoss(LossAcceptance {
        partition: (topic, id.partition),
        partition_epoch: proposal.partition_epoch,
        leader: BrokerId(proposal.node),
        lost_from: Offset(proposal.lost_from),
        resume_at: Offset(resume_at),
        by: query.by.unwrap_or_default(),
        even_if_returning: query.even_if_returning,
    });
    match app.node.ask_metadata(request).await.map_err(refusals::of_unavailable)? {
        Reply::AcceptedLoss(Ok(loss)) => {
            tracing::warn!(topic = %loss.topic, partition = %id.partition, lost_from = %loss.lost_from,
                by = %loss.by, "the loss of records was accepted");
            Ok(Json(LossView::of(&loss)))
        }
        Reply::AcceptedLoss(Err(refusal)) => Err(error_of(&refusal)),
        _ => Err(ApiError::new(Code::Internal, "the metadata gave an answer out of turn")),
    }
}

fn error_of(refusal: &Refusal) -> ApiError {
    let error = refusals::of_metadata(refusal);
    match refusal {
        Refusal::MayReturn(_) => error.with_help(
            "start that node; or remove it for good (towpath node rm), if its disk is gone; or insist: \
             --even-if-returning (even_if_returning=true)",
        ),
        Refusal::InvalidLoss => error.with_help("say who accepts it: by=NAME"),
        _ => error,
    }
}

/// Where new records begin. A replica that holds records goes on at its end; of an empty one nobody but
/// the operator knows how far consumers have come.
fn resume_at(proposal: &Proposal, asked: Option<i64>) -> Result<i64, ApiError> {
    match (proposal.resume_at, asked) {
        (Some(end), None) => Ok(end),
        (Some(end), Some(asked)) if asked == end => Ok(end),
        (Some(end), Some(_)) => {
            let message = format!("node {} holds records: new ones begin at {end}", proposal.node);
            Err(ApiError::new(Code::InvalidParameter, message).with_help("leave next_offset out"))
        }
        (None, Some(asked)) if proposal.lost_from <= asked => Ok(asked),
        (None, _) => {
            let message = "no replica holds any record: where new ones begin has to be said";
            Err(ApiError::new(Code::InvalidParameter, message).with_help(
                "next_offset=N (--next-offset N): an offset that no consumer has come to yet, or it \
                 would pass over new records; committed offsets of groups say how far they are",
            ))
        }
    }
}

async fn look(app: &App, topic: &str, id: TopicPartition) -> Result<Proposal, ApiError> {
    let replicas = list_replicas::look(app, topic, id).await;
    let best = Survivor::best(replicas.iter().filter_map(Replica::survivor));
    let image = app.node.driver().image();
    let state = image.partition(id).ok_or_else(|| refusals::of_metadata(&Refusal::UnknownTopic))?;
    if let Some(leader) = state.leader {
        return Err(refusals::of_metadata(&Refusal::NothingLost { leader }));
    }
    let best = best.ok_or_else(|| {
        ApiError::new(Code::Unavailable, "no node that is there holds a replica of the partition")
            .with_help("start one of them, or move the partition to another node")
    })?;
    Ok(Proposal {
        topic: topic.to_owned(),
        partition: id.partition.0,
        node: best.broker.0,
        lost_from: best.log_end_offset.0,
        resume_at: best.resumes_at().map(|offset| offset.0),
        may_return: image.may_return(state).map(|id| id.0).collect(),
        partition_epoch: state.partition_epoch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_new_records_begin_is_asked_only_where_nothing_is_left() {
        let proposal = |resume_at: Option<i64>| Proposal {
            topic: "t".to_owned(),
            partition: 0,
            node: 1,
            lost_from: resume_at.unwrap_or(0),
            resume_at,
            may_return: Vec::new(),
            partition_epoch: 0,
        };
        let known = proposal(Some(40));
        assert_eq!(resume_at(&known, None).ok(), Some(40));
        assert!(resume_at(&known, Some(41)).is_err());
        let empty = proposal(None);
        assert!(resume_at(&empty, None).is_err());
        assert_eq!(resume_at(&empty, Some(41)).ok(), Some(41));
    }
}
