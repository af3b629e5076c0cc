//! Requests and answers travel between brokers: what is written is read back, and anything else is
//! refused without a panic.

use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use towpath_metadata::*;
use towpath_model::{BrokerId, LeaderEpoch, PartitionIndex, ProducerId, TopicPartition, Uuid};

fn returns<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(sent: &T) {
    let bytes = postcard::to_allocvec(sent).unwrap();
    assert_eq!(&postcard::from_bytes::<T>(&bytes).unwrap(), sent);
    for cut in 0..bytes.len() {
        let _ = postcard::from_bytes::<T>(&bytes[..cut]);
    }
}

fn text() -> impl Strategy<Value = String> + Clone {
    prop::collection::vec(0..28u8, 0..12)
        .prop_map(|letters| letters.iter().map(|at| char::from(b'_' + at)).collect())
}

fn id() -> impl Strategy<Value = BrokerId> {
    (-1..5i32).prop_map(BrokerId)
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid)
}

fn partition() -> impl Strategy<Value = TopicPartition> {
    (uuid(), any::<i32>())
        .prop_map(|(topic, at)| TopicPartition { topic, partition: PartitionIndex(at) })
}

fn named() -> impl Strategy<Value = NamedPartition> {
    (text(), any::<i32>().prop_map(PartitionIndex))
}

fn registration() -> impl Strategy<Value = Registration> {
    let address = (text(), text(), any::<u16>()).prop_map(|(listener, host, port)| Address {
        listener,
        host,
        port,
    });
    (
        (id(), uuid(), any::<bool>(), prop::option::of(text())),
        (prop::collection::vec(address, 0..3), prop::collection::vec(uuid(), 0..3)),
        (prop::option::of(any::<i64>()), any::<bool>()),
    )
        .prop_map(
            |((id, incarnation, front, rack), (addresses, directories), (clean, lost))| {
                Registration {
                    id,
                    incarnation,
                    role: if front { Role::Frontend } else { Role::Broker },
                    rack,
                    addresses,
                    offline: directories.iter().copied().take(1).collect(),
                    directories,
                    format_level: 3,
                    clean_since: clean,
                    lost_power: lost,
                }
            },
        )
}

