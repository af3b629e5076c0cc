//! AlterConfigs: replaces all properties of a resource. Kept for older clients.

use towpath_metadata::{Refusal, Reply, Request, Resource, ResourceKind};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResponseAlterConfigsResourceResponse,
};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: AlterConfigsRequest<'_> = incoming.decode()?;
    let resources = request.resources.iter().map(|resource| {
        let values = resource.configs.iter();
        let values = values.map(|c| (c.name.to_owned(), c.value.map(str::to_owned))).collect();
        let kind = ResourceKind::from_wire(resource.resource_type);
        (Resource { kind, name: resource.resource_name.to_owned() }, values)
    });
    let resources = resources.collect();
    let replace = Request::ReplaceConfigs { resources, validate_only: request.validate_only };
    let outcomes = outcomes(node.ask_metadata(replace).await, request.resources.len());
    let responses = request.resources.iter().zip(&outcomes).map(|(resource, (error, message))| {
        AlterConfigsResponseAlterConfigsResourceResponse {
            error_code: (*error).into(),
            error_message: message.as_deref(),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        }
    });
    let responses = responses.collect();
    incoming.answer(&AlterConfigsResponse { responses, ..Default::default() })
}

/// Code and message for each of `count` resources.
pub(super) fn outcomes(
    reply: Result<Reply, crate::node::Unavailable>,
    count: usize,
) -> Vec<(ErrorCode, Option<String>)> {
    let results: Vec<(Resource, Result<(), Refusal>)> = match reply {
        Ok(Reply::AlteredConfigs(results)) => results,
        Ok(_) => return vec![(ErrorCode::UnknownServerError, None); count],
        Err(unavailable) => {
            return vec![(errors::of_unavailable_controller(unavailable), None); count];
        }
    };
    let outcome = |result: Result<(), Refusal>| match result {
        Ok(()) => (ErrorCode::None, None),
        Err(refusal) => (errors::of_metadata_refusal(&refusal), Some(refusal.to_string())),
    };
    results.into_iter().map(|(_, result)| outcome(result)).collect()
}
