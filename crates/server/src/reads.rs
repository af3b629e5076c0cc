//! Reads for requests: here and now what is in memory, and the rest where waiting is allowed.
//!
//! Whatever waits for a turn (for a device, for the large buffer) does so in a task of its own, never
//! in the connection's: that one may stand still for as long as its client takes no answers, and
//! would keep a turn that it got meanwhile from everybody else. Such a task ends with its work.

use std::sync::Arc;

use towpath_driver::{
    FetchRefusal, Finding, LOOKUP_PLAIN_BYTES_MAX, OffsetAnswer, OffsetQuery, Patience, Read,
    ReadLimits, TimeSearch, TimeStep,
};
use towpath_model::{LeaderEpoch, Offset, TopicPartition};

use crate::disk::{NodeDisk, off_worker};
use crate::node::Node;
use crate::plain_memory::PlainMemory;

/// Most bytes that are brought into memory for one request: the rest comes with its next one.
pub(crate) const WARM_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of headers, or of a batch, that a search by time looks at in a worker.
const HASTY_BYTES: u64 = 64 * 1024;

type Search = Box<TimeSearch<NodeDisk>>;

fn stopping() -> FetchRefusal {
    FetchRefusal::Storage("the broker is stopping".to_owned())
}

impl Node {
    /// Finds records as the driver does, without waiting for a device here.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub async fn read(
        &self,
        id: TopicPartition,
        from: Offset,
        limits: ReadLimits,
    ) -> Result<Read<NodeDisk>, FetchRefusal> {
        match self.driver().read_resident(id, None, from, false, limits) {
            Err(FetchRefusal::NotResident) => {}
            read => return read,
        }
        self.warm_up(id, from, limits.max_bytes.min(WARM_BYTES_MAX)).await;
        // It may be gone from memory again already.
        off_worker(|| self.driver().read(id, None, from, false, limits))
    }

    /// Brings records into memory, on a thread that may wait for the device. When it cannot be done, the
    /// read that follows says why.
    pub(crate) async fn warm_up(&self, id: TopicPartition, from: Offset, max_bytes: usize) {
        let Some(volume) = self.driver().volume_of(id) else { return };
        let driver = Arc::clone(self.driver());
        let read = move || driver.warm_up(id, from, max_bytes);
        if let Ok(Err(error)) = self.cold_reads(volume).run(read).await {
            tracing::debug!(%error, "records could not be brought into memory");
        }
    }

    /// Finds an offset by its place or time. `None`: no record is that new.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub async fn find_offset(
        &self,
        id: TopicPartition,
        epoch: Option<LeaderEpoch>,
        stable_only: bool,
        query: OffsetQuery,
    ) -> Result<Option<OffsetAnswer>, FetchRefusal> {
        let mut finding = self.driver().find_offset(id, epoch, stable_only, query)?;
        loop {
            let search = match finding {
                Finding::Found(answer) => return Ok(answer),
                Finding::Search(search) => search,
            };
            // A request may ask for thousands.
            tokio::task::consume_budget().await;
            let (search, searched) = self.search(search).await?;
            finding = self.driver().conclude(search, searched)?;
        }
    }

    async fn search(
        &self,
        mut search: Search,
    ) -> Result<(Search, Result<(), FetchRefusal>), FetchRefusal> {
        loop {
            let mut step = search.advance(Patience::Hasty(HASTY_BYTES));
            if matches!(step, Err(FetchRefusal::NotResident)) {
                let volume = self.cold_reads(search.volume());
                let read = move || {
                    let step = search.advance(Patience::Patient);
                    (search, step)
                };
                (search, step) = volume.run(read).await.map_err(|_| stopping())?;
            }
            let looked = match step {
                Ok(TimeStep::Done) => return Ok((search, Ok(()))),
                Ok(TimeStep::Look) => {
                    let looked = look_here(self.plain_memory(), &mut search);
                    match looked {
                        Ok(false) => {
                            let looked;
                            (search, looked) = self.look_apart(search).await?;
                            looked
                        }
                        looked => looked,
                    }
                }
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = looked {
                return Ok((search, Err(refusal)));
            }
        }
    }

    /// Looks at a batch in the memory for large ones.
    async fn look_apart(
        &self,
        mut search: Search,
    ) -> Result<(Search, Result<bool, FetchRefusal>), FetchRefusal> {
        let memory = Arc::clone(self.plain_memory());
        let look = async move {
            let mut turn = memory.turn().await;
            let look = move || {
                let looked = search.look(LOOKUP_PLAIN_BYTES_MAX, turn.scratch());
                (search, looked)
            };
            tokio::task::spawn_blocking(look).await
        };
        let looked = tokio::spawn(look).await.map_err(|_| stopping())?;
        looked.map_err(|_| stopping())
    }
}

/// Looks at a batch in a worker, if it is small. `false`: it is not.
fn look_here(
    memory: &PlainMemory,
    search: &mut TimeSearch<NodeDisk>,
) -> Result<bool, FetchRefusal> {
    if HASTY_BYTES < search.batch_bytes() as u64 {
        return Ok(false);
    }
    memory.look_small(|scratch, plain_bytes_max| search.look(plain_bytes_max, scratch))
}
