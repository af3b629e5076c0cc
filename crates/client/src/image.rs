//! What the cluster said about itself last: brokers, topics, leaders. A value, replaced as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;
use towpath_model::{BrokerId, LeaderEpoch, PartitionIndex};
use towpath_protocol::messages::{MetadataResponse, MetadataResponseTopic};
use towpath_protocol::{ErrorCode, Uuid};

use crate::config::join_address;
use crate::news::LeaderNews;
use crate::record::TopicPartition;

/// One broker, as clients are to dial it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: BrokerId,
    /// Its advertised host.
    pub host: String,
    /// Its advertised port.
    pub port: u16,
    /// Its rack, where it has one.
    pub rack: Option<String>,
}

impl Broker {
    /// The advertised address.
    #[must_use]
    pub fn address(&self) -> String {
        join_address(&self.host, self.port)
    }

    /// A broker as answers name it; `None`: its port is none.
    pub(crate) fn told(id: i32, host: &str, port: i32, rack: Option<&str>) -> Option<Broker> {
        Some(Broker {
            id: BrokerId(id),
            host: host.to_owned(),
            port: u16::try_from(port).ok()?,
            rack: rack.map(str::to_owned),
        })
    }
}

/// One partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Which one.
    pub index: PartitionIndex,
    /// Who leads it, if anybody does.
    pub leader: Option<BrokerId>,
    /// Number of that leadership; −1 where the broker does not tell.
    pub leader_epoch: LeaderEpoch,
    /// Who keeps it.
    pub replicas: Vec<BrokerId>,
    /// Who of them is in sync.
    pub in_sync: Vec<BrokerId>,
    /// Who of them cannot read its files.
    pub offline: Vec<BrokerId>,
}

impl Partition {
    /// Whether somebody leads it who can serve it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.leader.is_some_and(|leader| !self.offline.contains(&leader))
    }
}

/// One topic.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its permanent identity; zero where the broker does not tell.
    pub id: Uuid,
    /// Whether the broker keeps it for itself.
    pub is_internal: bool,
    /// Its partitions, by index from 0.
    pub partitions: Vec<Partition>,
    pub(crate) fetched_at: Instant,
}

impl Topic {
    /// The partition of that index.
    #[must_use]
    pub fn partition(&self, index: PartitionIndex) -> Option<&Partition> {
        self.partitions.get(usize::try_from(index.0).ok()?)
    }
}

/// What one cluster said at one time.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// The cluster's id, where it tells.
    pub cluster_id: Option<String>,
    /// Who decides for the cluster, as far as clients are told.
    pub controller: Option<BrokerId>,
    /// Every live broker.
    pub brokers: BTreeMap<BrokerId, Broker>,
    /// The topics that were asked for.
    pub topics: BTreeMap<Arc<str>, Arc<Topic>>,
}

impl Image {
    /// The image after `response`: brokers are replaced, the topics it names too; others stay, unless
    /// it lists all there are. Also returns the topics that have an error instead of partitions.
    pub(crate) fn after(
        &self,
        response: &MetadataResponse<'_>,
        lists_all: bool,
        now: Instant,
    ) -> (Image, BTreeMap<Arc<str>, ErrorCode>) {
        let told = response.brokers.iter();
        let brokers = told.filter_map(|at| Broker::told(at.node_id, at.host, at.port, at.rack));
        let mut image = Image {
            cluster_id: response.cluster_id.map(str::to_owned).or_else(|| self.cluster_id.clone()),
            controller: (response.controller_id >= 0).then_some(BrokerId(response.controller_id)),
            brokers: brokers.map(|broker| (broker.id, broker)).collect(),
            topics: if lists_all { BTreeMap::new() } else { self.topics.clone() },
        };
        let mut errors = BTreeMap::new();
        for topic in &response.topics {
            let Some(name) = topic.name else { continue };
            let name: Arc<str> = name.into();
            let code = ErrorCode::from(topic.error_code);
            if code.is_ok() && is_numbered(topic) {
                let before = self.topics.get(&name);
                let topic = read_topic(&name, topic, before.map(Arc::as_ref), now);
                image.topics.insert(name, Arc::new(topic));
            } else {
                image.topics.remove(&name);
                errors
                    .insert(name, if code.is_ok() { ErrorCode::LeaderNotAvailable } else { code });
            }
        }
        (image, errors)
    }

