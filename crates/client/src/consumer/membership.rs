//! One member's part in the classic group protocol: join, sync, heartbeat, leave.
//!
//! ```text
//!   JoinGroup ──▶ (the leader assigns) ──▶ SyncGroup ──▶ heartbeats … ──▶ rebalance ──▶ JoinGroup
//! ```
//!
//! Joining runs in a task of its own, so that a caller may stop waiting for it and come back; when it
//! succeeds it starts the heartbeats, which live until the next join, a loss, or the consumer's end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupRequestProtocol,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, SyncGroupRequest,
    SyncGroupRequestAssignment, SyncGroupResponse,
};

use super::assignor::{Assignments, Assignor};
use super::group_config::GroupConfig;
use super::subscription::{
    decode_assignment, decode_subscription, encode_assignment, encode_subscription,
};
use crate::cluster::{Cluster, Lane};
use crate::error::{Error, Result};
use crate::record::TopicPartition;

const PROTOCOL_TYPE: &str = "consumer";

/// A place in a group.
#[derive(Debug, Clone, Default)]
pub(super) struct Seat {
    /// Empty until the coordinator gave one.
    pub(super) member_id: String,
    /// −1 until the first round is complete.
    pub(super) generation: i32,
}

/// What a round brought.
pub(super) struct Joined {
    pub(super) seat: Seat,
    pub(super) assignor: Assignor,
    pub(super) assignment: Vec<TopicPartition>,
    /// Whether an earlier place was lost on the way: what was owned under it belongs to others.
    pub(super) has_lost_place: bool,
    /// The partition counts the assignment rests on, where this member led the round.
    pub(super) counts: Option<BTreeMap<Arc<str>, i32>>,
    pub(super) heartbeats: Task,
}

/// A task that ends with its owner.
pub(super) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What heartbeats and polls tell each other.
pub(super) struct Pulse {
    state: Mutex<PulseState>,
    pub(super) news: Notify,
}

struct PulseState {
    /// When the last poll ended; `None` during one.
    last_poll: Option<Instant>,
    standing: Standing,
}

/// How the member stands in its group.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    Member,
    /// The group rebalances: join again.
    Rebalancing,
    /// The place is gone: join as somebody new.
    Lost(String),
    /// Joining again cannot help.
    Failed(Error),
}

