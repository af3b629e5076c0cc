//! The expected bytes were written by Kafka 4.4's own classes.

use towpath_model::{FoldRecord, Uuid};

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    pairs.map(|byte| byte.expect("hexadecimal")).collect()
}

const OFFSET_KEY: &str = "000100016700066f726465727300000003";
const GROUP_KEY: &str = "0002000167";
const GROUP_V3: &str = "00030008636f6e73756d657200000005000572616e676500036d2d310000018bcfe56800\
    0000000100036d2d310003692d31000163000a2f3132372e302e302e310000ea600000afc80000000201020000000103";

fn offset(value: &str) -> CommittedOffset {
    match Record::decode(&unhex(OFFSET_KEY), Some(&unhex(value))) {
        Ok(Some(Record::OffsetCommitted { group, topic, partition, committed })) => {
            assert_eq!((&*group, &*topic, partition), ("g", "orders", PartitionIndex(3)));
            committed
        }
        other => panic!("{other:?}"),
    }
}

fn group(value: &str) -> StoredGroup {
    match Record::decode(&unhex(GROUP_KEY), Some(&unhex(value))) {
        Ok(Some(Record::Stored { group, value: Some(value) })) => {
            assert_eq!(&*group, "g");
            value
        }
        other => panic!("{other:?}"),
    }
}

fn committed() -> CommittedOffset {
    CommittedOffset {
        offset: Offset(42),
        leader_epoch: Some(LeaderEpoch(7)),
        metadata: "meta".into(),
        committed_at: Timestamp(1_700_000_000_000),
        expires_at: None,
        topic_id: Uuid([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]),
    }
}

fn stored() -> StoredGroup {
    StoredGroup {
        protocol_type: "consumer".into(),
        generation: Generation(5),
        protocol: Some("range".into()),
        leader: Some("m-1".into()),
        since: Some(Timestamp(1_700_000_000_000)),
        members: vec![StoredMember {
            member_id: "m-1".into(),
            group_instance_id: Some("i-1".into()),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            rebalance_timeout: Duration::from_millis(60_000),
            session_timeout: Duration::from_millis(45_000),
            subscription: [1, 2].into(),
            assignment: [3].into(),
        }],
    }
}

#[test]
fn offsets_of_every_version_are_read_and_the_newest_is_written() {
    const V4: &str = "0004000000000000002a00000007056d6574610000018bcfe56800\
        01001000000000000000010000000000000002";
    assert_eq!(hex(&offset_key("g", "orders", PartitionIndex(3))), OFFSET_KEY);
    assert_eq!(hex(&offset_value(&committed())), V4);
    assert_eq!(offset(V4), committed());
    let v3 = CommittedOffset { topic_id: TopicId::ZERO, ..committed() };
    assert_eq!(offset("0003000000000000002a0000000700046d6574610000018bcfe56800"), v3);
    let v2 = CommittedOffset { leader_epoch: None, ..v3 };
    assert_eq!(offset("0002000000000000002a00046d6574610000018bcfe56800"), v2);
    assert_eq!(offset("0000000000000000002a00046d6574610000018bcfe56800"), v2);
    const V1: &str = "0001000000000000002a00046d6574610000018bcfe568000000018bcfe57b88";
    let v1 = CommittedOffset { expires_at: Some(Timestamp(1_700_000_005_000)), ..v2 };
    assert_eq!(offset(V1), v1);
    assert_eq!(hex(&offset_value(&v1)), V1);
}

#[test]
fn groups_of_every_version_are_read_and_the_one_of_kafka_is_written() {
    assert_eq!(hex(&group_key("g")), GROUP_KEY);
    assert_eq!(hex(&group_value(&stored())), GROUP_V3);
    assert_eq!(group(GROUP_V3), stored());
    const V4: &str = "000409636f6e73756d6572000000050672616e6765046d2d310000018bcfe5680002046d2d31\
        04692d3102630b2f3132372e302e302e310000ea600000afc803010202030000";
    assert_eq!(group(V4), stored());
    let mut older = stored();
    older.members[0].group_instance_id = None;
    const V2: &str = "00020008636f6e73756d657200000005000572616e676500036d2d310000018bcfe56800\
        0000000100036d2d31000163000a2f3132372e302e302e310000ea600000afc80000000201020000000103";
    assert_eq!(group(V2), older);
    older.since = None;
    const V1: &str = "00010008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d31\
        000163000a2f3132372e302e302e310000ea600000afc80000000201020000000103";
    assert_eq!(group(V1), older);
    // Version 0 knows one time limit for both.
    older.members[0].rebalance_timeout = older.members[0].session_timeout;
    const V0: &str = "00000008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d31\
        000163000a2f3132372e302e302e310000afc80000000201020000000103";
    assert_eq!(group(V0), older);
}

#[test]
fn a_group_without_members_is_written_as_kafka_writes_it() {
    const EMPTY: &str = "00030008636f6e73756d657200000006ffffffff0000018bcfe5680000000000";
    let members = Vec::new();
    let empty = StoredGroup {
        generation: Generation(6),
        protocol: None,
        leader: None,
        members,
        ..stored()
    };
    assert_eq!(hex(&group_value(&empty)), EMPTY);
    assert_eq!(group(EMPTY), empty);
}

#[test]
fn tombstones_and_later_kinds_are_told_apart() {
    let decode = |key: &str| Record::decode(&unhex(key), None).expect("a whole key");
    let removed = decode("000000016700066f726465727300000003");
    let (group, topic) = ("g".into(), "orders".into());
    let partition = PartitionIndex(3);
    assert_eq!(removed, Some(Record::OffsetRemoved { group, topic, partition }));
    assert_eq!(decode(GROUP_KEY), Some(Record::Stored { group: "g".into(), value: None }));
    assert_eq!(decode("0003000167"), None);
}

#[test]
fn broken_bytes_end_in_an_error() {
    let whole = unhex(GROUP_V3);
    for end in 0..whole.len() {
        assert!(Record::decode(&unhex(GROUP_KEY), Some(&whole[..end])).is_err());
    }
    let unknown_version = unhex("0005000000000000002a");
    assert!(Record::decode(&unhex(OFFSET_KEY), Some(&unknown_version)).is_err());
    // A count of members that the bytes cannot hold.
    let endless = unhex("00030008636f6e73756d657200000006ffffffff0000018bcfe568007fffffff");
    assert!(Record::decode(&unhex(GROUP_KEY), Some(&endless)).is_err());
    assert!(Record::decode(&[], None).is_err());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn any_bytes_are_read_or_refused(
        kind in 0_u8..4,
        version in 0_u8..6,
        key in proptest::collection::vec(0_u8..4, 0..16),
        value in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64),
    ) {
        let key: Vec<u8> = [0, kind].into_iter().chain(key).collect();
        let value: Vec<u8> = [0, version].into_iter().chain(value).collect();
        let _ = Record::decode(&key, Some(&value));
    }
}
