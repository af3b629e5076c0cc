//! From a log to the state it had: producers, epochs, and whatever is folded from its records.

use std::sync::Arc;

use towpath_broker::{Host, OFFSETS_TOPIC, PUBLISHERS_TOPIC, Partition, State};
use towpath_coordinator::groups::Groups;
use towpath_coordinator::publishers::Publishers;
use towpath_log::disk::Disk;
use towpath_log::{Log, LogError};
use towpath_metadata::PartitionState;
use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::{BrokerConfig, TopicConfig};
use towpath_model::{
    BrokerId, FoldError, FoldRecord, LeaderEpoch, Now, Offset, StateMachine, TopicName,
    TopicPartition,
};
use towpath_queue::Deliveries;
use towpath_records::{Scratch, records};
use towpath_replication::{
    EpochHistory, EpochStart, Leader, LeaderStart, Producers, Replica, ReplicaStart,
};

use crate::cell::Slot;
use crate::config::{delivery_config, groups_config, publishers_config};
use crate::replicas::in_sync_of;

/// Why a log's state cannot be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The log itself.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record that this version cannot read.
    #[error("the record at offset {offset}: {source}")]
    Record {
        /// Where.
        offset: Offset,
        /// What is wrong.
        source: FoldError,
    },
}

impl RecoverError {
    /// Whether only this partition cannot be used.
    pub(crate) fn is_of_one_partition(&self) -> bool {
        match self {
            RecoverError::Log(error) => error.is_of_one_log(),
            RecoverError::Record { .. } => true,
        }
    }
}

/// Most bytes that the records of one of our own batches may have.
const STATE_BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Folds every record of `log` into `machine`, and shows each to `witness`.
pub(crate) fn replay<M: StateMachine, D: Disk>(
    mut machine: M,
    log: &Log<D>,
    witness: impl FnMut(&M::Record),
) -> Result<M, RecoverError> {
    let mut end = log.log_end_offset();
    if mutant::is_on(Mutant::LastBatchNotReplayed) {
        end = Offset((end.0 - 1).max(log.log_start_offset().0));
    }
    fold_until(&mut machine, log, log.log_start_offset(), end, u64::MAX, witness)?;
    Ok(machine)
}

/// Folds the whole batches of `log` between two offsets into `machine`, and ends before `end` after the batch with
/// which it has read `bytes_max`. Says how far it came.
pub(crate) fn fold_until<M: StateMachine, D: Disk>(
    machine: &mut M,
    log: &Log<D>,
    from: Offset,
    end: Offset,
    bytes_max: u64,
    mut witness: impl FnMut(&M::Record),
) -> Result<Offset, RecoverError> {
    let mut scratch = Scratch::default();
    let mut read_bytes = 0;
    for batch in log.batches(from, end) {
        let (header, bytes) = batch?;
        if end < header.next_offset() {
            return Ok(header.base_offset());
        }
        let unreadable =
            |offset, text: String| RecoverError::Record { offset, source: FoldError(text) };
        let iter = records(&bytes, STATE_BATCH_BYTES_MAX, &mut scratch)
            .map_err(|error| unreadable(header.base_offset(), error.to_string()))?;
        for record in iter {
            let record =
                record.map_err(|error| unreadable(header.base_offset(), error.to_string()))?;
            let offset = header.offset_of(record.offset_delta);
            let Some(key) = record.key else { continue };
            let decoded = M::Record::decode(key, record.value)
                .map_err(|source| RecoverError::Record { offset, source })?;
            if let Some(record) = decoded {
                witness(&record);
                machine.apply(&record);
            }
        }
        read_bytes += bytes.len() as u64;
        if bytes_max <= read_bytes {
            return Ok(header.next_offset());
        }
    }
    Ok(end)
}

/// The state that a topic's records are folded into, by the topic's name.
pub(crate) fn state_of_topic<D: Disk>(
    name: &TopicName,
    broker: &BrokerConfig,
    log: &Log<D>,
) -> Result<State, RecoverError> {
    match name.as_str() {
        OFFSETS_TOPIC => {
            let machine = replay(Groups::new(groups_config(broker)), log, |_| {})?;
            Ok(State::Groups(Box::new(Host::new(machine))))
        }
        PUBLISHERS_TOPIC => {
            let machine = replay(Publishers::new(publishers_config()), log, |_| {})?;
            Ok(State::Publishers(Box::new(Host::new(machine))))
        }
        _ => Ok(State::None),
    }
}

