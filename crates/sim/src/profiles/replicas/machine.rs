//! A machine: what its disk holds, which is the truth, whatever a broker believes.

use towpath_model::{BrokerId, LeaderEpoch, Offset, Time, Timestamp};
use towpath_records::{BatchBuilder, BatchHeader, Compression, set_base_offset, set_leader_epoch};
use towpath_replication::{EpochHistory, EpochStart};

use super::broker::Process;
use crate::rng::Rng;

/// A batch, and what tells it from every other one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) header: BatchHeader,
    pub(super) id: u64,
}

impl Batch {
    pub(super) fn new(id: u64, records: u64, base: Offset, epoch: LeaderEpoch) -> Batch {
        let mut builder = BatchBuilder::new(Compression::None, Timestamp(0));
        for _ in 0..records {
            builder.append(Timestamp(0), None, Some(b"v"), []).expect("a small record fits");
        }
        let mut bytes = builder.build();
        set_base_offset(&mut bytes, base);
        set_leader_epoch(&mut bytes, epoch);
        let header = BatchHeader::parse(&bytes).expect("what the builder builds can be parsed");
        Batch { header, id }
    }

    pub(super) fn base(&self) -> Offset {
        self.header.base_offset()
    }

    pub(super) fn end(&self) -> Offset {
        self.header.next_offset()
    }

    pub(super) fn epoch(&self) -> LeaderEpoch {
        self.header.leader_epoch()
    }
}

/// A log on a disk. Invariant: start <= durable <= end.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) start: Offset,
    /// Contiguous, from `start` on.
    pub(super) batches: Vec<Batch>,
    /// What a power cut leaves for certain.
    pub(super) durable: Offset,
    /// How often it was cut.
    pub(super) generation: u64,
}

impl Disk {
    pub(super) fn end(&self) -> Offset {
        self.batches.last().map_or(self.start, Batch::end)
    }

    /// Batches that begin in `[from, to)`.
    pub(super) fn between(&self, from: Offset, to: Offset) -> &[Batch] {
        let at = |offset| self.batches.partition_point(|batch| batch.base() < offset);
        let (first, last) = (at(from), at(to));
        &self.batches[first..last.max(first)]
    }

    pub(super) fn at(&self, base: Offset) -> Option<&Batch> {
        self.between(base, base.next()).first()
    }

    /// Cuts whatever ends beyond `to`; durable at once, as the log's truncation is.
    pub(super) fn truncate(&mut self, to: Offset) {
        let kept = self.batches.partition_point(|batch| batch.end() <= to);
        self.batches.truncate(kept);
        self.durable = self.durable.min(self.end());
        self.generation += 1;
    }

    pub(super) fn begin_at(&mut self, start: Offset) {
        let generation = self.generation + 1;
        *self = Disk { start, batches: Vec::new(), durable: start, generation };
    }

    pub(super) fn move_start(&mut self, to: Offset) {
        let gone = self.batches.partition_point(|batch| batch.end() <= to);
        self.batches.drain(..gone);
        self.start = self.start.max(to);
        self.durable = self.durable.max(to);
    }

    /// Of what was not synced some is kept, by chance. Returns whether something is lost.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) -> bool {
        let unsynced = self.batches.len() - self.between(self.start, self.durable).len();
        let lost = rng.below(unsynced as u64 + 1) as usize;
        self.batches.truncate(self.batches.len() - lost);
        0 < lost
    }

    pub(super) fn epochs(&self) -> EpochHistory {
        EpochHistory::from_entries(
            self.batches
                .iter()
                .map(|batch| EpochStart { epoch: batch.epoch(), start: batch.base() }),
        )
    }
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) id: BrokerId,
    pub(super) disk: Disk,
    /// How often a process was started here.
    pub(super) life: u64,
    pub(super) process: Option<Process>,
    /// Until then it does nothing, as after SIGSTOP.
    pub(super) paused_until: Time,
    pub(super) is_slow: bool,
}

impl Machine {
    pub(super) fn new(id: BrokerId) -> Machine {
        let paused_until = Time(0);
        Machine { id, disk: Disk::default(), life: 0, process: None, paused_until, is_slow: false }
    }
}
