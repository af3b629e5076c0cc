//! What brokers say to each other: one-way messages.
//!
//! ```text
//! raft                     members of the metadata quorum, among themselves
//! ask, answer              any broker ─▶ controller, and back
//! positions, durable       follower ─▶ leader
//! records                  leader ─▶ follower, in frames of their own: [`Fed`]
//! ```
//!
//! Nobody waits on the wire for an answer: whoever wants one keeps what it needs and repeats. Messages
//! may be lost, late, repeated and out of order, so each carries what tells a stale one: Raft's term,
//! a registration's epoch, a leader epoch, a position. Inside a frame they are encoded with postcard,
//! which adds new kinds at the end only (ADR 0018).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_metadata::raft;
use towpath_metadata::{Reply, Request};
use towpath_model::{BrokerEpoch, Offset, PartitionIndex, Token, TopicId, TopicPartition};
use towpath_replication::{ReplicaAnswer, ReplicaPosition};

/// Longest encoded message that is looked at: a snapshot of the metadata is the largest.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// First bytes of frames.
const MESSAGE: u8 = 0;
const RECORDS: u8 = 1;

/// A message from one broker to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Between members of the metadata quorum.
    Raft(raft::Message),
    /// Asks the controller, for a caller that waits at the sender.
    Ask {
        /// The sender's name for the question.
        token: Token,
        /// The question.
        request: Request,
    },
    /// The controller's answer.
    Answer {
        /// The name of the question.
        token: Token,
        /// What it rests on: it is passed on once the asker's own metadata has come so far.
        index: raft::LogIndex,
        /// The answer.
        reply: Reply,
    },
    /// Not answered: the receiver is not, or no longer, the controller. Whether it took effect is
    /// open if it had been.
    NotController {
        /// The name of the question.
        token: Token,
    },
    /// A node that is no member of the quorum wants to follow it.
    Join {
        /// Its identity there.
        member: raft::MemberId,
        /// Where other brokers reach it: whoever leads the quorum may know nothing of it.
        address: Option<PeerPlace>,
    },
    /// Where a follower's logs end, for the leader of them; each asks for what follows.
    Positions {
        /// The sender's registration.
        broker_epoch: BrokerEpoch,
        /// The positions.
        positions: Vec<(TopicPartition, ReplicaPosition)>,
    },
    /// The same, of logs whose durable offsets have moved while a position waits; asks for nothing.
    Durable {
        /// The sender's registration.
        broker_epoch: BrokerEpoch,
        /// The positions.
        positions: Vec<(TopicPartition, ReplicaPosition)>,
    },
    /// Asks which of the groups that the receiver coordinates read a topic.
    AskReaders {
        /// The topic.
        topic: TopicId,
    },
    /// Groups that read a topic.
    Readers {
        /// The topic.
        topic: TopicId,
        /// The partition of the groups' topic that they are in; nothing of it is missing.
        coordinator: PartitionIndex,
        /// Partition of the topic, group, first offset that it has not read.
        readers: Vec<(PartitionIndex, String, Offset)>,
    },
    /// Asks the leader of the metadata quorum how it stands, for a caller that waits at the sender.
    AskQuorum {
        /// The sender's name for the question.
        token: Token,
    },
    /// How the metadata quorum stands, as its leader says.
    Quorum {
        /// The name of the question.
        token: Token,
        /// The answer.
        report: QuorumReport,
    },
    /// Asks a member of the metadata quorum what it knows of it, whoever leads.
    AskMember {
        /// The sender's name for the question; the answer is a [`PeerMessage::Quorum`].
        token: Token,
    },
    /// These were members of the metadata quorum and have been removed for good.
    Retired {
        /// Which ones.
        members: Vec<raft::MemberId>,
    },
}

/// Where a broker listens for others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPlace {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// How the metadata quorum stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumReport {
    /// Who leads, as far as is known.
    pub leader: Option<raft::MemberId>,
    /// In which term.
    pub term: raft::Term,
    /// The last entry that is known to be committed.
    pub commit: raft::LogIndex,
    /// The last entry.
    pub last_index: raft::LogIndex,
    /// Who takes part.
    pub members: Vec<ReportedMember>,
    /// Whether whoever tells this would come back with these members after a crash.
    pub is_membership_durable: bool,
}

/// A member of the metadata quorum in a [`QuorumReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedMember {
    /// Who it is.
    pub id: raft::MemberId,
    /// Whether it votes, or only follows.
    pub is_voter: bool,
    /// The last entry that it holds, if that is known.
    pub matched: Option<raft::LogIndex>,
}

/// One partition's answer to a follower's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fed {
    /// Which partition.
    pub partition: TopicPartition,
    /// The answer.
    pub answer: ReplicaAnswer,
    /// Whole batches, where the answer says so.
    pub batches: Bytes,
}

/// What stands in front of the batches of several answers.
#[derive(Debug, Serialize, Deserialize)]
struct FedHead {
    partition: TopicPartition,
    answer: ReplicaAnswer,
    batches_len: u32,
}

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message of this version: {0}")]
pub struct NotAMessage(String);

impl PeerMessage {
    /// As the bytes of a frame.
    ///
    /// # Panics
    /// Never: every message can be encoded.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![MESSAGE]).expect("a message is plain data")
    }

    fn decode(bytes: &[u8]) -> Result<PeerMessage, NotAMessage> {
        let (message, rest) =
            postcard::take_from_bytes(bytes).map_err(|error| NotAMessage(error.to_string()))?;
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(NotAMessage(format!("{} bytes too many", rest.len())))
        }
    }
}

