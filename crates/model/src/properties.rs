//! Every configuration property, once: name, prose, default, bounds, whether it is honoured.
//!
//! `DescribeConfigs`, validation, `--help` and the reference page are made from these entries.

/// When a record counts as durable on a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// On disk before it is acknowledged.
    #[default]
    Synced,
    /// In memory of the in-sync replicas, flushed in the background: a power cut of all of them at
    /// once loses the newest records.
    Relaxed,
}
