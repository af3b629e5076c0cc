//! The bytes that members of a classic group exchange: what they want and hold, and what they get.
//!
//! The broker passes them on unread. Other clients write other versions, so reading is lenient: what
//! a newer version appends is ignored (the consumer protocol's own rule).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use towpath_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition,
};
use towpath_protocol::{DecodeError, EncodeError, Message, encode_versioned, read_leading_i16};

use super::assignor::MemberSubscription;
use crate::record::TopicPartition;

/// The version with owned partitions and their generation (KIP-429, KIP-792); racks come later.
const SUBSCRIPTION_VERSION: i16 = 2;
/// Assignments have not changed since version 0.
const ASSIGNMENT_VERSION: i16 = 0;

pub(super) fn encode_subscription(
    topics: &[Arc<str>],
    owned: &[TopicPartition],
    generation: i32,
) -> Result<Bytes, EncodeError> {
    let subscription = ConsumerProtocolSubscription {
        topics: topics.iter().map(|topic| &**topic).collect(),
        user_data: None,
        owned_partitions: by_topic(owned)
            .into_iter()
            .map(|(topic, partitions)| ConsumerProtocolSubscriptionTopicPartition {
                topic,
                partitions,
            })
            .collect(),
        generation_id: generation,
        rack_id: None,
    };
    encode_versioned(SUBSCRIPTION_VERSION, &subscription)
}

/// What a member wants, as the group's leader reads it.
pub(super) fn decode_subscription(
    member_id: &str,
    instance_id: Option<&str>,
    bytes: &[u8],
) -> Result<MemberSubscription, DecodeError> {
    let subscription: ConsumerProtocolSubscription<'_> = decode_leniently(bytes)?;
    Ok(MemberSubscription {
        member_id: member_id.into(),
        instance_id: instance_id.map(Arc::from),
        topics: subscription.topics.iter().map(|topic| Arc::from(*topic)).collect(),
        owned: subscription
            .owned_partitions
            .iter()
            .flat_map(|topic| named(topic.topic, &topic.partitions))
            .collect(),
        generation: subscription.generation_id,
    })
}

pub(super) fn encode_assignment(partitions: &[TopicPartition]) -> Result<Bytes, EncodeError> {
    let assignment = ConsumerProtocolAssignment {
        assigned_partitions: by_topic(partitions)
            .into_iter()
            .map(|(topic, partitions)| ConsumerProtocolAssignmentTopicPartition {
                topic,
                partitions,
            })
            .collect(),
        user_data: None,
    };
    encode_versioned(ASSIGNMENT_VERSION, &assignment)
}

/// The partitions of an assignment, also of one that another client made. Empty bytes, as the
/// broker gives to members that got none, are no partitions.
pub(crate) fn decode_assignment(bytes: &[u8]) -> Result<Vec<TopicPartition>, DecodeError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let assignment: ConsumerProtocolAssignment<'_> = decode_leniently(bytes)?;
    let topics = assignment.assigned_partitions.iter();
    Ok(topics.flat_map(|topic| named(topic.topic, &topic.partitions)).collect())
}

fn decode_leniently<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<M, DecodeError> {
    let (version, mut body) = read_leading_i16(bytes)?;
    M::decode(version.min(*M::VERSIONS.end()), &mut body)
}

fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&str, Vec<i32>> {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        by_topic.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    by_topic
}

fn named(topic: &str, partitions: &[i32]) -> Vec<TopicPartition> {
    let topic: Arc<str> = topic.into();
    partitions.iter().map(|index| TopicPartition::new(topic.clone(), *index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_and_assignments_survive_the_wire() {
        let owned = [TopicPartition::new("a", 1), TopicPartition::new("a", 3)];
        let topics: Vec<Arc<str>> = vec!["a".into(), "b".into()];
        let bytes = encode_subscription(&topics, &owned, 5).unwrap();
        let got = decode_subscription("m", Some("i"), &bytes).unwrap();
        assert_eq!(got.topics.len(), 2);
        assert_eq!((got.owned.as_slice(), got.generation), (&owned[..], 5));

        let bytes = encode_assignment(&owned).unwrap();
        assert_eq!(decode_assignment(&bytes).unwrap(), owned);
        assert_eq!(decode_assignment(&[]).unwrap(), []);
    }

    #[test]
    fn a_newer_version_is_read_as_the_newest_we_know() {
        let mut bytes = encode_assignment(&[TopicPartition::new("a", 0)]).unwrap().to_vec();
        bytes[..2].copy_from_slice(&9_i16.to_be_bytes());
        bytes.extend([1, 2, 3]);
        assert_eq!(decode_assignment(&bytes).unwrap(), [TopicPartition::new("a", 0)]);
    }
}
