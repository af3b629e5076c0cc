//! Consumers: they read below the high watermark, in order, without gaps, and long-poll for more
//! (INV-R12, R13).

use towpath_driver::{Condition, Delivery, FetchRefusal, Outcome, Read, ReadLimits};
use towpath_model::{Offset, TopicPartition};
use towpath_records::{Tail, split_batches};

use super::world::{Waiting, World};
use crate::disk::SimDisk;
use crate::profile::{Violation, ensure};

/// A reader of one partition.
#[derive(Default)]
pub(super) struct Consumer {
    pub(super) target: Option<TopicPartition>,
    pub(super) position: Offset,
    /// It sleeps until the high watermark has passed its position.
    pub(super) is_polling: bool,
    /// It was woken because this offset was reached.
    woken_for: Option<Offset>,
    /// What was found for it at its position, and has not arrived: a region of a file, which is read
    /// when it is sent, whatever has become of the segment by then.
    on_its_way: Option<Read<SimDisk>>,
}

impl Consumer {
    /// The connection is gone: nobody will wake it.
    pub(super) fn disconnect(&mut self) {
        self.is_polling = false;
        self.woken_for = None;
        self.on_its_way = None;
    }

    /// Whether an answer has not arrived.
    pub(super) fn awaits_records(&self) -> bool {
        self.on_its_way.is_some()
    }
}

impl World {
    /// One consumer reads once; without records it may go to sleep.
    pub(super) fn consume(&mut self, at: usize) -> Result<(), Violation> {
        let known = |target: TopicPartition| {
            self.catalog.topics().any(|(_, topic)| topic.id == target.topic)
        };
        if !self.consumers[at].target.is_some_and(known) {
            let target = self.random_stream_partition();
            self.drop_polls(at);
            self.consumers[at] = Consumer { target, ..Consumer::default() };
        }
        if self.consumers[at].on_its_way.is_some() {
            return if self.is_draining { self.records_arrive(at) } else { Ok(()) };
        }
        let Consumer { target: Some(target), position, is_polling: false, woken_for, .. } =
            self.consumers[at]
        else {
            return Ok(());
        };
        let limits = ReadLimits {
            max_bytes: self.rng.weighted(&[(2, 1), (2, 500), (3, 1 << 20)]),
            at_least_one_batch: true,
        };
        let stable_only = self.rng.percent(30);
        let read = self.machine.driver().read(target, None, position, stable_only, limits);
        if self.machine.has_stopped() {
            return Ok(());
        }
        self.consumers[at].woken_for = None;
        match read {
            Ok(read) => {
                let high_watermark = read.position.high_watermark;
                let awaited = woken_for.unwrap_or(Offset::ZERO);
                ensure!(
                    awaited <= high_watermark,
                    "INV-R4",
                    "woken for {awaited}, yet the high watermark is {high_watermark}"
                );
                let weather = self.swarm.weather;
                if !self.is_draining && self.rng.percent(weather.loses_answers) {
                    // It asks again, over another connection.
                    self.events.note("consumer: answer lost on the way");
                    return Ok(());
                }
                if !self.is_draining && self.rng.percent(weather.delays_answers) {
                    self.consumers[at].on_its_way = Some(read);
                    return Ok(());
                }
                self.found(at, target, position, &read, false)
            }
            Err(refusal) => self.unread(at, target, position, &refusal),
        }
    }

    fn found(
        &mut self,
        at: usize,
        target: TopicPartition,
        position: Offset,
        read: &Read<SimDisk>,
        is_late: bool,
    ) -> Result<(), Violation> {
        let high_watermark = read.position.high_watermark;
        let Some(slice) = &read.slice else {
            ensure!(
                high_watermark <= position,
                "INV-R12",
                "nothing to read at {position}, below the high watermark {high_watermark}"
            );
            if self.rng.percent(50) {
                self.poll(at, target, position);
            }
            return Ok(());
        };
        let bytes = slice.read().map_err(|e| Violation::new("INV-R13", e.to_string()))?;
        if self.partitions.entry(target).or_default().compacted.is_some() {
            let records = (slice.next_offset, &bytes[..]);
            return self.found_compacted(at, target, position, high_watermark, records, is_late);
        }
        let first = slice.first_offset;
        ensure!(first <= position, "INV-R13", "a read at {position} begins at {first}");
        let mut next = first;
        let model = self.partitions.entry(target).or_default();
        let mut batches = split_batches(&bytes);
        for batch in batches.by_ref() {
            ensure!(
                batch.header.base_offset() == next,
                "INV-R13",
                "a gap: {next} is followed by {}",
                batch.header.base_offset()
            );
            batch.check_crc().map_err(|e| Violation::new("INV-R13", e.to_string()))?;
            model.history.read(&batch.header, batch.bytes, high_watermark)?;
            next = batch.header.next_offset();
        }
        ensure!(batches.tail() == Tail::Clean, "INV-R13", "a read at {position} ends in a batch");
        ensure!(position < next, "INV-R13", "a read at {position} ends at {next}");
        self.consumers[at].position = next;
        self.machine.trace.event("read", &[at as u64, next.0 as u64]);
        self.events.note("consumer: records read");
        Ok(())
    }

