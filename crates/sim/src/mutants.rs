//! Which profile has to find which planted bug, and in how many seeds.
//!
//! A mutant that survives its budget says that a workload or a checker is too weak: that is
//! repaired, not the list. Budgets are small, so that all of them run with every change; where a bug
//! shows in one seed of many, they begin near seeds that are known to find it, as a range, because
//! any change of a generator moves the single seed.

pub use towpath_model::mutant::Mutant;

use crate::campaign::{self, Campaign, Outcome};
use crate::profiles;

/// Where one mutant is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hunt {
    /// By which profile.
    pub profile: &'static str,
    /// From which seed on.
    pub from: u64,
    /// In how many seeds.
    pub seeds: u64,
}

const fn by(profile: &'static str, seeds: u64) -> Hunt {
    Hunt { profile, from: 1, seeds }
}

/// The hunts for a mutant, the likeliest first.
#[must_use]
pub fn hunts(mutant: Mutant) -> Vec<Hunt> {
    use Mutant as M;
    match mutant {
        M::PageCacheTrusted
        | M::CacheBelieved
        | M::OldGenerationSynced
        | M::WriteAheadNotSynced
        | M::ExtentNotSynced
        | M::NamesNotSynced
        | M::SyncRetried
        | M::SyncFailureForgotten
        | M::ChecksumNotChecked
        | M::ForgetFrameMissing
        | M::LogStartNotDurable
        | M::CheckpointBeforeData
        | M::CheckpointNotLowered
        | M::ReplayNotSynced
        | M::WriteAheadReusedEarly
        | M::WriteAheadNameNotSynced
        | M::DeletionNotSynced
        | M::RetentionByFirstRecord
        | M::RetentionUnlimited => vec![by("log", 3000)],
        // In one seed of a thousand or so.
        M::TornAppendKept | M::OldFramesReplayed | M::CutSnapshotKept => vec![by("log", 8000)],
        M::RefusedForgotten => vec![by("replicas", 8000)],
        M::CutNotDone
        | M::LogStartNotFollowed
        | M::DeletionAnsweredEarly
        | M::LinesNeverTold
        | M::PositionToldOnce
        | M::OldLeaderGoesOn
        | M::DurableToldEarly => vec![by("cluster", 100)],
        M::InSyncByRecords | M::AskedForInOneLog | M::DeliveriesCommittedAlone => {
            vec![by("cluster", 1000)]
        }
        M::StaleReceiptWorks
        | M::LeaseShortenedByFailover
        | M::LeaseByWall
        | M::GroupUnlockedEarly
        | M::DeliveriesAnsweredEarly
        | M::OneReceiveTooMany
        | M::HandedOverTwice
        | M::IdsForgotten
        | M::SubscriptionNumberReused
        | M::ForgottenByOne
        | M::ForgottenEarly
        | M::DelayRoundedDown
        | M::ReceiverNotWoken
        | M::NamedGivenBack
        | M::SnapshotPassedOver
        | M::SnapshotWithoutLeases
        | M::SnapshotWithoutCounts
        | M::SnapshotWithoutDelays => vec![by("queue", 1000)],
        // In one seed of some hundreds.
        M::LostRecordsKept | M::SnapshotWithoutMoves => vec![by("queue", 4000)],
        M::DamageCut | M::ScrubPassesOver => vec![by("rot", 500)],
        M::TombstoneDroppedEarly
        | M::NewestRecordDropped
        | M::SwapBeforeSync
        | M::CompactionUnlimited => vec![by("compaction", 2000)],
        M::FailedDirectoryAcks | M::StallSpreads | M::MissingBegunAnew => {
            vec![by("volumes", 2000)]
        }
        // In one seed of some thousands.
        M::NoPartitionEpochFence => vec![by("controller", 20_000)],
        M::NoBrokerEpochFence | M::ElrIgnored | M::EligibleKept | M::DirtyStaysEligible => {
            vec![by("controller", 2000)]
        }
        M::GuardHoldIgnored | M::GuardCapIgnored => vec![by("retention", 1000)],
        M::ProducersExpireByWall => vec![by("broker", 6000)],
        M::HighWatermarkNotDurable
        | M::WatermarkIgnored
        | M::WatermarkNeverLeft
        | M::CleanMarkKept
        | M::FullDiskFails
        | M::RepeatAppended
        | M::GapAccepted
        | M::OldEpochAccepted
        | M::ReadAboveHighWatermark
        | M::ProducersForgotten
        | M::SnapshotWithoutProducers
        | M::RepeatAckedAtOnce
        | M::LeaderEpochKept
        | M::DeleteAboveHighWatermark
        | M::ReplyBeforeCommit
        | M::SyncNotAsked
        | M::WokenEarly
        | M::DeletionNotFinished
        | M::ResultsForgotten
        | M::PublisherEpochKept => vec![by("broker", 3000)],
        M::LastBatchNotReplayed
        | M::OldGenerationCommits
        | M::StaticMemberNotFenced
        | M::GenerationNotLogged
        | M::GenerationKept
        | M::OffsetsOfOldTopic => vec![by("groups", 3000)],
        M::TruncateToHighWatermark
        | M::NoDivergenceCheck
        | M::ExpandEarly
        | M::NoMaximalIsr
        | M::StaleAnswerApplied
        | M::HighWatermarkRegresses
        | M::QuorumHighWatermark
        | M::LocalShrink => vec![by("replicas", 3000)],
    }
}

