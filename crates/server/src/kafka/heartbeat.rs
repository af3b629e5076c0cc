//! Heartbeat: a member says that it lives, and hears whether the group is rebalancing.

use std::sync::Arc;

use towpath_coordinator::groups::{self, Reply, Request};
use towpath_model::Generation;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: HeartbeatRequest<'_> = incoming.decode()?;
    let heartbeat = groups::Heartbeat {
        group: request.group_id.into(),
        generation: Generation(request.generation_id),
        member_id: request.member_id.into(),
        group_instance_id: request.group_instance_id.map(Arc::from),
    };
    let error = match node.ask_group(request.group_id, Request::Heartbeat(heartbeat)).await {
        Ok(Reply::Heartbeat(Ok(()))) => ErrorCode::None,
        Ok(Reply::Heartbeat(Err(refusal))) => errors::of_group_refusal(refusal),
        Ok(_) => ErrorCode::UnknownServerError,
        Err(unavailable) => errors::of_unavailable_coordinator(unavailable),
    };
    incoming.answer(&HeartbeatResponse { error_code: error.into(), ..Default::default() })
}
