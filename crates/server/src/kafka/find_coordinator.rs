//! FindCoordinator: which broker holds a group.

use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};

use super::brokers::{Brokers, Endpoint};
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
            Err(unavailable) => (errors::of_unavailable_coordinator(unavailable), UNAVAILABLE),
        },
        // Not "not available", which clients would ask again until their time is up.
        TRANSACTION => (
            ErrorCode::TransactionalIdAuthorizationFailed,
            "Transactions are not served by this version.",
        ),
        _ => (ErrorCode::InvalidRequest, "Only coordinators of groups (key type 0) are here."),
    };
    let brokers = Brokers::of(node, &incoming.peer, &node.driver().image());
    if incoming.version < KEYS_SINCE {
        let found = found(node, &brokers, request.key, error, message);
        let text = if found.error_code == 0 { Some("NONE") } else { found.error_message };
        return incoming.answer(&FindCoordinatorResponse {
            error_code: found.error_code,
            error_message: text,
            node_id: found.node_id,
            host: found.host,
            port: found.port,
            ..Default::default()
        });
    }
    let keys = request.coordinator_keys.iter();
    let coordinators = keys.map(|key| found(node, &brokers, key, error, message));
    incoming.answer(&FindCoordinatorResponse {
        coordinators: coordinators.collect(),
        ..Default::default()
    })
}

const UNAVAILABLE: &str = "The coordinator is not available.";

/// Who leads the partition that a group lives in, unless all keys of the request have this error.
fn found<'a>(
    node: &Node,
    brokers: &'a Brokers,
    key: &'a str,
    error: ErrorCode,
    message: &'a str,
) -> Coordinator<'a> {
    let (error_code, message) = (error.into(), Some(message));
    let refused = |error_code, error_message| {
        let (node_id, host, port) = (-1, "", -1);
        Coordinator { key, node_id, host, port, error_code, error_message }
    };
    if error != ErrorCode::None {
        return refused(error_code, message);
    }
    let leader = node.driver().group_place(key).ok().and_then(|place| {
        let image = node.driver().image();
        image.partition(place)?.leader
    });
    match leader.and_then(|id| Some((id.0, brokers.get(id)?))) {
        Some((node_id, Endpoint { host, port, .. })) => {
            Coordinator { key, node_id, host, port: *port, error_code, error_message: message }
        }
        None => refused(ErrorCode::CoordinatorNotAvailable.into(), Some(UNAVAILABLE)),
    }
}
