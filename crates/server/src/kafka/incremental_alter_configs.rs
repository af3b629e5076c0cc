//! IncrementalAlterConfigs: changes single properties of a resource (KIP-339).

use towpath_metadata::{ConfigChange, ConfigOperation, Request, Resource, ResourceKind};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse, IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
};

use super::alter_configs::outcomes;
use super::{Handled, Incoming};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: IncrementalAlterConfigsRequest<'_> = incoming.decode()?;
    // A resource with an operation that does not exist is refused here; the others go on.
    let changes: Vec<_> = request.resources.iter().map(changes).collect();
    let resources: Vec<_> = request
        .resources
        .iter()
        .zip(&changes)
        .filter_map(|(resource, changes)| {
            let kind = ResourceKind::from_wire(resource.resource_type);
            let resource = Resource { kind, name: resource.resource_name.to_owned() };
            Some((resource, changes.clone()?))
        })
        .collect();
    let asked = resources.len();
    let alter = Request::AlterConfigs { resources, validate_only: request.validate_only };
    let mut answered = outcomes(node.ask_metadata(alter).await, asked).into_iter();
    let outcomes: Vec<_> = changes
        .iter()
        .map(|changes| match changes {
            Some(_) => answered.next().unwrap_or((ErrorCode::UnknownServerError, None)),
            None => (ErrorCode::UnknownServerError, Some("Unknown operation.".to_owned())),
        })
        .collect();
    let responses = request.resources.iter().zip(&outcomes).map(|(resource, (error, message))| {
        IncrementalAlterConfigsResponseAlterConfigsResourceResponse {
            error_code: (*error).into(),
            error_message: message.as_deref(),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        }
    });
    let responses = responses.collect();
    incoming.answer(&IncrementalAlterConfigsResponse { responses, ..Default::default() })
}

fn changes(
    resource: &IncrementalAlterConfigsRequestAlterConfigsResource<'_>,
) -> Option<Vec<ConfigChange>> {
    let change =
        |config: &towpath_protocol::messages::IncrementalAlterConfigsRequestAlterableConfig<'_>| {
            Some(ConfigChange {
                name: config.name.to_owned(),
                operation: ConfigOperation::from_wire(config.config_operation)?,
                value: config.value.map(str::to_owned),
            })
        };
    resource.configs.iter().map(change).collect()
}
