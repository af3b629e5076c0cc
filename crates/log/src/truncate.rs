//! Cuts the end of a log: what a follower holds and its leader does not. Or all of it, where the
//! leader's log begins later than this one ends.
//!
//! ```text
//! announce   the generation rises: rounds that are under way vouch for nothing any more
//!            the checkpoint's durable offset is lowered, the write-ahead file forgets
//! cut        the segments
//! ```
//!
//! In this order, so that no crash brings back what was cut or misses it. What is announced needs a few
//! bytes of the disk. Where it has none left, the log is as it was, and whoever asked asks again: a full
//! disk is no reason to give a data directory up.

use std::sync::atomic::Ordering;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, TopicPartition};

use crate::checkpoint::Point;
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::index::SparseIndex;
use crate::log::{Active, Log};
use crate::place::FileKind;
use crate::read::index_of;
use crate::recover::{remove_index_files, remove_segment_files};
use crate::scan::{Found, LARGE_BUFFER, Scan};
use crate::segment::Summary;

impl<D: Disk> Log<D> {
    /// Removes every batch that holds `offset` or a later one; durable when this returns. What is
    /// left and was not durable is dirty again. Damage above `offset` goes with it.
    ///
    /// # Errors
    /// When the disk is full: the log is as it was, but what was not durable is to be synced again.
    /// When the disk fails: then the directory has failed, and what would have been left is still read.
    ///
    /// # Panics
    /// When `offset` is below the log start offset.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<(), LogError> {
        assert!(self.log_start <= offset);
        self.directory.check()?;
        if self.log_end <= offset {
            return Ok(());
        }
        let to = self.boundary_at(offset)?;
        self.announce_cut(to)?;
        let result = self.cut_at(to);
        self.assert_invariants();
        result.inspect_err(|error| self.directory.fail(error))
    }

    /// Removes everything and begins anew at `offset`, where the leader's log begins; durable when
    /// this returns. `producers` is the state of producers there: it is kept as a snapshot, durably,
    /// before the log begins there. A crash leaves the log as it was, a prefix of it, or empty at either start. Where
    /// the log ends at `offset`, a crash never makes it end before: the leader may count on it.
    ///
    /// # Errors
    /// When the disk is full: the log is as it was. When the disk fails: then the directory has failed,
    /// for the log is neither as before nor empty.
    ///
    /// # Panics
    /// When `offset` is below the log end offset.
    pub fn begin_at(&mut self, offset: Offset, producers: Option<&[u8]>) -> Result<(), LogError> {
        assert!(self.log_end <= offset);
        self.directory.check()?;
        if self.log_end == offset {
            let result = self.start_at_end(producers);
            self.assert_invariants();
            return result;
        }
        self.ensure_directory().inspect_err(|error| self.fail_unless_full(error))?;
        // First nothing is left, then it begins later: segments below a start that they do not
        // reach would be taken for a log that has lost its end.
        let oldest = self.segments.first().map(|oldest| oldest.base_offset);
        let nothing = Point { offset: self.log_start, segment: oldest, position: 0 };
        let was_empty = self.log_end == self.log_start;
        self.announce_cut(nothing)?;
        let result = self.cut_at(nothing).and_then(|()| self.restart_at(offset, producers));
        self.assert_invariants();
        result.inspect_err(|error| {
            // Where something was cut there is room for a checkpoint.
            if !was_empty || !error.is_disk_full() {
                self.directory.fail(error);
            }
        })
    }

    fn start_at_end(&mut self, producers: Option<&[u8]>) -> Result<(), LogError> {
        // A state of this offset may be there that rests on records which the leader does not have.
        self.remove_producers_above(Offset(self.log_end.0 - 1))?;
        let producers = producers.map(<[u8]>::to_vec);
        let Some(mut moved) = self.begin_start_move(self.log_end, producers)? else {
            return Ok(());
        };
        moved.save()?;
        self.finish_start_move(moved).run()
    }

    fn restart_at(&mut self, offset: Offset, producers: Option<&[u8]>) -> Result<(), LogError> {
        if let Some((snapshots, payload)) = self.snapshots().zip(producers) {
            match snapshots.save(offset, payload) {
                // Without room for it the log begins all the same.
                Err(error) if error.is_disk_full() => {}
                saved => saved?,
            }
        }
        let before = (self.log_start, self.log_end, self.clean, self.horizon);
        self.epochs.clear();
        self.log_start = offset;
        self.log_end = offset;
        self.durable = self.end_point();
        self.taken = self.durable;
        self.clean = offset;
        self.horizon = None;
        if let Err(error) = self.write_checkpoint() {
            (self.log_start, self.log_end, self.clean, self.horizon) = before;
            self.durable = self.end_point();
            self.taken = self.durable;
            return Err(error);
        }
        self.sync_all()
    }

    /// Makes certain that neither a start nor a replay brings back what is about to go.
    ///
    /// # Errors
    /// When the disk is full or fails; the log is as it was. In the latter case the directory has
    /// failed.
    fn announce_cut(&mut self, to: Point) -> Result<(), LogError> {
        {
            // While the write-ahead file is held, so that no round adds a frame after this.
            let _write_ahead = self.directory.write_ahead();
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        let before = (self.epochs.clone(), self.damage.clone(), self.clean, self.durable);
        let announced = self.lower_what_is_durable(to);
        if announced.is_err() {
            (self.epochs, self.damage, self.clean, self.durable) = before;
            // No round that was under way vouches for it.
            self.take_again();
        }
        announced.inspect_err(|error| self.fail_unless_full(error))
    }

    fn lower_what_is_durable(&mut self, to: Point) -> Result<(), LogError> {
        self.epochs.retain(|(_, first)| *first < to.offset);
        if self.damage.clip(self.log_start, to.offset) {
            self.damage.save(self.disk(), &self.path)?;
        }
        self.clean = self.clean.min(to.offset);
        if to.offset < self.durable.offset {
            self.durable = to;
        }
        // In any case: a round that was under way may have written a later one.
        if !mutant::is_on(Mutant::CheckpointNotLowered) {
            self.write_checkpoint()?;
        }
        let segment = to.segment.unwrap_or(Offset::ZERO);
        let mut write_ahead = self.directory.write_ahead();
        write_ahead.forget(self.partition, segment, to.position, to.offset)
    }

    /// Whatever is not durable belongs to the next round.
    fn take_again(&mut self) {
        self.taken = self.durable;
        self.taken_indexes.clear();
        self.new_names.append(&mut self.taken_names);
    }

    /// The end of the last batch that lies wholly below `offset`.
    fn boundary_at(&self, offset: Offset) -> Result<Point, LogError> {
        let nth = self.segments.partition_point(|segment| segment.next_offset <= offset);
        let Some(segment) = self.segments.get(nth) else {
            return Ok(Point { offset, ..self.end_point() });
        };
        let mut end = segment.base_offset;
        let mut position = 0;
        if segment.base_offset < offset {
            let opened = self.open_segment(nth)?;
            let start = self.walk_from(&opened, offset);
            let mut scan = Scan::headers(start, segment.bytes, LARGE_BUFFER);
            position = start;
            while let Found::Batch { header, position: at, .. } = self.step(&mut scan, &opened)? {
                if offset < header.next_offset() {
                    (end, position) = (header.base_offset(), at);
                    break;
                }
                (end, position) = (header.next_offset(), at + header.size_in_bytes() as u64);
            }
        }
        if end < self.log_start {
            // The log start lies inside the batch that goes: nothing of the log is left.
            let oldest = self.segments.first().map(|oldest| oldest.base_offset);
            return Ok(Point { offset: self.log_start, segment: oldest, position: 0 });
        }
        Ok(Point { offset: end, segment: Some(segment.base_offset), position })
    }

    fn cut_at(&mut self, to: Point) -> Result<(), LogError> {
        let (partition, segment) = (self.partition, to.segment.unwrap_or(Offset::ZERO));
        let is_gone = |(p, base): &(TopicPartition, Offset)| *p == partition && segment < *base;
        self.directory.write_ahead().uncover(is_gone);
        // Before the segments, whose names are made certain in the end: a state of other records
        // must not come back.
        self.remove_producers_above(to.offset)?;
        self.cut_segments(to)?;
        self.log_end = to.offset;
        if self.durable.offset == to.offset {
            self.durable = self.end_point();
        }
        self.take_again();
        self.indexed_to = None;
        self.last_batch = None;
        Ok(())
    }

    /// Nobody reads any more what goes, whatever the disk says to it.
    fn cut_segments(&mut self, to: Point) -> Result<(), LogError> {
        let Some(base) = to.segment else { return Ok(()) };
        let kept = self.segments.partition_point(|segment| segment.base_offset < base);
        let keeps_part = 0 < to.position;
        let mut removed = self.segments.split_off(kept);
        let cut = if keeps_part { Some(removed.remove(0)) } else { None };
        let cut_file = match &cut {
            Some(summary) => Some(self.file_of(summary)?),
            None => None,
        };
        self.active = None;
        self.unsaved_indexes.retain(|index| index.segment < base);
        if let Some((summary, file)) = cut.as_ref().zip(cut_file.clone()) {
            self.open.forget(summary.base_offset);
            self.sealed_unsynced.retain(|(base, _)| *base != summary.base_offset);
            self.reopen_as_active(summary, file, to)?;
        }
        for summary in removed.iter().rev() {
            self.drop_segment(summary.base_offset)?;
        }
        if let Some((summary, file)) = cut.zip(cut_file) {
            remove_index_files(self.disk(), &self.path, summary.base_offset)?;
            let path = FileKind::Segment.path(&self.path, summary.base_offset);
            let truncated = file.truncate(to.position).and_then(|()| file.sync_data());
            truncated.map_err(LogError::io("cut", &path))?;
        }
        let failed = LogError::io("sync names in", &self.path);
        self.disk().sync_dir(&self.path).map_err(failed)
    }

    fn drop_segment(&mut self, base: Offset) -> Result<(), LogError> {
        self.open.forget(base);
        self.sealed_unsynced.retain(|(held, _)| *held != base);
        remove_segment_files(self.disk(), &self.path, base)
    }

    fn file_of(&self, summary: &Summary) -> Result<std::sync::Arc<D::File>, LogError> {
        let base = summary.base_offset;
        if let (false, Some(active)) = (summary.is_sealed, &self.active) {
            return Ok(active.file.clone());
        }
        if let Some((_, file)) = self.sealed_unsynced.iter().find(|(held, _)| *held == base) {
            return Ok(file.clone());
        }
        let path = FileKind::Segment.path(&self.path, base);
        self.disk().open(&path).map(std::sync::Arc::new).map_err(LogError::io("open", &path))
    }

    fn reopen_as_active(
        &mut self,
        old: &Summary,
        file: std::sync::Arc<D::File>,
        to: Point,
    ) -> Result<(), LogError> {
        let path = FileKind::Segment.path(&self.path, old.base_offset);
        let summarised = self.summarise(old, &*file, to);
        let (summary, index) = summarised.map_err(LogError::io("read", &path))?;
        self.segments.push(summary);
        self.active = Some(Box::new(Active { file, allocated: to.position, index }));
        Ok(())
    }

    fn summarise(
        &self,
        old: &Summary,
        file: &D::File,
        to: Point,
    ) -> std::io::Result<(Summary, SparseIndex)> {
        let mut summary = Summary::empty(old.base_offset);
        let mut scan = Scan::headers(0, to.position, LARGE_BUFFER);
        while let Found::Batch { header, .. } = scan.next(file)? {
            summary.note(&header);
        }
        summary.bytes = to.position;
        summary.next_offset = to.offset;
        summary.first_append = old.first_append;
        summary.last_append = old.last_append;
        let index = index_of(file, &summary, self.config.index_interval_bytes)?;
        Ok((summary, index))
    }
}