/// Plants a bug in this process, or none.
///
/// # Errors
/// When this build has no planted bugs.
pub fn plant(mutant: Option<Mutant>) -> Result<(), String> {
    #[cfg(towpath_mutants)]
    {
        towpath_model::mutant::plant(mutant);
        Ok(())
    }
    #[cfg(not(towpath_mutants))]
    match mutant {
        None => Ok(()),
        Some(_) => Err("this build has no planted bugs; `cargo xtask sim` makes one".to_owned()),
    }
}

/// What became of a mutant.
#[derive(Debug, Clone)]
pub struct Hunted {
    /// The runs of the hunt that found it, or of the last one.
    pub outcome: Outcome,
    /// Seeds of the hunts before that one.
    pub seeds_before: u64,
}

impl Hunted {
    /// Whether a promise was seen broken. A workload that trips over itself has found nothing.
    #[must_use]
    pub fn is_found(&self) -> bool {
        let failure = self.outcome.failure.as_ref();
        failure.is_some_and(|failure| failure.violation.invariant.starts_with("INV-"))
    }
}

/// Looks for a planted bug until it is found or its budget is used up.
///
/// # Errors
/// When this build has no planted bugs.
pub fn hunt(mutant: Mutant, threads: usize) -> Result<Hunted, String> {
    plant(Some(mutant))?;
    let mut hunted = Hunted { outcome: Outcome::default(), seeds_before: 0 };
    for (nth, Hunt { profile, from, seeds }) in hunts(mutant).into_iter().enumerate() {
        let profile = profiles::find(profile).expect("a test checks that they are there");
        if 0 < nth {
            hunted.seeds_before += hunted.outcome.passed;
        }
        hunted.outcome = campaign::run(profile, Campaign { from, seeds, threads, twice: false });
        if hunted.outcome.failure.is_some() {
            break;
        }
    }
    plant(None)?;
    Ok(hunted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_is_hunted_by_a_profile_that_exists() {
        for mutant in Mutant::ALL {
            let hunts = hunts(*mutant);
            assert!(!hunts.is_empty(), "{mutant:?}");
            for hunt in hunts {
                assert!(profiles::find(hunt.profile).is_some(), "{hunt:?}");
                assert!(1 < hunt.seeds, "{hunt:?}: a range, not a single seed");
            }
        }
    }
}
