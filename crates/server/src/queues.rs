//! Asking a partition's deliveries, and reading the messages that they hand out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_driver::{Condition, Delivery, FetchRefusal, Outcome, ReadLimits, Slice};
use towpath_model::{Offset, Timestamp, Token, TopicPartition};
use towpath_queue::{Receipt, Receive, Reply, Request};
use towpath_records::{Compression, Record, Scratch, TimestampType, records, split_batches};

use crate::disk::{NodeDisk, off_worker};
use crate::node::{Node, Unavailable, unavailable};
use crate::waiters::Wait;

/// Bytes that are read at first to find messages: so many are looked into in a worker. Who wants more messages than
/// there are in them reads more at once from then on.
const HASTY_BYTES: usize = 64 << 10;
/// Bytes that are read at once at most.
const READ_BYTES_MAX: usize = 1 << 20;
/// The largest batch, decompressed, that is looked into.
const PLAIN_BYTES_MAX: usize = 256 << 20;
/// How long an answer that nobody waits for any more is still waited for, so that it can be given back.
const UNCLAIMED_WAIT: Duration = Duration::from_secs(5);
/// How long a message that was handed out may take to be committed.
const COMMIT_WAIT: Duration = Duration::from_secs(30);
/// Nobody waits.
const NOBODY: Token = Token(0);

/// A message as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its place in the partition.
    pub offset: Offset,
    /// When it was sent, or appended, as the topic has it.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl StoredMessage {
    /// Bytes of its key, value and headers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter().map(|(name, value)| name.len() + len(value));
        len(&self.key) + len(&self.value) + headers.sum::<usize>()
    }
}

/// Why messages that were handed out cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// The records cannot be read.
    #[error(transparent)]
    Fetch(#[from] FetchRefusal),
    /// They were not committed in time.
    #[error("the messages were not committed within {} s: too few replicas are in sync", COMMIT_WAIT.as_secs())]
    NotCommitted,
}

/// What [`Node::read_messages`] has found.
#[derive(Debug, Default)]
pub struct ReadMessages {
    /// The messages that are there.
    pub found: BTreeMap<Offset, StoredMessage>,
    /// Where there is no record any more, although the log goes on behind it.
    pub gone: BTreeSet<Offset>,
}

impl Node {
    /// Asks the deliveries of a partition and waits for the committed answer.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask_deliveries(
        &self,
        id: TopicPartition,
        request: Request,
    ) -> Result<Reply, Unavailable> {
        let mut wait = self.wait();
        self.driver().ask_deliveries(id, wait.token(), request)?;
        answer(wait.answer().await)
    }

    /// Receives messages. Who gives up waiting is given none: what was handed out meanwhile is given back
    /// and does not count as received.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn receive(
        self: &Arc<Node>,
        id: TopicPartition,
        receive: Receive,
    ) -> Result<Reply, Unavailable> {
        let subscription = receive.subscription;
        let wait = self.wait();
        let token = wait.token();
        self.driver().ask_deliveries(id, token, Request::Receive(receive))?;
        let mut waiting = Waiting { node: Arc::clone(self), id, subscription, wait: Some(wait) };
        let delivery = match &mut waiting.wait {
            Some(wait) => wait.answer().await,
            None => None,
        };
        waiting.wait = None;
        answer(delivery)
    }

    /// Reads messages that were handed out, once they are committed, the first ones first, and ends when it has
    /// read `bytes_max` bytes of them.
    ///
    /// # Errors
    /// [`NotRead`].
    pub async fn read_messages(
        &self,
        id: TopicPartition,
        offsets: &[Offset],
        bytes_max: usize,
    ) -> Result<ReadMessages, NotRead> {
        let mut wanted: BTreeSet<Offset> = offsets.iter().copied().collect();
        let mut read_messages = ReadMessages::default();
        let Some(last) = wanted.last() else { return Ok(read_messages) };
        self.committed(id, last.next()).await?;
        let ReadMessages { found, gone } = &mut read_messages;
        let (mut bytes, mut read_bytes) = (0, HASTY_BYTES);
        while let Some(from) = wanted.first().copied().filter(|_| bytes < bytes_max) {
            let limits = ReadLimits { max_bytes: read_bytes, at_least_one_batch: true };
            read_bytes = READ_BYTES_MAX.min(4 * read_bytes);
            let read = self.read(id, from, limits).await?;
            let Some(slice) = read.slice.filter(|slice| 0 < slice.len) else { break };
            let end = slice.next_offset;
            let mut here: BTreeSet<Offset> = wanted.range(..end).copied().collect();
            wanted = wanted.split_off(&end);
            for (offset, message) in pick(&slice, &here)? {
                if bytes_max <= bytes {
                    here.retain(|at| *at < offset);
                    break;
                }
                bytes += message.bytes();
                here.remove(&offset);
                found.insert(offset, message);
            }
            gone.append(&mut here);
        }
        Ok(read_messages)
    }

    async fn committed(&self, id: TopicPartition, end: Offset) -> Result<(), NotRead> {
        let mut wait = self.wait();
        let condition = Condition::HighWatermark(end);
        if !self.driver().watch(id, wait.token(), condition) {
            match tokio::time::timeout(COMMIT_WAIT, wait.answer()).await {
                Ok(Some(Delivery::Wait(Outcome::Reached))) => {}
                // Others may get the offset meanwhile, for another message.
                Ok(_) => return Err(FetchRefusal::NotLeader.into()),
                Err(_) => {
                    self.driver().unwatch(id, wait.token(), condition);
                    return Err(NotRead::NotCommitted);
                }
            }
        }
        Ok(())
    }
}

