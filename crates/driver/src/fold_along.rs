//! Followers of a delivery log fold it as they get it, so that whoever leads next knows every delivery at once.
//!
//! ```text
//! upkeep ─▶ records below the high watermark that have not been folded ─▶ state
//! begins to lead ─▶ what is left, to the log's end ─▶ leads with that state
//! ```
//!
//! Only committed records are folded, so a log that is cut takes nothing back. Whatever else happens to the log,
//! a start beyond what was folded or a loss that an operator has accepted, ends the state, and it is folded anew
//! from the last snapshot.

use std::sync::Arc;
use std::time::Duration;

use towpath_log::Log;
use towpath_log::disk::Disk;
use towpath_model::properties::TopicConfig;
use towpath_model::{Now, Offset, Time, TopicPartition};
use towpath_queue::Deliveries;

use crate::cell::{Cell, Slot};
use crate::config::delivery_config;
use crate::driver::Driver;
use crate::recover::{RecoverError, fold_until};
use crate::world::{Clock, Net};

/// Bytes of a log that are folded before others may have it.
const STEP_BYTES: u64 = 64 << 10;
/// Steps of one log in one upkeep: whoever has much to fold, after a start, does not keep the others waiting.
const STEPS_MAX: usize = 128;
/// A log that could not be read is read anew after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The state of a delivery log that is followed, as far as it has been folded.
#[derive(Debug)]
pub(crate) struct Followed {
    deliveries: Deliveries,
    /// What begins before this has been folded.
    next: Offset,
    /// The log could not be read, and is left alone until then: whoever wants to lead finds out why.
    stuck_until: Option<Time>,
}

impl Followed {
    fn at_start_of<D: Disk>(log: &Log<D>, config: &TopicConfig) -> Followed {
        let config = Arc::new(delivery_config(config));
        let next = log.log_start_offset();
        let deliveries = match next {
            Offset::ZERO => Deliveries::new(config),
            _ => Deliveries::from_snapshot(config),
        };
        Followed { deliveries, next, stuck_until: None }
    }

    /// Folds on; says whether `end` is reached.
    fn fold<D: Disk>(
        &mut self,
        log: &Log<D>,
        end: Offset,
        bytes_max: u64,
    ) -> Result<bool, RecoverError> {
        self.next = fold_until(&mut self.deliveries, log, self.next, end, bytes_max, |_| {})?;
        Ok(end <= self.next)
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Folds what a follower has of a delivery log and has not folded.
    pub(crate) fn fold_along(&self, cell: &Arc<Cell<D>>) {
        for _ in 0..STEPS_MAX {
            let Some(mut slot) = self.lock_in_time(cell) else { return };
            match slot.fold_step(self.clock.now()) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    return tracing::error!(partition = %cell.id, topic = %cell.topic, %error,
                        "the log of deliveries cannot be read: this replica could not lead");
                }
            }
        }
    }

    /// How far a follower has folded the deliveries of a partition.
    pub fn folded_to(&self, id: TopicPartition) -> Option<Offset> {
        let cell = self.cell(id.delivery_log())?;
        let slot = self.lock_in_time(&cell)?;
        slot.followed.as_ref().map(|followed| followed.next)
    }

    /// Whether what a follower has folded is what its log says up to there: for tests, it reads the whole log.
    /// Nothing where it has folded nothing, or the log cannot be read.
    pub fn has_folded_what_the_log_says(&self, id: TopicPartition) -> Option<bool> {
        let cell = self.cell(id.delivery_log())?;
        let slot = self.lock_in_time(&cell)?;
        let followed = slot.followed.as_ref().filter(|followed| followed.stuck_until.is_none())?;
        let start = slot.log.log_start_offset();
        if followed.next < start || followed.deliveries.awaits_snapshot() {
            return None;
        }
        let mut anew = Followed::at_start_of(&slot.log, &slot.config);
        anew.fold(&slot.log, followed.next, u64::MAX).ok()?;
        // The log may begin behind its last snapshot for a moment.
        let is_comparable = !anew.deliveries.awaits_snapshot();
        is_comparable.then(|| anew.deliveries.to_bytes() == followed.deliveries.to_bytes())
    }
}

impl<D: Disk> Slot<D> {
    /// Says whether there is more.
    fn fold_step(&mut self, now: Now) -> Result<bool, RecoverError> {
        if self.closed || self.failed || self.partition.is_led() {
            self.followed = None;
            return Ok(false);
        }
        let start = self.log.log_start_offset();
        let is_over = |followed: &Followed| match followed.stuck_until {
            Some(until) => until <= now.time,
            None => followed.next < start,
        };
        if self.followed.as_ref().is_none_or(is_over) {
            self.followed = Some(Followed::at_start_of(&self.log, &self.config));
        }
        let end = self.partition.high_watermark().min(self.log.log_end_offset());
        let can_go_on = |it: &&mut Followed| it.stuck_until.is_none() && it.next < end;
        let Some(followed) = self.followed.as_mut().filter(can_go_on) else { return Ok(false) };
        let before = followed.next;
        let is_done = followed.fold(&self.log, end, STEP_BYTES).inspect_err(|_| {
            followed.stuck_until = Some(now.time + AGAIN_AFTER);
        })?;
        followed.deliveries.folded_at(now.time);
        Ok(!is_done && before < followed.next)
    }

    /// What is committed of a delivery log that is followed; nothing while that is not all folded: of a part that is
    /// folded anew, what comes behind it may take something back.
    pub(crate) fn folded_as_committed(&self) -> Option<&Deliveries> {
        let end = self.partition.high_watermark().min(self.log.log_end_offset());
        let followed = self.followed.as_ref().filter(|it| it.stuck_until.is_none())?;
        let is_whole = end <= followed.next && !followed.deliveries.awaits_snapshot();
        is_whole.then_some(&followed.deliveries)
    }

    /// The log ends there now.
    pub(crate) fn forget_folded_beyond(&mut self, end: Offset) {
        let is_of_it = |it: &Followed| it.stuck_until.is_none() && it.next <= end;
        self.followed = self.followed.take().filter(is_of_it);
    }

    /// What was folded while this log was followed, with the rest of the log: the state with which this
    /// broker leads. Nothing: it has to be read from the log as a whole.
    pub(crate) fn take_followed(&mut self) -> Option<Deliveries> {
        let mut followed = self.followed.take()?;
        let (start, end) = (self.log.log_start_offset(), self.log.log_end_offset());
        if followed.stuck_until.is_some() || followed.next < start || end < followed.next {
            return None;
        }
        // Damage is found again, and told, by whoever reads the whole log.
        followed.fold(&self.log, end, u64::MAX).ok()?;
        followed.deliveries.configure(Arc::new(delivery_config(&self.config)));
        Some(followed.deliveries).filter(|deliveries| !deliveries.awaits_snapshot())
    }
}
