//! Compaction of led partitions: which is next, and one piece of its work.
//!
//! One partition at a time, the one with the largest dirty part first. The shell calls
//! [`Driver::compact`] again and again, and decides by what it returns how long to rest: the work
//! itself holds no partition's lock, but for the moment in which a group of segments is replaced.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard};

use towpath_broker::Partition;
use towpath_log::disk::Disk;
use towpath_log::{Compacted, Compaction, CompactionError, CompactionRules, CompactionState, Step};
use towpath_model::properties::BrokerConfig;
use towpath_model::{Now, Offset, Time, Timestamp, TopicPartition};

use crate::cell::{Cell, Slot};
use crate::config::compaction_rules;
use crate::driver::Driver;
use crate::forget::Plan;
use crate::world::{Clock, Net};

/// What a call of [`Driver::compact`] has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionWork {
    /// Nothing is to be compacted before then.
    Idle {
        /// When to call again.
        until: Time,
    },
    /// Some work was done, and there may be more.
    Worked {
        /// Bytes read and written.
        bytes: u64,
    },
}

/// What compaction has done in this process, and how things stand.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CompactionTotals {
    /// Compactions that came to their end.
    pub runs: u64,
    /// Bytes read and written.
    pub io_bytes: u64,
    /// Bytes that segments had less after it.
    pub removed_bytes: u64,
    /// Records removed.
    pub removed_records: u64,
    /// The largest dirty part of any partition when they were last looked at, 0 to 1.
    pub dirty_ratio_max: f64,
    /// Partitions that are not compacted because of damage.
    pub stopped_partitions: u64,
    /// When the last compaction ended.
    pub last_run: Option<Timestamp>,
}

/// How it stands with one partition.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionCompaction {
    /// How much is clean and dirty.
    pub state: CompactionState,
    /// When it was last compacted by this process.
    pub last_run: Option<Timestamp>,
    /// Why it is not compacted.
    pub stopped: Option<String>,
}

/// What a cell knows of its compactions.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    last_run: Option<Timestamp>,
    /// Damage was met: only a restart, which looks at the log anew, tries again.
    pub(crate) stopped: Option<String>,
}

/// The compaction under way, if there is one.
pub(crate) struct Compactor<D: Disk> {
    running: Option<Running<D>>,
    /// Those that a look has found, the one with the largest dirty part last, which is next.
    due: Vec<Arc<Cell<D>>>,
    look_at: Option<Time>,
}

impl<D: Disk> Default for Compactor<D> {
    fn default() -> Self {
        Compactor { running: None, due: Vec::new(), look_at: None }
    }
}

struct Running<D: Disk> {
    cell: Arc<Cell<D>>,
    compaction: Compaction<D>,
    /// What goes is what a queue is done with, and this.
    plan: Option<Plan>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Does about a MiB of compaction, or says when there will be some. To be called by one thread.
    pub fn compact(&self) -> CompactionWork {
        let mut compactor = self.compactor.lock().expect("no panic holds the compactor");
        let now = self.clock.now();
        if compactor.running.is_none() {
            if let Some(until) = compactor.look_at.filter(|at| now.time < *at) {
                return CompactionWork::Idle { until };
            }
            let config = self.image().broker_config();
            if compactor.due.is_empty() {
                compactor.due = self.look_for_dirt(&config, now);
            }
            while compactor.running.is_none()
                && let Some(cell) = compactor.due.pop()
            {
                compactor.running = self.begin_next(cell, &config, now);
            }
            if compactor.running.is_none() {
                let until = now.time + config.compaction_backoff;
                compactor.look_at = Some(until);
                return CompactionWork::Idle { until };
            }
        }
        let Some(mut running) = compactor.running.take() else {
            return CompactionWork::Idle { until: now.time };
        };
        let before = running.compaction.io_bytes();
        let goes_on = self.go_on(&mut running, now);
        let bytes = running.compaction.io_bytes() - before;
        self.totals().io_bytes += bytes;
        if goes_on {
            compactor.running = Some(running);
        } else {
            running.compaction.abandon();
        }
        CompactionWork::Worked { bytes }
    }

