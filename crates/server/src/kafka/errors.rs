//! One table from our refusals to Kafka's error codes.

use towpath_coordinator::groups;
use towpath_driver::{FetchRefusal, NotCoordinator, ProduceFailure, QueueFull};
use towpath_metadata::{Refusal, RefusalKind};
use towpath_model::properties::LimitPolicy;
use towpath_protocol::ErrorCode;
use towpath_records::{InvalidBatch, InvalidBatchClass};
use towpath_replication::{EpochRefusal, ProduceRefusal};

use crate::node::Unavailable;
use crate::publish::PublishError;

pub(super) fn of_group_refusal(refusal: groups::Refusal) -> ErrorCode {
    use groups::Refusal;
    match refusal {
        Refusal::InvalidGroupId => ErrorCode::InvalidGroupId,
        Refusal::InvalidRequest => ErrorCode::InvalidRequest,
        Refusal::InvalidSessionTimeout => ErrorCode::InvalidSessionTimeout,
        Refusal::UnknownMemberId => ErrorCode::UnknownMemberId,
        Refusal::MemberIdRequired => ErrorCode::MemberIdRequired,
        Refusal::IllegalGeneration => ErrorCode::IllegalGeneration,
        Refusal::FencedInstanceId => ErrorCode::FencedInstanceId,
        Refusal::InconsistentGroupProtocol => ErrorCode::InconsistentGroupProtocol,
        Refusal::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        Refusal::GroupMaxSizeReached => ErrorCode::GroupMaxSizeReached,
        Refusal::GroupIdNotFound => ErrorCode::GroupIdNotFound,
        Refusal::NonEmptyGroup => ErrorCode::NonEmptyGroup,
        Refusal::GroupSubscribedToTopic => ErrorCode::GroupSubscribedToTopic,
        Refusal::OffsetMetadataTooLarge => ErrorCode::OffsetMetadataTooLarge,
        Refusal::CommitTooLarge => ErrorCode::InvalidCommitOffsetSize,
        Refusal::AssignmentTooLarge => ErrorCode::UnknownServerError,
        Refusal::TooManyGroups => ErrorCode::PolicyViolation,
    }
}

/// Of a coordinator that could not be asked or did not answer.
pub(super) fn of_unavailable_coordinator(unavailable: Unavailable) -> ErrorCode {
    match unavailable {
        Unavailable::NotCoordinator(NotCoordinator::NoTopic | NotCoordinator::Offline) => {
            ErrorCode::CoordinatorNotAvailable
        }
        Unavailable::NotCoordinator(NotCoordinator::NotLeader) | Unavailable::Resigned => {
            ErrorCode::NotCoordinator
        }
        Unavailable::Storage | Unavailable::Stopping => ErrorCode::CoordinatorNotAvailable,
    }
}

/// Of a controller that could not be asked or did not answer.
pub(super) fn of_unavailable_controller(unavailable: Unavailable) -> ErrorCode {
    match unavailable {
        Unavailable::Storage => ErrorCode::KafkaStorageError,
        _ => ErrorCode::NotController,
    }
}

pub(super) fn of_publish_error(error: &PublishError) -> ErrorCode {
    match error {
        PublishError::Invalid(invalid) => of_invalid_batch(invalid),
        PublishError::Recompress(_) => ErrorCode::InvalidRecord,
        PublishError::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
        PublishError::NotAppended(ProduceFailure::NotLeader)
        | PublishError::Resigned
        | PublishError::Stopping => ErrorCode::NotLeaderOrFollower,
        PublishError::NotAppended(
            ProduceFailure::NoRoom(_)
            | ProduceFailure::Storage(_)
            | ProduceFailure::Stalled(_)
            | ProduceFailure::Offline(_),
        )
        | PublishError::StorageFailed => ErrorCode::KafkaStorageError,
        PublishError::NotAppended(ProduceFailure::QueueFull(full)) => of_full_queue(full),
        PublishError::NotAppended(ProduceFailure::QueueGivenUp(_)) => ErrorCode::PolicyViolation,
        PublishError::NotAppended(ProduceFailure::Refused(refusal)) => of_produce_refusal(refusal),
        PublishError::TooFewInSync(_) => ErrorCode::NotEnoughReplicasAfterAppend,
        PublishError::TimedOut(_) | PublishError::PlainMemoryTaken => ErrorCode::RequestTimedOut,
    }
}

/// A producer whose queue lets it wait is told what every client tries again after without asking where the
/// partition is led. One that is refused is told what none tries again after: Java, librdkafka, franz-go and sarama
/// give the error to the sender at once. A batch that fits into no empty partition is too large: Java sends its records
/// again in smaller ones.
fn of_full_queue(full: &QueueFull) -> ErrorCode {
    match full.over.policy {
        _ if full.over.never_fits() => ErrorCode::MessageTooLarge,
        LimitPolicy::Block => ErrorCode::NotEnoughReplicas,
        LimitPolicy::Reject | LimitPolicy::Sample => ErrorCode::PolicyViolation,
    }
}

