//! Looks into the metadata of `consumer` groups for one thing: which topics they subscribe to.
//!
//! The metadata belongs to the clients, and only the head of it has a fixed form (Kafka's
//! ConsumerProtocolSubscription: a version, then topic names). It decides which offsets may expire
//! or be deleted while a group is stable (KIP-211, KIP-496); what cannot be read protects all of
//! the group's offsets.

use std::collections::BTreeSet;
use std::sync::Arc;

use towpath_model::FoldError;

use crate::cursor::Reader;

/// The protocol type whose metadata has this form.
pub(super) const CONSUMER: &str = "consumer";

/// The topics that these members subscribe to; `None` when one of them does not say it in the
/// known form.
pub(super) fn topics<'a>(
    subscriptions: impl Iterator<Item = &'a [u8]>,
) -> Option<BTreeSet<Arc<str>>> {
    let mut topics = BTreeSet::new();
    for subscription in subscriptions {
        read(subscription, &mut topics).ok()?;
    }
    Some(topics)
}

fn read(subscription: &[u8], topics: &mut BTreeSet<Arc<str>>) -> Result<(), FoldError> {
    let mut input = Reader::new(subscription, "subscription");
    if input.i16()? < 0 {
        return Err(input.error("version is not known"));
    }
    for _ in 0..input.i32()? {
        let topic = input.string()?;
        topics.insert(input.required(topic)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_all_members_are_collected_and_nonsense_is_none() {
        let one: &[u8] = &[0, 1, 0, 0, 0, 2, 0, 1, b'a', 0, 1, b'b', 0xff, 0xff, 0xff, 0xff];
        let other: &[u8] = &[0, 3, 0, 0, 0, 1, 0, 1, b'c'];
        let names = |set: BTreeSet<Arc<str>>| set.iter().map(|t| t.to_string()).collect::<String>();
        assert_eq!(topics([one, other].into_iter()).map(names), Some("abc".to_owned()));
        assert_eq!(topics([one, &[0, 1, 0x7f]].into_iter()), None);
        assert_eq!(topics([&[0, 1, 0x7f, 0xff, 0xff, 0xff][..]].into_iter()), None);
    }
}
