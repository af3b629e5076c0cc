//! Keeps workers free although a disk may hold up whoever writes to it.
//!
//! A write goes to memory in the connection's own task, which is the cheapest way and nearly never
//! waits. When it does (a stalled device, too much that is not written back yet), the worker waits, and
//! with it every connection it serves. With one data directory little else could be done then. With
//! several, those on healthy disks must go on:
//!
//! - while a disk is behind, what may touch one is done where waiting is allowed;
//! - a disk may stall without a sign, so at any time at most half of the workers do it the cheap way.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

use crate::disk::off_worker;

/// Counts who is where the disk can hold them up.
#[derive(Debug)]
pub(crate) struct Guard {
    /// There are several data directories.
    is_counting: bool,
    inside: AtomicUsize,
    /// Most that are inside without precautions.
    inside_max: OnceLock<usize>,
}

impl Guard {
    pub(crate) fn new(is_counting: bool) -> Guard {
        Guard { is_counting, inside: AtomicUsize::new(0), inside_max: OnceLock::new() }
    }

    /// Does what may touch a disk. `is_slow`: one is behind.
    pub(crate) fn pass<R>(&self, is_slow: impl FnOnce() -> bool, act: impl FnOnce() -> R) -> R {
        if !self.is_counting {
            return if is_slow() { off_worker(act) } else { act() };
        }
        let leave = Leave(&self.inside);
        let before = self.inside.fetch_add(1, Ordering::Relaxed);
        let is_crowded = *self.inside_max.get_or_init(inside_max) <= before;
        let result = if is_crowded || is_slow() { off_worker(act) } else { act() };
        drop(leave);
        result
    }
}

fn inside_max() -> usize {
    let workers = Handle::try_current().map_or(1, |handle| handle.metrics().num_workers());
    workers.div_ceil(2)
}

/// Also when what was done has panicked.
struct Leave<'g>(&'g AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Both workers of a runtime are held up at once, and a third task still runs.
    #[test]
    fn a_worker_is_always_left() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let guard = Arc::new(Guard::new(true));
        let (entered, entries) = mpsc::channel();
        let mut exits = Vec::new();
        for _ in 0..2 {
            let (exit, may_leave) = mpsc::channel::<()>();
            exits.push(exit);
            let (guard, entered) = (Arc::clone(&guard), entered.clone());
            runtime.spawn(async move {
                guard.pass(
                    || false,
                    || {
                        entered.send(()).unwrap();
                        let _ = may_leave.recv();
                    },
                );
            });
        }
        let patience = Duration::from_secs(60);
        entries.recv_timeout(patience).unwrap();
        entries.recv_timeout(patience).unwrap();
        let (done, finished) = mpsc::channel();
        runtime.spawn(async move { done.send(()).unwrap() });
        finished.recv_timeout(patience).expect("a worker is left");
        drop(exits);
    }
}