    /// Adds a broker that another answer named.
    pub(crate) fn with_broker(mut self, broker: Broker) -> Image {
        self.brokers.insert(broker.id, broker);
        self
    }

    /// The image after a broker has said who leads, if that is news: a leader that this image does not
    /// know, or a later leadership (KIP-951).
    pub(crate) fn after_news(&self, news: LeaderNews) -> Option<Image> {
        let is_known = |leader: &BrokerId| {
            self.brokers.contains_key(leader) || news.brokers.iter().any(|at| at.id == *leader)
        };
        let told = news.leaders.iter().filter(|(at, leader, epoch)| {
            is_known(leader) && self.partition(at).is_some_and(|known| known.leader_epoch < *epoch)
        });
        let mut image = None;
        for (at, leader, epoch) in told {
            let image = image.get_or_insert_with(|| self.clone());
            let Some(topic) = image.topics.get_mut(&at.topic) else { continue };
            let index = usize::try_from(at.partition.0).unwrap_or(usize::MAX);
            if let Some(partition) = Arc::make_mut(topic).partitions.get_mut(index) {
                (partition.leader, partition.leader_epoch) = (Some(*leader), *epoch);
            }
        }
        let mut image = image?;
        for broker in news.brokers {
            image.brokers.entry(broker.id).or_insert(broker);
        }
        Some(image)
    }

    /// A partition, if it is known.
    pub(crate) fn partition(&self, partition: &TopicPartition) -> Option<&Partition> {
        self.topics.get(&partition.topic)?.partition(partition.partition)
    }

    /// Who leads a partition of which records of `epoch` were read. Where this image is of an older
    /// epoch nobody is known: that leader was replaced without hearing of it, and where it lacks the
    /// records it would say that the position does not exist (KIP-320).
    pub(crate) fn leader_since(
        &self,
        partition: &TopicPartition,
        epoch: Option<LeaderEpoch>,
    ) -> Option<BrokerId> {
        let known = self.partition(partition)?;
        let is_told = 0 <= known.leader_epoch.0;
        let is_older = epoch.is_some_and(|epoch| is_told && known.leader_epoch < epoch);
        known.leader.filter(|_| !is_older)
    }

    /// The name of the topic with this id.
    #[must_use]
    pub fn topic_of_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.topics.values().find(|topic| topic.id == id)
    }
}

/// Whether the partitions are exactly 0 to n−1, in any order: what the rest of the client relies on.
fn is_numbered(topic: &MetadataResponseTopic<'_>) -> bool {
    let mut indexes: Vec<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
    indexes.sort_unstable();
    !indexes.is_empty() && (0..).zip(&indexes).all(|(expected, index)| expected == *index)
}

