//! Kafka's error codes, as facts: number, name, and what a client does about each.
//!
//! The table is that of Kafka 4.4: *retry* means that the same request may succeed later, *refresh*
//! that the client should fetch new metadata before it retries, *fail* that it should not retry.

use std::fmt;

macro_rules! error_codes {
    ($($code:literal $variant:ident $name:literal $answer:ident)*) => {
        /// An error code of the Kafka protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`", $name, "`")]
                $variant = $code,
            )*
        }

        impl ErrorCode {
            /// Every code, in rising order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name that Kafka's documentation uses, such as `UNKNOWN_TOPIC_OR_PARTITION`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            const fn answer(self) -> Answer {
                match self {
                    $(Self::$variant => Answer::$answer,)*
                }
            }
        }

        impl From<i16> for ErrorCode {
            /// A code we do not know is an unknown server error, as for Kafka's own clients.
            fn from(code: i16) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    _ => Self::UnknownServerError,
                }
            }
        }
    };
}

/// What a client does about an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Fail,
    Retry,
    Refresh,
}

error_codes! {
    -1 UnknownServerError "UNKNOWN_SERVER_ERROR" Fail
    0 None "NONE" Fail
    1 OffsetOutOfRange "OFFSET_OUT_OF_RANGE" Fail
    2 CorruptMessage "CORRUPT_MESSAGE" Retry
    3 UnknownTopicOrPartition "UNKNOWN_TOPIC_OR_PARTITION" Refresh
    4 InvalidFetchSize "INVALID_FETCH_SIZE" Fail
    5 LeaderNotAvailable "LEADER_NOT_AVAILABLE" Refresh
    6 NotLeaderOrFollower "NOT_LEADER_OR_FOLLOWER" Refresh
    7 RequestTimedOut "REQUEST_TIMED_OUT" Retry
    8 BrokerNotAvailable "BROKER_NOT_AVAILABLE" Fail
    9 ReplicaNotAvailable "REPLICA_NOT_AVAILABLE" Refresh
    10 MessageTooLarge "MESSAGE_TOO_LARGE" Fail
    11 StaleControllerEpoch "STALE_CONTROLLER_EPOCH" Fail
    12 OffsetMetadataTooLarge "OFFSET_METADATA_TOO_LARGE" Fail
    13 NetworkException "NETWORK_EXCEPTION" Refresh
    14 CoordinatorLoadInProgress "COORDINATOR_LOAD_IN_PROGRESS" Retry
    15 CoordinatorNotAvailable "COORDINATOR_NOT_AVAILABLE" Retry
    16 NotCoordinator "NOT_COORDINATOR" Retry
    17 InvalidTopicException "INVALID_TOPIC_EXCEPTION" Fail
    18 RecordListTooLarge "RECORD_LIST_TOO_LARGE" Fail
    19 NotEnoughReplicas "NOT_ENOUGH_REPLICAS" Retry
    20 NotEnoughReplicasAfterAppend "NOT_ENOUGH_REPLICAS_AFTER_APPEND" Retry
    21 InvalidRequiredAcks "INVALID_REQUIRED_ACKS" Fail
    22 IllegalGeneration "ILLEGAL_GENERATION" Fail
    23 InconsistentGroupProtocol "INCONSISTENT_GROUP_PROTOCOL" Fail
    24 InvalidGroupId "INVALID_GROUP_ID" Fail
    25 UnknownMemberId "UNKNOWN_MEMBER_ID" Fail
    26 InvalidSessionTimeout "INVALID_SESSION_TIMEOUT" Fail
    27 RebalanceInProgress "REBALANCE_IN_PROGRESS" Fail
    28 InvalidCommitOffsetSize "INVALID_COMMIT_OFFSET_SIZE" Fail
    29 TopicAuthorizationFailed "TOPIC_AUTHORIZATION_FAILED" Fail
    30 GroupAuthorizationFailed "GROUP_AUTHORIZATION_FAILED" Fail
    31 ClusterAuthorizationFailed "CLUSTER_AUTHORIZATION_FAILED" Fail
    32 InvalidTimestamp "INVALID_TIMESTAMP" Fail
    33 UnsupportedSaslMechanism "UNSUPPORTED_SASL_MECHANISM" Fail
    34 IllegalSaslState "ILLEGAL_SASL_STATE" Fail
    35 UnsupportedVersion "UNSUPPORTED_VERSION" Fail
    36 TopicAlreadyExists "TOPIC_ALREADY_EXISTS" Fail
    37 InvalidPartitions "INVALID_PARTITIONS" Fail
    38 InvalidReplicationFactor "INVALID_REPLICATION_FACTOR" Fail
    39 InvalidReplicaAssignment "INVALID_REPLICA_ASSIGNMENT" Fail
    40 InvalidConfig "INVALID_CONFIG" Fail
    41 NotController "NOT_CONTROLLER" Retry
    42 InvalidRequest "INVALID_REQUEST" Fail
    43 UnsupportedForMessageFormat "UNSUPPORTED_FOR_MESSAGE_FORMAT" Fail
    44 PolicyViolation "POLICY_VIOLATION" Fail
    45 OutOfOrderSequenceNumber "OUT_OF_ORDER_SEQUENCE_NUMBER" Fail
    46 DuplicateSequenceNumber "DUPLICATE_SEQUENCE_NUMBER" Fail
    47 InvalidProducerEpoch "INVALID_PRODUCER_EPOCH" Fail
    48 InvalidTxnState "INVALID_TXN_STATE" Fail
    49 InvalidProducerIdMapping "INVALID_PRODUCER_ID_MAPPING" Fail
    50 InvalidTransactionTimeout "INVALID_TRANSACTION_TIMEOUT" Fail
    51 ConcurrentTransactions "CONCURRENT_TRANSACTIONS" Retry
    52 TransactionCoordinatorFenced "TRANSACTION_COORDINATOR_FENCED" Fail
    53 TransactionalIdAuthorizationFailed "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" Fail
    54 SecurityDisabled "SECURITY_DISABLED" Fail
    55 OperationNotAttempted "OPERATION_NOT_ATTEMPTED" Fail
    56 KafkaStorageError "KAFKA_STORAGE_ERROR" Refresh
    57 LogDirNotFound "LOG_DIR_NOT_FOUND" Fail
    58 SaslAuthenticationFailed "SASL_AUTHENTICATION_FAILED" Fail
    59 UnknownProducerId "UNKNOWN_PRODUCER_ID" Fail
    60 ReassignmentInProgress "REASSIGNMENT_IN_PROGRESS" Fail
    61 DelegationTokenAuthDisabled "DELEGATION_TOKEN_AUTH_DISABLED" Fail
    62 DelegationTokenNotFound "DELEGATION_TOKEN_NOT_FOUND" Fail
    63 DelegationTokenOwnerMismatch "DELEGATION_TOKEN_OWNER_MISMATCH" Fail
    64 DelegationTokenRequestNotAllowed "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" Fail
    65 DelegationTokenAuthorizationFailed "DELEGATION_TOKEN_AUTHORIZATION_FAILED" Fail
    66 DelegationTokenExpired "DELEGATION_TOKEN_EXPIRED" Fail
    67 InvalidPrincipalType "INVALID_PRINCIPAL_TYPE" Fail
    68 NonEmptyGroup "NON_EMPTY_GROUP" Fail
    69 GroupIdNotFound "GROUP_ID_NOT_FOUND" Fail
    70 FetchSessionIdNotFound "FETCH_SESSION_ID_NOT_FOUND" Retry
    71 InvalidFetchSessionEpoch "INVALID_FETCH_SESSION_EPOCH" Retry
    72 ListenerNotFound "LISTENER_NOT_FOUND" Refresh
    73 TopicDeletionDisabled "TOPIC_DELETION_DISABLED" Fail
    74 FencedLeaderEpoch "FENCED_LEADER_EPOCH" Refresh
    75 UnknownLeaderEpoch "UNKNOWN_LEADER_EPOCH" Retry
    76 UnsupportedCompressionType "UNSUPPORTED_COMPRESSION_TYPE" Fail
    77 StaleBrokerEpoch "STALE_BROKER_EPOCH" Fail
    78 OffsetNotAvailable "OFFSET_NOT_AVAILABLE" Retry
    79 MemberIdRequired "MEMBER_ID_REQUIRED" Fail
    80 PreferredLeaderNotAvailable "PREFERRED_LEADER_NOT_AVAILABLE" Refresh
    81 GroupMaxSizeReached "GROUP_MAX_SIZE_REACHED" Fail
    82 FencedInstanceId "FENCED_INSTANCE_ID" Fail
    83 EligibleLeadersNotAvailable "ELIGIBLE_LEADERS_NOT_AVAILABLE" Refresh
    84 ElectionNotNeeded "ELECTION_NOT_NEEDED" Refresh
    85 NoReassignmentInProgress "NO_REASSIGNMENT_IN_PROGRESS" Fail
    86 GroupSubscribedToTopic "GROUP_SUBSCRIBED_TO_TOPIC" Fail
    87 InvalidRecord "INVALID_RECORD" Fail
    88 UnstableOffsetCommit "UNSTABLE_OFFSET_COMMIT" Retry
    89 ThrottlingQuotaExceeded "THROTTLING_QUOTA_EXCEEDED" Retry
    90 ProducerFenced "PRODUCER_FENCED" Fail
    91 ResourceNotFound "RESOURCE_NOT_FOUND" Fail
    92 DuplicateResource "DUPLICATE_RESOURCE" Fail
    93 UnacceptableCredential "UNACCEPTABLE_CREDENTIAL" Fail
    94 InconsistentVoterSet "INCONSISTENT_VOTER_SET" Fail
    95 InvalidUpdateVersion "INVALID_UPDATE_VERSION" Fail
    96 FeatureUpdateFailed "FEATURE_UPDATE_FAILED" Fail
    97 PrincipalDeserializationFailure "PRINCIPAL_DESERIALIZATION_FAILURE" Fail
    98 SnapshotNotFound "SNAPSHOT_NOT_FOUND" Fail
    99 PositionOutOfRange "POSITION_OUT_OF_RANGE" Fail
    100 UnknownTopicId "UNKNOWN_TOPIC_ID" Refresh
    101 DuplicateBrokerRegistration "DUPLICATE_BROKER_REGISTRATION" Fail
    102 BrokerIdNotRegistered "BROKER_ID_NOT_REGISTERED" Fail
    103 InconsistentTopicId "INCONSISTENT_TOPIC_ID" Refresh
    104 InconsistentClusterId "INCONSISTENT_CLUSTER_ID" Fail
    105 TransactionalIdNotFound "TRANSACTIONAL_ID_NOT_FOUND" Fail
    106 FetchSessionTopicIdError "FETCH_SESSION_TOPIC_ID_ERROR" Retry
    107 IneligibleReplica "INELIGIBLE_REPLICA" Fail
    108 NewLeaderElected "NEW_LEADER_ELECTED" Fail
    109 OffsetMovedToTieredStorage "OFFSET_MOVED_TO_TIERED_STORAGE" Fail
    110 FencedMemberEpoch "FENCED_MEMBER_EPOCH" Fail
    111 UnreleasedInstanceId "UNRELEASED_INSTANCE_ID" Fail
    112 UnsupportedAssignor "UNSUPPORTED_ASSIGNOR" Fail
    113 StaleMemberEpoch "STALE_MEMBER_EPOCH" Fail
    114 MismatchedEndpointType "MISMATCHED_ENDPOINT_TYPE" Fail
    115 UnsupportedEndpointType "UNSUPPORTED_ENDPOINT_TYPE" Fail
    116 UnknownControllerId "UNKNOWN_CONTROLLER_ID" Fail
    117 UnknownSubscriptionId "UNKNOWN_SUBSCRIPTION_ID" Fail
    118 TelemetryTooLarge "TELEMETRY_TOO_LARGE" Fail
    119 InvalidRegistration "INVALID_REGISTRATION" Fail
    120 TransactionAbortable "TRANSACTION_ABORTABLE" Fail
    121 InvalidRecordState "INVALID_RECORD_STATE" Fail
    122 ShareSessionNotFound "SHARE_SESSION_NOT_FOUND" Retry
    123 InvalidShareSessionEpoch "INVALID_SHARE_SESSION_EPOCH" Retry
    124 FencedStateEpoch "FENCED_STATE_EPOCH" Fail
    125 InvalidVoterKey "INVALID_VOTER_KEY" Fail
    126 DuplicateVoter "DUPLICATE_VOTER" Fail
    127 VoterNotFound "VOTER_NOT_FOUND" Fail
    128 InvalidRegularExpression "INVALID_REGULAR_EXPRESSION" Fail
    129 RebootstrapRequired "REBOOTSTRAP_REQUIRED" Fail
    130 StreamsInvalidTopology "STREAMS_INVALID_TOPOLOGY" Fail
    131 StreamsInvalidTopologyEpoch "STREAMS_INVALID_TOPOLOGY_EPOCH" Fail
    132 StreamsTopologyFenced "STREAMS_TOPOLOGY_FENCED" Fail
    133 ShareSessionLimitReached "SHARE_SESSION_LIMIT_REACHED" Retry
    134 GroupDeletionFailed "GROUP_DELETION_FAILED" Fail
    135 StreamsTopologyDescriptionUpdateFailed "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED" Fail
    136 ControllerIdNotRegistered "CONTROLLER_ID_NOT_REGISTERED" Fail
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether this is no error.
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether the same request may succeed when it is sent again.
    pub const fn is_retriable(self) -> bool {
        !matches!(self.answer(), Answer::Fail)
    }

    /// Whether the client's metadata is stale, so that it should be fetched again before a retry.
    pub const fn is_metadata_stale(self) -> bool {
        matches!(self.answer(), Answer::Refresh)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.code()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn codes_are_gapless_and_survive_the_wire() {
        for (code, &error) in (-1..=136).zip(ErrorCode::ALL) {
            assert_eq!(error.code(), code);
            assert_eq!(ErrorCode::from(code), error);
        }
        assert_eq!(ErrorCode::ALL.len(), 138);
        assert_eq!(ErrorCode::from(i16::MAX), ErrorCode::UnknownServerError);
    }

    #[test]
    fn a_client_knows_what_to_do() {
        assert!(ErrorCode::None.is_ok());
        assert!(ErrorCode::NotEnoughReplicas.is_retriable());
        assert!(ErrorCode::NotLeaderOrFollower.is_metadata_stale());
        assert!(!ErrorCode::MessageTooLarge.is_retriable());
        assert_eq!(ErrorCode::UnknownTopicId.to_string(), "UNKNOWN_TOPIC_ID (100)");
    }
}
