//! SyncGroup: hand in the assignment (the leader) and fetch one's share of it.

use std::sync::Arc;

use towpath_coordinator::groups::{self, Reply, Request};
use towpath_model::Generation;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::{Handled, Incoming, errors};
use crate::node::Node;

/// From this version on members say which protocol they believe in (KIP-559).
const PROTOCOL_SINCE: i16 = 5;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: SyncGroupRequest<'_> = incoming.decode()?;
    if PROTOCOL_SINCE <= incoming.version
        && (request.protocol_type.is_none() || request.protocol_name.is_none())
    {
        return refuse(incoming, ErrorCode::InconsistentGroupProtocol);
    }
    let sync = groups::Sync {
        group: request.group_id.into(),
        generation: Generation(request.generation_id),
        member_id: request.member_id.into(),
        group_instance_id: request.group_instance_id.map(Arc::from),
        protocol_type: request.protocol_type.map(Arc::from),
        protocol: request.protocol_name.map(Arc::from),
        assignments: request
            .assignments
            .iter()
            .map(|share| (share.member_id.into(), share.assignment.into()))
            .collect(),
    };
    match node.ask_group_creating(request.group_id, Request::Sync(sync)).await {
        Ok(Reply::Sync(Ok(synced))) => incoming.answer(&SyncGroupResponse {
            protocol_type: synced.protocol_type.as_deref(),
            protocol_name: synced.protocol.as_deref(),
            assignment: &synced.assignment,
            ..Default::default()
        }),
        Ok(Reply::Sync(Err(refusal))) => refuse(incoming, errors::of_group_refusal(refusal)),
        Ok(_) => refuse(incoming, ErrorCode::UnknownServerError),
        Err(unavailable) => refuse(incoming, errors::of_unavailable_coordinator(unavailable)),
    }
}

fn refuse(incoming: &Incoming, error: ErrorCode) -> Handled {
    incoming.answer(&SyncGroupResponse { error_code: error.into(), ..Default::default() })
}
