//! The bytes of logged group records: those of Kafka's `__consumer_offsets`, so that tools which
//! read that topic work.
//!
//! ```text
//! key    i16 type │ 0, 1: group STRING, topic STRING, partition i32      2: group STRING
//! value  i16 version │ fields of that version
//! ```
//!
//! Written is what Kafka 4.4 writes: offsets as version 4 (1 when the committer named an expiry,
//! which has no place elsewhere), groups as version 3. Read is every version there ever was. Keys
//! of other types (3 and up: KIP-848, share and streams groups) are skipped.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{
    FoldError, Generation, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId,
};

use super::record::{Record, StoredGroup, StoredMember};
use super::reply::CommittedOffset;
use crate::cursor::{Reader, put_bytes, put_compact_string, put_string, put_uvarint};

const KEY_LEGACY_OFFSET: i16 = 0;
const KEY_OFFSET: i16 = 1;
const KEY_GROUP: i16 = 2;
const GROUP_VERSION: i16 = 3;
const OFFSET_VERSION: i16 = 4;
const OFFSET_VERSION_WITH_EXPIRY: i16 = 1;
/// Number of the tagged field of an offset's value (version 4) that holds the topic id.
const TAG_TOPIC_ID: u32 = 0;

pub(super) fn group_key(group: &str) -> Vec<u8> {
    let mut out = KEY_GROUP.to_be_bytes().to_vec();
    put_string(&mut out, Some(group));
    out
}

pub(super) fn offset_key(group: &str, topic: &str, partition: PartitionIndex) -> Vec<u8> {
    let mut out = KEY_OFFSET.to_be_bytes().to_vec();
    put_string(&mut out, Some(group));
    put_string(&mut out, Some(topic));
    out.extend(partition.0.to_be_bytes());
    out
}

pub(super) fn offset_value(committed: &CommittedOffset) -> Vec<u8> {
    let mut out = Vec::new();
    match committed.expires_at {
        Some(expires_at) => {
            out.extend(OFFSET_VERSION_WITH_EXPIRY.to_be_bytes());
            out.extend(committed.offset.0.to_be_bytes());
            put_string(&mut out, Some(&committed.metadata));
            out.extend(committed.committed_at.0.to_be_bytes());
            out.extend(expires_at.0.to_be_bytes());
        }
        None => {
            out.extend(OFFSET_VERSION.to_be_bytes());
            out.extend(committed.offset.0.to_be_bytes());
            out.extend(committed.leader_epoch.map_or(-1, |epoch| epoch.0).to_be_bytes());
            put_compact_string(&mut out, &committed.metadata);
            out.extend(committed.committed_at.0.to_be_bytes());
            if committed.topic_id.is_zero() {
                put_uvarint(&mut out, 0);
            } else {
                put_uvarint(&mut out, 1);
                put_uvarint(&mut out, TAG_TOPIC_ID);
                put_uvarint(&mut out, 16);
                out.extend(committed.topic_id.0);
            }
        }
    }
    out
}

pub(super) fn group_value(group: &StoredGroup) -> Vec<u8> {
    let mut out = GROUP_VERSION.to_be_bytes().to_vec();
    put_string(&mut out, Some(&group.protocol_type));
    out.extend(group.generation.0.to_be_bytes());
    put_string(&mut out, group.protocol.as_deref());
    put_string(&mut out, group.leader.as_deref());
    out.extend(group.since.map_or(-1, |since| since.0).to_be_bytes());
    let members = i32::try_from(group.members.len()).expect("group.max.size fits an i32");
    out.extend(members.to_be_bytes());
    for member in &group.members {
        put_string(&mut out, Some(&member.member_id));
        put_string(&mut out, member.group_instance_id.as_deref());
        put_string(&mut out, Some(&member.client_id));
        put_string(&mut out, Some(&member.client_host));
        out.extend(millis(member.rebalance_timeout).to_be_bytes());
        out.extend(millis(member.session_timeout).to_be_bytes());
        put_bytes(&mut out, &member.subscription);
        put_bytes(&mut out, &member.assignment);
    }
    out
}

/// A time limit as the format has it. Limits come from the wire as i32, so none is cut.
fn millis(limit: Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX)
}

