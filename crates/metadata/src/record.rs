//! The records of the metadata log. Keys are what a compaction keeps the newest value of; all
//! numbers are big-endian; texts are a u16 length and UTF-8; lists begin with a u16 count. Each
//! value begins with its version, a u8, now 1. A record without a value removes its key.
//!
//! ```text
//! key                                   value after the version
//!  1                                    format level u16
//!  2 topic id [16]                      internal u8, grows u8, name text
//!  3 topic id [16] partition u32        leader i32 (−1 none), leader epoch i32, partition epoch i32,
//!                                       flags u8 (1 unclean, 2 placed by hand), list of (replica i32, directory id [16]), in
//!                                       sync, eligible, adding, removing: four lists of i32
//!  4 2 topic id [16]                    list of (property text, value text), ascending
//!  4 4 broker i32 (−1 all)              list of (property text, value text), ascending
//!  5 broker i32                         epoch i64, incarnation [16], flags u8 (1 fenced, 2 in
//!                                       controlled shutdown, 4 drained, 8 front end), rack text
//!                                       (empty: none), list of (listener text, host text, port u16),
//!                                       directories, those offline: two lists of ids [16], newest
//!                                       format level that it reads u16
//!  6                                    end of the last block of producer ids i64
//! 11                                    cluster id text
//! 12                                    last broker epoch of those that were unregistered i64
//! 15 topic id [16] partition u32        topic text, leader i32, lost from i64, resumed at i64, when (ms since
//!    leader epoch i32                   1970) i64, by text: a loss that an operator accepted
//! 16 task id [16]                       kind u8 (0 redrive, 1 drop, 2 retire), source (topic id [16], name text), list of destinations (as the
//!                                       source; none: where each message came from), filter text, most messages i64, messages per
//!                                       second i64 (−1 no bound), most redrives i64, by text, started i64 (ms since 1970), state u8
//!                                       (0 running, 1 paused, 2 cancelled, 3 done, 4 failed), why u8 (of 4: 0 source, 1 destination
//!                                       deleted, 2 cannot be read), changed i64 (ms since 1970), by text, run i64, counts of
//!                                       messages to look at, looked at, moved, passed over, guarded, stranded (six i64), list of
//!                                       ends by partition i64, goes on at partition i32 offset i64, list of offsets in hand i64
//! ```
//!
//! Reserved: keys 7 users, 8 access rules, 9 quotas, 10 queues; 4 32 configuration of groups. A flag
//! that this version does not know stops it, as a version does. A key
//! that this version does not know is skipped; a version of a known one that it does not know stops
//! it, so a newer format level comes before such a record.

mod bytes;
mod task;

use std::collections::BTreeMap;

use towpath_model::{
    BrokerId, FoldError, FoldRecord, KeyValue, LeaderEpoch, Offset, PartitionIndex, ProducerId,
    Timestamp, TopicId, TopicName, TopicPartition, Uuid,
};

use crate::accept_loss::AcceptedLoss;
use crate::broker::{Address, Broker, Role};
use crate::session::Soft;
use crate::task::Task;
use crate::topic::PartitionState;
use bytes::{Reader, Writer};
use task::{read_task, write_task};

/// Values of properties, by name.
pub type Overrides = BTreeMap<String, String>;

/// What a configuration record is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfiguredResource {
    /// A topic, by its permanent id.
    Topic(TopicId),
    /// A broker; `None` is all of them.
    Broker(Option<BrokerId>),
}

