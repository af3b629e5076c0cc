//! What was committed, and who may know it; outside of every broker.

use std::collections::BTreeMap;

use towpath_model::{BrokerId, LeaderEpoch, Offset};

use super::machine::{Batch, Disk};
use crate::profile::{Violation, ensure};

type Checked = Result<(), Violation>;

#[derive(Debug, Clone, Copy)]
struct Committed {
    id: u64,
    epoch: LeaderEpoch,
    end: Offset,
    /// The leadership under which the high watermark passed it.
    under: LeaderEpoch,
}

#[derive(Debug, Default)]
pub(super) struct Ghost {
    /// By base offset.
    committed: BTreeMap<Offset, Committed>,
    end: Offset,
    leaders: BTreeMap<LeaderEpoch, (BrokerId, u64)>,
    /// What each leadership wrote where.
    written: BTreeMap<(LeaderEpoch, Offset), u64>,
    acknowledged: BTreeMap<Offset, u64>,
    /// The highest watermark that a reader was told for certain.
    told: Offset,
}

impl Ghost {
    /// INV-R6 and INV-R5.
    pub(super) fn leads(
        &mut self,
        broker: BrokerId,
        life: u64,
        epoch: LeaderEpoch,
        disk: &Disk,
    ) -> Checked {
        let known = *self.leaders.entry(epoch).or_insert((broker, life));
        ensure!(
            known == (broker, life),
            "INV-R6",
            "epoch {epoch} is led by broker {broker} in life {life} and by {known:?}"
        );
        for (base, committed) in self.committed.range(disk.start..) {
            let holds = disk.at(*base).is_some_and(|batch| batch.id == committed.id);
            ensure!(
                holds || epoch <= committed.under,
                "INV-R5",
                "broker {broker} leads in epoch {epoch} without the batch at {base}, committed in \
                 epoch {}",
                committed.under
            );
        }
        Ok(())
    }

    /// INV-R7: one leadership writes one thing at one place.
    pub(super) fn writes(&mut self, batch: &Batch) -> Checked {
        let known = *self.written.entry((batch.epoch(), batch.base())).or_insert(batch.id);
        ensure!(
            known == batch.id,
            "INV-R7",
            "epoch {} has two batches at {}",
            batch.epoch(),
            batch.base()
        );
        Ok(())
    }

    /// INV-R1: what a leader's high watermark has passed is committed.
    pub(super) fn leader_passed(&mut self, batch: &Batch, under: LeaderEpoch) -> Checked {
        if batch.base() < self.end {
            return self.compare(batch, "a leader's");
        }
        ensure!(
            batch.base() == self.end,
            "INV-R1",
            "committed up to {}, and then from {} on",
            self.end,
            batch.base()
        );
        let (id, epoch, end) = (batch.id, batch.epoch(), batch.end());
        self.committed.insert(batch.base(), Committed { id, epoch, end, under });
        self.end = end;
        Ok(())
    }

    /// INV-R3: below any high watermark everybody has the same.
    pub(super) fn compare(&self, batch: &Batch, whose: &str) -> Checked {
        let found = (batch.id, batch.epoch(), batch.end());
        let known = self.committed.get(&batch.base());
        let known = known.map(|known| (known.id, known.epoch, known.end));
        ensure!(
            known == Some(found),
            "INV-R3",
            "below {whose} high watermark: {found:?} at {}, where {known:?} is committed",
            batch.base()
        );
        Ok(())
    }

    /// INV-R2.
    pub(super) fn acknowledge(&mut self, batch: &Batch) -> Checked {
        let known = self.committed.get(&batch.base()).map(|known| known.id);
        ensure!(
            known == Some(batch.id),
            "INV-R2",
            "the batch at {} is acknowledged, {known:?} is committed there",
            batch.base()
        );
        self.acknowledged.insert(batch.base(), batch.id);
        Ok(())
    }

    /// INV-R4 and INV-R12, for who asks a leader where the committed records end.
    pub(super) fn tells(&mut self, leader: BrokerId, high_watermark: Offset) -> Checked {
        ensure!(
            self.told <= high_watermark,
            "INV-R4",
            "leader {leader} says that the committed records end at {high_watermark}; readers were \
             told {}",
            self.told
        );
        ensure!(
            high_watermark <= self.end,
            "INV-R12",
            "leader {leader} shows records up to {high_watermark}, committed is {}",
            self.end
        );
        self.told = high_watermark;
        Ok(())
    }

    /// INV-R1, at the end: everything acknowledged is there.
    pub(super) fn finish(&self, disk: &Disk) -> Checked {
        for (base, id) in self.acknowledged.range(disk.start..) {
            let found = disk.at(*base).map(|batch| batch.id);
            ensure!(
                found == Some(*id),
                "INV-R1",
                "batch {id} at {base} was acknowledged, {found:?} is there"
            );
        }
        Ok(())
    }
}
