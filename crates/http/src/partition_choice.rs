//! Which partition a message goes to.
//!
//! ```text
//! partition named ─▶ that one
//! key             ─▶ murmur2 of the key, as every Kafka client computes it
//! producer        ─▶ murmur2 of (producer_id, sequence): a repeat lands where the first one did
//! nothing         ─▶ round robin per request; the messages of one request stay together
//! ```

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use towpath_model::PartitionIndex;
use towpath_records::partitioner::partition_of;

use crate::message::NewMessage;

/// Where the next request without keys goes.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicU32);

impl Turns {
    pub(crate) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The partition of a message, or `None` when it names one that the topic does not have.
pub(crate) fn choose(
    message: &NewMessage,
    partitions: NonZeroU32,
    turn: u32,
) -> Option<PartitionIndex> {
    if let Some(named) = message.partition {
        let exists = u32::try_from(named).is_ok_and(|named| named < partitions.get());
        return exists.then_some(PartitionIndex(named));
    }
    if let Some(key) = &message.key {
        return Some(partition_of(key, partitions));
    }
    if let Some((producer, sequence)) = &message.producer {
        let identity = format!("{producer}/{sequence}");
        return Some(partition_of(identity.as_bytes(), partitions));
    }
    let index = i32::try_from(turn % partitions).expect("a topic's partitions are counted in i32");
    Some(PartitionIndex(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> NewMessage {
        NewMessage {
            key: None,
            value: None,
            headers: Vec::new(),
            timestamp: None,
            partition: None,
            producer: None,
        }
    }

    fn ten() -> NonZeroU32 {
        NonZeroU32::new(10).unwrap()
    }

    #[test]
    fn a_named_partition_must_exist() {
        let named = |partition| NewMessage { partition: Some(partition), ..message() };
        assert_eq!(choose(&named(9), ten(), 0), Some(PartitionIndex(9)));
        assert_eq!(choose(&named(10), ten(), 0), None);
        assert_eq!(choose(&named(-1), ten(), 0), None);
    }

    #[test]
    fn keys_go_where_kafka_clients_send_them() {
        let keyed = NewMessage { key: Some(b"21".to_vec()), ..message() };
        assert_eq!(choose(&keyed, ten(), 3), Some(PartitionIndex((-973932308 & i32::MAX) % 10)));
    }

    #[test]
    fn a_repeat_goes_where_the_first_one_went_and_others_spread() {
        let of = |sequence| {
            let producer = Some(("p".to_owned(), sequence));
            choose(&NewMessage { producer, ..message() }, ten(), 0).unwrap()
        };
        assert_eq!(of(5), of(5));
        let used: std::collections::BTreeSet<_> = (0..100).map(of).collect();
        assert_eq!(used.len(), 10);
    }

    #[test]
    fn a_key_counts_more_than_the_producer() {
        let keyed = NewMessage { key: Some(b"21".to_vec()), ..message() };
        let both = NewMessage { producer: Some(("p".to_owned(), 1)), ..keyed.clone() };
        assert_eq!(choose(&keyed, ten(), 0), choose(&both, ten(), 0));
    }

    #[test]
    fn messages_without_anything_take_turns() {
        assert_eq!(choose(&message(), ten(), 3), Some(PartitionIndex(3)));
        assert_eq!(choose(&message(), ten(), 13), Some(PartitionIndex(3)));
    }
}
