//! What a broker's answer means for one batch. One table, from code to consequence.

use towpath_model::{BrokerId, Offset, Timestamp};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::PartitionProduceResponse;

use crate::error::Error;
use crate::record::TopicPartition;

/// The consequence of one attempt.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    /// It is in the log.
    Written {
        /// Offset of its first record, where the broker tells.
        base_offset: Option<Offset>,
        /// The time the broker gave it, where the topic wants that.
        append_time: Option<Timestamp>,
    },
    /// The same bytes may succeed later.
    Again {
        error: Error,
        /// Whether it may be in the log all the same.
        is_uncertain: bool,
    },
    /// It was not taken, and who refused it says that another broker leads: it goes there at once.
    Elsewhere(Error),
    /// It was not taken by the broker that leads as far as is known: either that broker has not heard of
    /// it, or this client has not heard of the next one. Both are a matter of milliseconds.
    Soon(Error),
    /// The broker expected another sequence.
    OutOfOrder(Error),
    /// Smaller batches may be taken.
    TooLarge,
    /// It will never be taken.
    Refused(Error),
    /// Somebody else has taken over this producer's identity.
    Fenced(Error),
}

impl Verdict {
    /// The broker answered, but not about this partition.
    pub(super) fn missing() -> Verdict {
        Verdict::Again {
            error: Error::Malformed {
                address: "the leader".to_owned(),
                cause: "the produce answer does not mention every partition".to_owned(),
            },
            is_uncertain: true,
        }
    }

    pub(super) fn is_leadership_stale(&self) -> bool {
        matches!(self, Verdict::Again { error, .. } | Verdict::Soon(error)
            if error.code().is_some_and(ErrorCode::is_metadata_stale))
    }

    /// The verdict of `broker`, where `leader` is known to lead.
    pub(super) fn said_by(self, broker: BrokerId, leader: Option<BrokerId>) -> Verdict {
        match (self, leader) {
            (Verdict::Again { error, is_uncertain: false }, Some(leader))
                if error.code() == Some(ErrorCode::NotLeaderOrFollower) =>
            {
                if leader == broker {
                    Verdict::Soon(error)
                } else {
                    Verdict::Elsewhere(error)
                }
            }
            (verdict, _) => verdict,
        }
    }

    pub(super) fn of(partition: &TopicPartition, answer: &PartitionProduceResponse<'_>) -> Verdict {
        let code = ErrorCode::from(answer.error_code);
        let said = answer
            .error_message
            .or_else(|| answer.record_errors.iter().find_map(|e| e.batch_index_error_message));
        let error = || Error::refused(format!("sending to {partition}"), code, said);
        match code {
            ErrorCode::None => Verdict::Written {
                base_offset: (answer.base_offset >= 0).then_some(Offset(answer.base_offset)),
                append_time: (answer.log_append_time_ms >= 0)
                    .then_some(Timestamp(answer.log_append_time_ms)),
            },
            // It is in the log, too long ago for the broker to say where.
            ErrorCode::DuplicateSequenceNumber => {
                Verdict::Written { base_offset: None, append_time: None }
            }
            ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId => {
                Verdict::OutOfOrder(error())
            }
            ErrorCode::MessageTooLarge => Verdict::TooLarge,
            ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced => Verdict::Fenced(error()),
            // Answers that come after the leader appended.
            ErrorCode::RequestTimedOut | ErrorCode::NotEnoughReplicasAfterAppend => {
                Verdict::Again { error: error(), is_uncertain: true }
            }
            code if code.is_retriable() => Verdict::Again { error: error(), is_uncertain: false },
            _ => Verdict::Refused(error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(code: ErrorCode) -> Verdict {
        let answer = PartitionProduceResponse { error_code: code.code(), ..Default::default() };
        Verdict::of(&TopicPartition::new("t", 0), &answer)
    }

    #[test]
    fn codes_have_the_consequences_that_keep_the_promise() {
        use Verdict::{Again, Elsewhere, Fenced, OutOfOrder, Refused, Soon, TooLarge, Written};
        assert!(matches!(verdict(ErrorCode::None), Written { base_offset: Some(Offset(0)), .. }));
        assert!(matches!(
            verdict(ErrorCode::DuplicateSequenceNumber),
            Written { base_offset: None, .. }
        ));
        assert!(matches!(verdict(ErrorCode::OutOfOrderSequenceNumber), OutOfOrder(_)));
        assert!(matches!(verdict(ErrorCode::UnknownProducerId), OutOfOrder(_)));
        assert!(matches!(verdict(ErrorCode::MessageTooLarge), TooLarge));
        assert!(matches!(verdict(ErrorCode::ProducerFenced), Fenced(_)));
        assert!(matches!(verdict(ErrorCode::RequestTimedOut), Again { is_uncertain: true, .. }));
        assert!(matches!(
            verdict(ErrorCode::NotLeaderOrFollower),
            Again { is_uncertain: false, .. }
        ));
        assert!(verdict(ErrorCode::NotLeaderOrFollower).is_leadership_stale());
        let leader = Some(BrokerId(2));
        let refused = |by| verdict(ErrorCode::NotLeaderOrFollower).said_by(BrokerId(by), leader);
        assert!(matches!(refused(1), Elsewhere(_)) && !refused(1).is_leadership_stale());
        assert!(matches!(refused(2), Soon(_)) && refused(2).is_leadership_stale());
        let timed_out = verdict(ErrorCode::RequestTimedOut).said_by(BrokerId(1), leader);
        assert!(matches!(timed_out, Again { is_uncertain: true, .. }));
        assert!(matches!(verdict(ErrorCode::TopicAuthorizationFailed), Refused(_)));
        assert!(matches!(verdict(ErrorCode::CorruptMessage), Again { .. }));
    }
}
