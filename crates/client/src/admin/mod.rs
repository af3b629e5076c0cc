//! Administration: topics, configurations, groups and their offsets, stored bytes.
//!
//! One call is one thing asked of the cluster; errors name the thing. Nothing here is retried behind
//! the caller's back except where asking twice cannot do harm.

mod configs;
mod eligible;
mod groups;
mod log_dirs;
mod topics;

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_protocol::ErrorCode;

use crate::cluster::Cluster;
use crate::consumer::{FoundOffset, Isolation, OffsetSpec, list_offsets};
use crate::error::{Error, Result};
use crate::record::TopicPartition;

pub use configs::{ConfigChange, ConfigEntry, ConfigSource, Resource};
pub use groups::{GroupDescription, GroupListing, GroupMember};
pub use log_dirs::{LogDir, StoredPartition};
pub use topics::{CreatedTopic, NewTopic};

/// Administers one cluster.
#[derive(Clone)]
pub struct Admin {
    cluster: Cluster,
}

impl Admin {
    /// Administers this cluster.
    #[must_use]
    pub fn new(cluster: Cluster) -> Admin {
        Admin { cluster }
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Looks up one place per partition; a time after the last record finds nothing, and its
    /// partition is missing.
    pub async fn list_offsets(
        &self,
        wanted: &BTreeMap<TopicPartition, OffsetSpec>,
    ) -> Result<BTreeMap<TopicPartition, FoundOffset>> {
        list_offsets(&self.cluster, wanted, Isolation::ReadUncommitted).await
    }

    /// What the broker may spend on a change before it answers.
    fn timeout_ms(&self) -> i32 {
        let timeout = self.cluster.config().request_timeout.min(Duration::from_secs(30));
        i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
    }
}

/// The refusal that `code` is, if it is one.
fn check(doing: impl FnOnce() -> String, code: i16, message: Option<&str>) -> Result<()> {
    let code = ErrorCode::from(code);
    if code.is_ok() { Ok(()) } else { Err(Error::refused(doing(), code, message)) }
}

/// The one answer to one question.
fn only<T>(answers: Vec<T>, doing: impl FnOnce() -> String) -> Result<T> {
    answers.into_iter().next().ok_or_else(|| Error::Malformed {
        address: "the broker".to_owned(),
        cause: format!("{}: the answer is empty", doing()),
    })
}
