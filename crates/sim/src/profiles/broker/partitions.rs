//! What one partition was promised to hold, kept apart from it.
//!
//! ```text
//! start ≤ synced_end ≤ …            everything below survives a power loss
//!         written_end               everything below survives a kill
//! ```
//!
//! A log only ever loses its end, so two ends say what must be there, and [`PartitionHistory`] says
//! with which bytes. Only what clients were told or shown moves an end.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_driver::Position;
use towpath_log::Retention;
use towpath_model::{LeaderEpoch, Now, Offset, Timestamp};
use towpath_records::BatchHeader;

use super::compacted::Compacted;
use super::machine::Ending;
use crate::checker::{Answer, PartitionHistory};
use crate::events::Events;
use crate::profile::{Violation, ensure};

/// One partition's promises.
#[derive(Debug, Clone, Default)]
pub(super) struct PartitionModel {
    pub(super) history: PartitionHistory,
    /// The furthest log start offset that was seen; it is durable then.
    pub(super) start: Offset,
    /// The furthest log start offset that somebody asked for.
    pub(super) start_asked: Offset,
    synced_end: Offset,
    written_end: Offset,
    /// Below this the topic may have been relaxed when the record came: no promise follows from
    /// what is acknowledged or shown there.
    relaxed_line: Offset,
    /// The high watermark that was seen last in this process (INV-R4).
    high_watermark: Offset,
    /// In which epoch the partition was seen to be led.
    leader_epoch: Option<LeaderEpoch>,
    /// When batches that are not gone were appended.
    appended: BTreeMap<Offset, Appended>,
    /// What its records are, if its topic is compacted; its topic has been from the beginning.
    pub(super) compacted: Option<Compacted>,
    /// Whether the topic was ever relaxed: records may have been lost.
    pub(super) is_lossy: bool,
    /// How often retention alone has moved the log start.
    pub(super) expired: u64,
}

/// A batch in the log.
#[derive(Debug, Clone, Copy)]
struct Appended {
    next: Offset,
    max_timestamp: Timestamp,
    at: Timestamp,
    clock_jumps: u64,
}

/// The whole of a partition, as a reader finds it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) position: Position,
    pub(super) batches: Vec<(BatchHeader, Vec<u8>)>,
}

/// When the log start may have moved, and how far retention could have gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry {
    pub(super) now: Now,
    pub(super) clock_jumps: u64,
    /// After a start: whether it has to lead in a new epoch.
    pub(super) leads_anew: bool,
    /// The strictest retention that may have been in force.
    pub(super) retention: Retention,
}

impl PartitionModel {
    /// The broker put a batch into the log, stamped with its place, whatever becomes of it.
    pub(super) fn appended(&mut self, batch: &[u8], now: Now, jumps: u64) -> Result<(), Violation> {
        let header = BatchHeader::parse(batch)
            .map_err(|error| Violation::new("workload", format!("a stamped batch: {error}")))?;
        let (next, max_timestamp) = (header.next_offset(), header.max_timestamp());
        let appended = Appended { next, max_timestamp, at: now.wall, clock_jumps: jumps };
        self.appended.insert(header.base_offset(), appended);
        self.compacted.as_mut().map_or(Ok(()), |compacted| compacted.appended(batch))
    }

    /// A producer heard that its batch is at `base`; `is_synced`: the topic promised to sync it.
    pub(super) fn acknowledged(
        &mut self,
        header: &BatchHeader,
        base: Offset,
        is_synced: bool,
    ) -> Result<(), Violation> {
        self.history.answered(header, Answer::Acknowledged(base))?;
        let end = base + i64::from(header.record_count());
        self.written_end = self.written_end.max(end);
        if is_synced {
            self.shown(end);
        }
        Ok(())
    }

    /// The lines of the partition were seen. In a synced topic, what lies below the high watermark
    /// is promised to every reader.
    pub(super) fn observed(
        &mut self,
        position: &Position,
        is_synced: bool,
        expiry: &Expiry,
    ) -> Result<(), Violation> {
        let Position {
            log_start_offset, last_stable_offset, high_watermark, log_end_offset, ..
        } = *position;
        ensure!(
            log_start_offset <= high_watermark && high_watermark <= log_end_offset,
            "INV-T7",
            "lines out of order: {position:?}"
        );
        ensure!(
            last_stable_offset == high_watermark,
            "INV-R12",
            "no transaction is open, yet the last stable offset is {last_stable_offset}"
        );
        ensure!(
            self.high_watermark <= high_watermark,
            "INV-R4",
            "the high watermark went back from {} to {high_watermark}",
            self.high_watermark
        );
        self.high_watermark = high_watermark;
        let epoch = position.leader_epoch;
        ensure!(
            self.leader_epoch <= Some(epoch),
            "INV-R7",
            "the leader epoch went back from {:?} to {epoch}",
            self.leader_epoch
        );
        self.leader_epoch = Some(epoch);
        self.written_end = self.written_end.max(high_watermark);
        if is_synced {
            self.shown(high_watermark);
        }
        self.start_seen(log_start_offset, expiry)
    }