/// What a delivery log adds up to.
pub(crate) fn state_of_deliveries<D: Disk>(
    config: &TopicConfig,
    log: &Log<D>,
) -> Result<State, RecoverError> {
    let config = Arc::new(delivery_config(config));
    let mut machine = Deliveries::new(Arc::clone(&config));
    let mut is_found = false;
    if Offset::ZERO < log.log_start_offset() {
        machine = replay(Deliveries::from_snapshot(Arc::clone(&config)), log, |_| {})?;
        is_found = !machine.awaits_snapshot();
    }
    if !is_found {
        // It begins where it began: at its start, or anew after everything was lost.
        machine = replay(Deliveries::new(config), log, |_| {})?;
    }
    Ok(State::Deliveries(Box::new(Host::new(machine))))
}

/// What a replica's core is told besides its log.
pub(crate) struct Held<'a> {
    pub(crate) id: TopicPartition,
    pub(crate) me: BrokerId,
    pub(crate) partition: &'a PartitionState,
    pub(crate) config: &'a TopicConfig,
    /// How many replicas must be in sync.
    pub(crate) min_in_sync: u32,
    /// Most producers that a partition remembers.
    pub(crate) producers_max: usize,
}

/// Begins to lead a recovered log. Everything in it is durable: recovery has synced it.
pub(crate) fn lead<D: Disk>(
    held: &Held<'_>,
    state: State,
    log: &Log<D>,
    now: Now,
) -> Result<Partition, RecoverError> {
    let (producers, epochs) = producers_and_epochs(held, log, now)?;
    let Held { id, me, partition, config, .. } = *held;
    let leader = Leader::new(LeaderStart {
        me,
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch,
        begun_at: now.time,
        replicas: partition.replicas.clone(),
        in_sync: in_sync_of(id, partition),
        min_insync_replicas: held.min_in_sync,
        durability: config.durability,
        log_start_offset: log.log_start_offset(),
        log_end_offset: log.log_end_offset(),
        durable_offset: log.durable_offset(),
        high_watermark: log.log_start_offset(),
        producers,
        epochs,
    });
    Ok(Partition::new(id, leader, state))
}

/// Begins to follow with a recovered log. What of it is committed its leader will say.
pub(crate) fn follow<D: Disk>(
    held: &Held<'_>,
    log: &Log<D>,
    now: Now,
) -> Result<Partition, RecoverError> {
    let (producers, epochs) = producers_and_epochs(held, log, now)?;
    let Held { id, me, partition, config, .. } = *held;
    let replica = Replica::new(ReplicaStart {
        me,
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        log_start_offset: log.log_start_offset(),
        log_end_offset: log.log_end_offset(),
        durable_offset: log.durable_offset(),
        high_watermark: log.log_start_offset(),
        durability: config.durability,
        producers,
        epochs,
    });
    Ok(Partition::followed(id, replica))
}

/// A batch names its leadership outside of its checksum. One that cannot be, because it comes after
/// this leadership, is damage there and nowhere else: it is no part of the history. Nor does a header
/// that cannot be read, in a segment that no recovery scans, keep the broker from starting.
fn producers_and_epochs<D: Disk>(
    held: &Held<'_>,
    log: &Log<D>,
    now: Now,
) -> Result<(Producers, EpochHistory), RecoverError> {
    read_producers(held.id, held.partition.leader_epoch, held.producers_max, log, now)
        .map_err(RecoverError::Log)
}

