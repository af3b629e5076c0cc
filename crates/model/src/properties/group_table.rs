//! The properties of groups that Kafka 4.4 describes. All belong to group protocols that are not
//! served yet (consumer, share and streams groups), so each takes only its default; the classic
//! protocol's limits are its members' and the broker's.

use super::property::Unit::{Count, Milliseconds};
use super::property::{Check, Property};

const NO_CONSUMER: &str = "consumer groups of the new protocol are not there";
const NO_SHARE: &str = "share groups are not there";
const NO_STREAMS: &str = "streams groups are not there";
const ANY: Check = Check::AtLeast(0);

/// By name in ascending order; a test holds it to that.
pub(super) static GROUP: &[Property] = &[
    Property::int(
        "consumer.assignment.interval.ms",
        "1000",
        ANY,
        Milliseconds,
        "The shortest time between two assignments of a consumer group.",
    )
    .only_default(NO_CONSUMER),
    Property::int(
        "consumer.heartbeat.interval.ms",
        "5000",
        ANY,
        Milliseconds,
        "How often members of a consumer group report.",
    )
    .only_default(NO_CONSUMER),
    Property::int(
        "consumer.session.timeout.ms",
        "45000",
        ANY,
        Milliseconds,
        "After how long a silent member leaves a consumer group.",
    )
    .only_default(NO_CONSUMER),
    Property::boolean(
        "errors.deadletterqueue.copy.record.enable",
        "false",
        "Whether a share group's dead letter carries the record itself.",
    )
    .only_default(NO_SHARE),
    Property::string(
        "errors.deadletterqueue.topic.name",
        "",
        "The topic for a share group's dead letters.",
    )
    .only_default(NO_SHARE),
    Property::int(
        "share.assignment.interval.ms",
        "1000",
        ANY,
        Milliseconds,
        "The shortest time between two assignments of a share group.",
    )
    .only_default(NO_SHARE),
    Property::string("share.auto.offset.reset", "latest", "Where a new share group begins.")
        .only_default(NO_SHARE),
    Property::int(
        "share.delivery.count.limit",
        "5",
        ANY,
        Count,
        "How often a share group delivers a record at most.",
    )
    .only_default(NO_SHARE),
    Property::int(
        "share.heartbeat.interval.ms",
        "5000",
        ANY,
        Milliseconds,
        "How often members of a share group report.",
    )
    .only_default(NO_SHARE),
    Property::string(
        "share.isolation.level",
        "read_uncommitted",
        "Whether a share group sees records of open transactions.",
    )
    .only_default(NO_SHARE),
    Property::int(
        "share.partition.max.record.locks",
        "2000",
        ANY,
        Count,
        "How many records of a partition a share group may hold at once.",
    )
    .only_default(NO_SHARE),
    Property::int(
        "share.record.lock.duration.ms",
        "30000",
        ANY,
        Milliseconds,
        "How long a share group's member holds a record.",
    )
    .only_default(NO_SHARE),
    Property::boolean(
        "share.renew.acknowledge.enable",
        "true",
        "Whether a share group's member may hold a record for longer.",
    )
    .only_default(NO_SHARE),
    Property::int(
        "share.session.timeout.ms",
        "45000",
        ANY,
        Milliseconds,
        "After how long a silent member leaves a share group.",
    )
    .only_default(NO_SHARE),
    Property::int(
        "streams.assignment.interval.ms",
        "1000",
        ANY,
        Milliseconds,
        "The shortest time between two assignments of a streams group.",
    )
    .only_default(NO_STREAMS),
    Property::string("streams.assignor.name", "sticky", "How a streams group assigns its tasks.")
        .only_default(NO_STREAMS),
    Property::int(
        "streams.heartbeat.interval.ms",
        "5000",
        ANY,
        Milliseconds,
        "How often members of a streams group report.",
    )
    .only_default(NO_STREAMS),
    Property::int(
        "streams.initial.rebalance.delay.ms",
        "3000",
        ANY,
        Milliseconds,
        "How long a new streams group waits for more members.",
    )
    .only_default(NO_STREAMS),
    Property::int(
        "streams.num.standby.replicas",
        "0",
        ANY,
        Count,
        "How many spare copies of its state a streams group keeps.",
    )
    .only_default(NO_STREAMS),
    Property::list(
        "streams.rack.aware.assignment.tags",
        "",
        "Tags by which a streams group spreads its spare copies.",
    )
    .only_default(NO_STREAMS),
    Property::int(
        "streams.session.timeout.ms",
        "45000",
        ANY,
        Milliseconds,
        "After how long a silent member leaves a streams group.",
    )
    .only_default(NO_STREAMS),
];
