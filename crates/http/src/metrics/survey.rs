//! What a scrape reads off the broker: topics, partitions, groups and their lags, each within its
//! bound, each partition locked for an instant.

use std::sync::Arc;

use towpath_coordinator::groups::Listing;
use towpath_driver::{GroupReport, GuardReport, Lags, PartitionReport};
use towpath_model::properties::QueueConfig;
use towpath_model::{BrokerId, PartitionIndex, TopicId, TopicPartition};
use towpath_queue::{Fill, Limits, OWN_SUBSCRIPTION, Observed, Stats};
use towpath_server::{Node, SystemDriver};

use crate::limits::{METRIC_LAGS_MAX, METRIC_PARTITIONS_MAX, METRIC_TOPICS_MAX};

/// Everything that has labels.
pub(super) struct Survey {
    /// Brokers, with their addresses where they have one.
    pub(super) brokers: Vec<(BrokerId, String)>,
    pub(super) topics: Vec<SurveyedTopic>,
    /// Topics beyond the bound.
    pub(super) topics_omitted: usize,
    /// Partitions beyond the bound, those of omitted topics included.
    pub(super) partitions_omitted: usize,
    pub(super) partitions: usize,
    pub(super) groups: Vec<Listing>,
    pub(super) rebalances: u64,
    pub(super) lags: Lags,
    pub(super) guard: GuardReport,
}

/// One topic.
pub(super) struct SurveyedTopic {
    pub(super) name: String,
    /// How it is worked, where it is a queue.
    pub(super) queue: Option<QueueConfig>,
    pub(super) partition_count: usize,
    /// As many as are within the bound.
    pub(super) partitions: Vec<SurveyedPartition>,
}

/// One partition.
pub(super) struct SurveyedPartition {
    /// Its number, as a label.
    pub(super) index: String,
    pub(super) leader: Option<BrokerId>,
    pub(super) is_led_by_preferred: bool,
    pub(super) replicas: usize,
    pub(super) in_sync: usize,
    /// What its leader knows; `None` when that is not this broker.
    pub(super) report: Option<PartitionReport>,
    /// What its leader knows of a queue's own subscription; `None` when it is no queue, or led elsewhere.
    pub(super) deliveries: Option<(Stats, Observed)>,
    /// How full it is, and how full it may be, where it is a queue's and led here.
    pub(super) fill: Option<(Fill, Limits)>,
}

impl Survey {
    /// Looks at everything. Reads headers of records from the disk: not for a thread that serves
    /// sockets.
    pub(super) fn take(node: &Arc<Node>) -> Survey {
        let driver = node.driver();
        let mut survey = survey_metadata(driver);
        for (topic, id) in &mut survey.1 {
            for (at, partition) in topic.partitions.iter_mut().enumerate() {
                let index = PartitionIndex(i32::try_from(at).unwrap_or(i32::MAX));
                let id = TopicPartition { topic: *id, partition: index };
                partition.report = driver.report(id);
                partition.deliveries = topic.queue.as_ref().and_then(|_| deliveries(driver, id));
                partition.fill = topic.queue.as_ref().and_then(|_| driver.queue_fill(id));
            }
        }
        let (mut survey, topics) = survey;
        survey.topics = topics.into_iter().map(|(topic, _)| topic).collect();
        let GroupReport { groups, rebalances } = driver.groups();
        survey.groups = groups;
        survey.rebalances = rebalances;
        survey.lags = driver.lags(None, METRIC_LAGS_MAX);
        survey.guard = driver.guard_report();
        survey
    }
}

fn deliveries(driver: &SystemDriver, id: TopicPartition) -> Option<(Stats, Observed)> {
    let seen = driver.with_deliveries(id, |deliveries, now| {
        let stats = deliveries.stats(now, OWN_SUBSCRIPTION)?;
        Some((stats, deliveries.observed(now, OWN_SUBSCRIPTION)?))
    });
    seen.ok()?
}

fn survey_metadata(driver: &SystemDriver) -> (Survey, Vec<(SurveyedTopic, TopicId)>) {
    let image = driver.image();
    let brokers = image.brokers().map(|broker| {
        let address = broker.addresses.first();
        let address = address.map(|at| format!("{}:{}", at.host, at.port));
        (broker.id, address.unwrap_or_default())
    });
    let mut survey = Survey {
        brokers: brokers.collect(),
        topics: Vec::new(),
        topics_omitted: image.topic_count().saturating_sub(METRIC_TOPICS_MAX),
        partitions_omitted: 0,
        partitions: image.partition_count(),
        groups: Vec::new(),
        rebalances: 0,
        lags: Lags::default(),
        guard: GuardReport::default(),
    };
    let (mut topics, mut count) = (Vec::new(), 0);
    for topic in image.topics().take(METRIC_TOPICS_MAX) {
        let room = METRIC_PARTITIONS_MAX - count;
        let states = topic.partitions.iter().enumerate().take(room);
        let partitions = states.map(|(index, state)| SurveyedPartition {
            index: index.to_string(),
            leader: state.leader,
            is_led_by_preferred: state.leader.is_some()
                && state.leader == state.replicas.first().copied(),
            replicas: state.replicas.len(),
            in_sync: state.in_sync.len(),
            report: None,
            deliveries: None,
            fill: None,
        });
        let surveyed = SurveyedTopic {
            name: topic.name.as_str().to_owned(),
            queue: topic.is_queue().then(|| image.effective_config(topic).queue),
            partition_count: topic.partitions.len(),
            partitions: partitions.collect(),
        };
        count += surveyed.partitions.len();
        topics.push((surveyed, topic.id));
    }
    survey.partitions_omitted = survey.partitions.saturating_sub(count);
    (survey, topics)
}
