//! The system's clocks, and the bells that threads wait for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use towpath_driver::{Clock, VolumeIndex};
use towpath_model::{Now, Time, Timestamp};

use crate::progress::Progress;

/// Clocks of this machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
    bells: Arc<Bells>,
    progress: Progress,
}

#[derive(Debug)]
struct Bells {
    /// One per data directory: something waits for its sync round.
    sync: Vec<Bell>,
    /// One per data directory: only the end is rung in.
    upkeep: Vec<Bell>,
    deadline: Bell,
    /// Rung only at the end.
    compaction: Bell,
    /// One per data directory, rung only at the end.
    scrub: Vec<Bell>,
    health: Bell,
    /// Rung only at the end.
    quorum: Bell,
}

/// A thread waits for it; ringing before the wait counts.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        let mut rung = self.rung.lock().expect("a bell's holder does not panic");
        if !std::mem::replace(&mut *rung, true) {
            self.changed.notify_one();
        }
    }

    /// Waits until it has been rung, at most `limit`.
    fn wait(&self, limit: Option<Duration>) {
        let rung = self.rung.lock().expect("a bell's holder does not panic");
        let mut rung = match limit {
            None => self
                .changed
                .wait_while(rung, |rung| !*rung)
                .expect("a bell's holder does not panic"),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(rung, limit, |rung| !*rung);
                waited.expect("a bell's holder does not panic").0
            }
        };
        *rung = false;
    }
}

impl SystemClock {
    /// Starts the monotonic clock of a node with so many data directories.
    #[must_use]
    pub fn start(volumes: usize) -> Self {
        Self::start_with(volumes, Progress::default())
    }

    /// The same; what [`Clock::for_each`] does is told to `progress`.
    pub(crate) fn start_with(volumes: usize, progress: Progress) -> Self {
        let bells = || std::iter::repeat_with(Bell::default).take(volumes).collect();
        let bells = Bells {
            sync: bells(),
            upkeep: bells(),
            deadline: Bell::default(),
            compaction: Bell::default(),
            scrub: bells(),
            health: Bell::default(),
            quorum: Bell::default(),
        };
        SystemClock { start: Instant::now(), bells: Arc::new(bells), progress }
    }

    /// Monotonic time alone, which is cheaper to read than both clocks.
    pub(crate) fn time(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Blocks a sync thread until a round is wanted.
    pub(crate) fn wait_for_sync(&self, volume: VolumeIndex) {
        self.bells.sync[volume.0].wait(None);
    }

    /// Blocks an upkeep thread for `pause`, or until the node stops.
    pub(crate) fn wait_for_upkeep(&self, volume: VolumeIndex, pause: Duration) {
        self.bells.upkeep[volume.0].wait(Some(pause));
    }

    /// Blocks the thread that watches the disks for `pause`, or until the node stops.
    pub(crate) fn wait_for_health(&self, pause: Duration) {
        self.bells.health.wait(Some(pause));
    }

    /// Blocks the thread that lets the quorum's clock tick for `pause`, or until the node stops.
    pub(crate) fn wait_for_tick(&self, pause: Duration) {
        self.bells.quorum.wait(Some(pause));
    }

    /// Blocks the timer thread until a deadline has changed, at most `limit`.
    pub(crate) fn wait_for_deadline(&self, limit: Duration) {
        self.bells.deadline.wait(Some(limit));
    }

    /// Lets the compaction thread rest, unless the node stops.
    pub(crate) fn rest(&self, limit: Duration) {
        self.bells.compaction.wait(Some(limit));
    }

    /// Lets a scrub thread rest, unless the node stops.
    pub(crate) fn rest_from_scrub(&self, volume: VolumeIndex, limit: Duration) {
        self.bells.scrub[volume.0].wait(Some(limit));
    }

    /// Wakes all threads, so that they see that they should end.
    pub(crate) fn ring_all(&self) {
        self.bells.compaction.ring();
        let per_volume = self.bells.sync.iter().chain(&self.bells.upkeep).chain(&self.bells.scrub);
        per_volume.for_each(Bell::ring);
        self.bells.deadline.ring();
        self.bells.health.ring();
        self.bells.quorum.ring();
    }
}

/// Threads that recover partitions at a start.
const START_THREADS: usize = 8;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        // Before 1970 the wall clock is wrong anyway; 0 keeps timestamps legal.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
        Now { time: self.time(), wall: Timestamp(wall) }
    }

    fn sync_wanted(&self, volume: VolumeIndex) {
        self.bells.sync[volume.0].ring();
    }

    fn wake_at(&self, _deadline: Time) {
        self.bells.deadline.ring();
    }

    /// On a few threads: a start waits for the disk more than it computes.
    fn for_each(&self, count: usize, act: &(dyn Fn(usize) + Sync)) {
        self.progress.begin(count);
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                if count <= nth {
                    break;
                }
                act(nth);
                self.progress.one_opened();
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..START_THREADS.min(count) {
                // With fewer threads it only takes longer.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_a_start_sees_how_far_it_is() {
        let progress = Progress::default();
        let clock = SystemClock::start_with(1, progress.clone());
        assert_eq!(progress.partitions(), (0, 0));
        clock.for_each(3, &|_| assert_eq!(progress.partitions().1, 3));
        assert_eq!(progress.partitions(), (3, 3));
    }
}
