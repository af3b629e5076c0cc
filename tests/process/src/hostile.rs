//! Bytes that no client would send: frames of any length, type and content.
//!
//! Most are valid requests with something wrong in them, because pure noise rarely gets past the
//! header. Everything follows from a seed.

use fastrand::Rng;
use towpath_model::{ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_protocol::messages::{
    AlterConfigsRequest, AlterPartitionReassignmentsRequest, ApiVersionsRequest,
    CreatePartitionsRequest, CreateTopicsRequest, DeleteGroupsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    DescribeLogDirsRequest, DescribeProducersRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, ElectLeadersRequest, FetchRequest, FindCoordinatorRequest,
    HeartbeatRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest, JoinGroupRequest,
    LeaveGroupRequest, ListGroupsRequest, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsTopic, ListPartitionReassignmentsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest,
    RequestHeader, SyncGroupRequest, UnregisterBrokerRequest,
};
use towpath_protocol::{Request, encode_request};
use towpath_records::{BatchBuilder, Compression};

use crate::kafka::{fetch_request, produce_request};

/// The topic that hostile requests name.
pub const TOPIC: &str = "hostile";

/// When every record was made. A frame must follow from its seed alone, and how well a batch can be
/// compressed depends on its times.
const MADE_AT: Timestamp = Timestamp(1_790_000_000_000);

/// Makes hostile frames, one after the other.
#[derive(Debug)]
pub struct Hostile {
    rng: Rng,
    valid: Vec<Vec<u8>>,
}

impl Hostile {
    /// The same seed gives the same frames.
    pub fn new(seed: u64) -> Hostile {
        Hostile { rng: Rng::with_seed(seed), valid: valid_frames() }
    }

    /// The next frame: mostly one valid request with some damage.
    pub fn frame(&mut self) -> Vec<u8> {
        match self.rng.u8(..10) {
            0 => self.noise(),
            1 => self.unknown_api(),
            2 => self.valid_frame(),
            _ => {
                let mut frame = self.valid_frame();
                for _ in 0..self.rng.usize(1..4) {
                    self.damage(&mut frame);
                }
                // Half of them say how long they are, so that the damage reaches the decoder.
                if self.rng.bool() {
                    set_length(&mut frame);
                }
                frame
            }
        }
    }

    fn valid_frame(&mut self) -> Vec<u8> {
        let index = self.rng.usize(..self.valid.len());
        self.valid[index].clone()
    }

    /// Chance bytes behind a length that may be anything.
    fn noise(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4 + self.rng.usize(..300)];
        self.rng.fill(&mut frame[4..]);
        match self.rng.u8(..6) {
            0 => frame[..4].copy_from_slice(&i32::MAX.to_be_bytes()),
            1 => frame[..4].copy_from_slice(&(-1_i32).to_be_bytes()),
            2 => frame[..4].copy_from_slice(&[0; 4]),
            3 => self.rng.fill(&mut frame[..4]),
            _ => set_length(&mut frame),
        }
        frame
    }

    /// A readable header for an API or a version that does not exist.
    fn unknown_api(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        frame.extend(self.rng.i16(..).to_be_bytes());
        frame.extend(self.rng.i16(-3..30).to_be_bytes());
        frame.extend(self.rng.i32(..).to_be_bytes());
        frame.extend([0, 1, b'x']);
        let body = self.rng.usize(..40);
        frame.extend(std::iter::repeat_with(|| self.rng.u8(..)).take(body));
        set_length(&mut frame);
        frame
    }

    fn damage(&mut self, frame: &mut Vec<u8>) {
        // The length in front is damaged last, by leaving it as it was.
        let at = self.rng.usize(4..=frame.len().max(5) - 1);
        let left = frame.len().saturating_sub(at);
        match self.rng.u8(..7) {
            0 => frame.truncate(at),
            1 if 0 < left => frame[at] ^= 1 << self.rng.u8(..8),
            2 if 4 <= left => {
                let count =
                    *self.rng.choice(&[i32::MAX, -1, -2, i32::MIN, 0x0100_0000]).unwrap_or(&-1);
                frame[at..at + 4].copy_from_slice(&count.to_be_bytes());
            }
            3 if 2 <= left => {
                let length = *self.rng.choice(&[i16::MAX, -1, -2, i16::MIN]).unwrap_or(&-1);
                frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            4 if 5 <= left => frame[at..at + 5].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
            5 => {
                let copied: Vec<u8> =
                    frame[at..].iter().copied().take(self.rng.usize(..64)).collect();
                frame.splice(at..at, copied);
            }
            _ => {
                let more = self.rng.usize(..64);
                frame.extend(std::iter::repeat_with(|| self.rng.u8(..)).take(more));
            }
        }
    }
}

/// Writes the frame's real length in front.
fn set_length(frame: &mut [u8]) {
    let length = i32::try_from(frame.len().saturating_sub(4)).unwrap_or(i32::MAX);
    frame[..4].copy_from_slice(&length.to_be_bytes());
}

/// A batch whose records grow a thousandfold and more when they are decompressed.
pub fn bomb(compression: Compression, plain_bytes: usize) -> Vec<u8> {
    let mut batch = BatchBuilder::new(compression, MADE_AT);
    let zeros = vec![0; plain_bytes];
    batch.append(MADE_AT, None, Some(&zeros), []).expect("one record fits an empty batch");
    batch.build()
}

/// Every request in every version, empty where that is enough, filled where more code is reached.
fn valid_frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    macro_rules! empty {
        ($($request:ty),* $(,)?) => {$(
            add(&mut frames, &<$request>::default());
        )*};
    }
    empty!(
        AlterConfigsRequest<'_>,
        AlterPartitionReassignmentsRequest<'_>,
        ApiVersionsRequest<'_>,
        CreatePartitionsRequest<'_>,
        CreateTopicsRequest<'_>,
        DeleteGroupsRequest<'_>,
        DeleteRecordsRequest<'_>,
        DeleteTopicsRequest<'_>,
        DescribeClusterRequest,
        DescribeConfigsRequest<'_>,
        DescribeGroupsRequest<'_>,
        DescribeLogDirsRequest<'_>,
        DescribeProducersRequest<'_>,
        DescribeQuorumRequest<'_>,
        DescribeTopicPartitionsRequest<'_>,
        ElectLeadersRequest<'_>,
        FetchRequest<'_>,
        FindCoordinatorRequest<'_>,
        HeartbeatRequest<'_>,
        IncrementalAlterConfigsRequest<'_>,
        InitProducerIdRequest<'_>,
        JoinGroupRequest<'_>,
        LeaveGroupRequest<'_>,
        ListGroupsRequest<'_>,
        ListOffsetsRequest<'_>,
        ListPartitionReassignmentsRequest<'_>,
        MetadataRequest<'_>,
        OffsetCommitRequest<'_>,
        OffsetDeleteRequest<'_>,
        OffsetFetchRequest<'_>,
        OffsetForLeaderEpochRequest<'_>,
        ProduceRequest<'_>,
        SyncGroupRequest<'_>,
        UnregisterBrokerRequest,
    );
    for compression in Compression::ALL {
        let batch = sample_batch(compression);
        add(&mut frames, &produce_request(TOPIC, 0, &batch));
    }
    add(&mut frames, &fetch_request(TOPIC, 0, 0));
    let partition = ListOffsetsPartition { timestamp: -1, ..ListOffsetsPartition::default() };
    let topic = ListOffsetsTopic { name: TOPIC, partitions: vec![partition] };
    add(&mut frames, &ListOffsetsRequest { topics: vec![topic], ..ListOffsetsRequest::default() });
    let join = JoinGroupRequest {
        group_id: TOPIC,
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: 1_000,
        protocol_type: "consumer",
        ..JoinGroupRequest::default()
    };
    add(&mut frames, &join);
    frames
}

