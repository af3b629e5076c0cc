//! The log: what is written can be read, what cannot be read is refused, and the state is a fold
//! over it, compacted or not.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::prelude::*;
use towpath_metadata::{ConfigOperation, MorePartitions, Record, Reply, Request, TopicRef};
use towpath_model::properties::TopicConfig;
use towpath_model::{FoldRecord, LeaderEpoch, ProducerId, TopicId};

use crate::support::{self, World, broker, topic};

const NAMES: [&str; 5] = ["a", "b", "a.b", "a_b", "c"];

#[derive(Debug, Clone)]
enum Step {
    Create { name: usize, partitions: i32 },
    Delete(usize),
    Grow { name: usize, count: i32 },
    SetRetention { name: usize, value: i64 },
    SetBroker { everywhere: bool, value: i64 },
    Unset(usize),
    Register { id: i32, clean: bool },
    AllocateProducerId,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => (name.clone(), -1..5i32).prop_map(|(name, partitions)| Step::Create { name, partitions }),
        2 => name.clone().prop_map(Step::Delete),
        2 => (name.clone(), 0..8i32).prop_map(|(name, count)| Step::Grow { name, count }),
        2 => (name.clone(), -2..9i64).prop_map(|(name, value)| Step::SetRetention { name, value }),
        1 => (any::<bool>(), 0..9i64).prop_map(|(everywhere, value)| Step::SetBroker { everywhere, value }),
        1 => name.prop_map(Step::Unset),
        1 => (1..4i32, any::<bool>()).prop_map(|(id, clean)| Step::Register { id, clean }),
        1 => Just(Step::AllocateProducerId),
    ]
}

fn carry_out(world: &mut World, step: Step) {
    match step {
        Step::Create { name, partitions } => {
            let mut new = world.topic(NAMES[name]);
            new.partitions = partitions;
            let _ = world.create(new);
        }
        Step::Delete(name) => {
            let name = Some(NAMES[name].to_owned());
            world.ask(Request::DeleteTopics(vec![TopicRef { name, id: None }]));
        }
        Step::Grow { name, count } => {
            let name = NAMES[name].to_owned();
            let topics = vec![MorePartitions { name, count, assignments: None }];
            world.ask(Request::CreatePartitions { topics, validate_only: false });
        }
        Step::SetRetention { name, value } => {
            let _ = world.set(topic(NAMES[name]), "retention.ms", &value.to_string());
        }
        Step::SetBroker { everywhere, value } => {
            let resource = broker(if everywhere { "" } else { "1" });
            let _ = world.set(resource, "log.retention.ms", &value.to_string());
        }
        Step::Unset(name) => {
            let change = [("retention.ms", ConfigOperation::Delete, None)];
            let _ = world.alter(topic(NAMES[name]), &change);
        }
        Step::Register { id, clean } => {
            let known = world.image().broker(towpath_model::BrokerId(id)).map(|known| known.epoch);
            world.register_after(id, known.filter(|_| clean));
        }
        Step::AllocateProducerId => {
            world.ask(Request::AllocateProducerId);
        }
    }
}

fn leader_epochs(world: &World) -> BTreeMap<(TopicId, usize), LeaderEpoch> {
    let partitions = world.image().topics().flat_map(|topic| {
        let states = topic.partitions.iter().enumerate();
        states.map(|(index, state)| ((topic.id, index), state.leader_epoch))
    });
    partitions.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    /// Failover and restart run the code of normal operation, so they end in the same state; also
    /// when a compaction has kept only the newest record of each key.
    #[test]
    fn the_state_is_a_fold_over_its_records(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        for step in steps {
            let before = leader_epochs(&world);
            carry_out(&mut world, step);
            let after = leader_epochs(&world);
            for (partition, epoch) in before {
                prop_assert!(after.get(&partition).is_none_or(|after| epoch <= *after));
            }
            let partitions: usize = world.image().topics().map(|topic| topic.partitions.len()).sum();
            prop_assert_eq!(partitions, world.image().partition_count());
            prop_assert_eq!(world.image().topics().count(), world.image().topic_count());
        }
        for topic in world.image().topics() {
            let entries = world.image().describe(&support::topic(topic.name.as_str())).unwrap();
            let described = TopicConfig::resolve(|property| {
                let entry = entries.iter().find(|entry| entry.property == property);
                entry.and_then(|entry| entry.value.as_deref()).map(Cow::Borrowed)
            });
            prop_assert_eq!(world.image().effective_config(topic), described);
        }
        // Ids of a block that a process has not given out are not given out by the next one.
        let image = |metadata: &towpath_metadata::Metadata| {
            let mut image = metadata.image().clone();
            image.apply(&Record::ProducerIdTaken(ProducerId(-1)));
            image
        };
        prop_assert_eq!(image(&world.replayed()), image(&world.metadata));
        prop_assert_eq!(image(&world.compacted()), image(&world.metadata));
        let Reply::AllocatedProducerId(last) = world.ask(Request::AllocateProducerId) else { panic!() };
        let mut restarted = World::new();
        restarted.metadata = world.replayed();
        let Reply::AllocatedProducerId(next) = restarted.ask(Request::AllocateProducerId) else { panic!() };
        prop_assert!(last < next);
    }

    /// Bytes of a disk are read or refused, never a panic, and what is read is written the same.
    #[test]
    fn any_bytes_are_read_or_refused(
        key in prop::collection::vec(any::<u8>(), 0..24),
        kind in 0..16u8,
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..60)),
    ) {
        for (first, version) in [(None, None), (Some(kind), None), (Some(kind), Some(1))] {
            let mut key = key.clone();
            if let (Some(slot), Some(kind)) = (key.first_mut(), first) {
                *slot = kind;
            }
            let mut value = value.clone();
            if let (Some(slot), Some(version)) = (value.as_mut().and_then(|v| v.first_mut()), version) {
                *slot = version;
            }
            if let Ok(Some(record)) = Record::decode(&key, value.as_deref()) {
                let again = record.encode().expect("what was read is logged");
                let read = Record::decode(&again.key, again.value.as_deref());
                prop_assert_eq!(read, Ok(Some(record)));
            }
        }
    }
}

#[test]
fn kinds_of_a_later_version_are_skipped_and_versions_are_not() {
    for key in [&[7, 1, 2][..], &[10], &[4, 32, 0, 1]] {
        assert_eq!(Record::decode(key, Some(&[1])), Ok(None));
    }
    let later = Record::decode(&[1], Some(&[2, 0, 1])).unwrap_err();
    assert!(later.to_string().contains("version 2"));
    assert!(Record::decode(&[1], None).is_err());
    assert!(Record::decode(&[], None).is_err());
    assert!(Record::decode(&[1], Some(&[1, 0, 1, 0])).is_err(), "bytes too many");
}
