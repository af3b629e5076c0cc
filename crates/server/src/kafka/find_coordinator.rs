//! FindCoordinator: which broker holds a group.

use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};

use super::{Handled, Incoming, errors};
use crate::node::Node;

/// From this version on several keys can be asked (KIP-699).
const KEYS_SINCE: i16 = 4;
/// Key type of a consumer group.
const GROUP: i8 = 0;
/// Key type of a transactional id.
const TRANSACTION: i8 = 1;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: FindCoordinatorRequest<'_> = incoming.decode()?;
    let (error, message) = match request.key_type {
        GROUP => match node.ensure_offsets_topic().await {
            Ok(()) => (ErrorCode::None, ""),
            Err(unavailable) => (
                errors::of_unavailable_coordinator(unavailable),
                "The coordinator is not available.",
            ),
        },
        // Not "not available", which clients would ask again until their time is up.
        TRANSACTION => (
            ErrorCode::TransactionalIdAuthorizationFailed,
            "Transactions are not served by this version.",
        ),
        _ => (ErrorCode::InvalidRequest, "Only coordinators of groups (key type 0) are here."),
    };
    let (host, port) = incoming.peer.address_of(node);
    let (node_id, host, port) = if error == ErrorCode::None {
        (node.driver().broker_id().0, host.as_str(), port)
    } else {
        (-1, "", -1)
    };
    if incoming.version < KEYS_SINCE {
        let message = if error == ErrorCode::None { "NONE" } else { message };
        return incoming.answer(&FindCoordinatorResponse {
            error_code: error.into(),
            error_message: Some(message),
            node_id,
            host,
            port,
            ..Default::default()
        });
    }
    let coordinators = request.coordinator_keys.iter().map(|key| Coordinator {
        key,
        node_id,
        host,
        port,
        error_code: error.into(),
        error_message: Some(message),
    });
    incoming.answer(&FindCoordinatorResponse {
        coordinators: coordinators.collect(),
        ..Default::default()
    })
}