fn request() -> impl Strategy<Value = Request> {
    let configs = prop::collection::vec((text(), prop::option::of(text())), 0..3);
    let new_topic = (text(), any::<i32>(), any::<i16>(), configs.clone(), uuid()).prop_map(
        |(name, partitions, replication_factor, configs, candidate_id)| NewTopic {
            partitions,
            replication_factor,
            configs,
            assignments: vec![(PartitionIndex(partitions), vec![BrokerId(1)])],
            ..NewTopic::named(&name, candidate_id)
        },
    );
    let resource = (text(), any::<i8>())
        .prop_map(|(name, kind)| Resource { kind: ResourceKind::from_wire(kind), name });
    let change = (text(), 0..4i8, prop::option::of(text())).prop_map(|(name, operation, value)| {
        ConfigChange { name, operation: ConfigOperation::from_wire(operation).unwrap(), value }
    });
    let in_sync = prop::collection::vec((id(), any::<i64>()), 0..4);
    let proposed = (partition(), any::<i32>(), any::<i32>(), in_sync).prop_map(
        |(partition, leader_epoch, partition_epoch, in_sync)| ProposedInSync {
            partition,
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch,
            in_sync,
        },
    );
    let reassignment = (named(), prop::option::of(prop::collection::vec(id(), 0..4)))
        .prop_map(|(partition, target)| Reassignment { partition, target });
    prop_oneof![
        (prop::collection::vec(new_topic, 0..3), any::<bool>())
            .prop_map(|(topics, validate_only)| Request::CreateTopics { topics, validate_only }),
        prop::collection::vec(
            (prop::option::of(text()), prop::option::of(uuid()))
                .prop_map(|(name, id)| TopicRef { name, id }),
            0..3
        )
        .prop_map(Request::DeleteTopics),
        (text(), any::<i32>()).prop_map(|(name, count)| Request::CreatePartitions {
            topics: vec![MorePartitions { name, count, assignments: Some(vec![Vec::new()]) }],
            validate_only: false,
        }),
        (resource.clone(), configs).prop_map(|(resource, values)| Request::ReplaceConfigs {
            resources: vec![(resource, values)],
            validate_only: true,
        }),
        (resource, prop::collection::vec(change, 0..3)).prop_map(|(resource, changes)| {
            Request::AlterConfigs { resources: vec![(resource, changes)], validate_only: false }
        }),
        Just(Request::AllocateProducerId),
        registration().prop_map(Request::RegisterBroker),
        any::<u16>().prop_map(Request::SetFormatLevel),
        (id(), any::<i64>(), any::<[u64; 2]>(), any::<[bool; 2]>(), uuid()).prop_map(
            |(broker, epoch, [sequence, applied], [is_ready, wants_shutdown], offline)| {
                Request::Heartbeat(Heartbeat {
                    broker,
                    epoch,
                    sequence,
                    applied,
                    is_ready,
                    wants_shutdown,
                    offline: vec![offline],
                })
            }
        ),
        id().prop_map(Request::BrokerSilent),
        (id(), any::<i64>(), prop::collection::vec(proposed, 0..3)).prop_map(
            |(broker, broker_epoch, changes)| {
                Request::AlterPartitions(AlterPartitions { broker, broker_epoch, changes })
            }
        ),
        (id(), any::<i64>(), prop::collection::vec((partition(), uuid()), 0..3)).prop_map(
            |(broker, epoch, directories)| {
                Request::AssignDirectories { broker, epoch, directories }
            }
        ),
        (prop::collection::vec(reassignment, 0..3), any::<bool>(), any::<bool>()).prop_map(
            |(reassignments, factor_may_change, by_hand)| Request::AlterReassignments {
                reassignments,
                factor_may_change,
                by_hand,
            }
        ),
        (any::<bool>(), prop::option::of(prop::collection::vec(named(), 0..3))).prop_map(
            |(unclean, partitions)| Request::ElectLeaders {
                kind: if unclean { ElectionKind::Unclean } else { ElectionKind::Preferred },
                partitions,
            }
        ),
        id().prop_map(Request::UnregisterBroker),
        id().prop_map(Request::RemoveBroker),
        (id(), any::<bool>())
            .prop_map(|(broker, drained)| Request::DrainBroker { broker, drained }),
        text().prop_map(Request::NameCluster),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    /// The answers too: whatever a cluster of one or three says to it.
    #[test]
    fn requests_and_answers_come_back_as_they_were(requests in prop::collection::vec(request(), 1..6)) {
        use towpath_model::{Now, StateMachine, Token};
        let mut metadata = Metadata::new(BrokerId(1), Default::default());
        for request in requests {
            returns(&request);
            let decision = metadata.decide(Now::default(), Token(1), request);
            for (_, reply) in &decision.replies {
                returns(reply);
            }
            for record in &decision.records {
                metadata.apply(record);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = postcard::from_bytes::<Request>(&bytes);
        let _ = postcard::from_bytes::<Reply>(&bytes);
    }
}

#[test]
fn answers_with_everything_in_them_come_back() {
    use crate::support::{World, topic};
    let mut world = World::with_topic(&[1, 2, 3], &[("retention.ms", "5")]);
    let partition = world.partition_id();
    let state = world.state();
    returns(&Reply::AlteredPartitions(Ok(vec![
        (partition, Ok(state)),
        (partition, Err(Refusal::InvalidUpdateVersion { asked: 1, current: 2 })),
    ])));
    returns(&Reply::AllocatedProducerId(ProducerId(7)));
    let mut new = world.topic("new");
    new.configs = vec![("cleanup.policy".to_owned(), Some("compact".to_owned()))];
    let created = world.ask(Request::CreateTopics { topics: vec![new], validate_only: true });
    let Reply::CreatedTopics(results) = &created else { panic!() };
    assert!(30 < results[0].1.as_ref().unwrap().configs.len());
    returns(&created);
    let refused = world.set(topic("t"), "retention.ms", "x").unwrap_err();
    returns(&Reply::AlteredConfigs(vec![(topic("t"), Err(refused))]));
    let refused = world.set(topic("no/name"), "retention.ms", "1").unwrap_err();
    returns(&Reply::AlteredConfigs(vec![(topic("t"), Err(refused))]));
}
