//! What a member of the metadata quorum must never forget besides its log: its vote, and the
//! snapshot that its log begins after.
//!
//! ```text
//! quorum.0, quorum.1     the vote, twice: one after the other is written before anybody hears of it,
//!                        so a torn write leaves the last vote, and damage to one file leaves the other;
//!                        a file that does not hold the last vote is written first
//! metadata.snapshot      replaced as a whole
//! ```
//!
//! The payloads belong to the quorum; this only keeps them. A vote that cannot be read stops the
//! start: a member that has forgotten it could vote twice in one term.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use crate::directory::DataDirectory;
use crate::disk::{Disk, DiskFile};
use crate::envelope::{self, Kind, Unreadable};
use crate::error::LogError;

const VOTES: [&str; 2] = ["quorum.0", "quorum.1"];
const SNAPSHOT: &str = "metadata.snapshot";
const VOTE_KIND: Kind = *b"TPqv";
const SNAPSHOT_KIND: Kind = *b"TPms";
/// Bytes of a generation before the vote's payload.
const GENERATION_BYTES: usize = 8;
/// Most bytes of a vote's file.
const VOTE_BYTES_MAX: u64 = 4096;
/// Most bytes of a snapshot's file.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// The vote and the snapshot of a data directory. One for each directory; whoever holds it is the
/// only one who writes them.
#[derive(Debug)]
pub struct QuorumFiles<D> {
    disk: D,
    root: PathBuf,
    generation: u64,
    /// Which of the two vote files is written first. Not the one that alone holds the last vote: a write
    /// that is torn must leave it.
    first: usize,
    /// Which of the two vote files have a name that is certain.
    named: [bool; 2],
}

impl<D: Disk> DataDirectory<D> {
    /// The quorum's files, with the payload of the newest vote and of the snapshot, where there are
    /// any.
    ///
    /// # Errors
    /// When the disk fails, or a vote or a snapshot was written and cannot be read.
    pub fn quorum_files(&self) -> Result<(QuorumFiles<D>, QuorumState), LogError> {
        let mut files = QuorumFiles {
            disk: self.disk().clone(),
            root: self.root().to_path_buf(),
            generation: 0,
            first: 0,
            named: [false; 2],
        };
        let vote = files.load_vote()?;
        let snapshot = files.load_snapshot()?;
        Ok((files, QuorumState { vote, snapshot }))
    }
}

/// What was found in the quorum's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuorumState {
    /// The payload of the newest vote.
    pub vote: Option<Vec<u8>>,
    /// The payload of the snapshot.
    pub snapshot: Option<Vec<u8>>,
}

impl<D: Disk> QuorumFiles<D> {
    fn load_vote(&mut self) -> Result<Option<Vec<u8>>, LogError> {
        let mut newest = None;
        let mut unreadable = Vec::new();
        for (slot, name) in VOTES.into_iter().enumerate() {
            let path = self.root.join(name);
            envelope::drop_cached(&self.disk, &path)?;
            let Some(bytes) = envelope::read_file(&self.disk, &path, VOTE_BYTES_MAX)? else {
                continue;
            };
            self.named[slot] = true;
            let payload = match envelope::open(VOTE_KIND, &bytes) {
                Ok(payload) => payload,
                Err(Unreadable::Damaged) => {
                    unreadable.push(path);
                    continue;
                }
                Err(Unreadable::Version { what, found, known }) => {
                    return Err(LogError::Version { path, what, found, known });
                }
            };
            let Some((generation, vote)) = payload.split_first_chunk::<GENERATION_BYTES>() else {
                unreadable.push(path);
                continue;
            };
            let generation = u64::from_be_bytes(*generation);
            if self.generation < generation {
                self.generation = generation;
                self.first = VOTES.len() - 1 - slot;
                newest = Some(vote.to_vec());
            }
        }
        // The first write of all may be torn, when there is no other file yet: nobody has heard of
        // that vote.
        match (&newest, unreadable.len()) {
            (None, 2) => Err(LogError::Unreadable { path: unreadable.swap_remove(0) }),
            _ => Ok(newest),
        }
    }

    /// Whether there are any in this data directory: it has taken part in a quorum.
    ///
    /// # Errors
    /// As the disk says.
    pub fn are_at(disk: &D, root: &Path) -> Result<bool, LogError> {
        for name in VOTES.into_iter().chain([SNAPSHOT]) {
            let path = root.join(name);
            if disk.exists(&path).map_err(LogError::io("look for", &path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Saves a vote; durable when this returns.
    ///
    /// # Errors
    /// When the disk fails: the directory is then not to be used any more, for which of the two
    /// votes a start would find is open.
    pub fn save_vote(&mut self, vote: &[u8]) -> Result<(), LogError> {
        self.generation += 1;
        let mut payload = self.generation.to_be_bytes().to_vec();
        payload.extend_from_slice(vote);
        let sealed = envelope::seal(VOTE_KIND, &payload);
        let first = self.first;
        [first, VOTES.len() - 1 - first]
            .into_iter()
            .try_for_each(|slot| self.write_vote(slot, &sealed))
    }

    fn write_vote(&mut self, slot: usize, sealed: &[u8]) -> Result<(), LogError> {
        let path = self.root.join(VOTES[slot]);
        let write = || {
            let file = if self.disk.exists(&path)? {
                self.disk.open(&path)?
            } else {
                self.disk.create(&path)?
            };
            file.write_at(&[IoSlice::new(sealed)], 0)?;
            file.sync_data()?;
            if !self.named[slot] {
                self.disk.sync_dir(&self.root)?;
            }
            Ok(())
        };
        write().map_err(LogError::io("write", &path))?;
        self.named[slot] = true;
        Ok(())
    }

    fn load_snapshot(&self) -> Result<Option<Vec<u8>>, LogError> {
        let path = self.root.join(SNAPSHOT);
        envelope::drop_cached(&self.disk, &path)?;
        let Some(bytes) = envelope::read_file(&self.disk, &path, SNAPSHOT_BYTES_MAX)? else {
            return Ok(None);
        };
        match envelope::open(SNAPSHOT_KIND, &bytes) {
            Ok(payload) => Ok(Some(payload.to_vec())),
            Err(Unreadable::Damaged) => Err(LogError::Unreadable { path }),
            Err(Unreadable::Version { what, found, known }) => {
                Err(LogError::Version { path, what, found, known })
            }
        }
    }

    /// Replaces the snapshot; durable when this returns, and until then the old one is there.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn save_snapshot(&self, snapshot: &[u8]) -> Result<(), LogError> {
        let sealed = envelope::seal(SNAPSHOT_KIND, snapshot);
        envelope::replace_file(&self.disk, &self.root.join(SNAPSHOT), &sealed)
    }
}
