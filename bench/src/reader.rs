//! Readers that fetch a partition from its start as fast as they get it and throw it away.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use crate::wire::{Connection, fetch_frame, fetched};

/// One partition to read.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) address: SocketAddr,
    pub(crate) topic: String,
    pub(crate) partitions: std::ops::Range<i32>,
    /// Where to stop in each partition.
    pub(crate) end_offset: i64,
    /// Bytes per fetch.
    pub(crate) fetch_bytes: i32,
}

/// Lets so many readers read the same; gives back the bytes of records that they got together.
pub(crate) fn read(readers: usize, reading: &Reading) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut running = JoinSet::new();
        for _ in 0..readers {
            running.spawn(reading.clone().run());
        }
        let mut bytes = 0;
        while let Some(ended) = running.join_next().await {
            bytes += ended.context("a reader panicked")??;
        }
        Ok(bytes)
    })
}

impl Reading {
    async fn run(self) -> Result<u64> {
        let mut connection = Connection::open(self.address).await?;
        let mut bytes = 0;
        for partition in self.partitions.clone() {
            let mut offset = 0;
            while offset < self.end_offset {
                let frame = fetch_frame(&self.topic, partition, offset, self.fetch_bytes)?;
                connection.send(&frame).await?;
                let fetched = fetched(connection.receive().await?, offset)?;
                ensure!(offset < fetched.next_offset, "nothing to read at {offset}");
                bytes += fetched.records.len() as u64;
                offset = fetched.next_offset;
            }
        }
        Ok(bytes)
    }
}
