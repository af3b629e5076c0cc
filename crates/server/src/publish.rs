//! Publishing one batch, for every protocol: check the bytes, append, wait for the promise.

use std::time::Duration;

use towpath_driver::{Clock, Delivery, Outcome, ProduceFailure, Produced};
use towpath_model::properties::{CompressionType, TimestampSource, TopicConfig};
use towpath_model::{Now, Offset, Timestamp, TopicPartition};
use towpath_records::{
    BatchHeader, Compression, InvalidBatch, ProduceRules, RecompressError, Scratch, TimestampType,
    Validated, recompress, validate_produced,
};
use towpath_replication::Acks;

use crate::disk::off_worker;
use crate::node::Node;
use crate::plain_memory::{PLAIN_BYTES_MAX, PlainTurn};
use crate::waiters::Wait;

/// A topic that takes larger batches also takes this many times their size after decompression.
const PLAIN_BYTES_PER_BYTE: usize = 4;

/// A batch of more bytes is not compressed in a worker: gzip takes a millisecond for 50 KiB.
const COMPRESSED_HERE_MAX: usize = 64 * 1024;

/// A batch that is as safe as was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// The broker's time, where the topic stamps records with it.
    pub append_time: Option<Timestamp>,
    /// Where the partition starts.
    pub log_start_offset: Offset,
}

/// Why a batch was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The bytes are not a batch that the topic takes.
    #[error(transparent)]
    Invalid(#[from] InvalidBatch),
    /// The topic wants another codec, and the batch cannot be read for it.
    #[error("the batch cannot be compressed anew: {0}")]
    Recompress(#[from] RecompressError),
    /// A batch larger than a segment can never be stored.
    #[error("the batch has {size} bytes, a segment of the topic holds {max} (segment.bytes)")]
    LargerThanSegment {
        /// Its size.
        size: usize,
        /// What is allowed.
        max: usize,
    },
    /// The memory in which large batches are looked at is in use: not appended.
    #[error("the memory for large batches is in use: try again")]
    PlainMemoryTaken,
    /// Not appended.
    #[error(transparent)]
    NotAppended(#[from] ProduceFailure),
    /// Appended, but leadership was lost before enough replicas had it.
    #[error("leadership was lost before the batch was committed; it may be lost")]
    Resigned,
    /// Appended, but the data directory failed before it was durable.
    #[error("the data directory failed before the batch was durable; it may be lost")]
    StorageFailed,
    /// Appended, but not committed in time.
    #[error("the batch was not committed within {0:?}; it may still be")]
    TimedOut(Duration),
    /// Appended, but too few replicas are in sync to commit it.
    #[error(
        "the batch was not committed within {0:?}: too few replicas are in sync; it may still be"
    )]
    TooFewInSync(Duration),
    /// Appended, but the broker stops.
    #[error("the broker is stopping; the batch may be lost")]
    Stopping,
}

/// A batch that was appended and whose acknowledgement may still have to wait.
pub struct Appended {
    id: TopicPartition,
    produced: Produced,
    wait: Option<Wait>,
}

impl Appended {
    /// Whether the acknowledgement has to wait.
    pub fn is_pending(&self) -> bool {
        self.wait.is_some()
    }

    /// The acknowledgement of a batch that waits for nothing.
    pub(crate) fn settled(&self) -> Acknowledged {
        let Produced { base_offset, append_time, log_start_offset, .. } = self.produced;
        Acknowledged { base_offset, append_time, log_start_offset }
    }
}

fn rules(config: &TopicConfig, now: Now) -> ProduceRules {
    let as_size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
    ProduceRules {
        batch_bytes_max: as_size(config.max_message_bytes),
        plain_bytes_max: PLAIN_BYTES_MAX
            .max(as_size(config.max_message_bytes).saturating_mul(PLAIN_BYTES_PER_BYTE)),
        record_bytes_max: as_size(config.max_decompressed_message_bytes),
        requires_keys: config.cleanup_policy.compact,
        timestamp_type: match config.message_timestamp_type {
            TimestampSource::CreateTime => TimestampType::CreateTime,
            TimestampSource::LogAppendTime => TimestampType::LogAppendTime,
        },
        timestamp_before_ms_max: config.message_timestamp_before_max_ms.unwrap_or(i64::MAX),
        timestamp_after_ms_max: config.message_timestamp_after_max_ms.unwrap_or(i64::MAX),
        now: now.wall,
    }
}

/// The codec that a topic insists on; `None`: whatever the producer chose.
fn wanted_codec(config: &TopicConfig) -> Option<Compression> {
    match config.compression_type {
        CompressionType::Producer => None,
        CompressionType::Uncompressed => Some(Compression::None),
        CompressionType::Gzip => Some(Compression::Gzip),
        CompressionType::Snappy => Some(Compression::Snappy),
        CompressionType::Lz4 => Some(Compression::Lz4),
        CompressionType::Zstd => Some(Compression::Zstd),
    }
}