    /// Everything below `end` is promised for good, unless it may rest on relaxed times.
    fn shown(&mut self, end: Offset) {
        if self.relaxed_line < end {
            self.synced_end = self.synced_end.max(end);
        }
    }

    /// The topic may be relaxed up to this end.
    pub(super) fn relaxed_until(&mut self, end: Offset) {
        self.is_lossy = true;
        self.relaxed_line = self.relaxed_line.max(end);
    }

    /// First offset that may be lost in a power cut.
    pub(super) fn synced_end(&self) -> Offset {
        self.synced_end
    }

    fn start_seen(&mut self, start: Offset, expiry: &Expiry) -> Result<(), Violation> {
        ensure!(
            self.start <= start,
            "INV-T7",
            "the log start went back from {} to {start}",
            self.start
        );
        if self.start.max(self.start_asked) < start {
            self.check_expired(start, expiry)?;
            self.expired += 1;
        }
        self.start = start;
        self.appended.retain(|_, batch| start < batch.next);
        Ok(())
    }

    /// Retention alone moved the start here: everything below was old, or too much (INV-T5).
    fn check_expired(&self, start: Offset, expiry: &Expiry) -> Result<(), Violation> {
        let Expiry { now, clock_jumps, retention, .. } = *expiry;
        let limits = (retention.time, retention.bytes);
        ensure!(limits != (None, None), "INV-T5", "the start moved to {start} without a reason");
        if retention.bytes.is_some() {
            // What the segments weigh is the log profile's to judge.
            return Ok(());
        }
        let age = retention.time.unwrap_or(Duration::ZERO);
        let mut newest_of: BTreeMap<Offset, Timestamp> = BTreeMap::new();
        if let Some(compacted) = &self.compacted {
            // Retention judges what compactions have left.
            for (base, timestamp) in compacted.certain(self.start_asked, start) {
                let newest = newest_of.entry(base).or_insert(timestamp);
                *newest = timestamp.max(*newest);
            }
        }
        let removed = self.appended.range(self.start_asked..start);
        for (base, batch) in removed.filter(|(_, batch)| batch.clock_jumps == clock_jumps) {
            let max_timestamp = match (&self.compacted, newest_of.get(base)) {
                (None, _) => batch.max_timestamp,
                (Some(_), Some(newest)) => *newest,
                (Some(_), None) => continue,
            };
            let newest = max_timestamp.min(batch.at);
            ensure!(
                newest + age <= now.wall,
                "INV-T5",
                "the batch at {base} of {} (appended {}) is gone at {}, kept for {age:?}",
                batch.max_timestamp,
                batch.at,
                now.wall
            );
        }
        Ok(())
    }

    /// A process has opened the log again: compares it with everything that was promised, and takes
    /// it as the truth from here on.
    pub(super) fn recovered(
        &mut self,
        found: &Found,
        ending: Ending,
        is_synced: bool,
        expiry: &Expiry,
        events: &mut Events,
    ) -> Result<(), Violation> {
        let end = found.position.log_end_offset;
        ensure!(
            self.synced_end <= end,
            "INV-R1",
            "the log ends at {end}, everything before {} was promised",
            self.synced_end
        );
        // Who may have lost records leads anew, so that readers of the old ones find out (KIP-320).
        let epoch = found.position.leader_epoch;
        ensure!(
            !expiry.leads_anew || self.leader_epoch < Some(epoch),
            "INV-R6",
            "after {ending:?} it is led in epoch {epoch}, as before"
        );
        let high_watermark = found.position.high_watermark;
        ensure!(
            high_watermark == end,
            "INV-R1",
            "after a start everything is durable, yet {high_watermark} is not {end}"
        );
        if end < self.written_end {
            ensure!(
                ending == Ending::PowerLost,
                "INV-F1",
                "the log ends at {end} after {ending:?}, clients know of {}",
                self.written_end
            );
            let lost = self.history.lost_from(end);
            events.add("broker: relaxed batch lost in a power cut", lost);
            self.appended.retain(|base, _| *base < end);
            self.written_end = end;
        }
        self.high_watermark = Offset::ZERO;
        // A start syncs what it finds.
        self.relaxed_line = Offset::ZERO;
        if let Some(compacted) = &mut self.compacted {
            compacted.recovered(end, &found.batches)?;
        }
        self.check(found)?;
        self.observed(&found.position, is_synced, expiry)
    }

    /// Compares with everything that can be read.
    pub(super) fn check(&mut self, found: &Found) -> Result<(), Violation> {
        let Position { log_start_offset, high_watermark, .. } = found.position;
        let (batches, history) = (&found.batches, &self.history);
        match &mut self.compacted {
            None => history.check_log(log_start_offset, batches),
            Some(compacted) => compacted.check(log_start_offset, high_watermark, batches, history),
        }
    }
}