    /// Of a compacted topic: what is missing was superseded.
    fn found_compacted(
        &mut self,
        at: usize,
        target: TopicPartition,
        position: Offset,
        high_watermark: Offset,
        (next, bytes): (Offset, &[u8]),
        is_late: bool,
    ) -> Result<(), Violation> {
        ensure!(next <= high_watermark, "INV-R12", "read to {next}, above {high_watermark}");
        ensure!(position < next, "INV-R13", "a read at {position} ends at {next}");
        let mut batches = split_batches(bytes);
        let mut all = Vec::new();
        for batch in batches.by_ref() {
            batch.check_crc().map_err(|e| Violation::new("INV-R13", e.to_string()))?;
            all.push(batch.bytes);
        }
        ensure!(batches.tail() == Tail::Clean, "INV-R13", "a read at {position} ends in a batch");
        let model = self.partitions.entry(target).or_default();
        if let Some(compacted) = &mut model.compacted {
            compacted.check_read(position, next, high_watermark, all.into_iter(), is_late)?;
        }
        self.consumers[at].position = next;
        self.machine.trace.event("read", &[at as u64, next.0 as u64]);
        self.events.note("consumer: compacted topic read");
        Ok(())
    }

    fn unread(
        &mut self,
        at: usize,
        target: TopicPartition,
        position: Offset,
        refusal: &FetchRefusal,
    ) -> Result<(), Violation> {
        match refusal {
            FetchRefusal::NotLeader => {
                let exists = self.catalog.topics().find(|(_, topic)| topic.id == target.topic);
                let is_certain = exists.is_some_and(|(name, _)| !self.catalog.is_changing(name));
                let is_failed = self.machine.driver().is_failed();
                ensure!(!is_certain || is_failed, "INV-M1", "{target} exists and is not led");
            }
            FetchRefusal::OutOfRange { position: lines } if position < lines.log_start_offset => {
                self.events.note("consumer: position was deleted");
                self.consumers[at].position = lines.log_start_offset;
            }
            FetchRefusal::OutOfRange { position: lines } => {
                let is_lossy = self.partitions.get(&target).is_some_and(|model| model.is_lossy);
                ensure!(is_lossy, "INV-R4", "{position} was read, now the log is {lines:?}");
                self.consumers[at].position = lines.high_watermark;
            }
            FetchRefusal::Storage(_) if self.may_be_unreadable(target) => {}
            _ => {
                return Err(Violation::new("INV-R1", format!("{target} at {position}: {refusal}")));
            }
        }
        Ok(())
    }

    /// What was found for a consumer arrives.
    pub(super) fn records_arrive(&mut self, at: usize) -> Result<(), Violation> {
        let Consumer { target: Some(target), position, .. } = self.consumers[at] else {
            return Ok(());
        };
        let Some(read) = self.consumers[at].on_its_way.take() else { return Ok(()) };
        self.events.note("consumer: records came late");
        self.found(at, target, position, &read, true)
    }

    fn poll(&mut self, at: usize, target: TopicPartition, position: Offset) {
        let (token, offset) = (self.machine.token(), position.next());
        if !self.machine.driver().watch(target, token, Condition::HighWatermark(offset)) {
            self.consumers[at].is_polling = true;
            self.waits.insert(token, Waiting::Poll { consumer: at, target, offset });
        }
    }

    pub(super) fn woken(
        &mut self,
        at: usize,
        offset: Offset,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        self.consumers[at].is_polling = false;
        match delivery {
            Delivery::Wait(Outcome::Reached) => {
                self.events.note("consumer: long poll answered");
                self.consumers[at].woken_for = Some(offset);
                Ok(())
            }
            Delivery::Wait(_) => Ok(()),
            other => Err(Violation::new("INV-R12", format!("a long poll is answered {other:?}"))),
        }
    }

    /// A consumer gives up its wait, and reads again from somewhere before.
    pub(super) fn rewind(&mut self, at: usize) {
        self.drop_polls(at);
        let consumer = &mut self.consumers[at];
        consumer.disconnect();
        consumer.position = Offset(self.rng.below(consumer.position.0.unsigned_abs() + 1) as i64);
    }

    fn drop_polls(&mut self, at: usize) {
        let mine = self.waits.iter().filter_map(|(token, waiting)| match waiting {
            Waiting::Poll { consumer, target, offset } if *consumer == at => {
                Some((*token, *target, *offset))
            }
            _ => None,
        });
        for (token, target, offset) in mine.collect::<Vec<_>>() {
            self.machine.driver().unwatch(target, token, Condition::HighWatermark(offset));
            self.waits.remove(&token);
        }
    }
}
