//! When to stop: SIGTERM or SIGINT once asks, twice insists.

use std::io;
use std::process;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, listened to from now on.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(super) fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for either.
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Ends the process at the next signal, in the middle of whatever it does: what was
    /// acknowledged is safe, and the next start checks the rest. Lives until the process ends.
    pub(super) fn insist(mut self) {
        tokio::spawn(async move {
            self.wait().await;
            eprintln!("stopped at once; the next start checks the data directory");
            process::exit(1);
        });
    }
}
