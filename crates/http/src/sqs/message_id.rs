//! Ids of messages in the shape of a UUID, as clients expect them.
//!
//! ```text
//! 122 bits of a version 8 UUID:  first 32 of the topic's id │ partition 27 │ offset 63
//! ```
//!
//! So an id says where the message was sent first, and stays when it is moved to another queue.

use towpath_model::{Offset, PartitionIndex, TopicId, Uuid};
use towpath_server::StoredMessage;

use crate::queues::first_identity;

/// The id of what was sent to a place.
pub(super) fn message_id(topic: TopicId, partition: PartitionIndex, offset: Offset) -> String {
    let [a, b, c, d, ..] = topic.0;
    let topic = u128::from(u32::from_be_bytes([a, b, c, d]));
    // Neither is ever negative; partitions of a topic are fewer than 2^27.
    let partition = u128::from(partition.0.unsigned_abs()) & ((1 << 27) - 1);
    let offset = u128::from(offset.0.unsigned_abs()) & ((1 << 63) - 1);
    let bits = topic << 90 | partition << 63 | offset;
    let (high, middle, low) = (bits >> 74, (bits >> 62) & 0xfff, bits & ((1 << 62) - 1));
    let uuid = high << 80 | 0x8 << 76 | middle << 64 | 0b10 << 62 | low;
    Uuid(uuid.to_be_bytes()).hyphenated()
}

/// The id of a stored message, which it has from where it was sent first.
pub(super) fn of_stored(
    topic: TopicId,
    partition: PartitionIndex,
    stored: &StoredMessage,
) -> String {
    match first_identity(stored) {
        Some(first) => message_id(first.topic, first.partition, first.offset),
        None => message_id(topic, partition, stored.offset),
    }
}

/// The number of a message in its queue: they grow within a message group.
pub(super) fn sequence_number(offset: Offset) -> String {
    format!("{:020}", offset.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_ids_of_their_own() {
        let topic = Uuid([0xab; 16]);
        let id = |partition, offset| message_id(topic, PartitionIndex(partition), Offset(offset));
        assert_eq!(id(0, 0), "abababab-0000-8000-8000-000000000000");
        assert_eq!(id(0, 5), "abababab-0000-8000-8000-000000000005");
        assert_eq!(id(1, 0), "abababab-0000-8002-8000-000000000000");
        assert_eq!(id((1 << 27) - 1, i64::MAX), "abababab-ffff-8fff-bfff-ffffffffffff");
        assert_ne!(message_id(Uuid([1; 16]), PartitionIndex(0), Offset(5)), id(0, 5));
    }

    #[test]
    fn sequence_numbers_have_twenty_digits_and_their_order_as_texts() {
        assert_eq!(sequence_number(Offset(7)), "00000000000000000007");
        assert!(sequence_number(Offset(99)) < sequence_number(Offset(100)));
        assert_eq!(sequence_number(Offset(i64::MAX)).len(), 20);
    }
}
