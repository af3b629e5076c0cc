//! What a broker that refuses says of who leads (KIP-951): clients go there without asking the cluster.

use towpath_model::{BrokerId, LeaderEpoch};
use towpath_protocol::messages::{
    FetchResponse, FetchResponsePartitionData, PartitionProduceResponse, ProduceResponse,
};

use crate::image::Broker;
use crate::record::TopicPartition;

/// Leaders that an answer names, and where they are.
#[derive(Debug, Default)]
pub(crate) struct LeaderNews {
    /// Each partition's leader, and the number of that leadership.
    pub(crate) leaders: Vec<(TopicPartition, BrokerId, LeaderEpoch)>,
    pub(crate) brokers: Vec<Broker>,
}

impl LeaderNews {
    /// The brokers of an answer to a produce request.
    pub(crate) fn of_produce(response: &ProduceResponse<'_>) -> LeaderNews {
        let told = response.node_endpoints.iter();
        let brokers = told.filter_map(|at| Broker::told(at.node_id, at.host, at.port, at.rack));
        LeaderNews { leaders: Vec::new(), brokers: brokers.collect() }
    }

    /// The brokers of an answer to a fetch.
    pub(crate) fn of_fetch(response: &FetchResponse<'_>) -> LeaderNews {
        let told = response.node_endpoints.iter();
        let brokers = told.filter_map(|at| Broker::told(at.node_id, at.host, at.port, at.rack));
        LeaderNews { leaders: Vec::new(), brokers: brokers.collect() }
    }

    /// Takes a partition's leader from an answer to a produce request, if it names one.
    pub(crate) fn produced(&mut self, at: &TopicPartition, answer: &PartitionProduceResponse<'_>) {
        self.add(at, answer.current_leader.leader_id, answer.current_leader.leader_epoch);
    }

    /// Takes a partition's leader from an answer to a fetch, if it names one.
    pub(crate) fn fetched(&mut self, at: &TopicPartition, answer: &FetchResponsePartitionData<'_>) {
        self.add(at, answer.current_leader.leader_id, answer.current_leader.leader_epoch);
    }

    fn add(&mut self, partition: &TopicPartition, leader: i32, epoch: i32) {
        if 0 <= leader && 0 <= epoch {
            self.leaders.push((partition.clone(), BrokerId(leader), LeaderEpoch(epoch)));
        }
    }
}
