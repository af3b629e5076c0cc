//! DescribeCluster: its brokers and who decides (KIP-700).

use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::brokers::Brokers;
use super::metadata::ALL_CLUSTER_OPERATIONS;
use super::{Handled, Incoming};
use crate::node::Node;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DescribeClusterRequest = incoming.decode()?;
    let refused = match request.endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some((
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of \
             type CONTROLLER"
                .to_owned(),
        )),
        other => {
            Some((ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}")))
        }
    };
    if let Some((error, message)) = refused {
        return incoming.answer(&DescribeClusterResponse {
            error_code: error.into(),
            error_message: Some(&message),
            ..Default::default()
        });
    }
    // Not while the image is held: whoever changes it holds the quorum.
    let controller = node.driver().controller();
    let brokers = Brokers::of(node, &incoming.peer, &node.driver().image());
    let listed = brokers.all().filter(|(_, b)| request.include_fenced_brokers || !b.is_fenced);
    let listed = listed.map(|(id, broker)| DescribeClusterBroker {
        broker_id: id.0,
        host: &broker.host,
        port: broker.port,
        rack: broker.rack.as_deref(),
        is_fenced: broker.is_fenced,
    });
    incoming.answer(&DescribeClusterResponse {
        error_message: None,
        cluster_id: &node.driver().identity().cluster_id,
        controller_id: brokers.number(controller),
        brokers: listed.collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            ALL_CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..Default::default()
    })
}
