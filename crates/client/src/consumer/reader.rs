//! Reads chosen partitions without a group: a range that ends, or a tail that does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use towpath_model::Offset;

use super::fetcher::{FetchConfig, Fetcher, OffsetReset};
use super::offsets::{OffsetSpec, list_offsets};
use crate::cluster::Cluster;
use crate::error::Result;
use crate::record::{Record, TopicPartition};

/// Where a reader starts or ends in each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// At a place that the leader looks up when the reader opens. A time after the last record
    /// means the end.
    Spec(OffsetSpec),
    /// At this offset.
    Offset(Offset),
    /// At the end, minus so many records.
    BeforeEnd(i64),
    /// Nowhere: reading goes on for ever. Only for ends.
    Never,
}

/// Reads partitions from one bound to another, without a group.
pub struct Reader {
    fetcher: Fetcher,
    /// Exclusive; partitions without one never end.
    ends: BTreeMap<TopicPartition, Offset>,
    is_endless: bool,
}

impl Reader {
    /// Looks the bounds up and starts to read. Records that were deleted meanwhile are skipped.
    pub async fn open(
        cluster: &Cluster,
        partitions: &[TopicPartition],
        start: Bound,
        end: Bound,
        config: FetchConfig,
    ) -> Result<Reader> {
        let isolation = config.isolation;
        let edges = |spec| partitions.iter().map(|p| (p.clone(), spec)).collect();
        let latest = list_offsets(cluster, &edges(OffsetSpec::Latest), isolation).await?;
        let earliest = list_offsets(cluster, &edges(OffsetSpec::Earliest), isolation).await?;
        let starts = resolve(cluster, partitions, start, &latest_of(&latest), &config).await?;
        let ends = resolve(cluster, partitions, end, &latest_of(&latest), &config).await?;

        let mut reader = Reader {
            fetcher: Fetcher::new(cluster.clone(), config, OffsetReset::Earliest),
            ends: BTreeMap::new(),
            is_endless: end == Bound::Never,
        };
        for partition in partitions {
            let first = earliest.get(partition).map_or(Offset::ZERO, |found| found.offset);
            let start = starts.get(partition).copied().unwrap_or(first).max(first);
            match ends.get(partition) {
                Some(end) if *end <= start => {}
                Some(end) => {
                    reader.ends.insert(partition.clone(), *end);
                    reader.fetcher.seek(partition, start);
                }
                None => reader.fetcher.seek(partition, start),
            }
        }
        Ok(reader)
    }

    /// The next records, in order within each partition; empty when `patience` passed without any.
    /// `None` once every partition has reached its end.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Vec<Record>>> {
        let deadline = Instant::now() + patience;
        loop {
            self.retire_finished();
            if self.is_finished() {
                return Ok(None);
            }
            let mut records = self.fetcher.poll(deadline).await?;
            records.retain(|record| self.is_wanted(record));
            if !records.is_empty() {
                return Ok(Some(records));
            }
            self.retire_finished();
            if self.is_finished() {
                return Ok(None);
            }
            if deadline <= Instant::now() {
                return Ok(Some(Vec::new()));
            }
        }
    }

    /// Whether nothing is left to read.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !self.is_endless && self.fetcher.partitions().is_empty()
    }

    /// The partitions that are still read, with their next offsets.
    #[must_use]
    pub fn positions(&self) -> BTreeMap<TopicPartition, Offset> {
        let partitions = self.fetcher.partitions();
        partitions
            .into_iter()
            .filter_map(|p| Some((p.clone(), self.fetcher.position(&p)?)))
            .collect()
    }

    fn is_wanted(&self, record: &Record) -> bool {
        let partition =
            TopicPartition { topic: Arc::clone(&record.topic), partition: record.partition };
        self.ends.get(&partition).is_none_or(|end| record.offset < *end)
    }

    fn retire_finished(&mut self) {
        for partition in self.fetcher.partitions() {
            let position = self.fetcher.position(&partition);
            let is_done = match (self.ends.get(&partition), position) {
                (Some(end), Some(position)) => *end <= position,
                _ => false,
            };
            if is_done {
                self.fetcher.remove(&partition);
            }
        }
    }
}

fn latest_of(
    found: &BTreeMap<TopicPartition, super::offsets::FoundOffset>,
) -> BTreeMap<TopicPartition, Offset> {
    found.iter().map(|(partition, found)| (partition.clone(), found.offset)).collect()
}

/// The offset of `bound` in each partition; none for [`Bound::Never`].
async fn resolve(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    bound: Bound,
    latest: &BTreeMap<TopicPartition, Offset>,
    config: &FetchConfig,
) -> Result<BTreeMap<TopicPartition, Offset>> {
    let each = |offset: &dyn Fn(Offset) -> Offset| {
        latest.iter().map(|(partition, end)| (partition.clone(), offset(*end))).collect()
    };
    Ok(match bound {
        Bound::Never => BTreeMap::new(),
        Bound::Offset(offset) => each(&|end| offset.min(end)),
        Bound::BeforeEnd(records) => each(&|end| Offset((end.0 - records).max(0))),
        Bound::Spec(OffsetSpec::Latest) => latest.clone(),
        Bound::Spec(spec) => {
            let wanted = partitions.iter().map(|p| (p.clone(), spec)).collect();
            let found = list_offsets(cluster, &wanted, config.isolation).await?;
            let of = |(partition, end): (&TopicPartition, &Offset)| {
                (partition.clone(), found.get(partition).map_or(*end, |found| found.offset))
            };
            latest.iter().map(of).collect()
        }
    })
}
