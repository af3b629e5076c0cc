//! Keeps workers free although a disk may hold up whoever writes to it.
//!
//! A write goes to memory in the connection's own task, which is the cheapest way and nearly never
//! waits. When it does (a stalled device, too much that is not written back yet), the worker waits, and
//! with it every connection it serves; and since a worker that waits may be the one that was to look
//! at the sockets, with all others parked, perhaps every connection there is. With one data directory
//! little else could be done then. With several, those on healthy disks must go on, and a disk stalls
//! without a sign: there, what may touch a disk is done where waiting is allowed, always.

use crate::disk::off_worker;

/// Decides where to do what may touch a disk.
#[derive(Debug)]
pub(crate) struct Guard {
    /// There are several data directories.
    has_several: bool,
}

impl Guard {
    pub(crate) fn new(has_several: bool) -> Guard {
        Guard { has_several }
    }

    /// Does what may touch a disk. `is_slow`: one is behind.
    pub(crate) fn pass<R>(&self, is_slow: impl FnOnce() -> bool, act: impl FnOnce() -> R) -> R {
        if self.has_several || is_slow() { off_worker(act) } else { act() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
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

    /// The worker that is held up is the one that had looked at the sockets, and all others are
    /// asleep: somebody else must look at them.
    #[test]
    fn sockets_are_looked_at_while_a_worker_is_held_up() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let guard = Arc::new(Guard::new(true));
        let (exit, may_leave) = mpsc::channel::<()>();
        let (entered, entries) = mpsc::channel();
        let (served, answers) = mpsc::channel();
        let (mut held, wakes_held) = connected(&runtime);
        let (mut other, wakes_other) = connected(&runtime);
        runtime.spawn(async move {
            wakes_held.readable().await.unwrap();
            guard.pass(
                || false,
                || {
                    entered.send(()).unwrap();
                    let _ = may_leave.recv();
                },
            );
        });
        runtime.spawn(async move {
            wakes_other.readable().await.unwrap();
            served.send(()).unwrap();
        });
        // Time for both workers to fall asleep.
        std::thread::sleep(Duration::from_millis(100));
        held.write_all(b"x").unwrap();
        let patience = Duration::from_secs(20);
        entries.recv_timeout(patience).unwrap();
        other.write_all(b"x").unwrap();
        answers.recv_timeout(patience).expect("the other connection is served");
        drop(exit);
    }

    /// Both ends of a connection; the second one belongs to the runtime.
    fn connected(runtime: &tokio::runtime::Runtime) -> (TcpStream, tokio::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let _inside = runtime.enter();
        (ours, tokio::net::TcpStream::from_std(theirs).unwrap())
    }
}
