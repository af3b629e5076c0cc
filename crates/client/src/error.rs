//! What can go wrong, to whom, and what to do about it.

use std::time::Duration;

use towpath_protocol::ErrorCode;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One failure, with the facts that a person needs to act on it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No connection could be opened.
    #[error("cannot reach {address}: {cause}")]
    Unreachable {
        /// Who was dialled; several addresses are separated by commas.
        address: String,
        /// What the operating system said.
        cause: String,
    },
    /// A connection ended before an answer came.
    #[error("the connection to {address} was lost: {cause}")]
    Disconnected {
        /// The broker's address.
        address: String,
        /// Why.
        cause: String,
    },
    /// Something other than a Kafka listener answers at that address.
    #[error("{address} answers, but not in the Kafka protocol: it looks like {looks_like}")]
    NotKafka {
        /// The address.
        address: String,
        /// What its first bytes look like.
        looks_like: &'static str,
    },
    /// An answer could not be read.
    #[error("{address} sent an answer that cannot be read: {cause}")]
    Malformed {
        /// The broker's address.
        address: String,
        /// What was wrong with it.
        cause: String,
    },
    /// We and the broker share no version of a request.
    #[error("{address} does not speak a version of {api} that this client knows")]
    UnsupportedApi {
        /// The broker's address.
        address: String,
        /// The request's name.
        api: &'static str,
    },
    /// A deadline passed.
    #[error("{doing} did not finish within {after:?}")]
    TimedOut {
        /// What was being attempted.
        doing: String,
        /// How long it was given.
        after: Duration,
    },
    /// The broker said no.
    #[error("{doing}: {}", refusal(*.code, .message.as_deref()))]
    Refused {
        /// What was asked, with the name of the thing.
        doing: String,
        /// The broker's code.
        code: ErrorCode,
        /// The broker's words, where it sent some.
        message: Option<String>,
    },
    /// The broker said no over HTTP.
    #[error("{doing}: {message} ({code})")]
    HttpRefused {
        /// What was asked, with the name of the thing.
        doing: String,
        /// The status of the answer.
        status: u16,
        /// The stable code of Towpath's HTTP API, such as `RECEIPT_STALE`.
        code: String,
        /// The broker's words.
        message: String,
        /// What the broker says that can be done about it.
        help: Option<String>,
    },
    /// A topic does not exist.
    #[error("topic {topic:?} does not exist")]
    UnknownTopic {
        /// Its name.
        topic: String,
    },
    /// A partition does not exist.
    #[error("topic {topic:?} has no partition {partition}: it has {count}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition that was asked for.
        partition: i32,
        /// How many partitions there are.
        count: usize,
    },
    /// A partition has no leader right now.
    #[error("partition {topic}-{partition} has no leader at the moment")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The producer's buffer has no room.
    #[error("the producer's buffer of {buffer_bytes} bytes is full")]
    BufferFull {
        /// Its size.
        buffer_bytes: usize,
    },
    /// A record exceeds what the producer or the broker takes.
    #[error("a record of {bytes} bytes for topic {topic:?} exceeds the limit{}", limit_text(*.limit))]
    RecordTooLarge {
        /// The topic.
        topic: String,
        /// The record's size, keys, values and headers together.
        bytes: usize,
        /// The limit, where it is known: the broker does not tell its own.
        limit: Option<usize>,
    },
    /// The producer cannot go on without risking order or duplicates.
    #[error("the producer stopped: {reason}")]
    ProducerStopped {
        /// Why.
        reason: String,
    },
    /// Records may or may not have been written: their last attempt was never answered.
    #[error(
        "records for {topic}-{partition} were not acknowledged within {after:?}; they may have been written"
    )]
    DeliveryUnknown {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The delivery timeout.
        after: Duration,
    },
    /// A member lost its place in its group.
    #[error("this member is no longer part of group {group:?}: {reason}")]
    LostMembership {
        /// The group.
        group: String,
        /// Why.
        reason: String,
    },
    /// A position lies outside a partition and no reset rule was chosen.
    #[error(
        "offset {offset} of {topic}-{partition} is out of range and no automatic reset is configured"
    )]
    OffsetOutOfRange {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The position that was asked for.
        offset: i64,
    },
    /// A batch that was read is damaged or not readable.
    #[error(
        "partition {topic}-{partition} holds a batch at offset {offset} that cannot be read: {cause}"
    )]
    UnreadableBatch {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where to resume in order to skip it.
        offset: i64,
        /// What was wrong.
        cause: String,
    },
    /// The broker has acknowledged records that it cannot read any more; it serves those around them.
    #[error("the records of {topic}-{partition} from offset {offset} on are damaged on the broker")]
    DamagedRecords {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The first offset that cannot be read. Where the damage ends,
        /// [`Admin::log_dirs`](crate::Admin::log_dirs) tells.
        offset: i64,
    },
    /// The caller asked for something that makes no sense.
    #[error("{0}")]
    InvalidArgument(String),
    /// The producer or consumer was closed.
    #[error("already closed")]
    Closed,
}

