//! One table per source of refusals: what they are called in this API, and what to do about them.

use towpath_coordinator::groups;
use towpath_driver::{FetchRefusal, NotCoordinator, ProduceFailure, QueueGivenUp};
use towpath_metadata::{Refusal, RefusalKind};
use towpath_records::InvalidBatchClass;
use towpath_replication::ProduceRefusal;
use towpath_server::{NotRead, PublishError, Unavailable};

use crate::api_error::{ApiError, Code, OffsetRange};

/// Of a state that could not be asked or did not answer.
pub(crate) fn of_unavailable(unavailable: Unavailable) -> ApiError {
    let code = match unavailable {
        Unavailable::NotCoordinator(
            NotCoordinator::NoTopic | NotCoordinator::NotLeader | NotCoordinator::Offline,
        )
        | Unavailable::Resigned => Code::Unavailable,
        Unavailable::Storage => Code::StorageFailed,
        Unavailable::Stopping => Code::Stopping,
    };
    ApiError::new(code, unavailable.to_string()).with_help("try again")
}

/// Of the metadata.
pub(crate) fn of_metadata(refusal: &Refusal) -> ApiError {
    let is_internal = matches!(
        refusal,
        Refusal::InternalTopicCreation(_)
            | Refusal::InternalTopicDeletion(_)
            | Refusal::InternalTopicGrowth(_)
    );
    let code = match refusal.kind() {
        _ if is_internal => Code::TopicInternal,
        _ if matches!(refusal, Refusal::LastBroker(_)) => Code::LastNode,
        _ if matches!(refusal, Refusal::BrokerHoldsReplicas { .. }) => Code::NodeNotEmpty,
        _ if matches!(refusal, Refusal::BrokerThere(_)) => Code::NodeLive,
        _ if matches!(refusal, Refusal::UnknownQueue(_)) => Code::QueueNotFound,
        _ if matches!(refusal, Refusal::NotAQueue(_)) => Code::NotAQueue,
        _ if matches!(refusal, Refusal::UnknownTask(_)) => Code::TaskNotFound,
        _ if matches!(refusal, Refusal::TaskActive { .. } | Refusal::TaskCircle { .. }) => {
            Code::TaskActive
        }
        _ if matches!(refusal, Refusal::TaskOver { .. }) => Code::TaskOver,
        RefusalKind::UnknownTopic | RefusalKind::UnknownTopicId => Code::TopicNotFound,
        RefusalKind::InvalidTopic => Code::InvalidTopicName,
        RefusalKind::TopicExists => Code::TopicExists,
        RefusalKind::InvalidPartitions
        | RefusalKind::InvalidReplicationFactor
        | RefusalKind::InvalidReplicaAssignment
        | RefusalKind::InvalidConfig => Code::InvalidConfig,
        RefusalKind::PolicyViolation => Code::LimitReached,
        RefusalKind::TopicDeletionDisabled => Code::TopicDeletionDisabled,
        RefusalKind::BrokerIdNotRegistered => Code::NodeNotFound,
        // The last ones are answers to what brokers and Kafka's tools ask; nothing here asks it.
        RefusalKind::InvalidRequest
        | RefusalKind::UnsupportedVersion
        | RefusalKind::FencedLeaderEpoch
        | RefusalKind::UnknownLeaderEpoch
        | RefusalKind::StaleBrokerEpoch
        | RefusalKind::PreferredLeaderNotAvailable
        | RefusalKind::EligibleLeadersNotAvailable
        | RefusalKind::ElectionNotNeeded
        | RefusalKind::NoReassignmentInProgress
        | RefusalKind::InvalidUpdateVersion
        | RefusalKind::DuplicateBrokerRegistration
        | RefusalKind::IneligibleReplica => Code::InvalidRequest,
    };
    ApiError::new(code, refusal.to_string())
}