fn read_topic(
    name: &Arc<str>,
    topic: &MetadataResponseTopic<'_>,
    before: Option<&Topic>,
    now: Instant,
) -> Topic {
    let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect();
    let mut partitions: Vec<Partition> = topic
        .partitions
        .iter()
        .map(|partition| Partition {
            index: PartitionIndex(partition.partition_index),
            leader: (partition.leader_id >= 0).then_some(BrokerId(partition.leader_id)),
            leader_epoch: LeaderEpoch(partition.leader_epoch),
            replicas: ids(&partition.replica_nodes),
            in_sync: ids(&partition.isr_nodes),
            offline: ids(&partition.offline_replicas),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.index);
    // A broker that lags must not send us back to a leader that was replaced (KIP-320).
    if let Some(before) = before.filter(|before| before.id == topic.topic_id) {
        for partition in &mut partitions {
            match before.partition(partition.index) {
                Some(known) if partition.leader_epoch < known.leader_epoch => {
                    *partition = known.clone();
                }
                _ => {}
            }
        }
    }
    Topic {
        name: name.clone(),
        id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions,
        fetched_at: now,
    }
}

#[cfg(test)]
mod tests {
    use towpath_protocol::messages::MetadataResponsePartition;

    use super::*;

    fn response(leader: i32, epoch: i32) -> MetadataResponse<'static> {
        MetadataResponse {
            topics: vec![MetadataResponseTopic {
                name: Some("t"),
                topic_id: Uuid::from_u128(9),
                partitions: vec![MetadataResponsePartition {
                    leader_id: leader,
                    leader_epoch: epoch,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn an_older_leader_epoch_does_not_replace_a_newer_one() {
        let now = Instant::now();
        let (image, _) = Image::default().after(&response(1, 5), false, now);
        let (image, _) = image.after(&response(2, 4), false, now);
        assert_eq!(image.topics["t"].partitions[0].leader, Some(BrokerId(1)));
        let (image, _) = image.after(&response(2, 6), false, now);
        assert_eq!(image.topics["t"].partitions[0].leader, Some(BrokerId(2)));
    }

    #[test]
    fn a_broker_that_refuses_says_who_leads_unless_it_lags() {
        let (image, _) = Image::default().after(&response(1, 5), false, Instant::now());
        let partition = TopicPartition::new("t", 0);
        let news = |leader, epoch| LeaderNews {
            leaders: vec![(partition.clone(), BrokerId(leader), LeaderEpoch(epoch))],
            brokers: Broker::told(2, "host", 9092, None).into_iter().collect(),
        };
        let image = image.after_news(news(2, 6)).unwrap();
        assert_eq!(image.partition(&partition).unwrap().leader, Some(BrokerId(2)));
        assert_eq!(image.brokers[&BrokerId(2)].address(), "host:9092");
        // The next leader does not know yet that it leads.
        assert!(image.after_news(news(1, 5)).is_none());
        // Nobody says where the broker is.
        assert!(image.after_news(news(3, 7)).is_none());
    }

    #[test]
    fn a_leader_that_was_replaced_before_a_position_was_written_is_not_asked() {
        let (image, _) = Image::default().after(&response(1, 5), false, Instant::now());
        let partition = TopicPartition::new("t", 0);
        let leader = |epoch: Option<i32>| image.leader_since(&partition, epoch.map(LeaderEpoch));
        assert_eq!(leader(None), Some(BrokerId(1)));
        assert_eq!(leader(Some(5)), Some(BrokerId(1)));
        assert_eq!(leader(Some(6)), None);
        let (untold, _) = Image::default().after(&response(1, -1), false, Instant::now());
        assert_eq!(untold.leader_since(&partition, Some(LeaderEpoch(6))), Some(BrokerId(1)));
    }

    #[test]
    fn a_complete_listing_forgets_topics_that_are_gone() {
        let (image, _) = Image::default().after(&response(1, 5), false, Instant::now());
        let nothing = MetadataResponse::default();
        assert_eq!(image.after(&nothing, false, Instant::now()).0.topics.len(), 1);
        assert_eq!(image.after(&nothing, true, Instant::now()).0.topics.len(), 0);
    }

    #[test]
    fn a_topic_with_an_error_leaves_the_image() {
        let (image, _) = Image::default().after(&response(1, 5), false, Instant::now());
        let mut gone = response(1, 5);
        gone.topics[0].error_code = ErrorCode::UnknownTopicOrPartition.code();
        let (image, errors) = image.after(&gone, false, Instant::now());
        assert!(image.topics.is_empty());
        assert_eq!(errors["t"], ErrorCode::UnknownTopicOrPartition);
    }
}
