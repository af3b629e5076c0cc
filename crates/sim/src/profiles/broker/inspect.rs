//! Looks at everything a broker serves, and compares it with what was promised.

use towpath_driver::ReadLimits;
use towpath_model::{PartitionIndex, TopicPartition};
use towpath_records::split_batches;

use super::catalog::TopicModel;
use super::machine::{Ending, SimDriver};
use super::partitions::{Expiry, Found};
use super::publishers::WEB;
use super::world::World;
use crate::events::Events;
use crate::profile::{Violation, ensure};

/// Reads a partition from its start to its high watermark. Only a compacted one may have gaps.
fn read_all(
    driver: &SimDriver,
    id: TopicPartition,
    is_compacted: bool,
) -> Result<Found, Violation> {
    let failed = |what: String| Violation::new("INV-R1", format!("{id} cannot be read: {what}"));
    let position = driver.position(id, None).map_err(|e| failed(e.to_string()))?;
    let limits = ReadLimits { max_bytes: 1 << 20, at_least_one_batch: true };
    let mut found = Found { position, batches: Vec::new() };
    let mut at = position.log_start_offset;
    while at < position.high_watermark {
        let from = at;
        let read = driver.read(id, None, at, false, limits).map_err(|e| failed(e.to_string()))?;
        let Some(slice) = read.slice else { return Err(failed(format!("it ends at {at}"))) };
        let bytes = slice.read().map_err(|e| failed(e.to_string()))?;
        for batch in split_batches(&bytes) {
            let base = batch.header.base_offset();
            let is_first = found.batches.is_empty() && base <= at;
            let follows = base == at || is_first || (is_compacted && at < base);
            ensure!(follows, "INV-R13", "{id}: {at} is followed by {base}");
            batch.check_crc().map_err(|e| failed(e.to_string()))?;
            found.batches.push((batch.header, batch.bytes.to_vec()));
            at = batch.header.next_offset();
        }
        // Batches in which a compaction has left nothing are passed over.
        at = at.max(if is_compacted { slice.next_offset } else { at });
        ensure!(from < at, "INV-R13", "{id}: a read at {from} does not move on");
    }
    Ok(found)
}

impl World {
    /// A process has started: everything that was promised is there.
    pub(super) fn check_recovered(&mut self) -> Result<(), Violation> {
        let ending = self.machine.take_ending();
        let driver = self.machine.driver();
        let happened = self.catalog.settle(&driver.image())?;
        self.events.add("admin: change without an answer has happened", happened.len() as u64);
        self.check_deleted()?;
        let mut web = Vec::new();
        for (name, id) in self.all_partitions() {
            let found = read_all(&driver, id, self.is_compacted(&name))?;
            let position = &found.position;
            let (start, end) = (position.log_start_offset.0, position.log_end_offset.0);
            self.machine.trace.event("recovered", &[start as u64, end as u64]);
            if is_internal(&name) {
                continue;
            }
            let is_synced = self.catalog.is_surely_synced(id.topic);
            let expiry = self.expiry(id.topic);
            let model = self.partitions.entry(id).or_default();
            model.recovered(&found, ending, is_synced, &expiry, &mut self.events)?;
            if name == WEB {
                web.push((id.partition, found));
            }
        }
        self.check_web(&web)
    }

    /// Nothing of a deleted topic is left, and nothing was set aside: no metadata was ever lost.
    fn check_deleted(&mut self) -> Result<(), Violation> {
        for (path, _) in self.machine.disk.files() {
            ensure!(!path.contains("/quarantine/"), "INV-T6", "{path} was set aside");
            let deleted = self.catalog.deleted.iter().find(|id| path.contains(&id.to_string()));
            ensure!(deleted.is_none(), "INV-T4", "{path} belongs to a deleted topic");
        }
        Ok(())
    }

    /// Whether files of a topic whose deletion was acknowledged are still there.
    pub(super) fn has_deleted_files(&self) -> bool {
        let deleted = &self.catalog.deleted;
        if deleted.is_empty() {
            return false;
        }
        let files = self.machine.disk.files();
        files.iter().any(|(path, _)| deleted.iter().any(|id| path.contains(&id.to_string())))
    }

    /// Whether records of a partition that were acknowledged may not be read: a directory that has
    /// failed serves nothing that may not be on the disk.
    pub(super) fn may_be_unreadable(&self, id: TopicPartition) -> bool {
        let is_lossy = self.partitions.get(&id).is_some_and(|model| model.is_lossy);
        self.machine.driver().is_failed() && is_lossy
    }

    /// Reads everything that this process serves.
    pub(super) fn check_everything(&mut self) -> Result<(), Violation> {
        let driver = self.machine.driver();
        let mut web = Vec::new();
        for (name, id) in self.all_partitions() {
            if is_internal(&name) || driver.position(id, None).is_err() {
                continue;
            }
            if self.may_be_unreadable(id) {
                continue;
            }
            let found = read_all(&driver, id, self.is_compacted(&name))?;
            self.partitions.entry(id).or_default().check(&found)?;
            if name == WEB {
                web.push((id.partition, found));
            }
        }
        let all = self.catalog.topic(WEB).is_some_and(|topic| {
            usize::try_from(topic.partitions).is_ok_and(|count| count == web.len())
        });
        if all { self.check_web(&web) } else { Ok(()) }
    }

    fn is_compacted(&self, name: &str) -> bool {
        is_internal(name) || self.catalog.topic(name).is_some_and(TopicModel::is_compacted)
    }

    fn check_web(&self, web: &[(PartitionIndex, Found)]) -> Result<(), Violation> {
        let found: Vec<_> = web.iter().map(|(partition, found)| (*partition, found)).collect();
        self.check_published(&found)
    }

    /// Cuts the power of a copy of the machine, and starts a broker there: whatever the high
    /// watermark of a synced topic has passed is truly on the disk (INV-R9), whatever this life does
    /// next.
    pub(super) fn cut_power_of_a_copy(&mut self) -> Result<(), Violation> {
        if self.machine.driver().is_failed() || self.machine.has_sync_failed() {
            return Ok(());
        }
        let copy = self.machine.disk.fork(self.rng.draw());
        copy.set_capacity(None);
        copy.lose_power();
        copy.restart();
        let process = self
            .machine
            .start_on_copy(&copy)
            .map_err(|e| Violation::new("INV-R9", format!("a copy does not open: {e}")))?;
        let mut catalog = self.catalog.clone();
        catalog.settle(&process.driver.image())?;
        let mut unseen = Events::new();
        for (name, topic) in catalog.topics().filter(|(name, _)| !is_internal(name)) {
            for id in topic.ids() {
                let found = read_all(&process.driver, id, topic.is_compacted())?;
                let is_synced = catalog.is_surely_synced(id.topic);
                let expiry = Expiry { leads_anew: true, ..self.expiry(id.topic) };
                let mut model = self.partitions.get(&id).cloned().unwrap_or_default();
                let promised = model.synced_end();
                model
                    .recovered(&found, Ending::PowerLost, is_synced, &expiry, &mut unseen)
                    .map_err(|v| {
                        let detail = format!("a copy of {name}: {v} (promised {promised})");
                        Violation::new("INV-R9", detail)
                    })?;
            }
        }
        self.events.note("broker: promises found on a copy without power");
        Ok(())
    }
}

fn is_internal(name: &str) -> bool {
    name.starts_with("__")
}
