//! Messages as records: what is written into them, and what a receiver reads.

use std::collections::BTreeMap;

use towpath_driver::ReadLimits;
use towpath_model::{BrokerId, Offset, Timestamp, TopicPartition};
use towpath_queue::{
    DEAD_RECEIVES, DEDUP_ID, DELIVER_AFTER, Identity, MOVED_FROM, PRIORITY, TTL, identity,
    identity_header,
};
use towpath_records::{BatchBuilder, Compression, Scratch, records, split_batches};

use super::super::world::World;
use super::account::{Message, Written};
use crate::profile::Violation;

/// A record's headers.
pub(super) type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A record that was read, or is written.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Vec<u8>,
    pub(super) headers: Headers,
}

impl Stored {
    /// A message of a client.
    pub(super) fn of(number: u64, message: &Message, priority: Option<u8>) -> Stored {
        let mut headers = Headers::new();
        let mut say = |name: &[u8], value: String| {
            headers.push((name.to_vec(), Some(value.into_bytes())));
        };
        say(b"own", number.to_string());
        if message.has_id {
            say(DEDUP_ID, format!("id-{number}"));
        }
        if let Some(delay) = message.delay {
            say(DELIVER_AFTER, format!("{}ms", delay.as_millis()));
        }
        if let Some(ttl) = message.ttl {
            say(TTL, format!("{}ms", ttl.as_millis()));
        }
        if let Some(priority) = priority {
            say(PRIORITY, priority.to_string());
        }
        let key = message.group.map(|group| vec![b'g', group]);
        Stored { key, value: number.to_be_bytes().to_vec(), headers }
    }

    /// As it goes to another queue: with its own headers, and where it comes from.
    pub(super) fn carried(&self, identity: &Identity, receives: u32) -> Stored {
        let own = self.headers.iter().filter(|(name, _)| !name.starts_with(b"towpath-"));
        let mut headers: Headers = own.cloned().collect();
        headers.push((MOVED_FROM.to_vec(), Some(identity_header(identity).into_bytes())));
        headers.push((DEAD_RECEIVES.to_vec(), Some(receives.to_string().into_bytes())));
        Stored { headers, ..self.clone() }
    }

    /// What it says.
    pub(super) fn written(&self) -> Result<Written, Violation> {
        let wrong = || Violation::new("INV-Q6", format!("a message has changed: {self:?}"));
        let number = u64::from_be_bytes(self.value.as_slice().try_into().map_err(|_| wrong())?);
        let own = self.headers.iter().find(|(name, _)| name == b"own");
        let own = own.and_then(|(_, value)| value.as_deref());
        if own != Some(number.to_string().as_bytes()) {
            return Err(wrong());
        }
        let text = |wanted: &[u8]| {
            let (_, value) = self.headers.iter().find(|(name, _)| name == wanted)?;
            std::str::from_utf8(value.as_deref()?).ok()
        };
        let from = text(MOVED_FROM).and_then(identity).map(|identity| {
            let partition = TopicPartition { topic: identity.topic, partition: identity.partition };
            (partition, identity.offset, identity.subscription)
        });
        Ok(Written {
            number,
            group: self.key.as_ref().and_then(|key| key.get(1).copied()),
            from,
            dead_receives: text(DEAD_RECEIVES).and_then(|text| text.parse().ok()),
        })
    }
}

/// A batch as whoever sends it makes it.
pub(super) fn batch(all: &[Stored], wall: Timestamp) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None, wall);
    for Stored { key, value, headers } in all {
        let headers = headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref()));
        builder
            .append(wall, key.as_deref(), Some(value), headers)
            .expect("a few records of one time fit a batch");
    }
    builder.build()
}

impl World {
    /// Reads committed messages at the broker that has handed them out; those that are not there any more are
    /// left out. Nothing: it cannot.
    pub(super) fn read_messages(
        &mut self,
        of: BrokerId,
        partition: TopicPartition,
        offsets: &[Offset],
    ) -> Result<Option<BTreeMap<Offset, Stored>>, Violation> {
        let limits = ReadLimits { max_bytes: 1 << 20, at_least_one_batch: true };
        let mut wanted: Vec<Offset> = offsets.to_vec();
        wanted.sort_unstable();
        let mut found = BTreeMap::new();
        while let Some(from) = wanted.first().copied() {
            let read = self.call(of, |driver| driver.read(partition, None, from, false, limits))?;
            let Some(Ok(read)) = read else { return Ok((!found.is_empty()).then_some(found)) };
            let Some(slice) = read.slice.filter(|slice| 0 < slice.len) else { break };
            let bytes = slice.read().map_err(|error| {
                Violation::new("INV-R1", format!("{partition} at broker {of}: {error}"))
            })?;
            let mut scratch = Scratch::default();
            for batch in split_batches(&bytes) {
                let wrong = |what: String| Violation::new("INV-R1", format!("{partition}: {what}"));
                let all = records(batch.bytes, 1 << 24, &mut scratch);
                for record in all.map_err(|error| wrong(error.to_string()))? {
                    let record = record.map_err(|error| wrong(error.to_string()))?;
                    let offset = batch.header.offset_of(record.offset_delta);
                    if wanted.contains(&offset) {
                        let owned = |bytes: &[u8]| bytes.to_vec();
                        let headers = record.headers;
                        let stored = Stored {
                            key: record.key.map(owned),
                            value: record.value.map(owned).unwrap_or_default(),
                            headers: headers.map(|(n, v)| (owned(n), v.map(owned))).collect(),
                        };
                        found.insert(offset, stored);
                    }
                }
            }
            wanted.retain(|offset| slice.next_offset <= *offset);
        }
        Ok(Some(found))
    }
}
