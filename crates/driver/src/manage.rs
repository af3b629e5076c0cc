//! What follows from committed metadata, and what an operator orders about records.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_broker::Outcome;
use towpath_log::disk::Disk;
use towpath_log::{LogError, StartMove};
use towpath_metadata::{self as metadata, Effect, Image};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{Durability, Offset, Token, TopicId, TopicName, TopicPartition};

use crate::cell::Cell;
use crate::driver::Driver;
use crate::pair::logs_of;
use crate::recover::producers_at_risk;
use crate::replicas::min_in_sync;
use crate::stall::Deferred;
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
    /// The disk does not answer.
    #[error("{0}")]
    Stalled(String),
    /// The disk fails.
    #[error(transparent)]
    Storage(#[from] LogError),
}

/// How the move of a log start ended.
pub(crate) struct Moved {
    /// Where the log starts now; `None` when it has not moved, or the partition was closed meanwhile.
    pub(crate) start: Option<Offset>,
    /// The start may have moved although something failed afterwards, the removal of a file for one.
    pub(crate) result: Result<(), LogError>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Publishes committed records to readers and carries out what they mean for this broker's
    /// partitions. Called in log order, with whole decisions: nobody sees half of a topic, and a new
    /// partition is led before anybody can see it.
    pub(crate) fn metadata_committed(&self, records: &[metadata::Record]) {
        let is_serving = self.broker_epoch().is_some();
        let mut image = self.image.write().expect("no panic holds the image");
        let mut effects = Vec::with_capacity(records.len());
        for record in records {
            let effect = metadata::effect(record);
            let name = match effect {
                Effect::TopicDeleted(id) => image.topic_by_id(id).map(|topic| topic.name.clone()),
                _ => None,
            };
            if let metadata::Record::Partition { partition, state } = record {
                self.in_sync_changes.note(&image, *partition, state);
            }
            image.apply(record);
            effects.push((effect, name));
        }
        let (mut changed, mut opened) = (Vec::new(), Vec::new());
        for (effect, _) in &effects {
            if let Effect::PartitionChanged(id) = effect
                && is_serving
            {
                if self.cell(*id).is_some() {
                    changed.push(*id);
                } else {
                    self.open_changed(&image, *id);
                    opened.push(*id);
                }
            }
        }
        let registered = self.registered_in(&image);
        drop(image);
        opened.into_iter().for_each(|id| self.resume_deliveries(id));
        changed.into_iter().for_each(|id| self.follow_image(id));
        for (effect, name) in effects {
            self.follow(effect, name.as_ref());
        }
        if self.note_registration(registered) {
            self.begin_to_serve();
        }
    }

    /// The metadata as a whole has come: this broker was too far behind for the records between.
    pub(crate) fn metadata_restored(&self, new: Image) {
        let registered = self.registered_in(&new);
        let gone: Vec<Arc<Cell<D>>> = {
            let mut image = self.image.write().expect("no panic holds the image");
            *image = new;
            let is_known = |id: TopicPartition| image.topic_by_id(id.topic).is_some();
            self.cells().into_iter().filter(|cell| !is_known(cell.id)).collect()
        };
        // Their topics were deleted, by records that were not sent. That is no order to delete
        // records: the next start sets them aside.
        for cell in gone {
            self.cells.write().expect("no panic holds the map").remove(&cell.id);
            self.close(&cell, Outcome::NotLeader);
            tracing::warn!(topic = %cell.topic, partition = %cell.id.partition,
                "the metadata does not know this partition's topic any more: its files are left alone");
        }
        if self.note_registration(registered) {
            self.begin_to_serve();
        } else if registered.is_some() {
            self.follow_whole_image();
        }
    }

