//! `GET /topics/{topic}/partitions/{partition}/replicas`: what each replica of a partition holds, in the
//! words of the node that has it.

use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_metadata::{PartitionState, Survivor};
use towpath_model::{BrokerId, LeaderEpoch, Offset, TopicPartition};

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::forward::{ask_each, is_hop, others_there};

#[derive(Serialize, Deserialize)]
pub(crate) struct Replicas {
    pub(crate) replicas: Vec<Replica>,
}

/// A replica; nothing is said of one whose node does not answer, or does not serve it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replica {
    pub(crate) node: i32,
    /// `leader`, `in sync`, `eligible` or `out of sync`.
    pub(crate) state: String,
    pub(crate) log_start_offset: Option<i64>,
    pub(crate) log_end_offset: Option<i64>,
    /// Of the leader that wrote its last batch.
    pub(crate) last_leader_epoch: Option<i32>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured((topic, partition)): Captured<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Replicas>, ApiError> {
    refuse_query(&uri)?;
    let id = app.topic(&topic)?.partition_in_path(&partition)?;
    if is_hop(&headers) {
        return Ok(Json(Replicas { replicas: here(&app, id).into_iter().collect() }));
    }
    Ok(Json(Replicas { replicas: look(&app, &topic, id).await }))
}

/// Every replica, those of other nodes as these tell.
pub(crate) async fn look(app: &App, topic: &str, id: TopicPartition) -> Vec<Replica> {
    let mut replicas: Vec<Replica> = {
        let image = app.node.driver().image();
        let state = image.partition(id);
        state.map_or_else(Vec::new, |state| {
            state.replicas.iter().map(|broker| Replica::untold(state, *broker)).collect()
        })
    };
    let holders: Vec<i32> = replicas.iter().map(|replica| replica.node).collect();
    let others = others_there(app).into_iter().filter(|other| holders.contains(&other.0));
    let asked = others.map(|other| (other, Bytes::new()));
    let path = format!("/topics/{topic}/partitions/{}/replicas", id.partition);
    let told = ask_each::<Replicas>(app, &Method::GET, &path, asked).await;
    let told = told.into_iter().filter_map(|(broker, told)| match told {
        Ok(told) => Some(told.replicas),
        Err(error) => {
            tracing::debug!(%broker, error = %error.message, "its replica is not known");
            None
        }
    });
    for theirs in told.flatten().chain(here(app, id)) {
        if let Some(mine) = replicas.iter_mut().find(|mine| mine.node == theirs.node) {
            *mine = theirs;
        }
    }
    replicas
}

fn here(app: &App, id: TopicPartition) -> Option<Replica> {
    let driver = app.node.driver();
    let mut replica = {
        let image = driver.image();
        let state = image.partition(id)?;
        state.replicas.contains(&image.me()).then(|| Replica::untold(state, image.me()))?
    };
    let held = driver.with_replica(id, |_, log| {
        let last = log.leader_epochs().last().map(|(epoch, _)| epoch.0);
        (log.log_start_offset().0, log.log_end_offset().0, last)
    });
    if let Some((start, end, last)) = held {
        replica.log_start_offset = Some(start);
        replica.log_end_offset = Some(end);
        replica.last_leader_epoch = last;
    }
    Some(replica)
}

impl Replica {
    /// What it holds, if its node has told.
    pub(crate) fn survivor(&self) -> Option<Survivor> {
        let end = self.log_end_offset?;
        Some(Survivor {
            broker: BrokerId(self.node),
            log_start_offset: Offset(self.log_start_offset.unwrap_or(0)),
            log_end_offset: Offset(end),
            last_leader_epoch: self.last_leader_epoch.map(LeaderEpoch),
        })
    }

    fn untold(state: &PartitionState, broker: BrokerId) -> Replica {
        let standing = match broker {
            id if state.leader == Some(id) => "leader",
            id if state.in_sync.contains(&id) => "in sync",
            id if state.eligible.contains(&id) => "eligible",
            _ => "out of sync",
        };
        Replica {
            node: broker.0,
            state: standing.to_owned(),
            log_start_offset: None,
            log_end_offset: None,
            last_leader_epoch: None,
        }
    }
}