/// Of a batch on its way into the log.
pub(crate) fn of_publish(error: &PublishError) -> ApiError {
    let text = error.to_string();
    match error {
        PublishError::Invalid(invalid) => match invalid.class() {
            InvalidBatchClass::TooLarge => ApiError::new(Code::MessageTooLarge, text)
                .with_help("raise max.message.bytes of the topic, or send less in one message"),
            _ => ApiError::new(Code::InvalidMessage, text),
        },
        PublishError::PlainMemoryTaken => ApiError::new(Code::Overloaded, text),
        PublishError::LargerThanSegment { .. } => ApiError::new(Code::MessageTooLarge, text),
        PublishError::Recompress(_) => ApiError::new(Code::InvalidMessage, text),
        PublishError::NotAppended(ProduceFailure::NotLeader) | PublishError::Resigned => {
            ApiError::new(Code::Unavailable, text).with_help("try again")
        }
        PublishError::NotAppended(
            ProduceFailure::Storage(_) | ProduceFailure::Stalled(_) | ProduceFailure::Offline(_),
        )
        | PublishError::StorageFailed => ApiError::new(Code::StorageFailed, text),
        PublishError::NotAppended(ProduceFailure::NoRoom(_)) => {
            ApiError::new(Code::DiskFull, text).with_help(
                "try again later; an operator frees disk space, deletes topics or shortens retention",
            )
        }
        PublishError::NotAppended(ProduceFailure::QueueFull(full)) if full.over.never_fits() => {
            ApiError::new(Code::MessageTooLarge, text)
                .with_help("raise queue.limit.bytes of the queue, or send less in one message")
        }
        PublishError::NotAppended(ProduceFailure::QueueFull(full)) => ApiError::new(Code::QueueFull, text)
            .with_help(match full.over.is_sampled {
                true => "send it again: another one may be taken; more receivers make room",
                false => "send it again later: more receivers make room, or a higher limit (queue.limit.*)",
            }),
        PublishError::NotAppended(ProduceFailure::QueueGivenUp(_)) => {
            ApiError::new(Code::QueueGivenUp, text)
        }
        PublishError::NotAppended(ProduceFailure::Refused(refusal)) => of_produce(refusal),
        PublishError::TimedOut(_) | PublishError::TooFewInSync(_) => ApiError::new(Code::NotCommittedInTime, text).with_help(
            "it may have been published or not; with producer_id and sequence a repeat is safe",
        ),
        PublishError::Stopping => ApiError::new(Code::Stopping, text),
    }
}

fn of_produce(refusal: &ProduceRefusal) -> ApiError {
    match refusal {
        ProduceRefusal::NotEnoughReplicas { .. } => {
            ApiError::new(Code::NotEnoughReplicas, refusal.to_string()).with_help("try again")
        }
        // The sequences are ours: a caller never sees or sends them.
        _ => ApiError::new(Code::Internal, refusal.to_string()),
    }
}

/// Of a read.
pub(crate) fn of_fetch(refusal: &FetchRefusal) -> ApiError {
    match refusal {
        FetchRefusal::NotLeader | FetchRefusal::NotAvailable | FetchRefusal::Epoch(_) => {
            ApiError::new(Code::Unavailable, refusal.to_string()).with_help("try again")
        }
        FetchRefusal::OutOfRange { position } => {
            let (first, end) = (position.log_start_offset.0, position.high_watermark.0);
            let message = format!("the partition has the offsets from {first} up to {end}");
            let mut error = ApiError::new(Code::OffsetOutOfRange, message).with_help(format!(
                "read from offset={first} (earliest) or offset={end} (latest); what lies before \
                 was deleted by retention or by an operator"
            ));
            error.range = Some(OffsetRange { log_start_offset: first, high_watermark: end });
            error
        }
        FetchRefusal::Corrupt(_) => ApiError::new(Code::RecordsDamaged, refusal.to_string()),
        FetchRefusal::NotResident | FetchRefusal::Storage(_) | FetchRefusal::Offline(_) => {
            ApiError::new(Code::StorageFailed, refusal.to_string())
        }
    }
}

/// Of a change to a queue that is given up.
pub(crate) fn of_queue_given_up(queue: &str) -> ApiError {
    let given_up = QueueGivenUp { queue: queue.to_owned() };
    ApiError::new(Code::QueueGivenUp, given_up.to_string())
}

/// Of messages that were handed out and are to be read.
pub(crate) fn of_read_messages(error: &NotRead) -> ApiError {
    match error {
        NotRead::Fetch(refusal) => of_fetch(refusal),
        NotRead::NotCommitted => {
            ApiError::new(Code::NotEnoughReplicas, error.to_string()).with_help("try again")
        }
    }
}

/// Of a group's coordinator, to somebody who is not a member.
pub(crate) fn of_group(refusal: groups::Refusal) -> ApiError {
    use groups::Refusal;
    let code = match refusal {
        Refusal::InvalidGroupId | Refusal::InvalidRequest | Refusal::OffsetMetadataTooLarge => {
            Code::InvalidGroup
        }
        Refusal::UnknownMemberId
        | Refusal::IllegalGeneration
        | Refusal::FencedInstanceId
        | Refusal::RebalanceInProgress
        | Refusal::NonEmptyGroup
        | Refusal::GroupSubscribedToTopic => Code::GroupActive,
        Refusal::GroupMaxSizeReached | Refusal::TooManyGroups | Refusal::CommitTooLarge => {
            Code::LimitReached
        }
        _ => Code::Internal,
    };
    if code == Code::GroupActive {
        let message = "the group has members, and only they may commit";
        return ApiError::new(code, message).with_help(
            "commit through the members' own Kafka client, stop them first, or use another group",
        );
    }
    ApiError::new(code, refusal.to_string())
}
