//! The memory that bodies and answers of all connections share.
//!
//! A body is charged as it arrives, whatever it declares: a few that are announced large and never
//! come would otherwise hold all of it.

use tokio::time::timeout;
use towpath_server::{Charge, Ledger};

use crate::api_error::{ApiError, Code};
use crate::limits::{MEMORY_BYTES, MEMORY_WAIT_MAX};

/// A ledger of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    ledger: Ledger,
}

/// A request's share, given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Share {
    charge: Charge,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { ledger: Ledger::new(MEMORY_BYTES) }
    }

    /// Waits for room for `bytes`, for a bounded time.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Share, ApiError> {
        let mut share = Share::default();
        self.cover(&mut share, bytes).await?;
        Ok(share)
    }

    /// Waits until `share` covers `bytes`, for a bounded time.
    pub(crate) async fn cover(&self, share: &mut Share, bytes: usize) -> Result<(), ApiError> {
        let covered = timeout(MEMORY_WAIT_MAX, self.ledger.cover(&mut share.charge, bytes)).await;
        covered.map_err(|_| {
            ApiError::new(
                Code::Overloaded,
                "requests of other clients hold all the memory that HTTP may use",
            )
            .with_help("try again with smaller bodies or fewer at once")
        })
    }
}
