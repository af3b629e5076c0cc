//! Letting the beginning of a delivery log go. Nothing else moves its start.

use towpath_log::disk::Disk;
use towpath_model::{Offset, TopicPartition};

use crate::driver::Driver;
use crate::manage::DeleteRecordsRefusal;
use crate::recover::producers_at_risk;
use crate::world::{Clock, Net};

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
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