/// One change of the metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Formats up to this level may be written.
    FormatLevel(u16),
    /// A topic is there. Its partitions follow in the same append.
    Topic {
        /// Its identity.
        id: TopicId,
        /// Its name.
        name: TopicName,
        /// Whether the cluster keeps it for itself.
        internal: bool,
        /// Whether the cluster chooses how many replicas it has.
        grows: bool,
    },
    /// A topic is gone. Its partitions and configuration have gone before it, in the same append.
    TopicRemoved {
        /// Its identity.
        id: TopicId,
    },
    /// A partition has this state.
    Partition {
        /// Which one.
        partition: TopicPartition,
        /// Its state.
        state: PartitionState,
    },
    /// A partition is gone.
    PartitionRemoved {
        /// Which one.
        partition: TopicPartition,
    },
    /// A resource has exactly these values.
    Config {
        /// Which one.
        resource: ConfiguredResource,
        /// Its values; none at all is what it has without a record.
        overrides: Overrides,
    },
    /// A broker has registered, or what is known of it has changed.
    Broker(Broker),
    /// A broker is not one of the cluster's any more.
    BrokerRemoved {
        /// Which one.
        id: BrokerId,
    },
    /// A broker that had this data directory was removed: neither comes back without the other's loss.
    Retired {
        /// Whose it was.
        broker: BrokerId,
        /// Which one.
        directory: Uuid,
    },
    /// An operator has given up records of a partition. Stays, whatever becomes of the topic.
    AcceptedLoss(AcceptedLoss),
    /// A task is there, or has changed.
    Task(Box<Task>),
    /// A task is not kept any more.
    TaskRemoved {
        /// Which one.
        id: Uuid,
    },
    /// Broker epochs up to this one have been given out.
    BrokerEpoch(i64),
    /// The cluster has a name; the first one stays.
    ClusterId(String),
    /// Producer ids below `end` belong to whoever logged this; none of them is given out by a
    /// process that finds the record in its log.
    ProducerIdBlock {
        /// First id of the next block.
        end: i64,
    },
    /// An id of the current block has been given out. Not logged: after a restart the rest of the
    /// block is left alone.
    ProducerIdTaken(ProducerId),
    /// What only the controller keeps. Not logged: a new controller begins anew.
    Soft(Soft),
}

const FORMAT_LEVEL: u8 = 1;
const TOPIC: u8 = 2;
const PARTITION: u8 = 3;
const CONFIG: u8 = 4;
const BROKER: u8 = 5;
const PRODUCER_IDS: u8 = 6;
const CLUSTER_ID: u8 = 11;
const BROKER_EPOCH: u8 = 12;
const RETIRED: u8 = 14;
const ACCEPTED_LOSS: u8 = 15;
const TASK: u8 = 16;

const CONFIG_OF_TOPIC: u8 = 2;
const CONFIG_OF_BROKER: u8 = 4;

const VERSION: u8 = 1;
const NO_BROKER: i32 = -1;

const UNCLEAN: u8 = 1;
const PLACED_BY_HAND: u8 = 2;
const FENCED: u8 = 1;
const IN_CONTROLLED_SHUTDOWN: u8 = 2;
const DRAINED: u8 = 4;
const FRONTEND: u8 = 8;

impl FoldRecord for Record {
    fn encode(&self) -> Option<KeyValue> {
        if !self.is_logged() {
            return None;
        }
        Some(KeyValue { key: self.key(), value: self.value() })
    }