    /// Ends what is under way, before the directory is closed.
    pub(crate) fn stop_compacting(&self) {
        let mut compactor = self.compactor.lock().expect("no panic holds the compactor");
        if let Some(running) = compactor.running.take() {
            running.compaction.abandon();
        }
    }

    /// What compaction has done so far.
    pub fn compaction_totals(&self) -> CompactionTotals {
        *self.totals()
    }

    /// How it stands with a partition; `None` when its topic is not compacted.
    pub fn compaction_of(&self, id: TopicPartition) -> Option<PartitionCompaction> {
        let cell = self.cell(id)?;
        let config = self.image().broker_config();
        let mut slot = cell.lock();
        if slot.closed || !slot.config.cleanup_policy.compact {
            return None;
        }
        let rules = compaction_rules(&slot.config, &config);
        let limit = limit(&slot.partition);
        let state = slot.log.compaction_state(&rules, self.clock.now(), limit);
        let Compactions { last_run, stopped } = &slot.compactions;
        Some(PartitionCompaction { state, last_run: *last_run, stopped: stopped.clone() })
    }

    fn totals(&self) -> MutexGuard<'_, CompactionTotals> {
        self.compaction_totals.lock().expect("no panic holds the totals")
    }

    /// The partitions that are to be compacted, the one with the largest dirty part last.
    fn look_for_dirt(&self, config: &BrokerConfig, now: Now) -> Vec<Arc<Cell<D>>> {
        let mut totals = CompactionTotals::default();
        let mut due: Vec<(f64, Arc<Cell<D>>)> = Vec::new();
        for cell in self.cells().into_iter().filter(|cell| !cell.id.is_delivery_log()) {
            let by_key = self.dirty_part(&cell, config, now, &mut totals);
            let ratio = by_key.or_else(|| self.plan_forgetting(&cell).map(|plan| plan.share));
            due.extend(ratio.map(|ratio| (ratio, cell)));
        }
        let mut known = self.totals();
        known.dirty_ratio_max = totals.dirty_ratio_max;
        known.stopped_partitions = totals.stopped_partitions;
        due.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        due.into_iter().map(|(_, cell)| cell).collect()
    }

    fn begin_next(
        &self,
        cell: Arc<Cell<D>>,
        config: &BrokerConfig,
        now: Now,
    ) -> Option<Running<D>> {
        let by_key = self.dirty_part(&cell, config, now, &mut CompactionTotals::default());
        let plan = if by_key.is_none() { Some(self.plan_forgetting(&cell)?) } else { None };
        let mut slot = cell.lock();
        let rules = compaction_rules(&slot.config, config);
        let compaction = match &plan {
            Some(plan) => slot.begin_forgetting(plan, now),
            None => begin(&mut slot, &rules, now),
        };
        match compaction {
            Ok(compaction) => {
                drop(slot);
                compaction.map(|compaction| Running { cell, compaction, plan })
            }
            Err(error) => {
                self.give_up(&cell, &mut slot, &error);
                None
            }
        }
    }

    /// Rolls what has become old; the dirty part of a partition whose compaction is due.
    fn dirty_part(
        &self,
        cell: &Cell<D>,
        config: &BrokerConfig,
        now: Now,
        totals: &mut CompactionTotals,
    ) -> Option<f64> {
        let mut slot = cell.lock();
        let is_meant = slot.config.cleanup_policy.compact || slot.config.is_queue_only();
        if slot.closed || slot.failed || !is_meant {
            return None;
        }
        if let Err(error) = slot.log.roll_if_due(now) {
            tracing::debug!(partition = %cell.id, topic = %cell.topic, %error,
                "nothing is compacted in a failed directory");
            return None;
        }
        if slot.compactions.stopped.is_some() {
            totals.stopped_partitions += 1;
            return None;
        }
        if !slot.config.cleanup_policy.compact {
            return None;
        }
        let rules = compaction_rules(&slot.config, config);
        let limit = limit(&slot.partition);
        let state = slot.log.compaction_state(&rules, now, limit);
        let ratio = state.dirty_ratio();
        totals.dirty_ratio_max = totals.dirty_ratio_max.max(ratio);
        state.is_due.then_some(ratio)
    }

    /// One step; false when that was the last one.
    fn go_on(&self, running: &mut Running<D>, now: Now) -> bool {
        let Running { cell, compaction, plan } = running;
        if cell.lock().closed {
            return false;
        }
        let step = compaction.step();
        let mut slot = cell.lock();
        match step {
            Ok(Step::Worked) => true,
            Ok(Step::Replace(_)) if slot.closed => false,
            Ok(Step::Replace(replacement)) => match slot.log.replace(&replacement) {
                Ok(goes_on) => goes_on,
                Err(error) => {
                    tracing::error!(partition = %cell.id, topic = %cell.topic, %error,
                        "compacted segments could not be put in place");
                    false
                }
            },
            Ok(Step::Finished(compacted)) => {
                match plan {
                    Some(plan) => slot.forgotten(plan),
                    None => slot.log.compacted(&compacted),
                }
                slot.compactions.last_run = Some(now.wall);
                drop(slot);
                self.note_end(cell, &compacted, plan.is_none(), now);
                false
            }
            Err(error) => {
                self.give_up(cell, &mut slot, &error);
                false
            }
        }
    }

    fn give_up(&self, cell: &Cell<D>, slot: &mut Slot<D>, error: &CompactionError) {
        if let CompactionError::Damaged { from, .. } = error {
            self.doubt_cell(cell, *from);
        }
        let (topic, partition) = (&cell.topic, cell.id.partition);
        match error {
            CompactionError::Superseded => {
                tracing::debug!(%topic, %partition, "the log has changed: compacted again later");
            }
            CompactionError::Damaged { .. } | CompactionError::TooLarge { .. } => {
                tracing::error!(%topic, %partition, %error,
                    "this partition is not compacted any more, and grows: nothing is removed around \
                     damage. Delete the records up to it, or restore the partition, and restart");
                slot.compactions.stopped = Some(error.to_string());
            }
            CompactionError::Log(_) => {
                tracing::warn!(%topic, %partition, %error, "not compacted now; tried again later");
            }
        }
    }

    fn note_end(&self, cell: &Cell<D>, compacted: &Compacted, keeps_newest: bool, now: Now) {
        let removed_bytes = compacted.bytes_before.saturating_sub(compacted.bytes_after);
        if keeps_newest {
            tracing::info!(topic = %cell.topic, partition = %cell.id.partition,
                clean_offset = %compacted.clean, bytes_before = compacted.bytes_before,
                bytes_after = compacted.bytes_after, records_removed = compacted.records_removed,
                keys = compacted.keys, "compacted");
        } else {
            tracing::info!(topic = %cell.topic, partition = %cell.id.partition,
                bytes_before = compacted.bytes_before, bytes_after = compacted.bytes_after,
                records_removed = compacted.records_removed,
                "records of messages that are done with were removed");
        }
        if 0 < compacted.keyless_removed {
            tracing::warn!(topic = %cell.topic, partition = %cell.id.partition,
                records = compacted.keyless_removed,
                "records without a key were removed: a compacted topic keeps the newest of each key");
        }
        let mut totals = self.totals();
        totals.runs += 1;
        totals.removed_bytes += removed_bytes;
        totals.removed_records += compacted.records_removed;
        totals.last_run = Some(now.wall);
    }
}

/// Only what is committed and decided is compacted.
pub(crate) fn limit(partition: &Partition) -> Offset {
    partition.high_watermark().min(partition.last_stable_offset())
}

fn begin<D: Disk>(
    slot: &mut Slot<D>,
    rules: &CompactionRules,
    now: Now,
) -> Result<Option<Compaction<D>>, CompactionError> {
    let kept = kept_batches(slot);
    let limit = limit(&slot.partition);
    slot.log.begin_compaction(rules, now, limit, kept)
}

/// Batches whose headers say which sequences live producers have sent.
pub(crate) fn kept_batches<D: Disk>(slot: &Slot<D>) -> BTreeSet<Offset> {
    let producers = slot.partition.producers();
    let batches = producers.iter().flat_map(|producer| producers.batches(producer.id));
    batches.map(|batch| batch.base_offset).collect()
}
