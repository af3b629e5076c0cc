//! When a worker is told to stop.
//!
//! What it runs does not hear what the terminal says, so all that would end the worker is heard here: else it
//! would leave its commands behind, with leases that nobody extends.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for an end, listened to from now on.
pub(super) struct StopSignals(Vec<Signal>);

impl StopSignals {
    pub(super) fn listen() -> io::Result<StopSignals> {
        let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |text| ignored(&text));
        let always = [SignalKind::terminate(), SignalKind::interrupt()];
        // `nohup`, and shells for what they start in the background, have these ignored on purpose.
        let mut kinds = vec![SignalKind::hangup(), SignalKind::quit()];
        kinds.retain(|kind| ignored & bit(*kind) == 0);
        let listened = always.into_iter().chain(kinds).map(signal).collect::<io::Result<_>>();
        listened.map(StopSignals)
    }

    /// Waits for any.
    pub(super) async fn wait(&mut self) {
        poll_fn(|context| {
            match self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// The signals that this process ignores, as Linux says in `/proc/self/status`: signal n is bit n - 1.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn bit(kind: SignalKind) -> u64 {
    1 << (kind.as_raw_value() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ignored_from_the_beginning_is_known() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000100000440\n";
        assert_eq!(ignored(status) & bit(SignalKind::hangup()), 1);
        assert_eq!(ignored(status) & bit(SignalKind::quit()), 0);
        assert_eq!(ignored(""), 0);
    }
}
