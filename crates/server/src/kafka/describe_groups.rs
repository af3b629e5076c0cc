//! DescribeGroups: members, assignments and states.

use towpath_coordinator::groups::{Description, Reply, Request};
use towpath_driver::NotCoordinator;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};

use super::{Handled, Incoming, distinct, errors};
use crate::node::{Node, Unavailable};

/// From this version on a missing group is an error and not a dead group.
const NOT_FOUND_SINCE: i16 = 6;

/// What everybody may do to a group while there are no ACLs (READ, DESCRIBE, DELETE and the
/// configuration ones), as Kafka answers without an authorizer.
const ALL_GROUP_OPERATIONS: i32 = 3400;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DescribeGroupsRequest<'_> = incoming.decode()?;
    let mut described = Vec::with_capacity(request.groups.len());
    for group in distinct(&request.groups, |group| *group) {
        let describe = Request::Describe { group: (*group).into() };
        let answer = match node.ask_group(group, describe).await {
            Ok(Reply::Describe(description)) => Ok(description),
            Ok(_) => Err(ErrorCode::UnknownServerError),
            Err(Unavailable::NotCoordinator(NotCoordinator::NoTopic)) => Ok(None),
            Err(unavailable) => Err(errors::of_unavailable_coordinator(unavailable)),
        };
        let missing = format!("Group {group} not found.");
        described.push((*group, answer, missing));
    }
    let operations =
        if request.include_authorized_operations { ALL_GROUP_OPERATIONS } else { i32::MIN };
    let groups = described.iter().map(|(group, answer, missing)| {
        let described = match answer {
            Ok(Some(description)) => to_wire(description),
            Ok(None) => dead(incoming.version, group, missing),
            Err(error) => {
                let error_code = i16::from(*error);
                DescribedGroup { error_code, group_id: group, ..Default::default() }
            }
        };
        DescribedGroup { authorized_operations: operations, ..described }
    });
    incoming.answer(&DescribeGroupsResponse { groups: groups.collect(), ..Default::default() })
}

fn dead<'a>(version: i16, group: &'a str, missing: &'a str) -> DescribedGroup<'a> {
    let is_error = NOT_FOUND_SINCE <= version;
    DescribedGroup {
        error_code: if is_error { ErrorCode::GroupIdNotFound.into() } else { 0 },
        error_message: is_error.then_some(missing),
        group_id: group,
        group_state: "Dead",
        ..Default::default()
    }
}

fn to_wire(description: &Description) -> DescribedGroup<'_> {
    DescribedGroup {
        group_id: &description.group,
        group_state: description.state.as_str(),
        protocol_type: &description.protocol_type,
        protocol_data: &description.protocol,
        members: description
            .members
            .iter()
            .map(|member| DescribedGroupMember {
                member_id: &member.member_id,
                group_instance_id: member.group_instance_id.as_deref(),
                client_id: &member.client_id,
                client_host: &member.client_host,
                member_metadata: &member.metadata,
                member_assignment: &member.assignment,
            })
            .collect(),
        ..Default::default()
    }
}
