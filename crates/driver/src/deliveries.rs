//! What is done with a delivery log by whoever keeps deliveries in it: append, and let its beginning go;
//! [`Driver::with_replica`] reads it, under its own id. Clients have no way here, and nothing else appends
//! to one or moves its start.

use towpath_broker::Condition;
use towpath_log::disk::Disk;
use towpath_model::{KeyValue, Offset, Token, TopicPartition};

use crate::driver::Driver;
use crate::manage::DeleteRecordsRefusal;
use crate::produce::ProduceFailure;
use crate::recover::producers_at_risk;
use crate::world::{Clock, Net};

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Appends records, as one batch, to the delivery log of a partition that is led here. Returns the
    /// offset behind them; `token` hears when they are committed.
    ///
    /// # Errors
    /// [`ProduceFailure`]: this broker does not lead it, it has no delivery log, or its disk takes nothing.
    /// Nothing was appended.
    pub fn append_deliveries(
        &self,
        partition: TopicPartition,
        records: &[KeyValue],
        token: Token,
    ) -> Result<Offset, ProduceFailure> {
        let cell = self.cell(partition.delivery_log()).ok_or(ProduceFailure::NotLeader)?;
        let volume = self.volume(cell.volume);
        if self.is_stalled(volume) {
            return Err(ProduceFailure::Stalled(self.stalled_reason(volume)));
        }
        self.step(&cell, |slot, now, out| {
            if !slot.leads() {
                return Err(ProduceFailure::NotLeader);
            }
            if !self.append_records(&cell, slot, now, records, out) {
                let reason = format!("the delivery log of partition {partition} takes no writes");
                return Err(ProduceFailure::Storage(reason));
            }
            let end = slot.partition.log_end_offset();
            if slot.partition.watch(token, Condition::HighWatermark(end)) {
                out.push(towpath_broker::Output::Wake(token, towpath_broker::Outcome::Reached));
            }
            Ok(end)
        })
    }

    /// Lets go what lies in a delivery log before `before`, which is committed: a snapshot that is committed
    /// as well says all of it. Returns where the log starts now, durably; followers follow.
    ///
    /// # Errors
    /// [`DeleteRecordsRefusal`].
    pub fn trim_deliveries(
        &self,
        partition: TopicPartition,
        before: Offset,
    ) -> Result<Offset, DeleteRecordsRefusal> {
        let cell = self.cell(partition.delivery_log()).ok_or(DeleteRecordsRefusal::NotLeader)?;
        let moved = {
            let Some(slot) = self.lock_in_time(&cell) else {
                let reason = self.stalled_reason(self.volume(cell.volume));
                return Err(DeleteRecordsRefusal::Stalled(reason));
            };
            if !slot.leads() {
                return Err(DeleteRecordsRefusal::NotLeader);
            }
            let high_watermark = slot.partition.high_watermark();
            if high_watermark < before {
                let asked = before;
                return Err(DeleteRecordsRefusal::BeyondHighWatermark { asked, high_watermark });
            }
            match slot.log.begin_start_move(before, producers_at_risk(&slot, before))? {
                Some(moved) => moved,
                None => return Ok(slot.log.log_start_offset()),
            }
        };
        let moved = self.move_start(&cell, moved);
        moved.result?;
        moved.start.ok_or(DeleteRecordsRefusal::NotLeader)
    }
}
