//! Asks leaders for offsets: the earliest, the latest, the first at or after a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use towpath_model::{BrokerId, LeaderEpoch, Offset, Timestamp};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};

use crate::cluster::{Cluster, Lane};
use crate::error::{Error, Result};
use crate::record::TopicPartition;

/// A place in a partition, to be looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first offset that is kept.
    Earliest,
    /// The first offset that is not yet readable: the high watermark, or the last stable offset for
    /// read-committed readers.
    Latest,
    /// The first record whose timestamp is at or after this one.
    At(Timestamp),
    /// The record with the largest timestamp.
    MaxTimestamp,
}

impl OffsetSpec {
    fn on_the_wire(self) -> i64 {
        match self {
            OffsetSpec::Earliest => -2,
            OffsetSpec::Latest => -1,
            OffsetSpec::MaxTimestamp => -3,
            OffsetSpec::At(timestamp) => timestamp.0.max(0),
        }
    }
}

/// Which records of transactions a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// All of them.
    #[default]
    ReadUncommitted,
    /// Those of committed transactions only.
    ReadCommitted,
}

impl Isolation {
    pub(crate) fn on_the_wire(self) -> i8 {
        match self {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
        }
    }
}

/// What a leader said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset.
    pub offset: Offset,
    /// Its record's timestamp, when a time was asked for.
    pub timestamp: Option<Timestamp>,
    /// The leadership that wrote it, where the broker tells.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// Looks up one place per partition. A time after the last record finds nothing, and the partition
/// is missing from the result.
pub(crate) async fn list_offsets(
    cluster: &Cluster,
    wanted: &BTreeMap<TopicPartition, OffsetSpec>,
    isolation: Isolation,
) -> Result<BTreeMap<TopicPartition, FoundOffset>> {
    let mut found = BTreeMap::new();
    let mut left = wanted.clone();
    let mut retries = cluster.retries(cluster.config().request_timeout);
    loop {
        let Err(error) = ask_leaders(cluster, &mut left, &mut found, isolation).await else {
            return Ok(found);
        };
        retries.after(error).await?;
        let topics: Vec<Arc<str>> = left.keys().map(|p| p.topic.clone()).collect();
        // If this fails as well, the next round says so.
        let _ = cluster.leadership_is_stale(&topics).await;
    }
}

/// Asks every leader once and moves what was found from `left` to `found`.
async fn ask_leaders(
    cluster: &Cluster,
    left: &mut BTreeMap<TopicPartition, OffsetSpec>,
    found: &mut BTreeMap<TopicPartition, FoundOffset>,
    isolation: Isolation,
) -> Result<()> {
    let mut by_leader: BTreeMap<BrokerId, BTreeMap<TopicPartition, OffsetSpec>> = BTreeMap::new();
    for (partition, spec) in left.iter() {
        let leader = cluster.leader(&partition.topic, partition.partition).await?;
        by_leader.entry(leader).or_default().insert(partition.clone(), *spec);
    }
    let asked =
        by_leader.iter().map(|(leader, wanted)| ask_leader(cluster, *leader, wanted, isolation));
    let mut outcome = Ok(());
    for answers in join_all(asked).await {
        let answers = answers.unwrap_or_else(|error| {
            outcome = Err(error);
            Vec::new()
        });
        for (partition, answer) in answers {
            match answer {
                Ok(offset) => {
                    left.remove(&partition);
                    found.extend(offset.map(|offset| (partition, offset)));
                }
                Err(error) => outcome = Err(error),
            }
        }
    }
    outcome
}

type Answers = Vec<(TopicPartition, Result<Option<FoundOffset>>)>;

async fn ask_leader(
    cluster: &Cluster,
    leader: BrokerId,
    wanted: &BTreeMap<TopicPartition, OffsetSpec>,
    isolation: Isolation,
) -> Result<Answers> {
    let mut by_topic: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for (partition, spec) in wanted {
        by_topic.entry(&partition.topic).or_default().push(ListOffsetsPartition {
            partition_index: partition.partition.0,
            current_leader_epoch: -1,
            timestamp: spec.on_the_wire(),
        });
    }
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: isolation.on_the_wire(),
        topics: by_topic
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic { name, partitions })
            .collect(),
        timeout_ms: i32::try_from(cluster.config().request_timeout.as_millis()).unwrap_or(i32::MAX),
    };
    let answer = cluster.call_broker(leader, Lane::Ordinary, &request).await?;
    let response: ListOffsetsResponse<'_> = answer.read()?;
    let mut answers = Answers::new();
    for topic in &response.topics {
        for partition in &topic.partitions {
            let place = TopicPartition::new(topic.name, partition.partition_index);
            let code = ErrorCode::from(partition.error_code);
            let answer = if code.is_ok() {
                Ok((partition.offset >= 0).then_some(FoundOffset {
                    offset: Offset(partition.offset),
                    timestamp: (partition.timestamp >= 0).then_some(Timestamp(partition.timestamp)),
                    leader_epoch: (partition.leader_epoch >= 0)
                        .then_some(LeaderEpoch(partition.leader_epoch)),
                }))
            } else {
                Err(Error::refused(format!("looking up offsets of {place}"), code, None))
            };
            answers.push((place, answer));
        }
    }
    Ok(answers)
}
