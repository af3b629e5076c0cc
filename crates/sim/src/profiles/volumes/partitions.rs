//! What one partition was promised to hold, and where.

use std::collections::BTreeMap;
use std::path::PathBuf;

use towpath_driver::ReadLimits;
use towpath_model::{Offset, TopicPartition};
use towpath_records::{BatchHeader, split_batches};

use super::super::broker::machine::SimDriver;
use crate::profile::{Violation, ensure};

/// One partition's promises.
#[derive(Debug, Clone, Default)]
pub(super) struct PartitionModel {
    /// Batches as they were stamped, by base offset.
    given: BTreeMap<Offset, Vec<u8>>,
    /// Everything before this was acknowledged, or shown to readers: it is durable.
    pub(super) promised: Offset,
    /// The directory in which it was seen to lie when something was promised.
    pub(super) home: Option<PathBuf>,
    /// It was offline in an earlier life, and has not been looked at since.
    pub(super) was_offline: bool,
}

impl PartitionModel {
    /// The broker put this batch into the log.
    pub(super) fn appended(&mut self, batch: &[u8]) -> Result<Offset, Violation> {
        let header = parse(batch)?;
        self.given.insert(header.base_offset(), batch.to_vec());
        Ok(header.next_offset())
    }

    /// A reader got these bytes for everything from `from` on.
    pub(super) fn read(&self, from: Offset, bytes: &[u8]) -> Result<Offset, Violation> {
        let mut next = from;
        for batch in split_batches(bytes) {
            let base = batch.header.base_offset();
            let is_first = base <= next && next == from;
            ensure!(base == next || is_first, "INV-R13", "{next} is followed by {base}");
            let given = self.given.get(&base).map(Vec::as_slice);
            ensure!(given == Some(batch.bytes), "INV-R13", "nobody sent what is read at {base}");
            next = batch.header.next_offset();
        }
        ensure!(from < next, "INV-R13", "a read at {from} gives nothing");
        Ok(next)
    }

    /// A process has opened the log: what was promised is there, and what is there counts from now on.
    pub(super) fn recovered(
        &mut self,
        driver: &SimDriver,
        id: TopicPartition,
    ) -> Result<(), Violation> {
        let lines = driver.position(id, None);
        let lines = lines.map_err(|e| Violation::new("INV-F7", format!("{id} is not led: {e}")))?;
        let end = lines.log_end_offset;
        ensure!(self.promised <= end, "INV-R1", "{id} ends at {end}, promised {}", self.promised);
        ensure!(
            lines.high_watermark == end,
            "INV-R1",
            "{id}: after a start everything is durable, yet {} is not {end}",
            lines.high_watermark
        );
        self.given.split_off(&end);
        let limits = ReadLimits { max_bytes: 1 << 20, at_least_one_batch: true };
        let mut at = lines.log_start_offset;
        while at < end {
            let broken = |what: String| Violation::new("INV-R1", format!("{id} at {at}: {what}"));
            let read =
                driver.read(id, None, at, false, limits).map_err(|e| broken(e.to_string()))?;
            let slice = read.slice.ok_or_else(|| broken("nothing to read".to_owned()))?;
            let bytes = slice.read().map_err(|e| broken(e.to_string()))?;
            for batch in split_batches(&bytes) {
                // The call that appended it may have been the last one of its process.
                let base = batch.header.base_offset();
                self.given.entry(base).or_insert_with(|| batch.bytes.to_vec());
            }
            at = self.read(at, &bytes)?;
        }
        self.promised = end;
        Ok(())
    }
}

fn parse(batch: &[u8]) -> Result<BatchHeader, Violation> {
    BatchHeader::parse(batch).map_err(|error| Violation::new("workload", error.to_string()))
}