fn check_in(
    scratch: &mut Scratch,
    batch: &[u8],
    rules: &ProduceRules,
    wanted: Option<Compression>,
) -> Result<(Validated, Option<Vec<u8>>), PublishError> {
    let validated = validate_produced(batch, rules, scratch)?;
    let codec = validated.header.compression().ok();
    let Some(wanted) = wanted.filter(|wanted| codec != Some(*wanted)) else {
        return Ok((validated, None));
    };
    let mut again = recompress(batch, wanted, rules.plain_bytes_max, scratch)?;
    let validated = validate_produced(&again, rules, scratch)?;
    again.shrink_to_fit();
    Ok((validated, Some(again)))
}

impl Node {
    /// Checks `batch` by the rules of its topic and appends it. Does not wait.
    ///
    /// # Errors
    /// [`PublishError`]; the batch is not in the log then.
    pub fn append(
        &self,
        id: TopicPartition,
        config: &TopicConfig,
        batch: &mut [u8],
        acks: Acks,
    ) -> Result<Appended, PublishError> {
        self.append_with(id, config, batch, acks, None)
    }

    /// [`Node::append`] after [`PublishError::PlainMemoryTaken`], with the memory.
    pub(crate) fn append_with(
        &self,
        id: TopicPartition,
        config: &TopicConfig,
        batch: &mut [u8],
        acks: Acks,
        turn: Option<PlainTurn>,
    ) -> Result<Appended, PublishError> {
        let now = self.driver().clock().now();
        let rules = rules(config, now);
        let checked = self.check(batch, &rules, wanted_codec(config), turn);
        let (validated, mut again) = checked.inspect_err(|error| {
            if !matches!(error, PublishError::PlainMemoryTaken) {
                self.metrics().batches_refused.inc();
            }
        })?;
        let bytes = again.as_deref_mut().unwrap_or(batch);
        let max = usize::try_from(config.segment_bytes).unwrap_or(usize::MAX);
        if max < bytes.len() {
            return Err(PublishError::LargerThanSegment { size: bytes.len(), max });
        }
        let wait = self.wait();
        let produced =
            self.driver().produce(id, bytes, &validated, acks, wait.token()).inspect_err(|_| {
                self.metrics().batches_refused.inc();
            })?;
        if produced.is_duplicate {
            self.metrics().batches_duplicate.inc();
        } else {
            let records = u64::try_from(validated.header.record_count()).unwrap_or(0);
            self.metrics().records_appended.inc_by(records);
            self.metrics().record_bytes_appended.inc_by(bytes.len() as u64);
        }
        Ok(Appended { id, produced, wait: produced.is_pending.then_some(wait) })
    }

    /// Checks a batch, and gives it anew where the topic wants another codec.
    fn check(
        &self,
        batch: &[u8],
        rules: &ProduceRules,
        wanted: Option<Compression>,
        turn: Option<PlainTurn>,
    ) -> Result<(Validated, Option<Vec<u8>>), PublishError> {
        let codec = BatchHeader::parse(batch).ok().and_then(|header| header.compression().ok());
        if codec.is_none_or(|codec| codec == Compression::None) {
            // What is in the clear already needs no memory to be looked at.
            let check = || check_in(&mut Scratch::new(), batch, rules, wanted);
            let is_slow = wanted.is_some_and(|wanted| codec != Some(wanted));
            let is_long = is_slow && COMPRESSED_HERE_MAX < batch.len();
            return if is_long { off_worker(check) } else { check() };
        }
        let plain_bytes_max = rules.plain_bytes_max;
        self.plain_memory().look(batch.len(), plain_bytes_max, turn, |scratch, plain_bytes_max| {
            let rules = ProduceRules { plain_bytes_max, ..*rules };
            check_in(scratch, batch, &rules, wanted)
        })
    }

    /// Why a batch is not committed by now.
    fn not_committed(&self, id: TopicPartition, limit: Duration) -> PublishError {
        let lacks = self.driver().with_partition(id, |partition| {
            partition.leader().is_some_and(|leader| leader.lacks_in_sync_replicas())
        });
        match lacks {
            Some(true) => PublishError::TooFewInSync(limit),
            _ => PublishError::TimedOut(limit),
        }
    }

    /// Waits until an appended batch is as safe as was asked for, at most `limit`.
    ///
    /// # Errors
    /// [`PublishError`]: the batch is in the log, but nothing is promised.
    pub async fn acknowledged(
        &self,
        appended: Appended,
        limit: Duration,
    ) -> Result<Acknowledged, PublishError> {
        let settled = appended.settled();
        if let Some(mut wait) = appended.wait {
            let answer = tokio::time::timeout(limit, wait.answer()).await;
            match answer.map_err(|_| self.not_committed(appended.id, limit))? {
                Some(Delivery::Wait(Outcome::Reached)) => {}
                Some(Delivery::Wait(Outcome::StorageFailed)) => {
                    return Err(PublishError::StorageFailed);
                }
                Some(_) => return Err(PublishError::Resigned),
                None => return Err(PublishError::Stopping),
            }
        }
        Ok(settled)
    }
}
