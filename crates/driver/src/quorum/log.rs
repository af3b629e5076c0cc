//! The log of the quorum: one entry is one batch with one record, so that an entry's index is its
//! offset plus one and its term is the batch's leader epoch. Checksums, recovery and the cutting of
//! a diverging end are those of every log.

use towpath_log::disk::Disk;
use towpath_log::{Log, LogError};
use towpath_metadata::raft::{Entry, LogIndex, Payload, Ready, Term};
use towpath_model::{FoldError, LeaderEpoch, Now, Offset};
use towpath_records::{BatchBuilder, BatchHeader, Compression, Scratch, records};

use super::QuorumSlot;
use crate::driver::Driver;
use crate::recover::RecoverError;
use crate::volume::VolumeIndex;
use crate::world::{Clock, Net};

/// Most bytes that a record of the quorum's log may have.
const ENTRY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where the entry of this index lies.
pub(super) fn offset_of(index: LogIndex) -> Offset {
    Offset(i64::try_from(index.before().0).expect("indexes are far below the largest offset"))
}

fn index_at(offset: Offset) -> LogIndex {
    LogIndex(offset.0.unsigned_abs() + 1)
}

fn epoch_of(term: Term) -> LeaderEpoch {
    LeaderEpoch(i32::try_from(term.0).expect("the core knows the largest term"))
}

/// The batch of an entry.
pub(super) fn batch_of(entry: &Entry, now: Now) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None, now.wall);
    let payload = entry.payload.encode();
    builder
        .append(now.wall, None, Some(&payload), std::iter::empty())
        .expect("a payload is bounded far below a batch's size");
    let mut batch = builder.build();
    towpath_records::set_base_offset(&mut batch, offset_of(entry.index));
    towpath_records::set_leader_epoch(&mut batch, epoch_of(entry.term));
    batch
}

/// Every entry of a recovered log, from `first` on.
pub(super) fn entries<D: Disk>(log: &Log<D>, first: LogIndex) -> Result<Vec<Entry>, RecoverError> {
    let mut scratch = Scratch::default();
    let mut entries = Vec::new();
    let from = offset_of(first).max(log.log_start_offset());
    for batch in log.batches(from, log.log_end_offset()) {
        let (header, bytes) = batch?;
        let offset = header.base_offset();
        let unreadable = |text: String| RecoverError::Record { offset, source: FoldError(text) };
        let mut found = records(&bytes, ENTRY_BYTES_MAX, &mut scratch)
            .map_err(|error| unreadable(error.to_string()))?;
        let record = found.next().ok_or_else(|| unreadable("an empty batch".to_owned()))?;
        let record = record.map_err(|error| unreadable(error.to_string()))?;
        let value = record.value.ok_or_else(|| unreadable("an entry without value".to_owned()))?;
        let payload =
            Payload::decode(value).map_err(|source| RecoverError::Record { offset, source })?;
        let term = Term(u64::try_from(header.leader_epoch().0).unwrap_or_default());
        entries.push(Entry { index: index_at(offset), term, payload });
    }
    Ok(entries)
}

/// Whether a log goes on where a snapshot ends. One that was left by a crash before it began anew
/// does not, and what follows in it may be of another history.
pub(super) fn goes_on_from<D: Disk>(log: &Log<D>, index: LogIndex, term: Term) -> bool {
    let (last, next) = (offset_of(index), offset_of(index.next()));
    if log.log_end_offset() < next {
        return false;
    }
    if log.log_start_offset() <= last && log.log_start_offset() < next {
        return written_in(log, last) == Some(epoch_of(term));
    }
    log.log_start_offset() == next
}

/// Drops everything; the next entry is `first`.
pub(super) fn begin_anew<D: Disk>(log: &mut Log<D>, first: LogIndex) -> Result<(), LogError> {
    if offset_of(first) < log.log_end_offset() {
        log.truncate_to(log.log_start_offset())?;
    }
    log.begin_at(offset_of(first), None)
}

fn written_in<D: Disk>(log: &Log<D>, offset: Offset) -> Option<LeaderEpoch> {
    let epochs = log.leader_epochs();
    let later = epochs.partition_point(|(_, first)| *first <= offset);
    later.checked_sub(1).map(|at| epochs[at].0)
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Writes the entries of a ready; those that are there already were written when they were
    /// proposed, or before the disk was full. Writing a ready again changes nothing.
    ///
    /// What stands in the way of an entry is cut, whether or not the core names it in `truncate_from`:
    /// of a proposal that it has not given out before another leader replaced it, it does not know that
    /// it lies here already.
    pub(super) fn write_entries(
        &self,
        slot: &mut QuorumSlot<D>,
        now: Now,
        ready: &Ready,
    ) -> Result<(), LogError> {
        for entry in &ready.append {
            let at = offset_of(entry.index);
            if at < slot.log.log_end_offset() {
                // The same index and term is the same entry.
                if written_in(&slot.log, at) == Some(epoch_of(entry.term)) {
                    continue;
                }
                slot.log.truncate_to(at)?;
            }
            self.write_entry(slot, now, entry)?;
        }
        Ok(())
    }

    /// Appends one entry, with the space that is kept back for metadata if there is no other.
    pub(super) fn write_entry(
        &self,
        slot: &mut QuorumSlot<D>,
        now: Now,
        entry: &Entry,
    ) -> Result<(), LogError> {
        let batch = batch_of(entry, now);
        let header = BatchHeader::parse(&batch).expect("what the builder made is well formed");
        let volume = self.volume(VolumeIndex::FIRST);
        let mut append = || volume.write(|| slot.log.append(&batch, &header, now)).map(drop);
        match append() {
            Err(error) if error.is_disk_full() && self.release_reserve(volume) => append(),
            appended => appended,
        }
    }
}
