//! `GET /cluster/moves`: partitions whose replicas come or go, and how much is left to copy;
//! `DELETE /cluster/moves/{topic}/{partition}`: such a move is taken back. How far a copy is only the
//! leader of the partition knows, so each broker that leads one is asked.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_metadata::{PartitionState, Reassignment, Reply, Request, Topic};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::forward::{ask_each, is_hop};
use crate::refusals;

#[derive(Serialize, Deserialize)]
pub(crate) struct Moves {
    moves: Vec<Move>,
}

/// A partition whose replicas come or go.
#[derive(Serialize, Deserialize)]
struct Move {
    topic: String,
    partition: i32,
    leader: Option<i32>,
    replicas: Vec<i32>,
    adding: Vec<Coming>,
    removing: Vec<i32>,
}

/// A replica that is being added. What is left is null where the leader does not tell.
#[derive(Serialize, Deserialize)]
struct Coming {
    node: i32,
    in_sync: bool,
    records_left: Option<u64>,
    bytes_left: Option<u64>,
}

fn numbers(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

impl Move {
    fn of(topic: &Topic, partition: TopicPartition, state: &PartitionState) -> Move {
        let coming = |broker: &BrokerId| Coming {
            node: broker.0,
            in_sync: state.in_sync.contains(broker),
            records_left: None,
            bytes_left: None,
        };
        Move {
            topic: topic.name.to_string(),
            partition: partition.partition.0,
            leader: state.leader.map(|leader| leader.0),
            replicas: numbers(&state.replicas),
            adding: state.adding.iter().map(coming).collect(),
            removing: numbers(&state.removing),
        }
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Moves>, ApiError> {
    refuse_query(&uri)?;
    let mut moves = here(&app);
    if is_hop(&headers) {
        let me = app.node.driver().broker_id().0;
        moves.retain(|moving| moving.leader == Some(me));
    } else {
        ask_leaders(&app, &mut moves).await;
    }
    Ok(Json(Moves { moves }))
}

/// As this broker's metadata has them, with what is left of those that it leads.
fn here(app: &App) -> Vec<Move> {
    let driver = app.node.driver();
    let coming = driver.coming_replicas();
    let image = driver.image();
    let moves = image.reassignments().map(|(topic, partition, state)| {
        let mut moving = Move::of(topic, partition, state);
        for added in &mut moving.adding {
            let known = coming
                .iter()
                .find(|known| known.partition == partition && known.broker.0 == added.node);
            added.records_left = known.map(|known| known.records_left);
            added.bytes_left = known.map(|known| known.bytes_left);
        }
        moving
    });
    moves.collect()
}

async fn ask_leaders(app: &App, moves: &mut [Move]) {
    let me = app.node.driver().broker_id().0;
    let leaders: BTreeSet<i32> =
        moves.iter().filter_map(|moving| moving.leader).filter(|leader| *leader != me).collect();
    let asked = leaders.into_iter().map(|leader| (BrokerId(leader), Bytes::new()));
    for (broker, told) in ask_each::<Moves>(app, &Method::GET, "/cluster/moves", asked).await {
        let told = match told {
            Ok(told) => told.moves,
            Err(error) => {
                tracing::debug!(%broker, error = %error.message, "its moves are not known");
                continue;
            }
        };
        for theirs in told {
            let same = moves
                .iter_mut()
                .find(|mine| (&mine.topic, mine.partition) == (&theirs.topic, theirs.partition));
            if let Some(mine) = same {
                mine.adding = theirs.adding;
            }
        }
    }
}

pub(crate) async fn cancel(
    State(app): State<App>,
    Captured((topic, partition)): Captured<(String, String)>,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    refuse_query(&uri)?;
    let id = app.topic(&topic)?.partition_in_path(&partition)?;
    order(&app, vec![Reassignment { partition: (topic, id.partition), target: None }]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Orders moves; the first refusal is the error.
pub(crate) async fn order(app: &App, reassignments: Vec<Reassignment>) -> Result<(), ApiError> {
    let request =
        Request::AlterReassignments { reassignments, factor_may_change: false, by_hand: false };
    match app.node.ask_metadata(request).await.map_err(refusals::of_unavailable)? {
        Reply::AlteredReassignments(outcomes) => {
            for ((topic, PartitionIndex(partition)), outcome) in outcomes {
                outcome.map_err(|refusal| {
                    let mut error = refusals::of_metadata(&refusal);
                    error.message = format!("partition {partition} of {topic:?}: {refusal}");
                    error
                })?;
            }
            Ok(())
        }
        _ => Err(ApiError::new(Code::Internal, "the metadata gave an answer out of turn")),
    }
}