impl Pulse {
    pub(super) fn new() -> Pulse {
        let state = PulseState { last_poll: Some(Instant::now()), standing: Standing::Rebalancing };
        Pulse { state: Mutex::new(state), news: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, PulseState> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    pub(super) fn standing(&self) -> Standing {
        self.state().standing.clone()
    }

    pub(super) fn set_standing(&self, standing: Standing) {
        self.state().standing = standing;
        self.news.notify_one();
    }

    pub(super) fn poll_begins(&self) {
        self.state().last_poll = None;
    }

    pub(super) fn poll_ends(&self) {
        self.state().last_poll = Some(Instant::now());
    }

    fn idle_for(&self) -> Duration {
        self.state().last_poll.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

/// Takes part in one round, however many attempts that needs.
pub(super) async fn join(
    cluster: Cluster,
    config: Arc<GroupConfig>,
    mut seat: Seat,
    mut owned: Vec<TopicPartition>,
    pulse: Arc<Pulse>,
) -> Result<Joined> {
    let mut has_lost_place = false;
    let mut failures = 0;
    loop {
        let error = match join_once(&cluster, &config, &mut seat, &owned).await {
            Ok(round) => {
                let heart = heartbeats(cluster, config, seat.clone(), pulse.clone());
                pulse.set_standing(Standing::Member);
                return Ok(Joined {
                    seat,
                    assignor: round.assignor,
                    assignment: round.assignment,
                    has_lost_place,
                    counts: round.counts,
                    heartbeats: Task(tokio::spawn(heart).abort_handle()),
                });
            }
            Err(error) => error,
        };
        cluster.forget_coordinator_on(&config.group, &error);
        match error.code() {
            Some(ErrorCode::MemberIdRequired) => continue,
            Some(ErrorCode::RebalanceInProgress) => continue,
            Some(ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration) => {
                has_lost_place = true;
                owned.clear();
                seat = Seat { generation: -1, ..Seat::default() };
            }
            _ if error.is_retriable() => {}
            _ => return Err(error),
        }
        failures += 1;
        tracing::debug!(group = config.group, %error, "joining failed, retrying");
        sleep(cluster.config().retry_backoff.wait(failures)).await;
    }
}

struct Round {
    assignor: Assignor,
    assignment: Vec<TopicPartition>,
    counts: Option<BTreeMap<Arc<str>, i32>>,
}

async fn join_once(
    cluster: &Cluster,
    config: &GroupConfig,
    seat: &mut Seat,
    owned: &[TopicPartition],
) -> Result<Round> {
    let invalid = |error: towpath_protocol::EncodeError| Error::InvalidArgument(error.to_string());
    let metadata = encode_subscription(&config.topics, owned, seat.generation).map_err(invalid)?;
    let member_id = seat.member_id.clone();
    let request = JoinGroupRequest {
        group_id: &config.group,
        session_timeout_ms: millis(config.session_timeout),
        rebalance_timeout_ms: millis(config.poll_interval_max),
        member_id: &member_id,
        group_instance_id: config.instance_id.as_deref(),
        protocol_type: PROTOCOL_TYPE,
        protocols: config
            .assignors
            .iter()
            .map(|assignor| JoinGroupRequestProtocol { name: assignor.name(), metadata: &metadata })
            .collect(),
        ..Default::default()
    };
    let coordinator = cluster.coordinator(&config.group).await?;
    let connection = cluster.broker(coordinator, Lane::Join).await?;
    let version = connection.version_of::<JoinGroupRequest<'_>>()?;
    // The broker parks the request until every member is back, at most for the rebalance timeout.
    let patience = config.poll_interval_max + cluster.config().request_timeout;
    let answer = connection.submit(version, &request, patience).await?.answer().await?;
    let joined: JoinGroupResponse<'_> = answer.read()?;
    if ErrorCode::from(joined.error_code) == ErrorCode::MemberIdRequired {
        joined.member_id.clone_into(&mut seat.member_id);
    }
    check(&config.group, "joining", joined.error_code)?;
    joined.member_id.clone_into(&mut seat.member_id);
    seat.generation = joined.generation_id;

    let name = joined.protocol_name.unwrap_or_default();
    let assignor = Assignor::from_name(name).ok_or_else(|| Error::Malformed {
        address: connection.address().to_owned(),
        cause: format!("the group chose the assignor {name:?}, which this member did not offer"),
    })?;
    let is_leader = joined.leader == seat.member_id && !joined.skip_assignment;
    let (assignments, counts) = if is_leader {
        let (assignments, counts) = lead(cluster, &joined, assignor).await?;
        (assignments, Some(counts))
    } else {
        (Assignments::new(), None)
    };
    let encoded: Vec<(Arc<str>, bytes::Bytes)> = assignments
        .into_iter()
        .map(|(member, partitions)| Ok((member, encode_assignment(&partitions)?)))
        .collect::<Result<_, _>>()
        .map_err(invalid)?;
    let request = SyncGroupRequest {
        group_id: &config.group,
        generation_id: seat.generation,
        member_id: &seat.member_id,
        group_instance_id: config.instance_id.as_deref(),
        protocol_type: Some(PROTOCOL_TYPE),
        protocol_name: Some(name),
        assignments: encoded
            .iter()
            .map(|(member_id, assignment)| SyncGroupRequestAssignment { member_id, assignment })
            .collect(),
    };
    let version = connection.version_of::<SyncGroupRequest<'_>>()?;
    let answer = connection.submit(version, &request, patience).await?.answer().await?;
    let synced: SyncGroupResponse<'_> = answer.read()?;
    check(&config.group, "syncing with", synced.error_code)?;
    let assignment = decode_assignment(synced.assignment).map_err(|cause| Error::Malformed {
        address: connection.address().to_owned(),
        cause: format!("the assignment of group {:?}: {cause}", config.group),
    })?;
    Ok(Round { assignor, assignment, counts })
}

/// The leader's work: who gets what.
async fn lead(
    cluster: &Cluster,
    joined: &JoinGroupResponse<'_>,
    assignor: Assignor,
) -> Result<(Assignments, BTreeMap<Arc<str>, i32>)> {
    let members = joined
        .members
        .iter()
        .map(|m| decode_subscription(m.member_id, m.group_instance_id, m.metadata))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|cause| Error::Malformed {
            address: "another member of the group".to_owned(),
            cause: cause.to_string(),
        })?;
    let topics: BTreeSet<Arc<str>> = members.iter().flat_map(|m| m.topics.clone()).collect();
    let counts = partition_counts(cluster, &topics).await?;
    Ok((assignor.assign(&members, &counts), counts))
}

/// How many partitions each topic has that exists, asked anew.
pub(super) async fn partition_counts(
    cluster: &Cluster,
    topics: &BTreeSet<Arc<str>>,
) -> Result<BTreeMap<Arc<str>, i32>> {
    let names: Vec<Arc<str>> = topics.iter().cloned().collect();
    cluster.refresh(&names).await?;
    let image = cluster.image();
    let count = |name: &Arc<str>| {
        let partitions = image.topics.get(name)?.partitions.len();
        Some((name.clone(), i32::try_from(partitions).ok()?))
    };
    Ok(names.iter().filter_map(count).collect())
}

/// Beats until the place is lost. The application proves that it lives by polling: when it does
/// not for too long, the member leaves by itself (KIP-62).
async fn heartbeats(cluster: Cluster, config: Arc<GroupConfig>, seat: Seat, pulse: Arc<Pulse>) {
    loop {
        sleep(config.heartbeat_interval).await;
        if config.poll_interval_max < pulse.idle_for() {
            let reason = format!("it did not poll for more than {:?}", config.poll_interval_max);
            pulse.set_standing(Standing::Lost(reason));
            if let Err(error) = leave(&cluster, &config, &seat, "poll interval exceeded").await {
                tracing::debug!(%error, "leaving failed; the session will expire");
            }
            return;
        }
        let Err(error) = beat(&cluster, &config, &seat).await else { continue };
        if cluster.forget_coordinator_on(&config.group, &error) {
            continue;
        }
        match error.code() {
            Some(ErrorCode::RebalanceInProgress) => pulse.set_standing(Standing::Rebalancing),
            Some(code @ (ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration)) => {
                let reason = format!("the coordinator removed it ({})", code.name());
                return pulse.set_standing(Standing::Lost(reason));
            }
            _ if error.is_retriable() => {}
            _ => return pulse.set_standing(Standing::Failed(error)),
        }
    }
}

async fn beat(cluster: &Cluster, config: &GroupConfig, seat: &Seat) -> Result<()> {
    let request = HeartbeatRequest {
        group_id: &config.group,
        generation_id: seat.generation,
        member_id: &seat.member_id,
        group_instance_id: config.instance_id.as_deref(),
    };
    let coordinator = cluster.coordinator(&config.group).await?;
    let answer = cluster.call_broker(coordinator, Lane::Group, &request).await?;
    let response: HeartbeatResponse = answer.read()?;
    check(&config.group, "heartbeat to", response.error_code)
}

/// Gives the place up, so that others need not wait for the session to expire. Who was removed
/// meanwhile has left.
pub(super) async fn leave(
    cluster: &Cluster,
    config: &GroupConfig,
    seat: &Seat,
    reason: &str,
) -> Result<()> {
    let coordinator = cluster.coordinator(&config.group).await?;
    let connection = cluster.broker(coordinator, Lane::Group).await?;
    let version = connection.version_of::<LeaveGroupRequest<'_>>()?;
    // From version 3 on several members may leave at once, and from 5 on they may say why.
    let request = if version < 3 {
        LeaveGroupRequest {
            group_id: &config.group,
            member_id: &seat.member_id,
            ..Default::default()
        }
    } else {
        LeaveGroupRequest {
            group_id: &config.group,
            members: vec![MemberIdentity {
                member_id: &seat.member_id,
                group_instance_id: config.instance_id.as_deref(),
                reason: (5 <= version).then_some(reason),
            }],
            ..Default::default()
        }
    };
    let answer = connection.call_version(version, &request).await?;
    has_left(&config.group, &answer.read()?)
}

fn has_left(group: &str, response: &LeaveGroupResponse<'_>) -> Result<()> {
    let codes = response.members.iter().map(|member| member.error_code);
    [response.error_code]
        .into_iter()
        .chain(codes)
        .filter(|code| ErrorCode::from(*code) != ErrorCode::UnknownMemberId)
        .try_for_each(|code| check(group, "leaving", code))
}

fn check(group: &str, doing: &str, code: i16) -> Result<()> {
    let code = ErrorCode::from(code);
    if code.is_ok() {
        Ok(())
    } else {
        Err(Error::refused(format!("{doing} group {group:?}"), code, None))
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use towpath_protocol::messages::MemberResponse;

    use super::*;

    #[test]
    fn who_was_removed_from_a_group_has_left_it() {
        let left = |code: ErrorCode| {
            let member = MemberResponse { error_code: code.code(), ..Default::default() };
            let members = vec![member];
            has_left("g", &LeaveGroupResponse { members, ..Default::default() })
        };
        assert!(left(ErrorCode::None).is_ok());
        assert!(left(ErrorCode::UnknownMemberId).is_ok());
        assert!(left(ErrorCode::NotCoordinator).is_err());
    }
}