pub(super) fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, FoldError> {
    let mut key = Reader::new(key, "key of a group record");
    match key.i16()? {
        KEY_LEGACY_OFFSET | KEY_OFFSET => {
            let group = required_string(&mut key)?;
            let topic = required_string(&mut key)?;
            let partition = PartitionIndex(key.i32()?);
            let Some(value) = value else {
                return Ok(Some(Record::OffsetRemoved { group, topic, partition }));
            };
            let committed = decode_offset(Reader::new(value, "committed offset"))?;
            Ok(Some(Record::OffsetCommitted { group, topic, partition, committed }))
        }
        KEY_GROUP => {
            let group = required_string(&mut key)?;
            let read = |value| decode_group(Reader::new(value, "group metadata"));
            Ok(Some(Record::Stored { group, value: value.map(read).transpose()? }))
        }
        _ => Ok(None),
    }
}

fn required_string(input: &mut Reader<'_>) -> Result<Arc<str>, FoldError> {
    let text = input.string()?;
    input.required(text)
}

fn decode_offset(mut input: Reader<'_>) -> Result<CommittedOffset, FoldError> {
    let version = input.i16()?;
    if !(0..=4).contains(&version) {
        return Err(input.error("version is not known"));
    }
    let offset = Offset(input.i64()?);
    let leader_epoch = match version {
        3.. => Some(input.i32()?).filter(|epoch| 0 <= *epoch).map(LeaderEpoch),
        _ => None,
    };
    let metadata = if 4 <= version { input.compact_string()? } else { input.string()? };
    let metadata = input.required(metadata)?;
    let committed_at = Timestamp(input.i64()?);
    let expires_at = match version {
        1 => Some(input.i64()?).filter(|at| *at != -1).map(Timestamp),
        _ => None,
    };
    let mut topic_id = TopicId::ZERO;
    if 4 <= version {
        input.tagged_fields(|number, mut field| {
            if number == TAG_TOPIC_ID {
                topic_id = field.uuid()?;
            }
            Ok(())
        })?;
    }
    Ok(CommittedOffset { offset, leader_epoch, metadata, committed_at, expires_at, topic_id })
}

fn decode_group(mut input: Reader<'_>) -> Result<StoredGroup, FoldError> {
    let version = input.i16()?;
    if !(0..=4).contains(&version) {
        return Err(input.error("version is not known"));
    }
    let compact = 4 <= version;
    let protocol_type = text(&mut input, compact)?;
    let protocol_type = input.required(protocol_type)?;
    let generation = Generation(input.i32()?);
    let protocol = text(&mut input, compact)?;
    let leader = text(&mut input, compact)?;
    let since = match version {
        2.. => Some(input.i64()?).filter(|at| *at != -1).map(Timestamp),
        _ => None,
    };
    let count = match compact {
        true => i64::from(input.uvarint()?) - 1,
        false => i64::from(input.i32()?),
    };
    let mut members = Vec::new();
    for _ in 0..count {
        // Grows with what is read, so that a wrong count allocates nothing.
        members.push(decode_member(&mut input, version)?);
    }
    if compact {
        input.tagged_fields(|_, _| Ok(()))?;
    }
    Ok(StoredGroup { protocol_type, generation, protocol, leader, since, members })
}

fn decode_member(input: &mut Reader<'_>, version: i16) -> Result<StoredMember, FoldError> {
    let compact = 4 <= version;
    let member_id = text(input, compact)?;
    let member_id = input.required(member_id)?;
    let group_instance_id = if 3 <= version { text(input, compact)? } else { None };
    let client_id = text(input, compact)?;
    let client_id = input.required(client_id)?;
    let client_host = text(input, compact)?;
    let client_host = input.required(client_host)?;
    let rebalance_timeout = if 1 <= version { Some(input.i32()?) } else { None };
    let session_timeout = input.i32()?;
    let blob = if compact { Reader::compact_bytes } else { Reader::bytes };
    let (subscription, assignment) = (blob(input)?, blob(input)?);
    if compact {
        input.tagged_fields(|_, _| Ok(()))?;
    }
    Ok(StoredMember {
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout: limit(rebalance_timeout.unwrap_or(session_timeout)),
        session_timeout: limit(session_timeout),
        subscription,
        assignment,
    })
}

fn text(input: &mut Reader<'_>, compact: bool) -> Result<Option<Arc<str>>, FoldError> {
    if compact { input.compact_string() } else { input.string() }
}

fn limit(millis: i32) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests;
