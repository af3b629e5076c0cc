//! ApiVersions (KIP-35, KIP-511, KIP-1242): what we serve, so that clients choose versions.

use towpath_protocol::messages::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use towpath_protocol::{ApiKey, ErrorCode, encode_response};

use super::{Answered, Handled, Incoming};
use crate::node::Node;
use crate::outgoing::Outgoing;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    if !ApiKey::ApiVersions.versions().contains(&incoming.version) {
        return unsupported(incoming);
    }
    let request: ApiVersionsRequest<'_> = incoming.decode()?;
    let error = check(node, incoming.version, &request);
    if error != ErrorCode::None {
        return incoming
            .answer(&ApiVersionsResponse { error_code: error.into(), ..Default::default() });
    }
    incoming.answer(&ApiVersionsResponse {
        api_keys: ApiKey::ALL.iter().map(|key| advertised(*key)).collect(),
        supported_features: Vec::<SupportedFeatureKey<'_>>::new(),
        finalized_features: Vec::<FinalizedFeatureKey<'_>>::new(),
        ..Default::default()
    })
}

/// A version of the request that we cannot read is answered in the oldest form, with the range
/// that we can (KIP-511); the client asks again.
fn unsupported(incoming: &Incoming) -> Handled {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.into(),
        api_keys: vec![advertised(ApiKey::ApiVersions)],
        ..Default::default()
    };
    let frame = encode_response(ApiKey::ApiVersions, 0, incoming.correlation_id, &response)?;
    Ok(Answered::Frame(Outgoing::from(frame)))
}

fn advertised(key: ApiKey) -> ApiVersion {
    let versions = key.versions();
    // librdkafka before 2.12 compresses only where Produce 0 is in the range, although it then
    // uses a later one (KAFKA-18659). Versions 0 to 2 close the connection, as in Kafka.
    let min_version = if key == ApiKey::Produce { 0 } else { *versions.start() };
    ApiVersion { api_key: key as i16, min_version, max_version: *versions.end() }
}

fn check(node: &Node, version: i16, request: &ApiVersionsRequest<'_>) -> ErrorCode {
    let software = [request.client_software_name, request.client_software_version];
    if 3 <= version && !software.iter().all(|text| is_software(text)) {
        return ErrorCode::InvalidRequest;
    }
    if version < 5 {
        return ErrorCode::None;
    }
    match (request.cluster_id, request.node_id) {
        (None, -1) => ErrorCode::None,
        (None, _) | (Some(_), -1) => ErrorCode::InvalidRequest,
        (Some(cluster), broker) => {
            let known = cluster == node.driver().identity().cluster_id
                && broker == node.driver().broker_id().0;
            if known { ErrorCode::None } else { ErrorCode::RebootstrapRequired }
        }
    }
}

/// `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?` (KIP-511).
fn is_software(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_follow_kip_511() {
        for good in ["a", "apache-kafka-java", "4.4.0"] {
            assert!(is_software(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "a_b"] {
            assert!(!is_software(bad), "{bad}");
        }
    }
}
