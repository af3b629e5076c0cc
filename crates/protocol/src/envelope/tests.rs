use super::*;
use crate::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchRequest, FetchResponse,
    FetchResponsePartitionData, FetchableTopicResponse, HeartbeatResponse, OffsetDeleteRequest,
};
use crate::{Blob, Piece};

fn header(api_key: ApiKey, version: i16) -> RequestHeader<'static> {
    RequestHeader {
        request_api_key: api_key.key(),
        request_api_version: version,
        correlation_id: 42,
        client_id: Some("tester"),
    }
}

#[test]
fn a_request_frame_is_read_back() {
    for (version, expected_header_version) in [(11, 1), (12, 2)] {
        assert_eq!(request_header_version(ApiKey::Fetch, version), expected_header_version);
        let request = FetchRequest { max_wait_ms: 500, ..Default::default() };
        let sent = header(ApiKey::Fetch, version);
        let frame = encode_request(&sent, &request, version).expect("it is valid");
        let bytes = frame.into_bytes().expect("a request has no regions");
        assert_eq!(bytes[..4], (bytes.len() as u32 - 4).to_be_bytes());

        let (received, mut d) = decode_request_header(&bytes[4..]).expect("it is a header");
        assert_eq!(received, sent);
        assert_eq!(FetchRequest::decode(version, &mut d), Ok(request));
        assert_eq!(d.finish(), Ok(()));
    }
}

#[test]
fn the_client_id_is_never_compact() {
    let frame = encode_request(&header(ApiKey::ApiVersions, 3), &ApiVersionsRequest::default(), 3);
    let bytes = frame.expect("it is valid").into_bytes().expect("a request has no regions");
    let expected = [0, 18, 0, 3, 0, 0, 0, 42, 0, 6, b't', b'e', b's', b't', b'e', b'r', 0];
    assert_eq!(bytes[4..21], expected);
}

#[test]
fn the_answer_to_api_versions_has_the_oldest_header() {
    assert_eq!(response_header_version(ApiKey::ApiVersions, 4), 0);
    assert_eq!(response_header_version(ApiKey::Heartbeat, 4), 1);
    assert_eq!(response_header_version(ApiKey::Heartbeat, 3), 0);

    let frame = encode_response(ApiKey::ApiVersions, 3, 42, &ApiVersionsResponse::default());
    let bytes = frame.expect("it is valid").into_bytes().expect("it has no regions");
    // Correlation id, then at once the error code: no byte for tagged fields of the header.
    assert_eq!(bytes[4..], [0, 0, 0, 42, 0, 0, 1, 0, 0, 0, 0, 0]);

    let frame = encode_response(ApiKey::Heartbeat, 4, 42, &HeartbeatResponse::default());
    let bytes = frame.expect("it is valid").into_bytes().expect("it has no regions");
    let (header, mut d) =
        decode_response_header(ApiKey::Heartbeat, 4, &bytes[4..]).expect("it is a header");
    assert_eq!(header.correlation_id, 42);
    assert_eq!(HeartbeatResponse::decode(4, &mut d), Ok(HeartbeatResponse::default()));
    assert_eq!(d.finish(), Ok(()));
}

#[test]
fn an_unknown_api_is_named_and_an_unknown_version_is_not_judged() {
    let bytes = [0x01, 0x00, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let error = decode_request_header(&bytes).map(|(header, _)| header);
    assert_eq!(error, Err(DecodeError::UnknownApi { key: 256 }));

    let bytes = [0, 18, 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0];
    let (header, d) = decode_request_header(&bytes).expect("it is a header");
    assert_eq!((header.request_api_version, header.client_id), (99, None));
    assert_eq!(d.finish(), Ok(()));
}

#[test]
fn a_header_that_names_another_message_is_refused() {
    let request = OffsetDeleteRequest::default();
    let error = encode_request(&header(ApiKey::Fetch, 0), &request, 0);
    let expected = EncodeError::UnsupportedVersion { message: "OffsetDeleteRequest", version: 0 };
    assert_eq!(error, Err(expected));
}

#[test]
fn a_fetch_answer_is_header_bytes_and_regions() {
    let partition = |index: u32, len: u32| FetchResponsePartitionData {
        partition_index: index as i32,
        records: Some(Blob::Region { index, len }),
        aborted_transactions: None,
        ..Default::default()
    };
    let topic = FetchableTopicResponse {
        topic: "orders",
        partitions: vec![partition(0, 1 << 20), partition(1, 77)],
        ..Default::default()
    };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    for version in 4..=12 {
        let frame = encode_response(ApiKey::Fetch, version, 1, &response).expect("it is valid");
        let regions: Vec<_> = frame
            .pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Region { index, len } => Some((*index, *len)),
                Piece::Bytes(_) => None,
            })
            .collect();
        assert_eq!(regions, [(0, 1 << 20), (1, 77)]);

        // Filled in, the frame is what a client reads.
        let mut wire = Vec::new();
        for piece in &frame.pieces {
            match piece {
                Piece::Bytes(bytes) => wire.extend_from_slice(bytes),
                Piece::Region { index, len } => {
                    wire.resize(wire.len() + *len as usize, *index as u8 + 1);
                }
            }
        }
        assert_eq!(wire.len(), frame.len());
        assert_eq!(wire[..4], (wire.len() as u32 - 4).to_be_bytes());
        let (_, mut d) =
            decode_response_header(ApiKey::Fetch, version, &wire[4..]).expect("it is a header");
        let read = FetchResponse::decode(version, &mut d).expect("it is a fetch answer");
        assert_eq!(d.finish(), Ok(()));
        let records = read.responses[0].partitions[1].records.and_then(|records| records.bytes());
        assert_eq!(records, Some(&[2; 77][..]));
    }
}