    fn is_logged(&self) -> bool {
        !matches!(self, Record::ProducerIdTaken(_) | Record::Soft(_))
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, FoldError> {
        let mut key = Reader::new(key);
        let kind = key.u8()?;
        let record = match kind {
            FORMAT_LEVEL => Record::FormatLevel(versioned(value)?.whole(Reader::u16)?),
            TOPIC => topic(key.whole(Reader::uuid)?, value)?,
            PARTITION => partition(key.whole(topic_partition)?, value)?,
            CONFIG => match configured_resource(&mut key)? {
                Some(resource) => config(resource, value)?,
                None => return Ok(None),
            },
            BROKER => broker(BrokerId(key.whole(Reader::i32)?), value)?,
            PRODUCER_IDS => Record::ProducerIdBlock { end: versioned(value)?.whole(Reader::i64)? },
            CLUSTER_ID => Record::ClusterId(versioned(value)?.whole(Reader::text)?),
            RETIRED => retired(&mut key, value)?,
            ACCEPTED_LOSS => accepted_loss(&mut key, value)?,
            TASK => task(key.whole(Reader::uuid)?, value)?,
            BROKER_EPOCH => Record::BrokerEpoch(versioned(value)?.whole(Reader::i64)?),
            _ => return Ok(None),
        };
        Ok(Some(record))
    }
}

impl Record {
    fn key(&self) -> Vec<u8> {
        let mut key = Writer::new();
        match self {
            Record::FormatLevel(_) => key.u8(FORMAT_LEVEL),
            Record::Topic { id, .. } | Record::TopicRemoved { id } => key.u8(TOPIC).uuid(*id),
            Record::Partition { partition, .. } | Record::PartitionRemoved { partition } => {
                key.u8(PARTITION).uuid(partition.topic).i32(partition.partition.0)
            }
            Record::Config { resource: ConfiguredResource::Topic(id), .. } => {
                key.u8(CONFIG).u8(CONFIG_OF_TOPIC).uuid(*id)
            }
            Record::Config { resource: ConfiguredResource::Broker(broker), .. } => {
                key.u8(CONFIG).u8(CONFIG_OF_BROKER).i32(broker.map_or(NO_BROKER, |id| id.0))
            }
            Record::Broker(Broker { id, .. }) | Record::BrokerRemoved { id } => {
                key.u8(BROKER).i32(id.0)
            }
            Record::BrokerEpoch(_) => key.u8(BROKER_EPOCH),
            Record::AcceptedLoss(AcceptedLoss { partition, leader_epoch, .. }) => {
                let TopicPartition { topic, partition } = *partition;
                key.u8(ACCEPTED_LOSS).uuid(topic).i32(partition.0).i32(leader_epoch.0)
            }
            Record::Task(task) => key.u8(TASK).uuid(task.id),
            Record::TaskRemoved { id } => key.u8(TASK).uuid(*id),
            Record::Retired { broker, directory } => key.u8(RETIRED).i32(broker.0).uuid(*directory),
            Record::ClusterId(_) => key.u8(CLUSTER_ID),
            Record::ProducerIdBlock { .. } | Record::ProducerIdTaken(_) => key.u8(PRODUCER_IDS),
            Record::Soft(_) => &mut key,
        };
        key.finish()
    }

    fn value(&self) -> Option<Vec<u8>> {
        let mut value = Writer::new();
        value.u8(VERSION);
        match self {
            Record::FormatLevel(level) => value.u16(*level),
            Record::Topic { name, internal, grows, .. } => {
                value.u8(u8::from(*internal)).u8(u8::from(*grows)).text(name.as_str())
            }
            Record::Partition { state, .. } => write_partition(&mut value, state),
            Record::Config { overrides, .. } if overrides.is_empty() => return None,
            Record::Config { overrides, .. } => {
                let pairs: Vec<_> = overrides.iter().collect();
                value.list(&pairs, |out, (name, value)| out.text(name).text(value))
            }
            Record::Broker(broker) => write_broker(&mut value, broker),
            Record::BrokerEpoch(epoch) => value.i64(*epoch),
            Record::Retired { .. } => &mut value,
            Record::Task(task) => write_task(&mut value, task),
            Record::AcceptedLoss(loss) => value
                .text(loss.topic.as_str())
                .i32(loss.leader.0)
                .i64(loss.lost_from.0)
                .i64(loss.resume_at.0)
                .i64(loss.at.0)
                .text(&loss.by),
            Record::ClusterId(id) => value.text(id),
            Record::ProducerIdBlock { end } => value.i64(*end),
            Record::TopicRemoved { .. }
            | Record::PartitionRemoved { .. }
            | Record::BrokerRemoved { .. }
            | Record::TaskRemoved { .. }
            | Record::ProducerIdTaken(_)
            | Record::Soft(_) => return None,
        };
        Some(value.finish())
    }
}

fn write_partition<'w>(out: &'w mut Writer, state: &PartitionState) -> &'w mut Writer {
    let replicas: Vec<_> = state.replicas.iter().zip(&state.directories).collect();
    out.i32(state.leader.map_or(NO_BROKER, |leader| leader.0))
        .i32(state.leader_epoch.0)
        .i32(state.partition_epoch)
        .u8(flags(&[(state.unclean, UNCLEAN), (state.placed_by_hand, PLACED_BY_HAND)]))
        .list(&replicas, |out, (broker, directory)| out.i32(broker.0).uuid(**directory));
    for brokers in [&state.in_sync, &state.eligible, &state.adding, &state.removing] {
        out.list(brokers, |out, broker| out.i32(broker.0));
    }
    out
}

