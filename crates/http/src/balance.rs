//! `GET /cluster/balance`: what would move so that nodes lead and hold about as much as each other;
//! `POST /cluster/balance` orders it. What is ordered goes on by itself: `GET /cluster/moves` says how
//! far it is.

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use towpath_metadata::{BalancePlan, ElectionKind, Image, Reassignment, Request};
use towpath_model::{BrokerId, TopicPartition};

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::list_moves::order;
use crate::list_sizes;
use crate::refusals;

#[derive(Serialize)]
pub(crate) struct Plan {
    /// Partitions that another node is to lead; nothing is copied.
    leaders: Vec<LeaderView>,
    /// Partitions whose replicas are to move.
    moves: Vec<MoveView>,
    /// Bytes to be copied in all, as far as sizes are known.
    bytes: u64,
}

#[derive(Serialize)]
struct LeaderView {
    topic: String,
    partition: i32,
    from: i32,
    to: i32,
}

#[derive(Serialize)]
struct MoveView {
    topic: String,
    partition: i32,
    from: Vec<i32>,
    to: Vec<i32>,
    bytes: u64,
}

fn numbers(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

impl Plan {
    fn of(image: &Image, plan: &BalancePlan) -> Plan {
        let name = |id: TopicPartition| {
            image.topic_by_id(id.topic).map(|topic| topic.name.to_string()).unwrap_or_default()
        };
        let leaders = plan.leaders.iter().map(|planned| LeaderView {
            topic: name(planned.partition),
            partition: planned.partition.partition.0,
            from: planned.from.0,
            to: planned.replicas[0].0,
        });
        let moves = plan.moves.iter().map(|planned| MoveView {
            topic: name(planned.partition),
            partition: planned.partition.partition.0,
            from: numbers(&planned.from),
            to: numbers(&planned.to),
            bytes: planned.bytes,
        });
        Plan {
            leaders: leaders.collect(),
            moves: moves.collect(),
            bytes: plan.moves.iter().map(|planned| planned.bytes).sum(),
        }
    }
}

pub(crate) async fn plan(State(app): State<App>, uri: Uri) -> Result<Json<Plan>, ApiError> {
    refuse_query(&uri)?;
    let plan = look(&app).await;
    let image = app.node.driver().image();
    Ok(Json(Plan::of(&image, &plan)))
}

pub(crate) async fn carry_out(State(app): State<App>, uri: Uri) -> Result<Json<Plan>, ApiError> {
    refuse_query(&uri)?;
    let plan = look(&app).await;
    let (shown, leaders, moves) = {
        let image = app.node.driver().image();
        let named = |id: TopicPartition| {
            let topic = image.topic_by_id(id.topic)?;
            Some((topic.name.to_string(), id.partition))
        };
        let target = |id, replicas: &[BrokerId]| {
            Some(Reassignment { partition: named(id)?, target: Some(replicas.to_vec()) })
        };
        let leaders: Vec<_> =
            plan.leaders.iter().filter_map(|p| target(p.partition, &p.replicas)).collect();
        let moves: Vec<_> = plan.moves.iter().filter_map(|p| target(p.partition, &p.to)).collect();
        (Plan::of(&image, &plan), leaders, moves)
    };
    let led = leaders.iter().map(|planned| planned.partition.clone()).collect();
    order(&app, leaders).await?;
    elect(&app, led).await?;
    order(&app, moves).await?;
    Ok(Json(shown))
}

async fn look(app: &App) -> BalancePlan {
    let sizes = list_sizes::by_partition(app).await;
    app.node.driver().image().balance_plan(&sizes)
}

/// Lets first replicas lead. One that is not in sync any more is left to the controller, which looks for
/// such partitions by itself.
async fn elect(
    app: &App,
    partitions: Vec<(String, towpath_model::PartitionIndex)>,
) -> Result<(), ApiError> {
    if partitions.is_empty() {
        return Ok(());
    }
    let kind = ElectionKind::Preferred;
    let request = Request::ElectLeaders { kind, partitions: Some(partitions) };
    app.node.ask_metadata(request).await.map_err(refusals::of_unavailable)?;
    Ok(())
}