fn answer(delivery: Option<Delivery>) -> Result<Reply, Unavailable> {
    match delivery {
        Some(Delivery::Deliveries(reply)) => Ok(reply),
        other => Err(unavailable(other)),
    }
}

/// A receive whose answer has not come. Dropped before that, it is called off.
struct Waiting {
    node: Arc<Node>,
    id: TopicPartition,
    subscription: u32,
    wait: Option<Wait>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(mut wait) = self.wait.take() else { return };
        let (node, id, subscription) = (Arc::clone(&self.node), self.id, self.subscription);
        let stop = Request::StopWaiting { waiter: wait.token() };
        let _ = node.driver().ask_deliveries(id, NOBODY, stop);
        // A runtime that ends drops its tasks where nothing can be spawned any more.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // Ends by itself: an answer that was on its way comes soon, or never.
        runtime.spawn(async move {
            let answer = tokio::time::timeout(UNCLAIMED_WAIT, wait.answer()).await;
            let Ok(Some(Delivery::Deliveries(Reply::Received { messages, .. }))) = answer else {
                return;
            };
            let receipts: Vec<Receipt> = messages.iter().map(|message| message.receipt).collect();
            if !receipts.is_empty() {
                let unclaim = Request::Unclaim { subscription, receipts };
                let _ = node.driver().ask_deliveries(id, NOBODY, unclaim);
            }
        });
    }
}

type Picked = Result<Vec<(Offset, StoredMessage)>, FetchRefusal>;

/// The wanted messages of a region: here, where that takes no longer than handing the worker's other work to somebody
/// else would.
fn pick(slice: &Slice<NodeDisk>, wanted: &BTreeSet<Offset>) -> Picked {
    let failed = |error: std::io::Error| FetchRefusal::Storage(error.to_string());
    let resident = (slice.len <= HASTY_BYTES).then(|| slice.read_resident().ok()).flatten();
    match resident {
        Some(bytes) if !has_compressed(&bytes) => pick_of(&bytes, wanted),
        Some(bytes) => off_worker(|| pick_of(&bytes, wanted)),
        None => off_worker(|| pick_of(&slice.read().map_err(failed)?, wanted)),
    }
}

/// A small batch may be large once it is decompressed.
fn has_compressed(bytes: &[u8]) -> bool {
    split_batches(bytes).any(|batch| batch.header.compression() != Ok(Compression::None))
}

fn pick_of(bytes: &[u8], wanted: &BTreeSet<Offset>) -> Picked {
    let damaged = |error: &dyn std::error::Error| FetchRefusal::Corrupt(error.to_string());
    let mut scratch = Scratch::new();
    let mut found = Vec::new();
    for batch in split_batches(bytes) {
        let header = batch.header;
        if wanted.range(header.base_offset()..header.next_offset()).next().is_none() {
            continue;
        }
        batch.check_crc().map_err(|error| damaged(&error))?;
        let in_batch = records(batch.bytes, PLAIN_BYTES_MAX, &mut scratch);
        for record in in_batch.map_err(|error| damaged(&error))? {
            let record = record.map_err(|error| damaged(&error))?;
            let offset = header.offset_of(record.offset_delta);
            if wanted.contains(&offset) {
                let timestamp = match header.timestamp_type() {
                    TimestampType::LogAppendTime => header.max_timestamp(),
                    TimestampType::CreateTime => header.timestamp_of(record.timestamp_delta),
                };
                found.push((offset, message(offset, timestamp, &record)));
            }
        }
    }
    Ok(found)
}

fn message(offset: Offset, timestamp: Timestamp, record: &Record<'_>) -> StoredMessage {
    let bytes = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    StoredMessage {
        offset,
        timestamp,
        key: record.key.map(bytes),
        value: record.value.map(bytes),
        headers: record.headers.map(|(name, value)| (bytes(name), value.map(bytes))).collect(),
    }
}
