//! InitProducerId: an id for an idempotent producer (KIP-98). Transactional ids are refused.

use towpath_metadata::{Reply, Request};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: InitProducerIdRequest<'_> = incoming.decode()?;
    match request.transactional_id {
        None => {}
        Some("") => return refuse(incoming, ErrorCode::InvalidRequest),
        // Transactions are not served yet; this is the code that every client reports at once.
        Some(_) => return refuse(incoming, ErrorCode::TransactionalIdAuthorizationFailed),
    }
    if (request.producer_id < 0) != (request.producer_epoch < 0) {
        return refuse(incoming, ErrorCode::InvalidRequest);
    }
    match node.ask_metadata(Request::AllocateProducerId).await {
        Ok(Reply::AllocatedProducerId(id)) => incoming.answer(&InitProducerIdResponse {
            producer_id: id.0,
            producer_epoch: 0,
            ..Default::default()
        }),
        Ok(_) => refuse(incoming, ErrorCode::UnknownServerError),
        Err(unavailable) => refuse(incoming, errors::of_unavailable_coordinator(unavailable)),
    }
}

fn refuse(incoming: &Incoming, error: ErrorCode) -> Handled {
    incoming.answer(&InitProducerIdResponse {
        error_code: error.into(),
        producer_epoch: -1,
        ..Default::default()
    })
}
