//! UnregisterBroker: a broker does not come back, and its number is free.

use towpath_metadata::{Reply, Request};
use towpath_model::BrokerId;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: UnregisterBrokerRequest = incoming.decode()?;
    let unregister = Request::UnregisterBroker(BrokerId(request.broker_id));
    let (error, message) = match node.ask_metadata(unregister).await {
        Ok(Reply::UnregisteredBroker(Ok(()))) => (ErrorCode::None, None),
        Ok(Reply::UnregisteredBroker(Err(refusal))) => {
            (errors::of_metadata_refusal(&refusal), Some(refusal.to_string()))
        }
        Ok(_) => (ErrorCode::UnknownServerError, None),
        Err(unavailable) => (errors::of_unavailable_controller(unavailable), None),
    };
    incoming.answer(&UnregisterBrokerResponse {
        error_code: error.into(),
        error_message: message.as_deref(),
        ..Default::default()
    })
}
