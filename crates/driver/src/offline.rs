//! Partitions that this broker should lead and cannot: their directory cannot be opened or recovered.
//!
//! Whoever asks for one is told so by name; every other partition is served. Its files are neither cut
//! nor removed, and the next start tries again. Only the deletion of its topic removes them.

use std::sync::Arc;

use towpath_log::disk::Disk;
use towpath_model::{TopicName, TopicPartition};

use crate::driver::Driver;
use crate::open::place_of;
use crate::pair::logs_of;
use crate::world::{Clock, Net};

/// A partition that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offline {
    /// Which one.
    pub id: TopicPartition,
    /// Its topic's name.
    pub topic: TopicName,
    /// Why, for people.
    pub reason: Arc<str>,
}

impl std::fmt::Display for Offline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Offline { id, topic, reason } = self;
        write!(f, "partition {topic}-{} is offline on this broker: {reason}", id.partition)
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Why a partition that should be led here is not served; `None` when it is, or should not be.
    pub fn offline(&self, id: TopicPartition) -> Option<Offline> {
        self.offline.lock().expect("no panic holds the list").get(&id).cloned()
    }

    /// Every partition that should be led here and is not served.
    pub fn offline_partitions(&self) -> Vec<Offline> {
        self.offline.lock().expect("no panic holds the list").values().cloned().collect()
    }

    pub(crate) fn take_offline(&self, id: TopicPartition, topic: TopicName, reason: &str) {
        tracing::error!(%topic, partition = %id.partition, reason,
            "the partition is offline: its data is left as it is. `towpath verify` on the stopped \
             node tells what is wrong; when the directory can be read again, restart the broker");
        let offline = Offline { id, topic, reason: reason.into() };
        self.offline.lock().expect("no panic holds the list").insert(id, offline);
    }

    pub(crate) fn back_online(&self, id: TopicPartition) {
        self.offline.lock().expect("no panic holds the list").remove(&id);
    }

    /// Its topic is gone, by order: so are its files.
    pub(crate) fn delete_offline(&self, id: TopicPartition) {
        let removed = self.offline.lock().expect("no panic holds the list").remove(&id);
        let Some(Offline { topic, .. }) = removed else { return };
        // Where it may lie; in a directory that is missing, the start that finds it removes it.
        let everywhere = self
            .volumes
            .iter()
            .flat_map(|volume| logs_of(id, true).into_iter().map(move |log| (volume, log)));
        for (volume, log) in everywhere {
            if let Err(error) = volume.directory.delete_log(place_of(log, &topic)) {
                tracing::warn!(%topic, partition = %log.partition, %error,
                    "a deleted topic's files could not be removed; the next start tries again");
            }
        }
    }
}
