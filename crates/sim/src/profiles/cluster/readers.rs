//! Whoever looks at records: consumers below the high watermark of some leader (INV-R12, R13), and
//! comparisons of replicas and disks with what is committed (INV-R3, R9).

use towpath_driver::{Condition, FetchRefusal, ReadLimits};
use towpath_model::{BrokerId, Offset, TopicPartition};
use towpath_records::split_batches;

use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};

/// A reader of one partition.
#[derive(Debug, Clone, Default)]
pub(super) struct Consumer {
    target: Option<TopicPartition>,
    position: Offset,
}

impl World {
    /// Some consumer reads once, of whoever leads as far as it knows: a leader that has been replaced
    /// and does not know it yet shows less, and nothing else.
    pub(super) fn consume(&mut self) -> Result<(), Violation> {
        let at = self.rng.index(self.consumers.len());
        let is_known = |target: TopicPartition| self.truth.topics.contains(&target.topic);
        if !self.consumers[at].target.is_some_and(is_known) || self.rng.percent(5) {
            let target = self.catalog.any_partition(&mut self.rng, &self.truth);
            self.consumers[at] = Consumer { target, position: Offset(0) };
        }
        let Consumer { target: Some(target), position } = self.consumers[at].clone() else {
            return Ok(());
        };
        let Some(of) = self.some_leader(target) else { return Ok(()) };
        let limits = ReadLimits {
            max_bytes: self.rng.weighted(&[(2, 1), (2, 500), (3, 1 << 20)]),
            at_least_one_batch: true,
        };
        let read = self.call(of, |driver| driver.read(target, None, position, false, limits))?;
        match read {
            Some(Ok(read)) => {
                let Some(slice) = &read.slice else { return Ok(()) };
                let bytes = slice.read().map_err(|error| {
                    Violation::new("INV-R1", format!("{target} at broker {of}: {error}"))
                })?;
                let high_watermark = read.position.high_watermark;
                self.consumed(at, of, target, high_watermark, &bytes)
            }
            Some(Err(FetchRefusal::OutOfRange { position: lines })) => {
                let consumer = &mut self.consumers[at];
                if consumer.position < lines.log_start_offset {
                    consumer.position = lines.log_start_offset;
                    self.events.note("consumer: position was deleted");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn some_leader(&mut self, of: TopicPartition) -> Option<BrokerId> {
        let now = self.now;
        let leads = |(id, partition): &&(BrokerId, TopicPartition)| {
            *partition == of
                && self.views[&(*id, *partition)].leads.is_some()
                && self.nodes[id].is_awake(now)
        };
        let all: Vec<BrokerId> = self.views.keys().filter(leads).map(|(id, _)| *id).collect();
        (!all.is_empty()).then(|| all[self.rng.index(all.len())])
    }

    fn consumed(
        &mut self,
        at: usize,
        of: BrokerId,
        target: TopicPartition,
        high_watermark: Offset,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        let book = self.books.entry(target).or_default();
        for batch in split_batches(bytes) {
            let base = batch.header.base_offset();
            let next = batch.header.next_offset();
            ensure!(
                next <= high_watermark && next <= book.end,
                "INV-R12",
                "{target}: broker {of} gives [{base}, {next}), committed is {}, it says {high_watermark}",
                book.end
            );
            let is_same = book.at(base) == Some(&batch.header);
            ensure!(
                is_same && batch.check_crc().is_ok(),
                "INV-R13",
                "{target}: broker {of} gives {:?} at {base}, committed is {:?}",
                batch.header,
                book.at(base)
            );
            self.consumers[at].position = next;
            self.events.note("consumer: batch read");
        }
        Ok(())
    }

    /// Compares some replica, below its high watermark, with what is committed.
    pub(super) fn compare_replica(&mut self) -> Result<(), Violation> {
        let all: Vec<(BrokerId, TopicPartition)> = self.views.keys().copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let (id, partition) = all[self.rng.index(all.len())];
        self.compare_with_book(id, partition)
    }

    pub(super) fn compare_with_book(
        &mut self,
        id: BrokerId,
        partition: TopicPartition,
    ) -> Result<(), Violation> {
        let view = self.views[&(id, partition)];
        let (start, headers) = self.headers(id, partition, Offset(0), view.high_watermark)?;
        let book = self.books.entry(partition).or_default();
        self.events.note("cluster: replica compared");
        book.compare(start, view.high_watermark, &headers, |_| true).map_err(|difference| {
            Violation::new("INV-R3", format!("{partition}: replica of {id}: {difference}"))
        })
    }

    /// Compares some member's disk with what is committed, whether or not a process uses it.
    pub(super) fn check_disk(&mut self) -> Result<(), Violation> {
        let partitions = self.truth.logs();
        if partitions.is_empty() {
            return Ok(());
        }
        let partition = partitions[self.rng.index(partitions.len())];
        let Some(state) = self.truth.newest(partition).cloned() else { return Ok(()) };
        let members: Vec<BrokerId> = state.in_sync.iter().chain(&state.eligible).copied().collect();
        if members.is_empty() {
            return Ok(());
        }
        let member = members[self.rng.index(members.len())];
        self.look_at_disk(member, partition, &state)
    }

    /// Somebody deletes records of some partition.
    pub(super) fn delete_records(&mut self) -> Result<(), Violation> {
        let Some(target) = self.catalog.any_partition(&mut self.rng, &self.truth) else {
            return Ok(());
        };
        let Some(of) = self.some_leader(target) else { return Ok(()) };
        let view = self.views[&(of, target)];
        let span = (view.high_watermark - view.start).unsigned_abs();
        let before = view.start + self.rng.below(span + 1) as i64;
        let book = self.books.entry(target).or_default();
        book.start_asked = book.start_asked.max(before);
        let token = self.token();
        let deleted = self.call(of, |driver| {
            let start = driver.delete_records(target, Some(before)).ok()?;
            Some((start, driver.watch(target, token, Condition::LogStarts(start))))
        })?;
        let Some(Some((start, is_over))) = deleted else { return Ok(()) };
        ensure!(before <= start, "INV-T7", "{target}: asked to start at {before}, is {start}");
        self.events.note("admin: records deleted");
        if is_over {
            return self.deletion_answered(of, target, start);
        }
        self.waits.insert((of, token), Waiting::Deletion { partition: target, start });
        Ok(())
    }

    /// Who deleted records is told that they are gone: on every replica that may lead next. A leader
    /// that has been replaced, or does not know who is in sync, has nothing to say of them.
    pub(super) fn deletion_answered(
        &mut self,
        by: BrokerId,
        target: TopicPartition,
        start: Offset,
    ) -> Result<(), Violation> {
        let Some(state) = self.truth.newest(target) else { return Ok(()) };
        let lead = self.views.get(&(by, target));
        if lead.is_none_or(|view| {
            view.leads != Some(state.leader_epoch) || view.partition_epoch != state.partition_epoch
        }) {
            return Ok(());
        }
        self.events.note("admin: deletion answered");
        for member in state.in_sync.iter().filter(|member| !self.blank.contains(member)) {
            let Some(view) = self.views.get(&(*member, target)) else { continue };
            ensure!(
                start <= view.start,
                "INV-T7",
                "{target}: records before {start} are gone, says {by}; {member} has {view:?}"
            );
        }
        Ok(())
    }
}
