//! DeleteGroups: forget groups without members, with their offsets.

use std::collections::BTreeSet;

use towpath_coordinator::groups::{Reply, Request};
use towpath_driver::NotCoordinator;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};

use super::{Handled, Incoming, errors};
use crate::node::{Node, Unavailable};

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DeleteGroupsRequest<'_> = incoming.decode()?;
    let groups: BTreeSet<&str> = request.groups_names.iter().copied().collect();
    let mut results = Vec::with_capacity(groups.len());
    for group in groups {
        let error = match node.ask_group(group, Request::Delete { group: group.into() }).await {
            Ok(Reply::Delete(Ok(()))) => ErrorCode::None,
            Ok(Reply::Delete(Err(refusal))) => errors::of_group_refusal(refusal),
            Ok(_) => ErrorCode::UnknownServerError,
            Err(Unavailable::NotCoordinator(NotCoordinator::NoTopic)) => ErrorCode::GroupIdNotFound,
            Err(unavailable) => errors::of_unavailable_coordinator(unavailable),
        };
        results.push(DeletableGroupResult {
            group_id: group,
            error_code: error.into(),
            error_message: None,
        });
    }
    incoming.answer(&DeleteGroupsResponse { results, ..Default::default() })
}
