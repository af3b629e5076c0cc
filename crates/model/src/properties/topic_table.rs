//! The properties of topics: all 37 that Kafka 4.4 describes, and ours: `durability`,
//! `retention.guard`, `retention.guard.max.bytes` and everything that begins with `queue.`.

use super::property::Unit::{Bytes, Count, Milliseconds};
use super::property::{Check, Property, Unit};

const FOREVER: &str = "9223372036854775807";
const NO_TIERING: &str = "records live on this cluster's own disks only";
const NO_SHARE_GROUPS: &str = "share groups are not there";

/// By name in ascending order; a test holds it to that.
pub(super) static TOPIC: &[Property] = &[
    Property::list(
        "cleanup.policy",
        "delete",
        "What happens to old records: delete removes segments by age and size, compact keeps the newest record of each key, an empty value keeps everything.",
    )
    .one_of(&["compact", "delete"])
    .synonyms(&["log.cleanup.policy"])
    .example("compact"),
    Property::int(
        "compression.gzip.level",
        "-1",
        Check::BetweenOr(1, 9, -1),
        Unit::None,
        "How hard gzip tries where the broker compresses; -1 is gzip's own choice.",
    )
    .synonyms(&["compression.gzip.level"])
    .only_default("batches are recompressed at the codec's own level"),
    Property::int(
        "compression.lz4.level",
        "9",
        Check::Between(1, 17),
        Unit::None,
        "How hard lz4 tries where the broker compresses; our lz4 has one level.",
    )
    .synonyms(&["compression.lz4.level"])
    .only_default("our lz4 has one level"),
    Property::string(
        "compression.type",
        "producer",
        "The codec in which records are stored; producer keeps each batch as it was sent, anything else costs the broker a recompression.",
    )
    .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
    .synonyms(&["compression.type"])
    .example("zstd"),
    Property::int(
        "compression.zstd.level",
        "3",
        Check::Between(-131_072, 22),
        Unit::None,
        "How hard zstd tries where the broker compresses.",
    )
    .synonyms(&["compression.zstd.level"])
    .only_default("batches are recompressed at the codec's own level"),
    Property::long(
        "delete.retention.ms",
        "86400000",
        Check::AtLeast(0),
        Milliseconds,
        "How long a tombstone of a compacted topic stays after it was compacted, so that a reader who began before it still sees the deletion.",
    )
    .synonyms(&["log.cleaner.delete.retention.ms"]),
    Property::string(
        "durability",
        "synced",
        "synced: a record is on disk before it is acknowledged. relaxed: it is in memory of the in-sync replicas, and a power cut of all of them at once loses the newest records.",
    )
    .one_of(&["synced", "relaxed"])
    .synonyms(&["log.durability"])
    .example("relaxed"),
    Property::boolean(
        "errors.deadletterqueue.group.enable",
        "false",
        "Whether share groups may write dead letters to this topic.",
    )
    .only_default(NO_SHARE_GROUPS),
    Property::long(
        "file.delete.delay.ms",
        "60000",
        Check::AtLeast(0),
        Milliseconds,
        "How long the files of a removed segment wait before they go.",
    )
    .synonyms(&["log.segment.delete.delay.ms"])
    .otherwise("Files go at once; a reader that has one open reads it to its end."),
    Property::long(
        "flush.messages",
        FOREVER,
        Check::AtLeast(1),
        Count,
        "After how many records a relaxed topic is synced to disk; a synced topic is synced before every acknowledgement, which is stronger than any value here.",
    )
    .synonyms(&["log.flush.interval.messages"])
    .example("10000"),
    Property::long(
        "flush.ms",
        FOREVER,
        Check::AtLeast(0),
        Milliseconds,
        "After how long a relaxed topic is synced to disk; a synced topic is synced before every acknowledgement, which is stronger than any value here.",
    )
    .synonyms(&["log.flush.interval.ms", "log.flush.scheduler.interval.ms"])
    .example("1000"),
    Property::list(
        "follower.replication.throttled.replicas",
        "",
        "Replicas that take in no more than follower.replication.throttled.rate while they are not in sync: PARTITION:BROKER pairs, or * for all. Reassignment tools set it.",
    )
    .replicas()
    .example("0:1,1:2"),
    Property::int(
        "index.interval.bytes",
        "4096",
        Check::AtLeast(0),
        Bytes,
        "How many bytes of records lie between two entries of a segment's index; fewer make seeking cheaper and the index larger.",
    )
    .synonyms(&["log.index.interval.bytes"]),
    Property::list(
        "leader.replication.throttled.replicas",
        "",
        "Leaders that send no more than leader.replication.throttled.rate to replicas that are not in sync: PARTITION:BROKER pairs, or * for all. Reassignment tools set it.",
    )
    .replicas()
    .example("0:1,1:2"),
    Property::long(
        "local.retention.bytes",
        "-2",
        Check::AtLeast(-2),
        Bytes,
        "How much of a tiered partition stays on local disks; -2 follows retention.bytes.",
    )
    .synonyms(&["log.local.retention.bytes"])
    .only_default(NO_TIERING),
    Property::long(
        "local.retention.ms",
        "-2",
        Check::AtLeast(-2),
        Milliseconds,
        "How long records of a tiered partition stay on local disks; -2 follows retention.ms.",
    )
    .synonyms(&["log.local.retention.ms"])
    .only_default(NO_TIERING),
    Property::long(
        "max.compaction.lag.ms",
        FOREVER,
        Check::AtLeast(1),
        Milliseconds,
        "After how long at most a record of a compacted topic is considered for compaction.",
    )
    .synonyms(&["log.cleaner.max.compaction.lag.ms"]),
    Property::int(
        "max.decompressed.message.bytes",
        "2147483639",
        Check::AtLeast(1),
        Bytes,
        "The largest size of a batch once it is decompressed; a larger one is refused.",
    )
    .synonyms(&["max.decompressed.message.bytes"])
    .example("104857600"),
    Property::int(
        "max.message.bytes",
        "1048588",
        Check::AtLeast(0),
        Bytes,
        "The largest record batch that is accepted, compressed and with its header.",
    )
    .synonyms(&["message.max.bytes"]),
    Property::long(
        "message.timestamp.after.max.ms",
        "3600000",
        Check::AtLeast(0),
        Milliseconds,
        "How far a producer's timestamp may lie in the future before its batch is refused.",
    )
    .synonyms(&["log.message.timestamp.after.max.ms"]),
    Property::long(
        "message.timestamp.before.max.ms",
        FOREVER,
        Check::AtLeast(0),
        Milliseconds,
        "How far a producer's timestamp may lie in the past before its batch is refused.",
    )
    .synonyms(&["log.message.timestamp.before.max.ms"])
    .example("604800000"),
    Property::string(
        "message.timestamp.type",
        "CreateTime",
        "Whose clock a record's timestamp comes from: the producer's (CreateTime) or the broker's at the moment of appending (LogAppendTime).",
    )
    .one_of(&["CreateTime", "LogAppendTime"])
    .synonyms(&["log.message.timestamp.type"])
    .example("LogAppendTime"),
    Property::double(
        "min.cleanable.dirty.ratio",
        "0.5",
        Check::Fraction,
        "Which part of a compacted log must be uncompacted before the cleaner works on it; of a topic with queue.only=true, which part of a segment must be done with before that is written anew.",
    )
    .synonyms(&["log.cleaner.min.cleanable.ratio"]),
    Property::long(
        "min.compaction.lag.ms",
        "0",
        Check::AtLeast(0),
        Milliseconds,
        "How long a record of a compacted topic is safe from compaction.",
    )
    .synonyms(&["log.cleaner.min.compaction.lag.ms"]),
    Property::int(
        "min.insync.replicas",
        "1",
        Check::AtLeast(1),
        Count,
        "How many replicas must hold a record before acks=all is answered; with fewer in sync, such records are refused. Without a value: 2 where the topic has two replicas or more, 1 where it has one. Never more than the topic has replicas.",
    )
    .synonyms(&["min.insync.replicas"])
    .example("2"),
    Property::boolean(
        "preallocate",
        "false",
        "Whether a segment's file takes its full size when it begins.",
    )
    .synonyms(&["log.preallocate"])
    .otherwise("Segment files always grow ahead of the records, in doubling steps."),
    Property::boolean(
        "queue.dead.letter.expired",
        "false",
        "Whether messages of a queue that grow too old go to its dead-letter queue; without it they are gone.",
    )
    .example("true"),
    Property::string(
        "queue.dead.letter.queue",
        "",
        "The queue that takes messages which cannot be worked: received too often, rejected, undecodable. Without one, no number of receives is too many, and a rejected message is gone.",
    )
    .example("orders-dead"),
    Property::int(
        "queue.dead.letter.receives",
        "0",
        Check::Between(0, 1000),
        Count,
        "After how many receives the next one moves a message to the dead-letter queue; 0 is never.",
    )
    .example("5"),
    Property::int(
        "queue.dedup.partitions",
        "0",
        Check::AtLeast(0),
        Count,
        "Among how many partitions, the first ones, messages of a standard queue are spread that name a deduplication id or come from another queue: a repeat has to meet the first one. 0 is all. It is set when the queue gets more partitions, to what it had, if it is 0 or more than that; whoever changes it lets repeats through for the window.",
    )
    .example("3"),
    Property::string(
        "queue.dedup.scope",
        "queue",
        "Whether a repeated deduplication id is looked for in the whole queue (in each of its partitions), or within its message group.",
    )
    .one_of(&["queue", "group"])
    .example("group"),
    Property::long(
        "queue.dedup.window.ms",
        "300000",
        Check::Between(0, 86_400_000),
        Milliseconds,
        "How long after its first send a message with the same deduplication id counts as a repeat.",
    )
    .example("600000"),
    Property::long(
        "queue.delay.ms",
        "0",
        Check::Between(0, 31_622_400_000),
        Milliseconds,
        "How long every new message of a queue is held back, if it does not say otherwise.",
    )
    .example("5000"),
    Property::boolean(
        "queue.enable",
        "false",
        "Whether the topic is worked as a queue: beside its records each partition then has a log of who was given which of them. It stays on until the topic is deleted, and does not go together with cleanup.policy=compact or durability=relaxed; of these two only what is set for the topic itself counts then.",
    )
    .example("true"),
    Property::boolean(
        "queue.fifo",
        "false",
        "Whether messages with the same key are delivered in order, and to one receiver at a time; those without a key are one such group.",
    )
    .example("true"),
    Property::long(
        "queue.growth.after.ms",
        "60000",
        Check::AtLeast(1000),
        Milliseconds,
        "How long the partitions of a queue have more to do than queue.growth.rate until it gets more of them, and how long it waits after that.",
    )
    .example("300000"),
    Property::int(
        "queue.growth.rate",
        "5000",
        Check::AtLeast(1),
        Count,
        "A standard queue gets more partitions, one for each broker and no more than twice as many, when those of one broker have more messages per second than that on the average, sent or done with, in the last minute and for queue.growth.after.ms.",
    )
    .example("20000"),
    Property::int(
        "queue.in.flight.max",
        "120000",
        Check::AtLeast(1),
        Count,
        "How many messages of one partition of a queue receivers may hold at the same time.",
    )
    .example("1000000"),
    Property::long(
        "queue.limit.age.ms",
        "-1",
        Check::AtLeast(-1),
        Milliseconds,
        "A queue takes no more messages while the oldest one that could be received has waited for longer; -1 is without limit.",
    )
    .example("600000"),
    Property::long(
        "queue.limit.bytes",
        "-1",
        Check::AtLeast(-1),
        Bytes,
        "How many bytes of messages that are not done with a queue holds, about: their number times the mean size since the oldest of them. Each of its partitions has an equal share. -1 is without limit, 0 takes nothing.",
    )
    .example("10737418240"),
    Property::long(
        "queue.limit.messages",
        "-1",
        Check::AtLeast(-1),
        Count,
        "How many messages that are not done with a queue holds: ready, held, delayed, or on their way to another queue. Each of its partitions has an equal share. -1 is without limit, 0 takes nothing.",
    )
    .example("1000000"),
    Property::string(
        "queue.limit.policy",
        "reject",
        "What becomes of sends at a limit of a queue: reject refuses them; block lets them wait for room, over HTTP until their time is over, and Kafka producers by an error that they try again after; sample refuses them too, and from four fifths of a limit on takes ever fewer.",
    )
    .one_of(&["reject", "sample", "block"])
    .example("block"),
    Property::long(
        "queue.message.retention.ms",
        "345600000",
        Check::AtLeast(-1),
        Milliseconds,
        "After how long a message of a queue that nobody has worked is too old to be worked; -1 is never.",
    )
    .example("1209600000"),
    Property::boolean(
        "queue.only",
        "false",
        "Whether the topic is worked as a queue and nothing else: records of messages that every subscription is done with are removed then, those at the beginning of the log at once, those between others when min.cleanable.dirty.ratio of a segment are such, and whoever reads the topic as a log meets gaps. Topics that are created with queue.enable=true have it unless they say otherwise; one that becomes a queue later has not. With false, retention alone says how long records stay. With retention.guard=hold there are no gaps, and what lies at the beginning waits until every group has read it.",
    )
    .example("true"),
    Property::int(
        "queue.partitions.max",
        "12",
        Check::AtLeast(1),
        Count,
        "Up to how many partitions a standard queue gets by itself. One that has as many, one whose messages are in order, one that is read as a log too (queue.only=false), and one of which a partition was placed by hand keep those that they have.",
    )
    .example("1"),
    Property::long(
        "queue.retry.first.ms",
        "0",
        Check::Between(0, 43_200_000),
        Milliseconds,
        "How long a message waits that failed once, or was held for too long; twice that after the second time, and so on. 0 brings it back at once, always.",
    )
    .example("1000"),
    Property::int(
        "queue.retry.jitter.percent",
        "20",
        Check::Between(0, 100),
        Count,
        "By how many percent such a wait is shorter or longer at most, so that messages which failed together do not come back together.",
    )
    .example("50"),
    Property::long(
        "queue.retry.max.ms",
        "900000",
        Check::Between(0, 43_200_000),
        Milliseconds,
        "How long such a wait becomes at most.",
    )
    .example("60000"),
    Property::string(
        "queue.sqs.attributes",
        "",
        "What clients of Amazon SQS have set of a queue and no other property says, a JSON object of texts by their names there: its policy, the largest message, how long a receive waits.",
    )
    .long_text()
    .example("{\"ReceiveMessageWaitTimeSeconds\":\"20\"}"),
    Property::string(
        "queue.tags",
        "",
        "Tags of a queue, a JSON object of texts; they are for people and their tools.",
    )
    .long_text()
    .example("{\"team\":\"billing\"}"),
    Property::long(
        "queue.visibility.timeout.ms",
        "30000",
        Check::Between(0, 43_200_000),
        Milliseconds,
        "How long a received message is hidden from other receivers, if a receive does not say otherwise.",
    )
    .example("60000"),
    Property::long(
        "remote.copy.lag.bytes",
        "-1",
        Check::AtLeast(-1),
        Bytes,
        "How much may wait before it is copied to tiered storage.",
    )
    .synonyms(&["log.remote.copy.lag.bytes"])
    .only_default(NO_TIERING),
    Property::long(
        "remote.copy.lag.ms",
        "0",
        Check::AtLeast(-1),
        Milliseconds,
        "How long records may wait before they are copied to tiered storage.",
    )
    .synonyms(&["log.remote.copy.lag.ms"])
    .only_default(NO_TIERING),
    Property::boolean(
        "remote.log.copy.disable",
        "false",
        "Whether copying to tiered storage is stopped.",
    )
    .only_default(NO_TIERING),
    Property::boolean(
        "remote.log.delete.on.disable",
        "false",
        "Whether tiered records go when tiering is switched off.",
    )
    .only_default(NO_TIERING),
    Property::boolean(
        "remote.storage.enable",
        "false",
        "Whether old segments move to tiered storage.",
    )
    .only_default(NO_TIERING),
    Property::long(
        "retention.bytes",
        "-1",
        Check::Any,
        Bytes,
        "How large a partition may grow before its oldest segments are deleted; negative is without limit.",
    )
    .synonyms(&["log.retention.bytes"])
    .example("10737418240"),
    Property::string(
        "retention.guard",
        "warn",
        "What happens to expired records that a group with committed offsets in the topic has not read. off: they go. warn: they go, and which group lost which offsets is recorded and shown. hold: they stay until every such group has read them, as far as retention.guard.max.bytes reaches and unless the disk fills up.",
    )
    .one_of(&["off", "warn", "hold"])
    .synonyms(&["log.retention.guard"])
    .example("hold"),
    Property::long(
        "retention.guard.max.bytes",
        "10737418240",
        Check::AtLeast(0),
        Bytes,
        "How many bytes of expired records retention.guard=hold may hold back in one topic, all its partitions on a broker together; beyond, the oldest go.",
    )
    .synonyms(&["log.retention.guard.max.bytes"])
    .example("107374182400"),
    Property::long(
        "retention.ms",
        "604800000",
        Check::AtLeast(-1),
        Milliseconds,
        "How long records are kept where cleanup.policy has delete; -1 is for ever. A segment goes when its newest record is older.",
    )
    .synonyms(&["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
    .example("86400000"),
    Property::int(
        "segment.bytes",
        "1073741824",
        Check::AtLeast(1_048_576),
        Bytes,
        "The size at which a partition begins a new file; retention removes whole files. With queue.only=true 64 MiB at most.",
    )
    .synonyms(&["log.segment.bytes"])
    .example("104857600"),
    Property::int(
        "segment.index.bytes",
        "10485760",
        Check::AtLeast(4),
        Bytes,
        "The size of a segment's index at which the segment ends, even if it is not full.",
    )
    .synonyms(&["log.index.size.max.bytes"]),
    Property::long(
        "segment.jitter.ms",
        "0",
        Check::AtLeast(0),
        Milliseconds,
        "By how much at most a segment ends before segment.ms, so that not all partitions begin new files at once.",
    )
    .synonyms(&["log.roll.jitter.ms", "log.roll.jitter.hours"])
    .example("60000"),
    Property::long(
        "segment.ms",
        "604800000",
        Check::AtLeast(1),
        Milliseconds,
        "The age at which a partition begins a new file, even if the old one is not full.",
    )
    .synonyms(&["log.roll.ms", "log.roll.hours"])
    .example("3600000"),
    Property::boolean(
        "unclean.leader.election.enable",
        "false",
        "Whether a replica that may lack acknowledged records may lead when no other is left. They are lost then.",
    )
    .synonyms(&["unclean.leader.election.enable"]),
];
