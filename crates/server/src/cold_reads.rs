//! Who may wait for a device to read: a few at once per data directory, so that a disk that does not
//! answer holds up its own readers only, and few threads.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Reads of one data directory that wait for its device at once.
const AT_ONCE_MAX: usize = 4;

/// The turns of one data directory.
#[derive(Debug)]
pub(crate) struct ColdReads {
    turns: Arc<Semaphore>,
}

impl ColdReads {
    pub(crate) fn new() -> ColdReads {
        ColdReads { turns: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }

    /// Runs `read` on a thread that may wait, when it is its turn. Fails when the broker stops.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        read: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let turns = Arc::clone(&self.turns);
        // Whoever asked may not come back for a while; the turn must not wait for that.
        let task = tokio::spawn(async move {
            let turn = turns.acquire_owned().await.expect("the turns never end");
            tokio::task::spawn_blocking(move || {
                let _turn = turn;
                read()
            })
            .await
        });
        task.await?
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use super::*;

    /// Somebody asks, and is then held up elsewhere, in the write to a client that takes nothing.
    #[tokio::test]
    async fn who_asks_and_does_not_come_back_keeps_no_turn() {
        let cold_reads = ColdReads::new();
        let (gate, may_end) = mpsc::channel::<()>();
        let busy = cold_reads.run(move || may_end.recv());
        let mut busy = Box::pin(busy);
        let mut absent: Vec<_> =
            (0..AT_ONCE_MAX).map(|_| Box::pin(cold_reads.run(|| ()))).collect();
        let mut context = Context::from_waker(Waker::noop());
        assert!(busy.as_mut().poll(&mut context).is_pending());
        for absent in &mut absent {
            assert!(absent.as_mut().poll(&mut context).is_pending());
        }
        cold_reads.run(|| ()).await.unwrap();
        drop(gate);
        assert!(busy.await.unwrap().is_err());
    }
}