fn refusal(code: ErrorCode, message: Option<&str>) -> String {
    match message {
        Some(message) if !message.is_empty() => format!("{message} ({})", code.name()),
        _ => code.name().to_owned(),
    }
}

fn limit_text(limit: Option<usize>) -> String {
    limit.map_or_else(|| " of the broker".to_owned(), |limit| format!(" of {limit} bytes"))
}

impl Error {
    /// A refusal of the broker.
    pub(crate) fn refused(
        doing: impl Into<String>,
        code: impl Into<ErrorCode>,
        message: Option<&str>,
    ) -> Error {
        Error::Refused {
            doing: doing.into(),
            code: code.into(),
            message: message.map(str::to_owned),
        }
    }

    /// The broker's code, where a broker refused.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Refused { code, .. } => Some(*code),
            Error::DamagedRecords { .. } => Some(ErrorCode::CorruptMessage),
            _ => None,
        }
    }

    /// Whether trying again later can help without changing anything.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::Disconnected { .. } | Error::NoLeader { .. } => true,
            Error::Refused { code, .. } => code.is_retriable(),
            Error::HttpRefused { status, .. } => matches!(status, 421 | 503),
            _ => false,
        }
    }

    /// Whether the broker refused because the caller is not allowed to.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.code().is_some_and(|code| {
            let name = code.name();
            name.ends_with("_AUTHORIZATION_FAILED") || name.starts_with("SASL_AUTHENTICATION")
        })
    }

    /// Whether the cluster could not be reached at all.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Error::Unreachable { .. } | Error::Disconnected { .. } | Error::NotKafka { .. }
        )
    }

    /// What a person can do about it, where we know.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        Some(match self {
            Error::Unreachable { address, .. } => {
                format!("is a server running there? `towpath dev` starts one; `towpath doctor connect {address}` looks closer")
            }
            Error::Disconnected { address, .. } => {
                format!("`towpath doctor connect {address}` finds out what answers there")
            }
            Error::NotKafka { looks_like, .. } if looks_like.contains("TLS") => {
                "that listener wants TLS, which this client does not speak yet: use a plaintext listener".to_owned()
            }
            Error::NotKafka { .. } => {
                "name the Kafka listener, by default port 9092; HTTP is on 8080".to_owned()
            }
            Error::BufferFull { .. } => {
                "send more slowly, raise buffer_bytes, or wait with OnFull::Block".to_owned()
            }
            Error::RecordTooLarge { .. } => {
                "raise max.message.bytes of the topic, and max_request_bytes of the producer".to_owned()
            }
            Error::OffsetOutOfRange { .. } => {
                "seek to an offset that exists, or choose an automatic reset".to_owned()
            }
            Error::DamagedRecords { .. } => {
                "`towpath status` names what is damaged; seek behind it to go on".to_owned()
            }
            Error::HttpRefused { help, .. } => return help.clone(),
            _ => return None,
        })
    }

    /// The stable code of Towpath's HTTP API, where a broker refused over HTTP.
    #[must_use]
    pub fn http_code(&self) -> Option<&str> {
        match self {
            Error::HttpRefused { code, .. } => Some(code),
            _ => None,
        }
    }
}
