//! Every configuration property, once: name, prose, default, bounds, whether it is honoured.
//!
//! `DescribeConfigs`, validation, `--help` and the reference page are made from these entries.
//! Two stages: what an operator wrote is checked against the registry ([`Property::check`]), then
//! the crates get plain structs ([`TopicConfig`], [`BrokerConfig`]) and read no text any more.
//!
//! The names, types and defaults are Kafka's (4.4), because its tools set and read them; the prose
//! is ours. The surprise: a property that we do not honour is still here. It can be described, and
//! set to its default, and any other value is refused by name instead of being quietly ignored.

mod broker_config;
mod broker_table;
mod group_table;
mod property;
mod topic_config;
mod topic_table;

pub use broker_config::{BrokerConfig, DiskShare};
pub use property::{Change, Check, Honoured, InvalidValue, Kind, Property, Unit, elements};
pub use topic_config::{
    CleanupPolicy, CompressionType, LimitPolicy, QueueConfig, RetentionGuard, TimestampSource,
    TopicConfig,
};

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

/// What topics can be given, by name in ascending order.
#[must_use]
pub fn topics() -> &'static [Property] {
    topic_table::TOPIC
}

/// What brokers can be given, by name in ascending order.
#[must_use]
pub fn brokers() -> &'static [Property] {
    broker_table::BROKER
}

/// What groups can be given, by name in ascending order.
#[must_use]
pub fn groups() -> &'static [Property] {
    group_table::GROUP
}

/// The topic property of this name.
#[must_use]
pub fn topic(name: &str) -> Option<&'static Property> {
    find(topics(), name)
}

/// The broker property of this name.
#[must_use]
pub fn broker(name: &str) -> Option<&'static Property> {
    find(brokers(), name)
}

/// The group property of this name.
#[must_use]
pub fn group(name: &str) -> Option<&'static Property> {
    find(groups(), name)
}

fn find(table: &'static [Property], name: &str) -> Option<&'static Property> {
    table.binary_search_by(|property| property.name.cmp(name)).ok().map(|at| &table[at])
}

#[cfg(test)]
mod tests;
