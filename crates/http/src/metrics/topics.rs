//! Series per topic, summed over its partitions.

use towpath_driver::PartitionReport;

use super::exposition::{Exposition, Kind};
use super::survey::{Survey, SurveyedTopic};

/// A column of the table of topics.
struct Column {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: fn(&PartitionReport) -> u64,
}

const COLUMNS: [Column; 9] = [
    Column {
        name: "towpath_topic_log_start_offset",
        kind: Kind::Gauge,
        help: "First offsets kept, summed over a topic's partitions",
        of: |report| report.position.log_start_offset.0.unsigned_abs(),
    },
    Column {
        name: "towpath_topic_high_watermark",
        kind: Kind::Gauge,
        help: "First offsets not yet committed, summed over a topic's partitions",
        of: |report| report.position.high_watermark.0.unsigned_abs(),
    },
    Column {
        name: "towpath_topic_uncommitted_records",
        kind: Kind::Gauge,
        help: "Records that are written and not yet committed",
        of: |report| {
            let position = report.position;
            (position.log_end_offset - position.high_watermark).unsigned_abs()
        },
    },
    Column {
        name: "towpath_topic_size_bytes",
        kind: Kind::Gauge,
        help: "Bytes of a topic on disk",
        of: |report| report.size_bytes,
    },
    Column {
        name: "towpath_topic_in_records",
        kind: Kind::Counter,
        help: "Records appended to a topic",
        of: |report| report.traffic.records_in,
    },
    Column {
        name: "towpath_topic_in_records_acks_none",
        kind: Kind::Counter,
        help: "Records appended with acks=0: nobody was told whether they were written",
        of: |report| report.traffic.records_acks_none,
    },
    Column {
        name: "towpath_topic_in_records_acks_leader",
        kind: Kind::Counter,
        help: "Records appended with acks=1: lost with the leader if nobody else has them yet",
        of: |report| report.traffic.records_acks_leader,
    },
    Column {
        name: "towpath_topic_in_bytes",
        kind: Kind::Counter,
        help: "Bytes of record batches appended to a topic",
        of: |report| report.traffic.bytes_in,
    },
    Column {
        name: "towpath_topic_out_bytes",
        kind: Kind::Counter,
        help: "Bytes of record batches read from a topic",
        of: |report| report.traffic.bytes_out,
    },
];

pub(super) fn write(out: &mut Exposition, survey: &Survey) {
    out.single(
        "towpath_topics_omitted",
        Kind::Gauge,
        "Topics without series of their own here, because there are too many",
        survey.topics_omitted,
    );
    out.single(
        "towpath_partitions_omitted",
        Kind::Gauge,
        "Partitions that are in no series of a topic or partition here, because there are too many",
        survey.partitions_omitted,
    );
    let mut family = out.family("towpath_topic_partitions", Kind::Gauge, "Partitions of a topic");
    for topic in &survey.topics {
        family.sample(&[("topic", &topic.name)], topic.partition_count);
    }
    for column in &COLUMNS {
        let mut family = out.family(column.name, column.kind, column.help);
        for topic in &survey.topics {
            family.sample(&[("topic", &topic.name)], sum(topic, column.of));
        }
    }
}

fn sum(topic: &SurveyedTopic, of: fn(&PartitionReport) -> u64) -> u64 {
    topic.partitions.iter().filter_map(|partition| partition.report.as_ref()).map(of).sum()
}