fn of_invalid_batch(invalid: &InvalidBatch) -> ErrorCode {
    match invalid.class() {
        InvalidBatchClass::Corrupt => ErrorCode::CorruptMessage,
        InvalidBatchClass::Invalid => ErrorCode::InvalidRecord,
        InvalidBatchClass::Timestamp => ErrorCode::InvalidTimestamp,
        InvalidBatchClass::TooLarge => ErrorCode::MessageTooLarge,
        InvalidBatchClass::UnsupportedCompression => ErrorCode::UnsupportedCompressionType,
        InvalidBatchClass::Transactional => ErrorCode::TransactionalIdAuthorizationFailed,
    }
}

fn of_produce_refusal(refusal: &ProduceRefusal) -> ErrorCode {
    match refusal {
        ProduceRefusal::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
        ProduceRefusal::StaleProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        ProduceRefusal::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        ProduceRefusal::DuplicateBeyondWindow { .. } => ErrorCode::DuplicateSequenceNumber,
    }
}

pub(super) fn of_fetch_refusal(refusal: &FetchRefusal) -> ErrorCode {
    match refusal {
        FetchRefusal::NotLeader => ErrorCode::NotLeaderOrFollower,
        FetchRefusal::Epoch(epoch) => of_epoch_refusal(*epoch),
        FetchRefusal::NotAvailable => ErrorCode::OffsetNotAvailable,
        FetchRefusal::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        FetchRefusal::Corrupt(_) => ErrorCode::CorruptMessage,
        FetchRefusal::NotResident | FetchRefusal::Storage(_) | FetchRefusal::Offline(_) => {
            ErrorCode::KafkaStorageError
        }
    }
}

pub(super) fn of_epoch_refusal(refusal: EpochRefusal) -> ErrorCode {
    match refusal {
        EpochRefusal::Fenced { .. } => ErrorCode::FencedLeaderEpoch,
        EpochRefusal::Unknown { .. } => ErrorCode::UnknownLeaderEpoch,
    }
}

pub(super) fn of_metadata_refusal(refusal: &Refusal) -> ErrorCode {
    match refusal.kind() {
        RefusalKind::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
        RefusalKind::InvalidTopic => ErrorCode::InvalidTopicException,
        RefusalKind::UnsupportedVersion => ErrorCode::UnsupportedVersion,
        RefusalKind::TopicExists => ErrorCode::TopicAlreadyExists,
        RefusalKind::InvalidPartitions => ErrorCode::InvalidPartitions,
        RefusalKind::InvalidReplicationFactor => ErrorCode::InvalidReplicationFactor,
        RefusalKind::InvalidReplicaAssignment => ErrorCode::InvalidReplicaAssignment,
        RefusalKind::InvalidConfig => ErrorCode::InvalidConfig,
        RefusalKind::InvalidRequest => ErrorCode::InvalidRequest,
        RefusalKind::PolicyViolation => ErrorCode::PolicyViolation,
        RefusalKind::TopicDeletionDisabled => ErrorCode::TopicDeletionDisabled,
        RefusalKind::UnknownTopicId => ErrorCode::UnknownTopicId,
        RefusalKind::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        RefusalKind::UnknownLeaderEpoch => ErrorCode::UnknownLeaderEpoch,
        RefusalKind::StaleBrokerEpoch => ErrorCode::StaleBrokerEpoch,
        RefusalKind::PreferredLeaderNotAvailable => ErrorCode::PreferredLeaderNotAvailable,
        RefusalKind::EligibleLeadersNotAvailable => ErrorCode::EligibleLeadersNotAvailable,
        RefusalKind::ElectionNotNeeded => ErrorCode::ElectionNotNeeded,
        RefusalKind::NoReassignmentInProgress => ErrorCode::NoReassignmentInProgress,
        RefusalKind::InvalidUpdateVersion => ErrorCode::InvalidUpdateVersion,
        RefusalKind::DuplicateBrokerRegistration => ErrorCode::DuplicateBrokerRegistration,
        RefusalKind::BrokerIdNotRegistered => ErrorCode::BrokerIdNotRegistered,
        RefusalKind::IneligibleReplica => ErrorCode::IneligibleReplica,
    }
}

/// DescribeConfigs says nothing of a topic that does not exist, not even null.
pub(super) fn describe_message(refusal: &Refusal) -> String {
    match refusal.kind() {
        RefusalKind::UnknownTopic => String::new(),
        _ => refusal.to_string(),
    }
}
