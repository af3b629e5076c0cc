//! What lies on the brokers' disks.

use std::ops::Range;
use std::sync::Arc;

use towpath_model::{BrokerId, Offset};
use towpath_protocol::messages::{
    DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse,
};

use super::{Admin, check};
use crate::cluster::Lane;
use crate::error::Result;
use crate::record::TopicPartition;

/// A data directory of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDir {
    /// Whose it is.
    pub broker: BrokerId,
    /// Its path there.
    pub path: String,
    /// Why it is offline, if it is: Kafka's name of the error.
    pub error: Option<&'static str>,
    /// Size of its volume in bytes, where the broker tells.
    pub total_bytes: Option<u64>,
    /// What is free on it in bytes, where the broker tells.
    pub usable_bytes: Option<u64>,
    /// The replicas in it.
    pub partitions: Vec<StoredPartition>,
}

/// A replica on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPartition {
    /// Of which partition.
    pub partition: TopicPartition,
    /// Bytes of its log.
    pub bytes: u64,
    /// Offsets of acknowledged records that cannot be read any more, where the broker tells.
    pub damaged: Vec<Range<Offset>>,
}

impl Admin {
    /// The data directories of all brokers, with the partitions of one topic or of all.
    pub async fn log_dirs(&self, topic: Option<&str>) -> Result<Vec<LogDir>> {
        let topics = match topic {
            None => None,
            Some(name) => {
                let count = self.topic(name).await?.partitions.len();
                let partitions = (0..i32::try_from(count).unwrap_or(i32::MAX)).collect();
                Some(vec![DescribableLogDirTopic { topic: name, partitions }])
            }
        };
        let request = DescribeLogDirsRequest { topics };
        let brokers: Vec<BrokerId> = self.cluster.image().brokers.keys().copied().collect();
        let mut dirs = Vec::new();
        for broker in brokers {
            let answer = self.cluster.call_broker(broker, Lane::Ordinary, &request).await?;
            let response: DescribeLogDirsResponse<'_> = answer.read()?;
            let doing = || format!("describing the data directories of broker {broker}");
            check(doing, response.error_code, None)?;
            for result in &response.results {
                let code = towpath_protocol::ErrorCode::from(result.error_code);
                dirs.push(LogDir {
                    broker,
                    path: result.log_dir.to_owned(),
                    error: (!code.is_ok()).then(|| code.name()),
                    total_bytes: u64::try_from(result.total_bytes).ok(),
                    usable_bytes: u64::try_from(result.usable_bytes).ok(),
                    partitions: stored(&result.topics),
                });
            }
        }
        Ok(dirs)
    }
}

fn stored(topics: &[towpath_protocol::messages::DescribeLogDirsTopic<'_>]) -> Vec<StoredPartition> {
    let of_topic = |topic: &towpath_protocol::messages::DescribeLogDirsTopic<'_>| {
        let name: Arc<str> = topic.name.into();
        let partitions = topic.partitions.iter();
        let stored = partitions.map(|partition| StoredPartition {
            partition: TopicPartition::new(name.clone(), partition.partition_index),
            bytes: u64::try_from(partition.partition_size).unwrap_or(0),
            damaged: (partition.damaged_ranges.iter())
                .map(|range| Offset(range.first_offset)..Offset(range.end_offset))
                .collect(),
        });
        stored.collect::<Vec<_>>()
    };
    topics.iter().flat_map(of_topic).collect()
}
