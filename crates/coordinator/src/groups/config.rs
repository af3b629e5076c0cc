//! What the operator (or the edge) decided about groups; already checked.

use std::time::Duration;

/// The longest group id, member id, instance id, client id, host, protocol name or protocol type,
/// in bytes. Kafka allows 32,767; nobody needs that, and a generated member id must still fit.
pub const NAME_BYTES_MAX: usize = 8_192;

/// Settings of [`super::Groups`]. There are no defaults here: they are the configuration's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupsConfig {
    /// `group.initial.rebalance.delay.ms`: how long a group that was empty waits for more members.
    pub initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max: Duration,
    /// `group.max.size`: most members of one group, and most new ones that hold an unused id.
    pub group_members_max: usize,
    /// Most bytes of protocol metadata of one group's members together.
    pub group_metadata_bytes_max: usize,
    /// Most groups in one partition of the internal topic.
    pub groups_max: usize,
    /// `offset.metadata.max.bytes`, counted as Kafka counts it: in UTF-16 units.
    pub offset_metadata_max: usize,
    /// `offsets.retention.minutes`: how long offsets outlive their group's last member; `None`
    /// keeps them as long as their topic.
    pub offsets_retention: Option<Duration>,
    /// `offsets.retention.check.interval.ms`: how often expired offsets and dead groups are
    /// looked for.
    pub offsets_check_interval: Duration,
    /// Largest record that the internal topic takes.
    pub record_bytes_max: usize,
}

/// How long a new member may wait in its first join before it counts as gone. Its client cannot
/// heartbeat yet, and may have been restarted; Kafka's constant.
pub(super) const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(300);