/// What is in a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// One message.
    Message(PeerMessage),
    /// Answers to positions.
    Records(Vec<Fed>),
}

impl Frame {
    /// From the bytes of a frame, all of them.
    ///
    /// # Errors
    /// [`NotAMessage`].
    pub fn decode(frame: &Bytes) -> Result<Frame, NotAMessage> {
        match frame.first() {
            Some(&MESSAGE) => PeerMessage::decode(&frame[1..]).map(Frame::Message),
            Some(&RECORDS) => decode_records(&frame.slice(1..)).map(Frame::Records),
            other => Err(NotAMessage(format!("a frame of kind {other:?}"))),
        }
    }
}

/// What stands in front of the batches of answers in one frame. `answers`: partition, answer, bytes of
/// batches.
///
/// ```text
/// u8 1, u32 length of the heads, heads, batches of the first answer, of the second, …
/// ```
///
/// # Panics
/// When an answer has 4 GiB of batches.
#[must_use]
pub fn encode_heads(
    answers: impl IntoIterator<Item = (TopicPartition, ReplicaAnswer, usize)>,
) -> Bytes {
    let head = |(partition, answer, bytes): (TopicPartition, ReplicaAnswer, usize)| {
        let batches_len = u32::try_from(bytes).expect("an answer is bounded");
        FedHead { partition, answer, batches_len }
    };
    let heads: Vec<FedHead> = answers.into_iter().map(head).collect();
    let encoded = postcard::to_allocvec(&heads).expect("heads are plain data");
    let length = u32::try_from(encoded.len()).expect("heads are far below 4 GiB");
    let mut front = vec![RECORDS];
    front.extend_from_slice(&length.to_be_bytes());
    front.extend_from_slice(&encoded);
    front.into()
}

/// Answers as the pieces of one frame: [`encode_heads`], then their batches one after the other, which
/// are not copied.
///
/// # Panics
/// When an answer has 4 GiB of batches.
#[must_use]
pub fn encode_records(answers: Vec<Fed>) -> Vec<Bytes> {
    let mut batches = Vec::with_capacity(answers.len());
    let heads = encode_heads(answers.into_iter().map(|fed| {
        let bytes = fed.batches.len();
        batches.push(fed.batches);
        (fed.partition, fed.answer, bytes)
    }));
    batches.insert(0, heads);
    batches
}

/// The opposite of [`encode_records`]; the batches are pieces of `frame`.
fn decode_records(frame: &Bytes) -> Result<Vec<Fed>, NotAMessage> {
    let short = || NotAMessage("the frame ends too early".to_owned());
    let (length, rest) = frame.split_first_chunk::<4>().ok_or_else(short)?;
    let length = u32::from_be_bytes(*length) as usize;
    let heads = rest.get(..length).ok_or_else(short)?;
    let heads: Vec<FedHead> =
        postcard::from_bytes(heads).map_err(|error| NotAMessage(error.to_string()))?;
    let mut at = 4 + length;
    let mut answers = Vec::with_capacity(heads.len());
    for FedHead { partition, answer, batches_len } in heads {
        let end = at.checked_add(batches_len as usize).filter(|end| *end <= frame.len());
        let end = end.ok_or_else(short)?;
        answers.push(Fed { partition, answer, batches: frame.slice(at..end) });
        at = end;
    }
    if at < frame.len() {
        return Err(NotAMessage(format!("{} bytes too many", frame.len() - at)));
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use towpath_model::{LeaderEpoch, Uuid};
    use towpath_replication::AnswerKind;

    use super::*;

    fn fed(partition: i32, batches: &'static [u8]) -> Fed {
        let topic = Uuid([7; 16]);
        Fed {
            partition: TopicPartition { topic, partition: PartitionIndex(partition) },
            answer: ReplicaAnswer {
                leader_epoch: LeaderEpoch(3),
                from: Offset(40),
                last_epoch: Some(LeaderEpoch(2)),
                high_watermark: Offset(38),
                log_start_offset: Offset(0),
                kind: AnswerKind::Batches { epochs: Vec::new() },
            },
            batches: Bytes::from_static(batches),
        }
    }

    #[test]
    fn records_come_back_from_their_pieces() {
        let answers = vec![fed(0, b"first"), fed(1, b""), fed(2, b"third")];
        let frame = Bytes::from(encode_records(answers.clone()).concat());
        assert_eq!(Frame::decode(&frame), Ok(Frame::Records(answers)));
        for end in 0..frame.len() {
            assert!(Frame::decode(&frame.slice(..end)).is_err(), "cut at {end}");
        }
        assert!(Frame::decode(&Bytes::from([&frame[..], b"!"].concat())).is_err());
    }

    #[test]
    fn a_message_comes_back_from_its_bytes_and_nothing_else_does() {
        let message = PeerMessage::NotController { token: Token(300) };
        let frame = Bytes::from(message.encode());
        assert_eq!(Frame::decode(&frame), Ok(Frame::Message(message)));
        assert!(Frame::decode(&frame.slice(..2)).is_err());
        assert!(Frame::decode(&Bytes::new()).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[0, 200, 1])).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[9, 0])).is_err());
    }
}