    /// The epoch of this process's registration, if the image has it.
    fn registered_in(&self, image: &Image) -> Option<i64> {
        let broker = image.broker(self.settings.broker_id)?;
        (broker.incarnation == self.settings.incarnation).then_some(broker.epoch)
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
            Effect::TopicCreated(_)
            | Effect::PartitionChanged(_)
            | Effect::BrokerChanged(_)
            | Effect::ClusterNamed
            | Effect::None => {}
        }
    }

    fn open_changed(&self, image: &Image, id: TopicPartition) {
        let Some(topic) = image.topic_by_id(id.topic) else { return };
        if let Err(error) = self.open_if_held(image, topic, id.partition) {
            tracing::error!(topic = %topic.name, %error, "cannot open a new partition");
        }
    }

    /// The records go from the disk in the next upkeep, and deliveries with them: until then who reads
    /// them may go on.
    pub(crate) fn forget_partition(&self, id: TopicPartition) {
        logs_of(id, true).into_iter().for_each(|log| self.forget_log(log));
        self.delete_offline(id);
    }

    fn forget_log(&self, id: TopicPartition) {
        let removed = {
            let mut cells = self.cells.write().expect("no panic holds the map");
            let removed = cells.remove(&id);
            if removed.is_some() {
                self.leaving.lock().expect("no panic holds the list").insert(id);
            }
            removed
        };
        if let Some(cell) = removed {
            let is_closed = self.step_soon(&cell, |slot, _, out| {
                slot.closed = true;
                slot.partition.resign(Outcome::NotLeader, out);
            });
            if is_closed {
                let doomed = &self.volume(cell.volume).doomed;
                doomed.lock().expect("no panic holds the list").push(cell);
            } else {
                self.defer(cell.volume, Deferred::Forget(cell));
            }
        }
    }

    pub(crate) fn reconfigure(&self, topic: TopicId) {
        let (config, mins) = {
            let image = self.image();
            let Some(topic) = image.topic_by_id(topic) else { return };
            let mins = topic.numbered().map(|(id, state)| (id, min_in_sync(&image, topic, state)));
            (
                self.newest_config.shared(image.effective_config(topic)),
                mins.collect::<BTreeMap<_, _>>(),
            )
        };
        for cell in self.logs_of_topic(topic) {
            let id = cell.id;
            let Some(min) = mins.get(&id.records()).copied() else { continue };
            let is_done =
                self.step_soon(&cell, |slot, _, out| slot.configure(id, &config, min, out));
            if !is_done {
                self.defer(cell.volume, Deferred::Configure(cell));
            }
        }
        if config.durability == Durability::Synced {
            // What was appended while the topic was relaxed waits for the upkeep; whoever repeats
            // it, or appends behind it, now waits for the disk.
            self.volumes.iter().for_each(|volume| self.want_flush(volume));
        }
        if config.queue_enable {
            self.open_delivery_logs(topic);
        }
    }

    /// A topic may have become a queue: its partitions here get their delivery logs, empty ones.
    pub(crate) fn open_delivery_logs(&self, topic: TopicId) {
        if self.broker_epoch().is_none() {
            return;
        }
        // Whoever opens partitions holds the image, so that nobody opens one twice.
        let image = self.image.write().expect("no panic holds the image");
        let Some(topic) = image.topic_by_id(topic) else { return };
        let mut opened = Vec::new();
        for (id, _) in topic.numbered() {
            let Some(records) = self.cell(id) else { continue };
            if self.cell(id.delivery_log()).is_some() {
                continue;
            }
            if self.is_stalled(self.volume(records.volume)) {
                self.defer(records.volume, Deferred::Configure(records));
            } else {
                self.open_changed(&image, id);
                opened.push(id);
            }
        }
        drop(image);
        opened.into_iter().for_each(|id| self.resume_deliveries(id));
    }

    /// Deletes the records below `before` (`None`: below the high watermark). Returns the new log
    /// start offset, which is durable here then. Other replicas follow:
    /// [`towpath_broker::Condition::LogStarts`] is to be waited for.
    ///
    /// # Errors
    /// [`DeleteRecordsRefusal`].
    pub fn delete_records(
        &self,
        id: TopicPartition,
        before: Option<Offset>,
    ) -> Result<Offset, DeleteRecordsRefusal> {
        let cell = self.records_cell(id).ok_or_else(|| match self.offline(id) {
            Some(offline) => DeleteRecordsRefusal::Offline(offline.to_string()),
            None => DeleteRecordsRefusal::NotLeader,
        })?;
        let readers = self.readers_before_deletion(&cell);
        let moved = {
            let Some(slot) = self.lock_in_time(&cell) else {
                let reason = self.stalled_reason(self.volume(cell.volume));
                return Err(DeleteRecordsRefusal::Stalled(reason));
            };
            if !slot.leads() {
                return Err(DeleteRecordsRefusal::NotLeader);
            }
            let high_watermark = slot.partition.high_watermark();
            let asked = before.unwrap_or(high_watermark);
            if high_watermark < asked && !mutant::is_on(Mutant::DeleteAboveHighWatermark) {
                return Err(DeleteRecordsRefusal::BeyondHighWatermark { asked, high_watermark });
            }
            match slot.log.begin_start_move(asked, producers_at_risk(&slot, asked))? {
                Some(moved) => moved,
                None => return Ok(slot.log.log_start_offset()),
            }
        };
        let moved = self.move_start(&cell, moved);
        // It may have moved although something failed afterwards.
        if let Some(start) = moved.start {
            self.records_were_deleted(&cell, &readers, start, self.clock.now().wall);
        }
        moved.result?;
        moved.start.ok_or(DeleteRecordsRefusal::NotLeader)
    }

    /// Moves a partition's start, without its lock wherever the disk works.
    pub(crate) fn move_start(&self, cell: &Arc<Cell<D>>, mut moved: StartMove<D>) -> Moved {
        if let Err(error) = moved.save() {
            return Moved { start: None, result: Err(error) };
        }
        let finished = self.step(cell, |slot, now, out| {
            if slot.closed {
                return None;
            }
            let removal = slot.log.finish_start_move(moved);
            // A relaxed log has been synced up to there.
            if !self.has_failed(cell, slot) {
                slot.partition.synced(now, slot.log.durable_offset(), out);
            }
            let start = slot.log.log_start_offset();
            slot.partition.log_start_moved(start, out);
            Some((removal, start))
        });
        match finished {
            Some((removal, start)) => Moved { start: Some(start), result: removal.run() },
            None => Moved { start: None, result: Ok(()) },
        }
    }

    /// Bytes that a partition takes on disk, its delivery log included.
    pub fn size_bytes(&self, id: TopicPartition) -> Option<u64> {
        let cell = self.records_cell(id)?;
        let records = self.lock_in_time(&cell)?.log.size_bytes();
        let deliveries = self.cell(id.delivery_log()).and_then(|cell| {
            let slot = self.lock_in_time(&cell)?;
            Some(slot.log.size_bytes())
        });
        Some(records + deliveries.unwrap_or(0))
    }
}
