//! The brokers as clients are told of them: where they listen for Kafka's protocol, and in which rack
//! they stand.
//!
//! A broker says under which address clients reach it when it registers. The one that answers is
//! known by the address that the client has dialled where nothing is advertised: what has led here
//! once leads here again. A broker without an address for clients is left out.

use std::collections::{BTreeMap, BTreeSet};

use towpath_metadata::{Image, PartitionState};
use towpath_model::{BrokerId, TopicPartition};

use super::Peer;
use crate::node::Node;

/// The name under which brokers register the address of this protocol.
const LISTENER: &str = "PLAINTEXT";

/// Where clients reach a broker.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: i32,
    pub(super) rack: Option<String>,
    /// It counts as gone: it leads nothing, and nobody is sent to it.
    pub(super) is_fenced: bool,
}

/// All registered brokers that clients could reach.
pub(super) struct Brokers(BTreeMap<BrokerId, Endpoint>);

impl Brokers {
    /// As the client `peer` is told.
    pub(super) fn of(node: &Node, peer: &Peer, image: &Image) -> Brokers {
        let me = node.driver().broker_id();
        let mut all = BTreeMap::new();
        for broker in image.brokers() {
            let advertised = broker.address(LISTENER).map(|at| (at.host.clone(), at.port.into()));
            let address = if broker.id == me { Some(peer.address_of(node)) } else { advertised };
            let Some((host, port)) = address else { continue };
            let (rack, is_fenced) = (broker.rack.clone(), broker.fenced);
            all.insert(broker.id, Endpoint { host, port, rack, is_fenced });
        }
        if all.values().all(|broker| broker.is_fenced) {
            // Nobody counts as there, as in the first moments of a cluster: the client is told at
            // least whom it has reached, or it would have nobody to ask again.
            let (host, port) = peer.address_of(node);
            let rack = image.broker(me).and_then(|broker| broker.rack.clone());
            all.insert(me, Endpoint { host, port, rack, is_fenced: false });
        }
        Brokers(all)
    }

    /// Those that are there, by number.
    pub(super) fn active(&self) -> impl Iterator<Item = (BrokerId, &Endpoint)> {
        self.all().filter(|(_, broker)| !broker.is_fenced)
    }

    /// Those that count as gone as well.
    pub(super) fn all(&self) -> impl Iterator<Item = (BrokerId, &Endpoint)> {
        self.0.iter().map(|(id, broker)| (*id, broker))
    }

    /// One that is there.
    pub(super) fn get(&self, id: BrokerId) -> Option<&Endpoint> {
        self.0.get(&id).filter(|broker| !broker.is_fenced)
    }

    /// The number of one that is there, as the wire has it: −1 for nobody.
    pub(super) fn number(&self, id: Option<BrokerId>) -> i32 {
        id.filter(|id| self.get(*id).is_some()).map_or(-1, |id| id.0)
    }
}

/// Whose replica can be neither read nor written: its broker is gone, or the directory that it lies in.
pub(super) fn offline_replicas(image: &Image, state: &PartitionState) -> Vec<i32> {
    let is_there = |id: &BrokerId| {
        image.broker(*id).is_some_and(|b| !b.fenced && b.holds(state.directory_of(*id)))
    };
    state.replicas.iter().filter(|id| !is_there(id)).map(|id| id.0).collect()
}

/// Who leads the partitions that a client looked for at the wrong broker (KIP-951).
pub(super) struct LeaderHints<'n> {
    node: &'n Node,
    peer: &'n Peer,
    brokers: Option<Brokers>,
    named: BTreeSet<BrokerId>,
}

impl<'n> LeaderHints<'n> {
    pub(super) fn new(node: &'n Node, peer: &'n Peer) -> Self {
        LeaderHints { node, peer, brokers: None, named: BTreeSet::new() }
    }

    /// Leader and leader epoch, each −1 where it is not known.
    pub(super) fn leader_of(&mut self, partition: TopicPartition) -> (i32, i32) {
        let image = self.node.driver().image();
        let Some(state) = image.partition(partition) else { return (-1, -1) };
        let of_image = || Brokers::of(self.node, self.peer, &image);
        let brokers = self.brokers.get_or_insert_with(of_image);
        let leader = brokers.number(state.leader);
        if 0 <= leader {
            self.named.insert(BrokerId(leader));
        }
        (leader, state.leader_epoch.0)
    }

    /// The leaders that were named.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = (i32, &Endpoint)> {
        let all = self.brokers.iter().flat_map(Brokers::active);
        all.filter(|(id, _)| self.named.contains(id)).map(|(id, broker)| (id.0, broker))
    }
}
