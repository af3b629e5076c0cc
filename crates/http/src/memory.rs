//! The memory that bodies and answers of all connections share.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::api_error::{ApiError, Code};
use crate::limits::{MEMORY_BYTES, MEMORY_WAIT_MAX};

/// Bytes that one permit stands for.
const PERMIT_BYTES: usize = 1024;

/// A ledger of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    permits: Arc<Semaphore>,
}

/// A request's share, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _permit: OwnedSemaphorePermit,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { permits: Arc::new(Semaphore::new(MEMORY_BYTES / PERMIT_BYTES)) }
    }

    /// Waits for room for `bytes`, for a bounded time.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Share, ApiError> {
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, MEMORY_BYTES / PERMIT_BYTES);
        let permits = u32::try_from(permits).expect("fewer permits than a u32 counts");
        let acquired = Arc::clone(&self.permits).acquire_many_owned(permits);
        match timeout(MEMORY_WAIT_MAX, acquired).await {
            Ok(permit) => Ok(Share { _permit: permit.expect("the ledger is never closed") }),
            Err(_) => Err(ApiError::new(
                Code::Overloaded,
                "requests of other clients hold all the memory that HTTP may use",
            )
            .with_help("try again with smaller bodies or fewer at once")),
        }
    }
}
