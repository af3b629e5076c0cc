//! What the cluster and its nodes tell over HTTP, as commands read it. `docs/http.md` says what it
//! means; what a command does not show is not here.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::broker_api::{BrokerApi, encoded};
use crate::failure::Outcome;

/// `GET /cluster`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Cluster {
    pub(crate) cluster_id: String,
    pub(crate) controller: Option<i32>,
    pub(crate) format_level: u16,
    pub(crate) format_level_max: u16,
    pub(crate) quorum: Quorum,
    pub(crate) nodes: NodeCounts,
    pub(crate) topics: usize,
    pub(crate) partitions: PartitionCounts,
    pub(crate) moves: usize,
}

/// Who decides on metadata.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Quorum {
    pub(crate) voters: Vec<QuorumMember>,
    pub(crate) learners: Vec<QuorumMember>,
}

/// One of them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct QuorumMember {
    pub(crate) node: i32,
    pub(crate) member: String,
    pub(crate) lag: Option<u64>,
}

/// How many nodes there are, and in which states.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeCounts {
    pub(crate) registered: usize,
    pub(crate) states: BTreeMap<String, usize>,
}

/// Partitions, and what they lack.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartitionCounts {
    pub(crate) count: usize,
    pub(crate) offline: usize,
    pub(crate) under_replicated: usize,
    pub(crate) under_min_in_sync: usize,
}

#[derive(Deserialize)]
struct Nodes {
    nodes: Vec<Node>,
}

/// `GET /nodes/{node}`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Node {
    pub(crate) node: i32,
    pub(crate) state: String,
    /// Milliseconds since 1970.
    pub(crate) absent_since: Option<i64>,
    pub(crate) role: String,
    pub(crate) rack: Option<String>,
    pub(crate) addresses: BTreeMap<String, String>,
    pub(crate) broker_epoch: i64,
    pub(crate) is_controller: bool,
    pub(crate) quorum: Option<String>,
    pub(crate) partitions_led: usize,
    pub(crate) replicas: usize,
    pub(crate) replicas_out_of_sync: usize,
    pub(crate) drain: Option<Drain>,
    pub(crate) version: Option<String>,
    pub(crate) format_level_max: Option<u16>,
    pub(crate) started_at: Option<i64>,
    pub(crate) stored_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) directories: Option<Vec<DataDirectory>>,
}

/// How far a node is emptied.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Drain {
    pub(crate) is_done: bool,
    pub(crate) partitions_led: usize,
    pub(crate) replicas: usize,
    pub(crate) stuck: Vec<Stuck>,
}

/// A topic whose replicas cannot leave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Stuck {
    pub(crate) topic: String,
    pub(crate) partitions: usize,
    pub(crate) replication_factor: usize,
}

/// A data directory of a node.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DataDirectory {
    pub(crate) path: Option<String>,
    pub(crate) state: String,
    pub(crate) problem: Option<String>,
    pub(crate) replicas: usize,
    pub(crate) stored_bytes: u64,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) total_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Moves {
    moves: Vec<Move>,
}

/// A partition whose replicas come or go.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Move {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) leader: Option<i32>,
    pub(crate) replicas: Vec<i32>,
    pub(crate) adding: Vec<Coming>,
    pub(crate) removing: Vec<i32>,
}

/// A replica that is being added.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Coming {
    pub(crate) node: i32,
    pub(crate) records_left: Option<u64>,
    pub(crate) bytes_left: Option<u64>,
}

/// `GET /cluster/balance`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BalancePlan {
    pub(crate) leaders: Vec<PlannedLeader>,
    pub(crate) moves: Vec<PlannedMove>,
    pub(crate) bytes: u64,
}

/// A partition that another node is to lead.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PlannedLeader {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) from: i32,
    pub(crate) to: i32,
}

/// A partition whose replicas are to move.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PlannedMove {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) from: Vec<i32>,
    pub(crate) to: Vec<i32>,
    pub(crate) bytes: u64,
}

impl BalancePlan {
    /// Whether nothing has to move.
    pub(crate) fn is_empty(&self) -> bool {
        self.leaders.is_empty() && self.moves.is_empty()
    }
}

/// What accepting a loss would mean.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LossProposal {
    pub(crate) node: i32,
    pub(crate) lost_from: i64,
    pub(crate) may_return: Vec<i32>,
}

