//! The quorum's part of a sync round of the first data directory: first the vote, then entries, then
//! the messages that rest on both.

use towpath_log::disk::Disk;
use towpath_log::{Committed, Dirty};
use towpath_metadata::raft::Vote;

use crate::driver::Driver;
use crate::volume::VolumeIndex;
use crate::world::{Clock, Net};

/// What one round makes durable of the quorum.
pub(crate) struct QuorumRound<D: Disk> {
    vote: Option<Vote>,
    dirty: Option<Dirty<D>>,
    /// The newest ready that is durable with it.
    up_to: Option<u64>,
    /// What became of the entries, where there were any.
    pub(crate) committed: Option<Committed>,
    /// Why the vote is not durable.
    failure: Option<String>,
}

impl<D: Disk> QuorumRound<D> {
    pub(crate) fn take_dirty(&mut self) -> Option<Dirty<D>> {
        self.dirty.take()
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Takes what waits now.
    pub(crate) fn begin_quorum_round(&self, volume: VolumeIndex) -> Option<QuorumRound<D>> {
        if volume != VolumeIndex::FIRST {
            return None;
        }
        let mut slot = self.quorum.lock();
        if !std::mem::replace(&mut slot.awaits_sync, false) || slot.failed {
            return None;
        }
        let vote = slot.unpersisted.iter().rev().find_map(|ready| ready.vote);
        let up_to = slot.unpersisted.back().map(|ready| ready.number);
        let dirty = slot.log.take_dirty();
        Some(QuorumRound { vote, dirty, up_to, committed: None, failure: None })
    }

    /// Saves the vote. Without it nothing else of the round may count.
    pub(crate) fn save_vote(&self, round: &mut QuorumRound<D>) {
        let Some(vote) = round.vote else { return };
        let volume = self.volume(VolumeIndex::FIRST);
        let mut files = self.quorum.files.lock().expect("no panic holds the quorum's files");
        let saved = match files.save_vote(&vote.encode()) {
            Err(error) if error.is_disk_full() && self.release_reserve(volume) => {
                files.save_vote(&vote.encode())
            }
            saved => saved,
        };
        if let Err(error) = saved {
            volume.directory.fail(&error);
            round.failure = Some(error.to_string());
        }
    }

    /// Says what became of it; `false`: this broker takes no part in the quorum any more.
    pub(crate) fn publish_quorum_round(&self, round: QuorumRound<D>) -> bool {
        let QuorumRound { up_to, committed, failure, .. } = round;
        let failure = failure.or_else(|| {
            let result = committed.as_ref().map(Committed::result)?;
            result.err().map(|error| error.to_string())
        });
        self.quorum_step(|slot, _, orders| {
            if let Some(reason) = &failure {
                self.quorum_failed(slot, reason, orders);
                return false;
            }
            if let Some(committed) = &committed {
                slot.log.committed(committed);
            }
            if let Some(up_to) = up_to {
                slot.persisted(up_to, orders);
            }
            !slot.failed
        })
    }
}