fn write_broker<'w>(out: &'w mut Writer, broker: &Broker) -> &'w mut Writer {
    let flags = flags(&[
        (broker.fenced, FENCED),
        (broker.in_controlled_shutdown, IN_CONTROLLED_SHUTDOWN),
        (broker.drained, DRAINED),
        (broker.role == Role::Frontend, FRONTEND),
    ]);
    out.i64(broker.epoch)
        .uuid(broker.incarnation)
        .u8(flags)
        .text(broker.rack.as_deref().unwrap_or_default())
        .list(&broker.addresses, |out, address| {
            out.text(&address.listener).text(&address.host).u16(address.port)
        })
        .list(&broker.directories, |out, directory| out.uuid(*directory))
        .list(&broker.offline, |out, directory| out.uuid(*directory))
        .u16(broker.format_level)
}

fn flags(flags: &[(bool, u8)]) -> u8 {
    flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
}

fn known_flags(reader: &mut Reader<'_>, known: u8) -> Result<u8, FoldError> {
    let flags = reader.u8()?;
    match flags & !known {
        0 => Ok(flags),
        unknown => Err(FoldError(format!("flags {unknown} that this program does not know"))),
    }
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, FoldError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(FoldError(format!("{other} where 0 or 1 is expected"))),
    }
}

fn versioned(value: Option<&[u8]>) -> Result<Reader<'_>, FoldError> {
    let value = value.ok_or_else(|| FoldError("a record that cannot be removed is".to_owned()))?;
    let mut reader = Reader::new(value);
    match reader.u8()? {
        VERSION => Ok(reader),
        version => Err(FoldError(format!("version {version}, this program reads {VERSION}"))),
    }
}

fn retired(key: &mut Reader<'_>, value: Option<&[u8]>) -> Result<Record, FoldError> {
    versioned(value)?.whole(|_| Ok(()))?;
    let (broker, directory) = key.whole(|key| Ok((BrokerId(key.i32()?), key.uuid()?)))?;
    Ok(Record::Retired { broker, directory })
}

fn accepted_loss(key: &mut Reader<'_>, value: Option<&[u8]>) -> Result<Record, FoldError> {
    let (partition, leader_epoch) =
        key.whole(|key| Ok((topic_partition(key)?, LeaderEpoch(key.i32()?))))?;
    let loss = versioned(value)?.whole(|reader| {
        let topic = TopicName::new(&reader.text()?);
        Ok(AcceptedLoss {
            partition,
            topic: topic.map_err(|refusal| FoldError(refusal.to_string()))?,
            leader_epoch,
            leader: BrokerId(reader.i32()?),
            lost_from: Offset(reader.i64()?),
            resume_at: Offset(reader.i64()?),
            at: Timestamp(reader.i64()?),
            by: reader.text()?,
        })
    })?;
    Ok(Record::AcceptedLoss(loss))
}

fn task(id: Uuid, value: Option<&[u8]>) -> Result<Record, FoldError> {
    if value.is_none() {
        return Ok(Record::TaskRemoved { id });
    }
    let task = versioned(value)?.whole(|reader| read_task(id, reader))?;
    Ok(Record::Task(Box::new(task)))
}

fn topic(id: TopicId, value: Option<&[u8]>) -> Result<Record, FoldError> {
    if value.is_none() {
        return Ok(Record::TopicRemoved { id });
    }
    let (internal, grows, name) =
        versioned(value)?.whole(|reader| Ok((flag(reader)?, flag(reader)?, reader.text()?)))?;
    let name = TopicName::new(&name).map_err(|refusal| FoldError(refusal.to_string()))?;
    Ok(Record::Topic { id, name, internal, grows })
}

