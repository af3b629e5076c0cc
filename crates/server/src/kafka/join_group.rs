//! JoinGroup: take part in the next generation of a group. Waits for the other members.

use std::sync::Arc;
use std::time::Duration;

use towpath_coordinator::groups::{self, Joined, Reply, Request};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};

use super::{Handled, Incoming, errors};
use crate::node::{Node, random_uuid};

/// From this version on a new member gets its id before it joins (KIP-394).
const ID_BEFORE_JOIN_SINCE: i16 = 4;
/// From this version on a protocol name may be null.
const NULLABLE_SINCE: i16 = 7;
/// From this version on a leader can be told to skip the assignment (KIP-814).
const SKIP_SINCE: i16 = 9;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: JoinGroupRequest<'_> = incoming.decode()?;
    let join = to_join(incoming, &request);
    match node.ask_group_creating(request.group_id, Request::Join(join)).await {
        Ok(Reply::Join(Ok(joined))) => answer(incoming, &joined),
        Ok(Reply::Join(Err(refused))) => {
            refuse(incoming, errors::of_group_refusal(refused.refusal), &refused.member_id)
        }
        Ok(_) => refuse(incoming, ErrorCode::UnknownServerError, request.member_id),
        Err(unavailable) => {
            let error = errors::of_unavailable_coordinator(unavailable);
            refuse(incoming, error, request.member_id)
        }
    }
}

fn milliseconds(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn to_join(incoming: &Incoming, request: &JoinGroupRequest<'_>) -> groups::Join {
    let session_timeout = milliseconds(request.session_timeout_ms);
    let has_rebalance_timeout = 1 <= incoming.version;
    groups::Join {
        group: request.group_id.into(),
        member_id: request.member_id.into(),
        group_instance_id: request.group_instance_id.map(Arc::from),
        client_id: incoming.client_id().unwrap_or_default().into(),
        client_host: incoming.peer.host().into(),
        session_timeout,
        rebalance_timeout: if has_rebalance_timeout {
            milliseconds(request.rebalance_timeout_ms)
        } else {
            session_timeout
        },
        protocol_type: request.protocol_type.into(),
        protocols: request
            .protocols
            .iter()
            .map(|protocol| (protocol.name.into(), protocol.metadata.into()))
            .collect(),
        requires_known_member_id: ID_BEFORE_JOIN_SINCE <= incoming.version,
        supports_skipping_assignment: SKIP_SINCE <= incoming.version,
        reason: request.reason.map(Arc::from),
        new_member_suffix: random_uuid(),
    }
}

fn answer(incoming: &Incoming, joined: &Joined) -> Handled {
    incoming.answer(&JoinGroupResponse {
        generation_id: joined.generation.0,
        protocol_type: joined.protocol_type.as_deref(),
        protocol_name: name_for(incoming.version, joined.protocol.as_deref()),
        leader: &joined.leader,
        skip_assignment: joined.skip_assignment,
        member_id: &joined.member_id,
        members: joined
            .members
            .iter()
            .map(|member| JoinGroupResponseMember {
                member_id: &member.member_id,
                group_instance_id: member.group_instance_id.as_deref(),
                metadata: &member.metadata,
            })
            .collect(),
        ..Default::default()
    })
}

fn refuse(incoming: &Incoming, error: ErrorCode, member_id: &str) -> Handled {
    incoming.answer(&JoinGroupResponse {
        error_code: error.into(),
        generation_id: -1,
        protocol_name: name_for(incoming.version, None),
        member_id,
        ..Default::default()
    })
}

fn name_for(version: i16, name: Option<&str>) -> Option<&str> {
    if version < NULLABLE_SINCE { Some(name.unwrap_or_default()) } else { name }
}
