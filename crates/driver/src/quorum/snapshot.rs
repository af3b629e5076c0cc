//! The metadata as a whole: what a member keeps instead of the entries that led to it, and sends to
//! whoever is too far behind.
//!
//! ```text
//! file: u64 index, u64 term, u32 length, membership, records of the image as of that index
//! ```

use towpath_log::LogError;
use towpath_log::disk::Disk;
use towpath_metadata::Image;
use towpath_metadata::raft::{LogIndex, Membership, Snapshot, Term};
use towpath_model::{FoldError, FoldRecord};

use super::{Order, QuorumSlot, command, log};
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// The log is this long before a snapshot takes its place.
pub(super) const EVERY_BYTES: u64 = 16 * 1024 * 1024;

/// The payload of the snapshot's file.
pub(super) fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = snapshot.index.0.to_be_bytes().to_vec();
    out.extend_from_slice(&snapshot.term.0.to_be_bytes());
    let membership = snapshot.membership.encode();
    let length = u32::try_from(membership.len()).expect("members are bounded");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&membership);
    out.extend_from_slice(&snapshot.data);
    out
}

/// # Errors
/// When the bytes are not those of a snapshot.
pub(super) fn decode(bytes: &[u8]) -> Result<Snapshot, FoldError> {
    let short = || FoldError("a snapshot ends too early".to_owned());
    let (index, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let (term, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (membership, data) =
        rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(short)?;
    Ok(Snapshot {
        index: LogIndex(u64::from_be_bytes(*index)),
        term: Term(u64::from_be_bytes(*term)),
        membership: Membership::decode(membership)?,
        data: data.to_vec(),
    })
}

fn data_of(image: &Image) -> Vec<u8> {
    let records = image.to_records();
    let logged: Vec<_> = records.filter_map(|record| record.encode()).collect();
    command::encode(&logged)
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// How long the metadata log of this process gets before a snapshot takes its place, in bytes of
    /// entries. For simulations, whose logs are short; no operator has a reason to choose.
    pub fn snapshot_metadata_every(&self, bytes: u64) {
        self.quorum.lock().snapshot_every_bytes = bytes;
    }

    /// Takes over a snapshot of the leader: what this member has is too old to go on from.
    ///
    /// # Errors
    /// When the disk refuses. One that is full may be asked again.
    pub(super) fn install(
        &self,
        slot: &mut QuorumSlot<D>,
        snapshot: &Snapshot,
        orders: &mut Vec<Order>,
    ) -> Result<(), LogError> {
        let image = match command::decode(&snapshot.data) {
            Ok(records) => {
                let mut image = self.empty_image();
                records.iter().for_each(|record| image.apply(record));
                image
            }
            Err(error) => {
                let reason = format!("a snapshot of the metadata cannot be read: {error}");
                self.quorum_failed(slot, &reason, orders);
                return Ok(());
            }
        };
        let saved = {
            let files = self.quorum.files.lock().expect("no panic holds the quorum's files");
            files.save_snapshot(&encode(snapshot))
        };
        saved.and_then(|()| log::begin_anew(&mut slot.log, snapshot.index.next()))?;
        slot.applied = snapshot.index;
        slot.applied_term = snapshot.term;
        slot.since_snapshot = 0;
        orders.push(Order::Restored(Box::new(image)));
        Ok(())
    }

    /// Saves a snapshot, when the log has become long, and lets go of what it has. Waits for the disk,
    /// with no lock held meanwhile.
    pub(crate) fn save_metadata_snapshot_if_due(&self) {
        let snapshot = {
            let _publishing = self.publishing.lock().expect("no panic holds the turn");
            let slot = self.quorum.lock();
            if slot.since_snapshot < slot.snapshot_every_bytes || slot.failed {
                return;
            }
            Snapshot {
                index: slot.applied,
                term: slot.applied_term,
                membership: slot.core.status().membership,
                data: data_of(&self.image()),
            }
        };
        let saved = {
            let files = self.quorum.files.lock().expect("no panic holds the quorum's files");
            files.save_snapshot(&encode(&snapshot))
        };
        if let Err(error) = saved {
            if !error.is_disk_full() {
                self.quorum_step(|slot, _, orders| self.quorum_disk_failed(slot, &error, orders));
                return;
            }
            tracing::warn!(%error, "no snapshot of the metadata could be saved; its log goes on");
            self.quorum.lock().since_snapshot = 0;
            return;
        }
        let index = snapshot.index;
        let moved = self.quorum_step(|slot, _, orders| {
            if index < slot.core.status().snapshot_index {
                return None;
            }
            slot.core.compact(index, snapshot.data);
            slot.since_snapshot = 0;
            match slot.log.begin_start_move(log::offset_of(index.next()), None) {
                Ok(moved) => moved,
                Err(error) => {
                    self.quorum_disk_failed(slot, &error, orders);
                    None
                }
            }
        });
        let Some(mut moved) = moved else { return };
        let saved = moved.save();
        let removal = self.quorum_step(|slot, _, orders| match saved {
            Ok(()) => Some(slot.log.finish_start_move(moved)),
            // The entries stay until the next snapshot.
            Err(error) if error.is_disk_full() => None,
            Err(error) => {
                self.quorum_disk_failed(slot, &error, orders);
                None
            }
        });
        if let Some(Err(error)) = removal.map(towpath_log::Removal::run) {
            tracing::warn!(%error, "old parts of the metadata log could not be removed");
        }
    }

    fn empty_image(&self) -> Image {
        Image::new(self.settings.broker_id, self.settings.statics.clone())
    }
}
