//! LeaveGroup: members go without waiting for their session to run out.

use std::sync::Arc;

use towpath_coordinator::groups::{self, Leaving, Left, Reply, Request};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};

use super::{Handled, Incoming, errors};
use crate::node::Node;

/// From this version on several members can leave at once (KIP-345).
const BATCH_SINCE: i16 = 3;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: LeaveGroupRequest<'_> = incoming.decode()?;
    let members = if incoming.version < BATCH_SINCE {
        let member_id = request.member_id.into();
        vec![Leaving { member_id, group_instance_id: None, reason: None }]
    } else {
        let members = request.members.iter().map(|member| Leaving {
            member_id: member.member_id.into(),
            group_instance_id: member.group_instance_id.map(Arc::from),
            reason: member.reason.map(Arc::from),
        });
        members.collect()
    };
    let leave = groups::Leave { group: request.group_id.into(), members };
    match node.ask_group(request.group_id, Request::Leave(leave)).await {
        Ok(Reply::Leave(Ok(left))) => answer(incoming, &left),
        Ok(Reply::Leave(Err(refusal))) => refuse(incoming, errors::of_group_refusal(refusal)),
        Ok(_) => refuse(incoming, ErrorCode::UnknownServerError),
        Err(unavailable) => refuse(incoming, errors::of_unavailable_coordinator(unavailable)),
    }
}

fn code(left: &Left) -> ErrorCode {
    left.result.map_or_else(errors::of_group_refusal, |()| ErrorCode::None)
}

fn answer(incoming: &Incoming, left: &[Left]) -> Handled {
    if incoming.version < BATCH_SINCE {
        return refuse(incoming, left.first().map_or(ErrorCode::None, code));
    }
    let members = left.iter().map(|member| MemberResponse {
        member_id: &member.member_id,
        group_instance_id: member.group_instance_id.as_deref(),
        error_code: code(member).into(),
    });
    incoming.answer(&LeaveGroupResponse { members: members.collect(), ..Default::default() })
}

fn refuse(incoming: &Incoming, error: ErrorCode) -> Handled {
    incoming.answer(&LeaveGroupResponse { error_code: error.into(), ..Default::default() })
}
