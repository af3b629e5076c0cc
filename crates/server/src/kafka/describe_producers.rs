//! DescribeProducers: who writes to a partition idempotently (KIP-664).

use towpath_model::PartitionIndex;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState,
    TopicResponse,
};

use super::{Handled, Incoming, distinct};
use crate::node::Node;

const UNKNOWN_TOPIC: &str = "This server does not host this topic-partition.";

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DescribeProducersRequest<'_> = incoming.decode()?;
    let asked = distinct(&request.topics, |topic| topic.name);
    let topics = asked.into_iter().map(|topic| TopicResponse {
        name: topic.name,
        partitions: distinct(&topic.partition_indexes, |index| *index)
            .into_iter()
            .map(|p| describe(node, topic.name, *p))
            .collect(),
    });
    incoming.answer(&DescribeProducersResponse { topics: topics.collect(), ..Default::default() })
}

fn describe(node: &Node, topic: &str, partition_index: i32) -> PartitionResponse<'static> {
    let driver = node.driver();
    let refused = |error: ErrorCode, error_message| PartitionResponse {
        partition_index,
        error_code: error.into(),
        error_message,
        active_producers: Vec::new(),
    };
    let Some(id) = driver.partition_of(topic, PartitionIndex(partition_index)) else {
        let is_known = driver.image().topic(topic).is_some();
        let message = (!is_known).then_some(UNKNOWN_TOPIC);
        return refused(ErrorCode::UnknownTopicOrPartition, message);
    };
    let producers = driver.with_partition(id, |partition| {
        let producers = partition.producers().iter().map(|producer| ProducerState {
            producer_id: producer.id.0,
            producer_epoch: producer.epoch.0.into(),
            last_sequence: producer.last_sequence.0,
            last_timestamp: producer.last_batch.timestamp.0,
            coordinator_epoch: -1,
            current_txn_start_offset: -1,
        });
        producers.collect()
    });
    match producers {
        Some(active_producers) => PartitionResponse {
            partition_index,
            error_code: 0,
            error_message: None,
            active_producers,
        },
        None => refused(ErrorCode::NotLeaderOrFollower, None),
    }
}
