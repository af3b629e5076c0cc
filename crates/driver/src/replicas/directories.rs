//! In which data directory each replica lies, as the controller is told (KIP-858): when a directory
//! fails or does not come back, the controller knows which replicas went with it.
//!
//! A broker with one directory has nothing to say; the controller knows.

use std::time::Duration;

use towpath_log::disk::Disk;
use towpath_metadata::Request;
use towpath_model::{Time, TopicPartition, Uuid};

use crate::driver::Driver;
use crate::quorum::DIRECTORIES;
use crate::world::{Clock, Net};

/// How often what was told is compared with what is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most replicas in one message.
const TOLD_MAX: usize = 5_000;

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Tells the controller of replicas of which it does not know where they lie, or wrongly.
    pub(super) fn tell_directories(&self, now: Time) {
        if self.volumes.len() < 2 {
            return;
        }
        {
            let mut look_at = self.directories_at.lock().expect("no panic holds the time");
            if look_at.is_some_and(|at| now < at) {
                return;
            }
            *look_at = Some(now + LOOK_EVERY);
        }
        let Some(epoch) = self.broker_epoch() else { return };
        let me = self.settings.broker_id;
        let cells = self.cells();
        let directories: Vec<(TopicPartition, Uuid)> = {
            let image = self.image();
            let told = |id| image.partition(id).map(|state| state.directory_of(me));
            let is = |cell: &crate::cell::Cell<D>| {
                self.volume(cell.volume).directory.identity().directory_id
            };
            let wrong = cells.iter().filter(|cell| told(cell.id).is_some_and(|id| id != is(cell)));
            wrong.take(TOLD_MAX).map(|cell| (cell.id, is(cell))).collect()
        };
        if !directories.is_empty() {
            let request = Request::AssignDirectories { broker: me, epoch, directories };
            self.ask_for_myself(DIRECTORIES, request);
        }
    }
}
