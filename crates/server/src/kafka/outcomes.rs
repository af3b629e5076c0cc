//! What became of partitions that a request names one by one, as answers list it: by topic.

use towpath_metadata::{PartitionOutcomes, Refusal};
use towpath_protocol::ErrorCode;

use super::errors;

/// What became of one partition.
pub(super) struct PartitionOutcome {
    pub(super) index: i32,
    pub(super) error: ErrorCode,
    pub(super) message: Option<String>,
}

/// Partitions that follow one another and belong to the same topic, together.
pub(super) fn by_topic(outcomes: &PartitionOutcomes) -> Vec<(&str, Vec<PartitionOutcome>)> {
    let mut topics: Vec<(&str, Vec<PartitionOutcome>)> = Vec::new();
    for ((topic, index), result) in outcomes {
        let refusal = result.as_ref().err();
        let outcome = PartitionOutcome {
            index: index.0,
            error: refusal.map_or(ErrorCode::None, errors::of_metadata_refusal),
            message: refusal.map(Refusal::to_string),
        };
        match topics.last_mut() {
            Some((last, partitions)) if last == topic => partitions.push(outcome),
            _ => topics.push((topic, vec![outcome])),
        }
    }
    topics
}