/// What the log up to its end says of its producers, and of leaderships up to `latest`.
pub(crate) fn read_producers<D: Disk>(
    id: TopicPartition,
    latest: LeaderEpoch,
    producers_max: usize,
    log: &Log<D>,
    now: Now,
) -> Result<(Producers, EpochHistory), LogError> {
    let led = LeaderEpoch(0)..=latest;
    let saved = log
        .load_producers(log.log_end_offset())
        .and_then(|(at, payload)| {
            let (producers, mut epochs) = decode_snapshot(&payload, now, producers_max)?;
            // A leader's own, if it had written nothing yet. What came after may be of an older one.
            epochs.truncate_from_end(at);
            Some((at, (producers, epochs)))
        })
        .filter(|(_, (_, epochs))| epochs.latest().is_none_or(|latest| led.contains(&latest)));
    let (from, (mut producers, mut epochs)) = saved.unwrap_or_else(|| {
        (log.log_start_offset(), (Producers::new(producers_max), EpochHistory::new()))
    });
    if mutant::is_on(Mutant::SnapshotWithoutProducers) {
        producers = Producers::new(producers_max);
    }
    let mut from = from;
    loop {
        let mut damaged_to = None;
        for header in log.headers(from) {
            let header = match header {
                Err(LogError::Corrupt { from, to, .. }) if from < to => {
                    tracing::error!(partition = %id, %from, %to,
                        "damaged records: who produced them is not known any more");
                    damaged_to = Some(to);
                    break;
                }
                header => header?,
            };
            if !mutant::is_on(Mutant::ProducersForgotten) {
                producers.replay(now, &header);
            }
            if led.contains(&header.leader_epoch()) {
                epochs.enter(header.leader_epoch(), header.base_offset());
            } else {
                tracing::warn!(partition = %id, offset = %header.base_offset(),
                    leader_epoch = %header.leader_epoch(),
                    "a batch names a leader epoch that never was");
            }
        }
        let Some(to) = damaged_to else { break };
        from = to;
    }
    let known = log.leader_epochs().iter().filter(|(epoch, _)| led.contains(epoch));
    let known = known.map(|(epoch, start)| EpochStart { epoch: *epoch, start: *start });
    let mut epochs = epochs.merged(known);
    epochs.truncate_from_start(log.log_start_offset());
    Ok((producers, epochs))
}

/// Version of the snapshot payload: producers, then the epoch history.
const SNAPSHOT_VERSION: u8 = 1;

/// What is known of a partition's producers, if records below `to` are all that a start could learn of
/// one of them: a repeat of what it sent must still be known for one when they are gone.
pub(crate) fn producers_at_risk<D: Disk>(slot: &Slot<D>, to: Offset) -> Option<Vec<u8>> {
    let producers = slot.partition.producers();
    // The oldest one counts: it may be repeated although later ones are there.
    let goes = |id| producers.batches(id).first().is_none_or(|first| first.end_offset() <= to);
    producers.iter().any(|producer| goes(producer.id)).then(|| encode_snapshot(&slot.partition))
}

/// Payload of a partition's snapshot file: `version u8, producers length u32, producers,
/// entries u32, (epoch i32, start offset i64)*`, big endian.
pub(crate) fn encode_snapshot(partition: &Partition) -> Vec<u8> {
    encode_producers(partition.producers(), partition.epochs())
}

/// The same of a log that begins, where nothing but its producers is known.
pub(crate) fn encode_producers(producers: &Producers, epochs: &EpochHistory) -> Vec<u8> {
    let producers = producers.encode();
    let entries = epochs.entries();
    let mut payload = vec![SNAPSHOT_VERSION];
    let length = u32::try_from(producers.len()).expect("producers per partition are bounded");
    payload.extend_from_slice(&length.to_be_bytes());
    payload.extend_from_slice(&producers);
    let count = u32::try_from(entries.len()).expect("epochs are i32");
    payload.extend_from_slice(&count.to_be_bytes());
    for entry in entries {
        payload.extend_from_slice(&entry.epoch.0.to_be_bytes());
        payload.extend_from_slice(&entry.start.0.to_be_bytes());
    }
    payload
}

/// `None`: unreadable, so that the caller replays the log instead.
fn decode_snapshot(
    payload: &[u8],
    now: Now,
    producers_max: usize,
) -> Option<(Producers, EpochHistory)> {
    let (version, rest) = payload.split_first()?;
    if *version != SNAPSHOT_VERSION {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (producers, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let producers = Producers::decode(producers, now, producers_max).ok()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut epochs = EpochHistory::default();
    for _ in 0..u32::from_be_bytes(*count) {
        let (epoch, tail) = rest.split_first_chunk::<4>()?;
        let (start, tail) = tail.split_first_chunk::<8>()?;
        epochs.enter(LeaderEpoch(i32::from_be_bytes(*epoch)), Offset(i64::from_be_bytes(*start)));
        rest = tail;
    }
    rest.is_empty().then_some((producers, epochs))
}