/// A loss that is to be accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossOrder<'o> {
    pub(crate) by: &'o str,
    pub(crate) next_offset: Option<i64>,
    pub(crate) even_if_returning: bool,
}

/// A loss that was accepted.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AcceptedLoss {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) node: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) lost_from: i64,
    pub(crate) resume_at: i64,
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) by: String,
}

#[derive(Deserialize)]
struct AcceptedLosses {
    losses: Vec<AcceptedLoss>,
}

#[derive(Deserialize)]
struct Level {
    format_level: u16,
}

#[derive(Deserialize)]
struct RestartOrdered {}

impl BrokerApi {
    /// Partitions whose replicas come or go.
    pub(crate) async fn moves(&self) -> Outcome<Vec<Move>> {
        self.call("GET", "/cluster/moves").await.map(|Moves { moves }| moves)
    }

    /// Takes a move back.
    pub(crate) async fn cancel_move(&self, topic: &str, partition: i32) -> Outcome<()> {
        self.call("DELETE", &format!("/cluster/moves/{}/{partition}", encoded(topic))).await
    }

    /// What would move so that nodes lead and hold about as much as each other.
    pub(crate) async fn balance_plan(&self) -> Outcome<BalancePlan> {
        self.call("GET", "/cluster/balance").await
    }

    /// Moves it.
    pub(crate) async fn balance(&self) -> Outcome<BalancePlan> {
        self.call("POST", "/cluster/balance").await
    }

    /// What accepting a partition's loss would mean.
    pub(crate) async fn propose_loss(&self, topic: &str, partition: i32) -> Outcome<LossProposal> {
        self.call("GET", &loss_path(topic, partition)).await
    }

    /// Accepts it.
    pub(crate) async fn accept_loss(
        &self,
        topic: &str,
        partition: i32,
        order: &LossOrder<'_>,
    ) -> Outcome<AcceptedLoss> {
        let mut path = loss_path(topic, partition);
        path += &format!("?by={}&even_if_returning={}", encoded(order.by), order.even_if_returning);
        if let Some(next) = order.next_offset {
            path += &format!("&next_offset={next}");
        }
        self.call("POST", &path).await
    }

    /// What operators have given up, newest first.
    pub(crate) async fn accepted_losses(&self) -> Outcome<Vec<AcceptedLoss>> {
        let told = self.call("GET", "/cluster/losses").await;
        told.map(|AcceptedLosses { losses }| losses)
    }

    /// Raises the level of formats; the one in force then.
    pub(crate) async fn raise_format_level(&self, level: u16) -> Outcome<u16> {
        let path = format!("/cluster/format-level?level={level}");
        self.call("POST", &path).await.map(|Level { format_level }| format_level)
    }

    /// Orders a node to start anew.
    pub(crate) async fn restart(&self, node: i32) -> Outcome<()> {
        let path = format!("/nodes/{node}/restart");
        self.call::<RestartOrdered>("POST", &path).await.map(|RestartOrdered {}| ())
    }

    /// The cluster as a whole.
    pub(crate) async fn cluster(&self) -> Outcome<Cluster> {
        self.call("GET", "/cluster").await
    }

    /// Every node, by number.
    pub(crate) async fn nodes(&self) -> Outcome<Vec<Node>> {
        self.call("GET", "/nodes").await.map(|Nodes { nodes }| nodes)
    }

    /// Orders a node to be emptied; the node as it is then.
    pub(crate) async fn drain(&self, node: i32) -> Outcome<Node> {
        self.call("POST", &format!("/nodes/{node}/drain")).await
    }

    /// Takes that order back.
    pub(crate) async fn undrain(&self, node: i32) -> Outcome<Node> {
        self.call("POST", &format!("/nodes/{node}/undrain")).await
    }

    /// Removes a node for good.
    pub(crate) async fn remove(&self, node: i32) -> Outcome<()> {
        self.call("DELETE", &format!("/nodes/{node}")).await
    }

    /// One node.
    pub(crate) async fn node(&self, node: i32) -> Outcome<Node> {
        self.call("GET", &format!("/nodes/{node}")).await
    }
}

fn loss_path(topic: &str, partition: i32) -> String {
    format!("/topics/{}/partitions/{partition}/accept-loss", encoded(topic))
}
