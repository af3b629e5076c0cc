//! The world around one simulated broker process: its clock and its mailbox.
//!
//! Like the real shell, it only remembers what the driver asks for. *When* a sync round, a timer or
//! an upkeep runs is the profile's to decide, so that all of them meet appends and crashes in any
//! order. A process that ends takes both with it: what was delivered and not read is lost.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_driver::{Clock, Delivery, Net, VolumeIndex};
use towpath_model::{Now, Time, Token};

use crate::clock::SimClock;

/// The machine's clocks, which outlive processes.
pub(in crate::profiles) type SharedClock = Arc<Mutex<SimClock>>;

/// Locks, whatever panicked: the run is over then, and only its events are still read.
pub(in crate::profiles) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock as one process reads it, and what that process has asked of it.
#[derive(Debug, Clone)]
pub(in crate::profiles) struct ProcessClock {
    machine: SharedClock,
    /// Monotonic time begins anew with every process, as it may after a reboot: a deadline that was
    /// stored would be found.
    origin: Time,
    wishes: Arc<Mutex<Wishes>>,
}

/// What the driver waits for.
#[derive(Debug, Default)]
struct Wishes {
    syncs_wanted: BTreeSet<VolumeIndex>,
    alarm: Option<Time>,
}

impl ProcessClock {
    /// The clock of a process that starts now.
    pub(in crate::profiles) fn start(machine: &SharedClock) -> ProcessClock {
        let origin = lock(machine).now().time;
        ProcessClock { machine: Arc::clone(machine), origin, wishes: Arc::default() }
    }

    /// The data directories for which a sync round was asked; the caller runs them.
    pub(in crate::profiles) fn take_sync_wishes(&self) -> BTreeSet<VolumeIndex> {
        std::mem::take(&mut lock(&self.wishes).syncs_wanted)
    }

    /// Whether a sync round was asked for in this data directory; the caller runs it.
    pub(in crate::profiles) fn take_sync_wish(&self, volume: VolumeIndex) -> bool {
        lock(&self.wishes).syncs_wanted.remove(&volume)
    }

    /// Whether a sync round was asked for in this data directory.
    pub(in crate::profiles) fn is_sync_wanted(&self, volume: VolumeIndex) -> bool {
        lock(&self.wishes).syncs_wanted.contains(&volume)
    }

    /// How long it takes until this clock has gone on by so much.
    pub(in crate::profiles) fn takes(&self, wait: Duration) -> Duration {
        lock(&self.machine).takes(wait)
    }

    /// When the timer rings next.
    pub(in crate::profiles) fn alarm(&self) -> Option<Time> {
        lock(&self.wishes).alarm
    }

    /// Whether the timer rings now; it is off then until somebody sets it.
    pub(in crate::profiles) fn take_alarm(&self) -> bool {
        let now = self.now().time;
        lock(&self.wishes).alarm.take_if(|at| *at <= now).is_some()
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Now {
        let now = lock(&self.machine).now();
        Now { time: Time(0) + (now.time - self.origin), wall: now.wall }
    }

    fn sync_wanted(&self, volume: VolumeIndex) {
        lock(&self.wishes).syncs_wanted.insert(volume);
    }

    fn wake_at(&self, deadline: Time) {
        let alarm = &mut lock(&self.wishes).alarm;
        *alarm = Some(alarm.map_or(deadline, |earlier| earlier.min(deadline)));
    }
}

/// Answers in the order in which they were given.
#[derive(Debug, Clone, Default)]
pub(in crate::profiles) struct Mailbox {
    letters: Arc<Mutex<VecDeque<(Token, Delivery)>>>,
}

impl Mailbox {
    /// The oldest answer that was not read.
    pub(in crate::profiles) fn take(&self) -> Option<(Token, Delivery)> {
        lock(&self.letters).pop_front()
    }
}

impl Net for Mailbox {
    fn deliver(&self, token: Token, delivery: Delivery) {
        lock(&self.letters).push_back((token, delivery));
    }
}