/// The request's frame in every version that can carry it.
fn add<'a, M: Request<'a>>(frames: &mut Vec<Vec<u8>>, request: &M) {
    for version in M::VERSIONS {
        let header = RequestHeader {
            request_api_key: M::API_KEY,
            request_api_version: version,
            correlation_id: 7,
            client_id: Some("hostile"),
        };
        let frame = encode_request(&header, request, version).ok();
        frames.extend(frame.and_then(|frame| frame.into_bytes()).map(|bytes| bytes.to_vec()));
    }
}

fn sample_batch(compression: Compression) -> Vec<u8> {
    let mut batch = BatchBuilder::new(compression, MADE_AT);
    batch.set_producer(ProducerId(1), ProducerEpoch(0), Sequence(0));
    for index in 0..20_u8 {
        let header: (&[u8], Option<&[u8]>) = (b"name", Some(b"value"));
        let added = batch.append(MADE_AT, Some(&[index]), Some(&[index; 50]), [header]);
        added.expect("twenty small records fit a batch");
    }
    batch.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_frames_and_every_api_is_among_them() {
        let (mut first, mut second) = (Hostile::new(3), Hostile::new(3));
        assert!((0..500).all(|_| first.frame() == second.frame()));
        let valid = valid_frames();
        for api_key in towpath_protocol::ApiKey::ALL {
            let is_it = |frame: &Vec<u8>| frame[4..6] == api_key.key().to_be_bytes();
            assert!(valid.iter().any(is_it), "{} is missing", api_key.name());
        }
    }

    #[test]
    fn a_bomb_is_small_before_it_goes_off() {
        assert!(bomb(Compression::Zstd, 4 << 20).len() < 4 << 10);
    }
}
