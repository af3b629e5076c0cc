//! Who could lead a partition without loss although it is not in sync (KIP-966).

use std::collections::BTreeMap;

use towpath_model::{BrokerId, PartitionIndex};
use towpath_protocol::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopicRequest, DescribeTopicPartitionsResponse,
};

use super::{Admin, check, only};
use crate::error::Result;

/// Partitions that one answer may list; the broker may allow fewer.
const PAGE: i32 = 2_000;

impl Admin {
    /// Eligible leader replicas by partition; partitions without any are missing.
    pub async fn eligible_leaders(
        &self,
        topic: &str,
    ) -> Result<BTreeMap<PartitionIndex, Vec<BrokerId>>> {
        let mut eligible = BTreeMap::new();
        let mut from = Some(0);
        while let Some(first) = from.take() {
            let request = DescribeTopicPartitionsRequest {
                topics: vec![DescribeTopicPartitionsRequestTopicRequest { name: topic }],
                response_partition_limit: PAGE,
                cursor: Some(DescribeTopicPartitionsRequestCursor {
                    topic_name: topic,
                    partition_index: first,
                }),
            };
            let answer = self.cluster.call_any(&request).await?;
            let response: DescribeTopicPartitionsResponse<'_> = answer.read()?;
            let next = response.next_cursor.as_ref().map(|cursor| cursor.partition_index);
            // One that does not go forward would be asked for ever.
            from = next.filter(|next| first < *next);
            let doing = || format!("describing the partitions of topic {topic:?}");
            let described = only(response.topics, doing)?;
            check(doing, described.error_code, None)?;
            for partition in described.partitions {
                let brokers = partition.eligible_leader_replicas.unwrap_or_default();
                if !brokers.is_empty() {
                    let brokers = brokers.into_iter().map(BrokerId).collect();
                    eligible.insert(PartitionIndex(partition.partition_index), brokers);
                }
            }
        }
        Ok(eligible)
    }
}
