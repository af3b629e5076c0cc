//! The properties of brokers: limits, and the defaults that topics inherit.
//!
//! Those without `.restart()` can be altered through the protocol, for one broker or for all, as in
//! Kafka. Ours, not Kafka's: `broker.replacement.delay.ms`, `disk.*`, `log.durability`, `log.retention.guard`,
//! `log.retention.guard.max.bytes`, `log.scrub.*`, `partitions.max`, `producer.ids.per.partition.max`,
//! `reassignment.max.bytes.per.second`, `request.partitions.max`, `topic.partitions.max` and `topics.max`.

use super::property::Unit::{Bytes, Count, Hours, Milliseconds, Minutes};
use super::property::{Check, Property, Unit};

const FOREVER: &str = "9223372036854775807";
const UNLIMITED: &str = "2147483647";
const NO_TIERING: &str = "records live on this cluster's own disks only";

/// By name in ascending order; a test holds it to that.
pub(super) static BROKER: &[Property] = &[
    Property::list("advertised.listeners", "", "The addresses that clients are told to connect to. Without one, a single node answers with the address the client itself used.")
        .without_default()
        .example("PLAINTEXT://broker-1.example.org:9092")
        .restart(),
    Property::boolean("auto.create.topics.enable", "true", "Whether a client that asks for the metadata of a missing topic, and allows it, creates the topic.")
        .restart(),
    Property::boolean("auto.leader.rebalance.enable", "true", "Whether a partition's first replica leads again once it has been in sync for a while, so that leaders stay spread.")
        .restart(),
    Property::int("broker.id", "-1", Check::AtLeast(-1), Unit::None, "The older name of node.id.")
        .without_default()
        .example("1")
        .restart(),
    Property::string("broker.rack", "", "Where this broker stands; replicas of a partition are spread over racks.")
        .without_default()
        .example("rack-a")
        .restart(),
    Property::long("broker.replacement.delay.ms", "1800000", Check::AtLeast(60_000), Milliseconds, "How long a broker may be gone before its replicas are copied to others, so that there are as many again as were asked for."),
    Property::long("broker.session.timeout.ms", "1000", Check::AtLeast(300), Milliseconds, "How long a broker may be silent before others lead in its place. Brokers are heard ten times a second."),
    Property::int("compression.gzip.level", "-1", Check::BetweenOr(1, 9, -1), Unit::None, "How hard gzip tries where the broker compresses; -1 is gzip's own choice.")
        .only_default("batches are recompressed at the codec's own level"),
    Property::int("compression.lz4.level", "9", Check::Between(1, 17), Unit::None, "How hard lz4 tries where the broker compresses; our lz4 has one level.")
        .only_default("our lz4 has one level"),
    Property::string("compression.type", "producer", "The codec in which records of topics without their own choice are stored; producer keeps each batch as it was sent.")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .example("zstd"),
    Property::int("compression.zstd.level", "3", Check::Between(-131_072, 22), Unit::None, "How hard zstd tries where the broker compresses.")
        .only_default("batches are recompressed at the codec's own level"),
    Property::long("connections.max.idle.ms", "600000", Check::AtLeast(1), Milliseconds, "After how long without a request a client's connection is closed.")
        .restart(),
    Property::int("default.replication.factor", "1", Check::AtLeast(1), Count, "How many replicas a topic gets whose creator leaves it open. Without a value: 3, or as many as there are brokers if those are fewer.")
        .example("3")
        .restart(),
    Property::boolean("delete.topic.enable", "true", "Whether topics can be deleted through the protocol.")
        .restart(),
    Property::long("disk.high.watermark.bytes", "5368709120", Check::AtLeast(0), Bytes, "While a data directory's file system has fewer bytes free than this, or than disk.high.watermark.percent of it if that is less, producing to partitions there is refused with an error that clients retry; reading, committing offsets and deleting go on. 0 refuses only when nothing can be written."),
    Property::int("disk.high.watermark.percent", "3", Check::Between(0, 100), Unit::None, "The share of a data directory's file system that bounds disk.high.watermark.bytes from above, so that small disks are of use."),
    Property::long("disk.low.watermark.bytes", "21474836480", Check::AtLeast(0), Bytes, "While a data directory's file system has fewer bytes free than this, or than disk.low.watermark.percent of it if that is less, the broker warns. Nothing is refused."),
    Property::int("disk.low.watermark.percent", "10", Check::Between(0, 100), Unit::None, "The share of a data directory's file system that bounds disk.low.watermark.bytes from above."),
    Property::long("disk.reserve.bytes", "67108864", Check::AtLeast(0), Bytes, "What a data directory keeps in reserve on its file system, at most a hundredth of it, and gives back when nothing else is free: so that offsets and metadata can still be written on a full disk."),
    Property::int("fetch.max.bytes", "57671680", Check::AtLeast(1024), Bytes, "The most bytes of records in one answer to a fetch.")
        .restart(),
    Property::long("follower.replication.throttled.rate", FOREVER, Check::AtLeast(0), Bytes, "The most bytes in a second that replicas named in follower.replication.throttled.replicas take in here while they are not in sync.")
        .example("10485760"),
    Property::int("group.initial.rebalance.delay.ms", "3000", Check::AtLeast(0), Milliseconds, "How long an empty group waits for more members before its first assignment; dev sets 0.")
        .restart(),
    Property::int("group.max.session.timeout.ms", "1800000", Check::AtLeast(1), Milliseconds, "The longest session timeout a group's member may ask for.")
        .restart(),
    Property::int("group.max.size", "10000", Check::AtLeast(1), Count, "The most members of one group.")
        .restart(),
    Property::int("group.min.session.timeout.ms", "6000", Check::AtLeast(1), Milliseconds, "The shortest session timeout a group's member may ask for.")
        .restart(),
    Property::long("leader.imbalance.check.interval.seconds", "300", Check::AtLeast(1), Unit::Seconds, "How often partitions are looked for whose first replica is in sync and does not lead.")
        .restart(),
    Property::long("leader.replication.throttled.rate", FOREVER, Check::AtLeast(0), Bytes, "The most bytes in a second that leaders named in leader.replication.throttled.replicas send from here to replicas that are not in sync.")
        .example("10485760"),
    Property::list("listeners", "", "The addresses on which this broker listens.")
        .without_default()
        .example("PLAINTEXT://127.0.0.1:9092")
        .restart(),
    Property::long("log.cleaner.backoff.ms", "15000", Check::AtLeast(0), Milliseconds, "How long compaction rests when nothing is left to compact, before it looks again; at least 100 ms.")
        .example("1000"),
    Property::long("log.cleaner.dedupe.buffer.size", "134217728", Check::AtLeast(1_048_577), Bytes, "The most memory for the keys of one compaction; it is taken while one runs, as far as it is needed. With more keys than fit, a partition takes several passes."),
    Property::long("log.cleaner.delete.retention.ms", "86400000", Check::AtLeast(0), Milliseconds, "delete.retention.ms for topics without their own."),
    Property::boolean("log.cleaner.enable", "true", "Whether compacted topics are compacted.")
        .only_default("compacted topics are always compacted")
        .restart(),
    Property::double("log.cleaner.io.buffer.load.factor", "0.9", Check::Any, "How full Kafka's key map may become.")
        .only_default("the key map holds whole keys and is filled as far as its memory goes"),
    Property::int("log.cleaner.io.buffer.size", "524288", Check::AtLeast(0), Bytes, "Memory for reading and writing segments.")
        .only_default("compaction reads and writes through buffers of fixed size"),
    Property::double("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", Check::Any, "The most bytes that compaction reads and writes in a second. It rests as long as it works in any case, so that it never takes more than half a core.")
        .example("20971520"),
    Property::long("log.cleaner.max.compaction.lag.ms", FOREVER, Check::AtLeast(1), Milliseconds, "max.compaction.lag.ms for topics without their own."),
    Property::double("log.cleaner.min.cleanable.ratio", "0.5", Check::Fraction, "min.cleanable.dirty.ratio for topics without their own."),
    Property::long("log.cleaner.min.compaction.lag.ms", "0", Check::AtLeast(0), Milliseconds, "min.compaction.lag.ms for topics without their own."),
    Property::int("log.cleaner.threads", "1", Check::AtLeast(0), Count, "How many threads compact.")
        .only_default("one thread compacts"),
    Property::list("log.cleanup.policy", "delete", "cleanup.policy for topics without their own.")
        .one_of(&["compact", "delete"]),
    Property::list("log.dirs", "", "The directories that hold this broker's data.")
        .without_default()
        .example("/var/lib/towpath")
        .restart(),
    Property::string("log.durability", "synced", "durability for topics without their own.")
        .one_of(&["synced", "relaxed"])
        .example("relaxed"),
    Property::long("log.flush.interval.messages", FOREVER, Check::AtLeast(1), Count, "flush.messages for topics without their own."),
    Property::long("log.flush.interval.ms", FOREVER, Check::AtLeast(0), Milliseconds, "flush.ms for topics without their own. Without a value: log.flush.scheduler.interval.ms.")
        .without_default()
        .synonyms(&["log.flush.interval.ms", "log.flush.scheduler.interval.ms"])
        .example("1000"),
    Property::long("log.flush.scheduler.interval.ms", FOREVER, Check::AtLeast(0), Milliseconds, "log.flush.interval.ms, where that has no value.")
        .restart(),
    Property::int("log.index.interval.bytes", "4096", Check::AtLeast(0), Bytes, "index.interval.bytes for topics without their own."),
    Property::int("log.index.size.max.bytes", "10485760", Check::AtLeast(4), Bytes, "segment.index.bytes for topics without their own."),
    Property::long("log.local.retention.bytes", "-2", Check::AtLeast(-2), Bytes, "local.retention.bytes for topics without their own.")
        .only_default(NO_TIERING),
    Property::long("log.local.retention.ms", "-2", Check::AtLeast(-2), Milliseconds, "local.retention.ms for topics without their own.")
        .only_default(NO_TIERING),
    Property::long("log.message.timestamp.after.max.ms", "3600000", Check::AtLeast(0), Milliseconds, "message.timestamp.after.max.ms for topics without their own."),
    Property::long("log.message.timestamp.before.max.ms", FOREVER, Check::AtLeast(0), Milliseconds, "message.timestamp.before.max.ms for topics without their own."),
    Property::string("log.message.timestamp.type", "CreateTime", "message.timestamp.type for topics without their own.")
        .one_of(&["CreateTime", "LogAppendTime"]),
    Property::boolean("log.preallocate", "false", "preallocate for topics without their own.")
        .otherwise("Segment files always grow ahead of the records, in doubling steps."),
    Property::long("log.remote.copy.lag.bytes", "-1", Check::AtLeast(-1), Bytes, "remote.copy.lag.bytes for topics without their own.")
        .only_default(NO_TIERING),
    Property::long("log.remote.copy.lag.ms", "0", Check::AtLeast(-1), Milliseconds, "remote.copy.lag.ms for topics without their own.")
        .only_default(NO_TIERING),
    Property::long("log.retention.bytes", "-1", Check::Any, Bytes, "retention.bytes for topics without their own."),
    Property::long("log.retention.check.interval.ms", "300000", Check::AtLeast(1), Milliseconds, "How often retention looks for segments that may go.")
        .restart(),
    Property::string("log.retention.guard", "warn", "retention.guard for topics without their own.")
        .one_of(&["off", "warn", "hold"])
        .example("hold"),
    Property::long("log.retention.guard.max.bytes", "10737418240", Check::AtLeast(0), Bytes, "retention.guard.max.bytes for topics without their own."),
    Property::int("log.retention.hours", "168", Check::AtLeast(-1), Hours, "retention.ms for topics without their own, in hours; minutes and milliseconds come first.")
        .restart(),
    Property::int("log.retention.minutes", "10080", Check::AtLeast(-1), Minutes, "retention.ms for topics without their own, in minutes. Without a value: log.retention.hours.")
        .without_default()
        .synonyms(&["log.retention.minutes", "log.retention.hours"])
        .example("10080")
        .restart(),
    Property::long("log.retention.ms", "604800000", Check::AtLeast(-1), Milliseconds, "retention.ms for topics without their own. Without a value: log.retention.minutes, then hours.")
        .without_default()
        .synonyms(&["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
        .example("86400000"),
    Property::int("log.roll.hours", "168", Check::AtLeast(1), Hours, "segment.ms for topics without their own, in hours; milliseconds come first.")
        .restart(),
    Property::int("log.roll.jitter.hours", "0", Check::AtLeast(0), Hours, "segment.jitter.ms for topics without their own, in hours; milliseconds come first.")
        .restart(),
    Property::long("log.roll.jitter.ms", "0", Check::AtLeast(0), Milliseconds, "segment.jitter.ms for topics without their own. Without a value: log.roll.jitter.hours.")
        .without_default()
        .synonyms(&["log.roll.jitter.ms", "log.roll.jitter.hours"])
        .example("60000"),
    Property::long("log.roll.ms", "604800000", Check::AtLeast(1), Milliseconds, "segment.ms for topics without their own. Without a value: log.roll.hours.")
        .without_default()
        .synonyms(&["log.roll.ms", "log.roll.hours"])
        .example("3600000"),
    Property::long("log.scrub.interval.ms", "604800000", Check::AtLeast(-1), Milliseconds, "How long after the end of a scrub, which reads everything that is not being written and notes damage, the next one begins; -1 for never. What a reader finds damaged is looked at in any case.")
        .example("86400000"),
    Property::long("log.scrub.io.max.bytes.per.second", "16777216", Check::AtLeast(1), Bytes, "The most bytes that a scrub reads in a second, in each data directory. It rests nine times as long as it reads in any case."),
    Property::int("log.segment.bytes", "1073741824", Check::AtLeast(1_048_576), Bytes, "segment.bytes for topics without their own."),
    Property::long("log.segment.delete.delay.ms", "60000", Check::AtLeast(0), Milliseconds, "file.delete.delay.ms for topics without their own.")
        .otherwise("Files go at once; a reader that has one open reads it to its end."),
    Property::int("max.connections", "10000", Check::AtLeast(1), Count, "The most client connections at once; one more is closed as soon as it is accepted."),
    Property::int("max.connections.per.ip", UNLIMITED, Check::AtLeast(1), Count, "The most client connections at once from one address.")
        .example("100"),
    Property::int("max.decompressed.message.bytes", "2147483639", Check::AtLeast(1), Bytes, "max.decompressed.message.bytes for topics without their own.")
        .example("104857600"),
    Property::int("max.incremental.fetch.session.cache.slots", "1000", Check::AtLeast(0), Count, "The most incremental fetch sessions that are remembered; a client without one sends its whole list each time.")
        .restart(),
    Property::int("max.request.partition.size.limit", "2000", Check::AtLeast(1), Count, "The most partitions in one answer to DescribeTopicPartitions.")
        .restart(),
    Property::int("message.max.bytes", "1048588", Check::AtLeast(0), Bytes, "max.message.bytes for topics without their own."),
    Property::int("min.insync.replicas", "1", Check::AtLeast(1), Count, "min.insync.replicas for topics without their own. Without a value: 2 where the topic has two replicas or more, 1 where it has one.")
        .example("2"),
    Property::int("node.id", "1", Check::AtLeast(0), Unit::None, "The number of this broker in its cluster.")
        .restart(),
    Property::int("num.partitions", "1", Check::AtLeast(1), Count, "How many partitions a topic gets whose creator leaves it open.")
        .restart(),
    Property::int("offset.metadata.max.bytes", "4096", Check::AtLeast(0), Bytes, "The longest text a client may commit beside an offset.")
        .restart(),
    Property::long("offsets.retention.check.interval.ms", "600000", Check::AtLeast(1), Milliseconds, "How often expired offsets are looked for.")
        .restart(),
    Property::int("offsets.retention.minutes", "10080", Check::AtLeast(1), Minutes, "After how long without members a group's offsets may go; those that still point at records of an existing topic stay.")
        .restart(),
    Property::int("offsets.topic.num.partitions", "50", Check::AtLeast(1), Count, "How many partitions the topic of committed offsets has; it cannot change once the topic exists.")
        .restart(),
    Property::int("offsets.topic.segment.bytes", "104857600", Check::AtLeast(1_048_576), Bytes, "The segment size of the topic of committed offsets.")
        .restart(),
    Property::int("partitions.max", "100000", Check::AtLeast(1), Count, "The most partitions in the cluster; creating one more is refused."),
    Property::int("producer.id.expiration.ms", "86400000", Check::AtLeast(1), Milliseconds, "After how long without a record a partition forgets an idempotent producer."),
    Property::int("producer.ids.per.partition.max", "10000", Check::AtLeast(1), Count, "The most idempotent producers a partition remembers; one more makes it forget the one idle for longest."),
    Property::long("reassignment.max.bytes.per.second", "67108864", Check::AtLeast(1), Bytes, "The most bytes in a second that a broker sends, and the most that it takes in, for replicas that are being added: by a reassignment, a drain, a balance, or in the place of a broker that is gone. Replicas that are in sync are never held up.")
        .example("134217728"),
    Property::long("replica.lag.time.max.ms", "2000", Check::AtLeast(100), Milliseconds, "How long a follower's durable offset may stand still while the leader's moves before it leaves the in-sync set.")
        .restart(),
    Property::int("request.partitions.max", "10000", Check::AtLeast(1), Count, "The most partitions that one request may create."),
    Property::int("socket.request.max.bytes", "104857600", Check::AtLeast(1024), Bytes, "The largest request that is read; a longer one closes the connection.")
        .restart(),
    Property::int("topic.partitions.max", "10000", Check::AtLeast(1), Count, "The most partitions of one topic."),
    Property::int("topics.max", "20000", Check::AtLeast(1), Count, "The most topics in the cluster; creating one more is refused."),
    Property::boolean("unclean.leader.election.enable", "false", "Whether a replica that may lack acknowledged records may lead when no other is left. They are lost then. What one broker's operator writes counts for topics with one replica only; set it for all brokers, or for a topic."),
];
