//! ListGroups: all groups that this broker coordinates.

use std::sync::Arc;

use towpath_coordinator::groups::{GROUP_TYPE, Reply, Request};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{ListGroupsRequest, ListGroupsResponse, ListedGroup};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: ListGroupsRequest<'_> = incoming.decode()?;
    let texts = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect::<Vec<_>>();
    let (states, types) = (texts(&request.states_filter), texts(&request.types_filter));
    let (mut listings, mut error) = (Vec::new(), ErrorCode::None);
    for place in node.driver().group_places() {
        let list = Request::List { states: states.clone(), types: types.clone() };
        match node.ask_groups_at(place, list).await {
            Ok(Reply::List(groups)) => listings.extend(groups),
            Ok(_) => error = ErrorCode::UnknownServerError,
            Err(unavailable) => error = errors::of_unavailable_coordinator(unavailable),
        }
    }
    listings.sort_by(|a, b| a.group.cmp(&b.group));
    let groups = listings.iter().map(|listing| ListedGroup {
        group_id: &listing.group,
        protocol_type: &listing.protocol_type,
        group_state: listing.state.as_str(),
        group_type: GROUP_TYPE,
    });
    incoming.answer(&ListGroupsResponse {
        error_code: error.into(),
        groups: groups.collect(),
        ..Default::default()
    })
}
