//! What follows from committed metadata, and what an operator orders about records.

use std::sync::Arc;

use towpath_broker::{Outcome, Output};
use towpath_log::LogError;
use towpath_log::disk::Disk;
use towpath_metadata::{self as metadata, Effect, Image};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{Durability, Offset, Token, TopicId, TopicName, TopicPartition};

use crate::cell::Slot;
use crate::config::log_config;
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// Token of a request whose answer nobody waits for.
pub(crate) const NOBODY: Token = Token(0);

/// Why records were not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteRecordsRefusal {
    /// This broker does not lead the partition.
    #[error("this broker does not lead the partition")]
    NotLeader,
    /// The partition should be led here and cannot be.
    #[error("{0}")]
    Offline(String),
    /// Only what is committed can be deleted.
    #[error("offset {asked} lies beyond the high watermark {high_watermark}")]
    BeyondHighWatermark {
        /// The offset asked for.
        asked: Offset,
        /// The partition's high watermark.
        high_watermark: Offset,
    },
    /// The disk fails.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Publishes committed records to readers and carries out what they mean for this broker's
    /// partitions. Called in log order, with whole decisions: nobody sees half of a topic, and a
    /// partition is led before anybody can see it.
    pub(crate) fn metadata_committed(&self, records: &[metadata::Record]) {
        let mut image = self.image.write().expect("no panic holds the image");
        let mut effects = Vec::with_capacity(records.len());
        for record in records {
            let effect = metadata::effect(record);
            let name = match effect {
                Effect::TopicDeleted(id) => image.topic_by_id(id).map(|topic| topic.name.clone()),
                _ => None,
            };
            image.apply(record);
            effects.push((effect, name));
        }
        for (effect, _) in &effects {
            if let Effect::PartitionChanged(id) = effect {
                self.open_changed(&image, *id);
            }
        }
        drop(image);
        for (effect, name) in effects {
            self.follow(effect, name.as_ref());
        }
    }

    fn follow(&self, effect: Effect, deleted: Option<&TopicName>) {
        match effect {
            Effect::PartitionRemoved(id) => self.forget_partition(id),
            Effect::TopicDeleted(topic) => {
                if let Some(name) = deleted {
                    self.forget_topic(topic, name);
                }
            }
            Effect::TopicConfigChanged(topic) => self.reconfigure(topic),
            Effect::BrokerConfigChanged(_) => {
                let topics: Vec<TopicId> = self.image().topics().map(|topic| topic.id).collect();
                topics.into_iter().for_each(|topic| self.reconfigure(topic));
            }
            Effect::TopicCreated(_) | Effect::PartitionChanged(_) | Effect::None => {}
        }
    }

    fn open_changed(&self, image: &Image, id: TopicPartition) {
        let Some(topic) = image.topic_by_id(id.topic) else { return };
        if let Err(error) = self.open_if_led(image, topic, id.partition) {
            tracing::error!(topic = %topic.name, %error, "cannot open a new partition");
        }
    }

    /// The records go from the disk in the next upkeep: until then who reads them may go on.
    fn forget_partition(&self, id: TopicPartition) {
        let removed = self.cells.write().expect("no panic holds the map").remove(&id);
        self.delete_offline(id);
        if let Some(cell) = removed {
            self.close(&cell, Outcome::NotLeader);
            self.doomed.lock().expect("no panic holds the list").push(cell);
        }
    }

    fn reconfigure(&self, topic: TopicId) {
        let config = {
            let image = self.image();
            let Some(topic) = image.topic_by_id(topic) else { return };
            Arc::new(image.effective_config(topic))
        };
        for cell in self.cells_of(topic) {
            let id = cell.id;
            self.step(&cell, |slot, _, out| {
                slot.log.set_config(log_config(&config, id));
                slot.config = Arc::clone(&config);
                slot.partition.configured(config.min_insync_replicas, config.durability, out);
            });
        }
        if config.durability == Durability::Synced {
            // What was appended while the topic was relaxed waits for the upkeep; whoever repeats
            // it, or appends behind it, now waits for the disk.
            self.want_flush();
        }
    }

    /// Deletes the records below `before` (`None`: below the high watermark). Returns the new log
    /// start offset, which is durable then.
    ///
    /// # Errors
    /// [`DeleteRecordsRefusal`].
    pub fn delete_records(
        &self,
        id: TopicPartition,
        before: Option<Offset>,
    ) -> Result<Offset, DeleteRecordsRefusal> {
        let cell = self.cell(id).ok_or_else(|| match self.offline(id) {
            Some(offline) => DeleteRecordsRefusal::Offline(offline.to_string()),
            None => DeleteRecordsRefusal::NotLeader,
        })?;
        let readers = self.readers_before_deletion(&cell);
        let (result, start) = self.step(&cell, |slot, _, out| {
            let result = delete_below(slot, before, out);
            (result, slot.log.log_start_offset())
        });
        // It may have moved although something failed afterwards.
        self.records_were_deleted(&cell, &readers, start, self.clock.now().wall);
        result.map(|()| start)
    }

    /// Bytes that a partition's log takes on disk.
    pub fn size_bytes(&self, id: TopicPartition) -> Option<u64> {
        let cell = self.cell(id)?;
        let slot = cell.lock();
        Some(slot.log.size_bytes())
    }
}

fn delete_below<D: Disk>(
    slot: &mut Slot<D>,
    before: Option<Offset>,
    out: &mut Vec<Output>,
) -> Result<(), DeleteRecordsRefusal> {
    if slot.closed {
        return Err(DeleteRecordsRefusal::NotLeader);
    }
    let high_watermark = slot.partition.leader().high_watermark();
    let asked = before.unwrap_or(high_watermark);
    if high_watermark < asked && !mutant::is_on(Mutant::DeleteAboveHighWatermark) {
        return Err(DeleteRecordsRefusal::BeyondHighWatermark { asked, high_watermark });
    }
    Ok(slot.start_moves_to(asked, out)?)
}
