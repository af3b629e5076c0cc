//! What groups that are coordinated elsewhere have read: retention's guard on a topic asks for it.
//!
//! Answers are kept and used for a while: committed offsets move forward, so an old one holds more
//! than it has to, never less (but for a group that was moved back meanwhile).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use towpath_broker::OFFSETS_TOPIC;
use towpath_broker::peer::PeerMessage;
use towpath_log::disk::Disk;
use towpath_model::{BrokerId, Offset, PartitionIndex, Time, TopicId};

use crate::driver::Driver;
use crate::world::{Clock, Net};

/// How long an answer is used.
const USED_FOR: Duration = Duration::from_secs(15 * 60);
/// Most readers in one answer; where there are more, the guard is told nothing, and holds.
const READERS_MAX: usize = 100_000;

/// One reader: which partition of the topic, which group, from where on it has not read.
pub(crate) type RemoteReader = (PartitionIndex, Arc<str>, Offset);

/// Answers of other brokers, by topic and partition of the groups' topic.
#[derive(Debug, Default)]
pub(crate) struct RemoteReaders {
    of: BTreeMap<(TopicId, PartitionIndex), (Time, Vec<RemoteReader>)>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Asks those who coordinate groups elsewhere who reads this topic. Their answers are there when
    /// the guard looks next.
    pub(crate) fn ask_for_readers(&self, topic: TopicId) {
        let me = self.settings.broker_id;
        let others: BTreeSet<BrokerId> = {
            let image = self.image();
            let Some(offsets) = image.topic(OFFSETS_TOPIC) else { return };
            offsets
                .partitions
                .iter()
                .filter_map(|state| state.leader)
                .filter(|id| *id != me)
                .collect()
        };
        for other in others {
            self.net.send(other, PeerMessage::AskReaders { topic });
        }
    }

    /// Another broker asks who reads a topic.
    pub(super) fn asked_for_readers(&self, from: BrokerId, topic: TopicId) {
        let Some(name) = self.image().topic_by_id(topic).map(|topic| topic.name.clone()) else {
            return;
        };
        for cell in self.offsets_cells() {
            let slot = cell.lock();
            if !slot.leads() {
                continue;
            }
            let mut readers = Vec::new();
            for (partition, groups) in slot.partition.readers().of_topic(name.as_str()) {
                let here = groups.iter().filter(|(_, reader)| reader.reads(topic));
                readers.extend(
                    here.map(|(group, reader)| (partition, group.to_string(), reader.offset)),
                );
            }
            drop(slot);
            if readers.len() <= READERS_MAX {
                let coordinator = cell.id.partition;
                self.net.send(from, PeerMessage::Readers { topic, coordinator, readers });
            }
        }
    }

    /// Who reads a topic, of the groups in one partition of the groups' topic.
    pub(super) fn told_readers(
        &self,
        topic: TopicId,
        coordinator: PartitionIndex,
        readers: Vec<(PartitionIndex, String, Offset)>,
    ) {
        let now = self.clock.now().time;
        let readers = readers.into_iter().map(|(p, group, offset)| (p, group.into(), offset));
        let mut known = self.remote_readers.lock().expect("no panic holds the readers");
        known.of.retain(|_, (at, _)| now < *at + USED_FOR);
        known.of.insert((topic, coordinator), (now, readers.collect()));
    }

    /// What is known of the groups in a partition of the groups' topic that is led elsewhere.
    pub(crate) fn remote_readers_of(
        &self,
        topic: TopicId,
        coordinator: PartitionIndex,
    ) -> Option<Vec<RemoteReader>> {
        let now = self.clock.now().time;
        let known = self.remote_readers.lock().expect("no panic holds the readers");
        let (at, readers) = known.of.get(&(topic, coordinator))?;
        (now < *at + USED_FOR).then(|| readers.clone())
    }
}
