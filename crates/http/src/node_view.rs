//! A node as this API shows it: what the metadata says, what the controller hears, what the node tells
//! of itself.

use std::collections::BTreeMap;

use serde::Serialize;
use towpath_driver::QuorumReport;
use towpath_metadata::{Broker, BrokerState, Image, Load, Role, Stuck, Survey};
use towpath_model::{BrokerId, Timestamp};

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::node_self::{DataDirectory, NodeSelf};

#[derive(Serialize)]
pub(crate) struct NodeView {
    node: i32,
    state: &'static str,
    /// Since when the controller has not heard of it, in milliseconds since 1970; where it is absent.
    absent_since: Option<i64>,
    role: &'static str,
    rack: Option<String>,
    /// `host:port` by the name of the listener.
    addresses: BTreeMap<String, String>,
    broker_epoch: i64,
    is_controller: bool,
    /// Its part in the metadata quorum: `voter`, `learner` or null.
    quorum: Option<&'static str>,
    partitions_led: usize,
    replicas: usize,
    replicas_out_of_sync: usize,
    /// Where its replicas were ordered to go elsewhere.
    drain: Option<Drain>,
    /// Null, as everything after it, where the node does not answer.
    version: Option<String>,
    format_level_max: Option<u16>,
    started_at: Option<i64>,
    stored_bytes: Option<u64>,
    directories: Option<Vec<DataDirectory>>,
}

/// How far a node is emptied.
#[derive(Serialize)]
struct Drain {
    is_done: bool,
    partitions_led: usize,
    replicas: usize,
    /// Topics whose replicas cannot leave: no other node could take them.
    stuck: Vec<StuckTopic>,
}

#[derive(Serialize)]
struct StuckTopic {
    topic: String,
    partitions: usize,
    replication_factor: usize,
}

impl StuckTopic {
    fn of(stuck: Stuck) -> StuckTopic {
        let Stuck { topic, partitions, replication_factor } = stuck;
        StuckTopic { topic, partitions, replication_factor }
    }
}

/// What views of nodes are drawn from, but for what nodes tell of themselves.
pub(crate) struct Sources {
    pub(crate) survey: Survey,
    pub(crate) quorum: QuorumReport,
    /// Since when which node is silent.
    pub(crate) silent: BTreeMap<BrokerId, Timestamp>,
}

impl Sources {
    /// What is known here.
    pub(crate) fn look(app: &App, quorum: QuorumReport) -> Sources {
        let driver = app.node.driver();
        let survey = driver.image().survey();
        Sources { survey, quorum, silent: driver.silent_brokers().unwrap_or_default() }
    }

    /// What a broker is about. One that nobody hears is absent; one that was heard of lately and does
    /// not count as there is about to begin.
    pub(crate) fn state(&self, image: &Image, broker: &Broker) -> BrokerState {
        match image.state_of(broker) {
            BrokerState::Fenced if self.silent.contains_key(&broker.id) => BrokerState::Absent,
            state => state,
        }
    }

    /// A node, with what it tells of itself.
    pub(crate) fn view(&self, image: &Image, broker: &Broker, told: Option<NodeSelf>) -> NodeView {
        let id = broker.id;
        let Load { leaders, replicas, .. } = image.load(id);
        let state = self.state(image, broker);
        let stored = |told: &NodeSelf| told.directories.iter().map(|dir| dir.stored_bytes).sum();
        let drain = broker.drained.then(|| Drain {
            is_done: replicas == 0,
            partitions_led: leaders,
            replicas,
            stuck: image.stuck_on(id).into_iter().map(StuckTopic::of).collect(),
        });
        NodeView {
            node: id.0,
            state: state.as_str(),
            absent_since: self.silent.get(&id).map(|since| since.0),
            role: match broker.role {
                Role::Broker => "broker",
                Role::Frontend => "frontend",
            },
            rack: broker.rack.clone(),
            addresses: addresses(broker),
            broker_epoch: broker.epoch,
            is_controller: self.quorum.leader.is_some_and(|leader| leader.broker() == id),
            quorum: part_in(&self.quorum, id),
            partitions_led: leaders,
            replicas,
            replicas_out_of_sync: self.survey.out_of_sync.get(&id).copied().unwrap_or(0),
            drain,
            version: told.as_ref().map(|told| told.version.clone()),
            format_level_max: told.as_ref().map(|told| told.format_level_max),
            started_at: told.as_ref().map(|told| told.started_at),
            stored_bytes: told.as_ref().map(stored),
            directories: told.map(|told| told.directories),
        }
    }
}

fn addresses(broker: &Broker) -> BTreeMap<String, String> {
    let named = broker.addresses.iter().map(|at| {
        let name = match at.listener.as_str() {
            "PLAINTEXT" => "kafka".to_owned(),
            other => other.to_ascii_lowercase(),
        };
        let place = match at.host.contains(':') {
            true => format!("[{}]:{}", at.host, at.port),
            false => format!("{}:{}", at.host, at.port),
        };
        (name, place)
    });
    named.collect()
}

fn part_in(quorum: &QuorumReport, id: BrokerId) -> Option<&'static str> {
    // A broker whose disk was replaced may be there twice for a while.
    let mut parts = quorum.members.iter().filter(|member| member.id.broker() == id);
    let is_voter = parts.clone().any(|member| member.is_voter);
    parts.next().map(|_| if is_voter { "voter" } else { "learner" })
}

/// The node that a path names; it is registered.
pub(crate) fn node_in_path(app: &App, text: &str) -> Result<BrokerId, ApiError> {
    let Some(id) = text.parse::<i32>().ok().filter(|id| 0 <= *id).map(BrokerId) else {
        let message = format!("{text:?} is no number of a node");
        return Err(ApiError::new(Code::InvalidParameter, message));
    };
    let is_known = app.node.driver().image().broker(id).is_some();
    is_known.then_some(id).ok_or_else(|| no_node(id))
}

pub(crate) fn no_node(id: BrokerId) -> ApiError {
    ApiError::new(Code::NodeNotFound, format!("there is no node {id}"))
        .with_help("GET /nodes lists the nodes")
}
