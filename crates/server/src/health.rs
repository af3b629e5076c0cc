//! Notices when a disk stops to answer, and when it does again, and says so once.

use std::collections::BTreeSet;

use towpath_driver::{VolumeIndex, VolumeStatus};

/// Which data directories are known to be stalled.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    stalled: BTreeSet<VolumeIndex>,
}

impl Watch {
    pub(crate) fn look(&mut self, statuses: &[VolumeStatus]) {
        for status in statuses {
            let directory = status.path.display();
            match status.stalled_for {
                Some(stalled_for) if self.stalled.insert(status.index) => {
                    tracing::error!(%directory, ?stalled_for, partitions = status.partitions,
                        "the disk of a data directory does not answer: acknowledgements of its \
                         partitions wait for it; look at the device and at the kernel's log");
                }
                None if self.stalled.remove(&status.index) => {
                    tracing::info!(%directory, "the disk of a data directory answers again");
                }
                _ => {}
            }
        }
    }
}