fn topic_partition(key: &mut Reader<'_>) -> Result<TopicPartition, FoldError> {
    let topic = key.uuid()?;
    let index = key.i32()?;
    if index < 0 {
        return Err(FoldError(format!("partition {index}")));
    }
    Ok(TopicPartition { topic, partition: PartitionIndex(index) })
}

fn partition(partition: TopicPartition, value: Option<&[u8]>) -> Result<Record, FoldError> {
    if value.is_none() {
        return Ok(Record::PartitionRemoved { partition });
    }
    let brokers = |reader: &mut Reader<'_>| reader.list(|reader| Ok(BrokerId(reader.i32()?)));
    let state = versioned(value)?.whole(|reader| {
        let leader = Some(reader.i32()?).filter(|id| *id != NO_BROKER).map(BrokerId);
        let leader_epoch = LeaderEpoch(reader.i32()?);
        let partition_epoch = reader.i32()?;
        let flags = known_flags(reader, UNCLEAN | PLACED_BY_HAND)?;
        let replicas = reader.list(|reader| Ok((BrokerId(reader.i32()?), reader.uuid()?)))?;
        let (replicas, directories) = replicas.into_iter().unzip();
        Ok(PartitionState {
            leader,
            leader_epoch,
            partition_epoch,
            replicas,
            directories,
            in_sync: brokers(reader)?,
            eligible: brokers(reader)?,
            adding: brokers(reader)?,
            removing: brokers(reader)?,
            unclean: flags & UNCLEAN != 0,
            placed_by_hand: flags & PLACED_BY_HAND != 0,
        })
    })?;
    Ok(Record::Partition { partition, state })
}

fn configured_resource(key: &mut Reader<'_>) -> Result<Option<ConfiguredResource>, FoldError> {
    match key.u8()? {
        CONFIG_OF_TOPIC => Ok(Some(ConfiguredResource::Topic(key.whole(Reader::uuid)?))),
        CONFIG_OF_BROKER => {
            let id = key.whole(Reader::i32)?;
            let broker = Some(id).filter(|id| *id != NO_BROKER).map(BrokerId);
            Ok(Some(ConfiguredResource::Broker(broker)))
        }
        _ => Ok(None),
    }
}

fn config(resource: ConfiguredResource, value: Option<&[u8]>) -> Result<Record, FoldError> {
    if value.is_none() {
        return Ok(Record::Config { resource, overrides: Overrides::new() });
    }
    let pairs = versioned(value)?
        .whole(|reader| reader.list(|reader| Ok((reader.text()?, reader.text()?))))?;
    Ok(Record::Config { resource, overrides: pairs.into_iter().collect() })
}

fn broker(id: BrokerId, value: Option<&[u8]>) -> Result<Record, FoldError> {
    if value.is_none() {
        return Ok(Record::BrokerRemoved { id });
    }
    let uuids =
        |reader: &mut Reader<'_>| reader.list(|reader| -> Result<Uuid, _> { reader.uuid() });
    let broker = versioned(value)?.whole(|reader| {
        let epoch = reader.i64()?;
        let incarnation = reader.uuid()?;
        let known = FENCED | IN_CONTROLLED_SHUTDOWN | DRAINED | FRONTEND;
        let flags = known_flags(reader, known)?;
        let is_set = |flag| flags & flag != 0;
        Ok(Broker {
            id,
            epoch,
            incarnation,
            role: if is_set(FRONTEND) { Role::Frontend } else { Role::Broker },
            rack: Some(reader.text()?).filter(|rack| !rack.is_empty()),
            addresses: reader.list(|reader| {
                Ok(Address { listener: reader.text()?, host: reader.text()?, port: reader.u16()? })
            })?,
            directories: uuids(reader)?,
            offline: uuids(reader)?,
            format_level: reader.u16()?,
            fenced: is_set(FENCED),
            in_controlled_shutdown: is_set(IN_CONTROLLED_SHUTDOWN),
            drained: is_set(DRAINED),
        })
    })?;
    Ok(Record::Broker(broker))
}
