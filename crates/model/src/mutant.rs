//! Bugs planted on purpose, to prove that the simulator finds them.
//!
//! ```text
//! product build                  is_on(…) is `false`, and the bug is no code at all
//! --cfg towpath_mutants          one bug at a time, chosen when the simulator starts
//! ```
//!
//! The switch is a `cfg` of the compiler and not a feature: features of a workspace add up, and a
//! planted bug must not get into a release because somebody built two packages at once. It is for
//! tests and belongs to the process, not to a core: a core that reads it decides wrongly, which is
//! the point. See ADR 0012; `crates/sim/src/mutants.rs` says who has to find which.

macro_rules! mutants {
    ($($(#[doc = $about:literal])+ $variant:ident = $name:literal,)+) => {
        /// A planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            $($(#[doc = $about])+ $variant,)+
        }

        impl Mutant {
            /// All of them, those of the log first.
            pub const ALL: &[Mutant] = &[$(Mutant::$variant,)+];

            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutant::$variant => $name,)+
                }
            }

            /// What it does wrong, in a sentence.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $(Mutant::$variant => concat!($($about),+).trim_ascii(),)+
                }
            }
        }
    };
}

mutants! {
    /// After a kill, what only the page cache has counts as durable.
    PageCacheTrusted = "page-cache-trusted",
    /// After a failed sync and a kill, a start believes what the page cache shows.
    CacheBelieved = "cache-believed",
    /// A sync that was under way during a truncation vouches for what was written after it.
    OldGenerationSynced = "old-generation-synced",
    /// Small appends are acknowledged before the write-ahead file is synced.
    WriteAheadNotSynced = "write-ahead-not-synced",
    /// Large appends are acknowledged before their segment is synced.
    ExtentNotSynced = "extent-not-synced",
    /// Names of new segments are not synced before their records are acknowledged.
    NamesNotSynced = "names-not-synced",
    /// A failed sync is tried again, and the second one is believed.
    SyncRetried = "sync-retried",
    /// A failed sync is told to those who wait for it, and then forgotten.
    SyncFailureForgotten = "sync-failure-forgotten",
    /// A recovery takes batches without looking at their checksums.
    ChecksumNotChecked = "checksum-not-checked",
    /// A recovery cuts what was durable and is damaged, like a torn tail.
    DamageCut = "damage-cut",
    /// Frames of an older use of a write-ahead file are replayed.
    OldFramesReplayed = "old-frames-replayed",
    /// A truncation leaves the write-ahead file as it was.
    ForgetFrameMissing = "forget-frame-missing",
    /// Expired segments are removed before the new log start is durable.
    LogStartNotDurable = "log-start-not-durable",
    /// A checkpoint says that bytes are durable before they are.
    CheckpointBeforeData = "checkpoint-before-data",
    /// A truncation leaves the checkpoint beyond the new end.
    CheckpointNotLowered = "checkpoint-not-lowered",
    /// Replayed segments are not synced before the write-ahead files go.
    ReplayNotSynced = "replay-not-synced",
    /// A write-ahead file is used again before the segments that it covers are synced.
    WriteAheadReusedEarly = "write-ahead-reused-early",
    /// The new name of a write-ahead file is not synced before frames rest on it.
    WriteAheadNameNotSynced = "write-ahead-name-not-synced",
    /// What a full disk took of a batch stays behind the last one.
    TornAppendKept = "torn-append-kept",
    /// The mark of a clean stop stays after the next start.
    CleanMarkKept = "clean-mark-kept",
    /// The removal of a deleted log is not synced.
    DeletionNotSynced = "deletion-not-synced",
    /// Retention judges a segment by its first record.
    RetentionByFirstRecord = "retention-by-first-record",
    /// Retention removes what is not committed yet.
    RetentionUnlimited = "retention-unlimited",
    /// Producer states of records that were cut off are kept.
    CutSnapshotKept = "cut-snapshot-kept",
    /// A full disk fails the data directory.
    FullDiskFails = "full-disk-fails",
    /// The high watermark moves with the log's end, synced or not.
    HighWatermarkNotDurable = "high-watermark-not-durable",
    /// A batch that a producer repeats is appended again.
    RepeatAppended = "repeat-appended",
    /// A batch is taken although batches before it are missing.
    GapAccepted = "gap-accepted",
    /// A batch of an older producer epoch is taken.
    OldEpochAccepted = "old-epoch-accepted",
    /// Producers are forgotten by the clock that people set.
    ProducersExpireByWall = "producers-expire-by-wall",
    /// Readers get what is not committed yet.
    ReadAboveHighWatermark = "read-above-high-watermark",
    /// A start forgets who produced what.
    ProducersForgotten = "producers-forgotten",
    /// A start takes the place of a snapshot, and not its producers.
    SnapshotWithoutProducers = "snapshot-without-producers",
    /// A repeat is acknowledged before the first attempt is durable.
    RepeatAckedAtOnce = "repeat-acked-at-once",
    /// A start after a crash leads under the old leader epoch.
    LeaderEpochKept = "leader-epoch-kept",
    /// DeleteRecords removes what is not committed yet.
    DeleteAboveHighWatermark = "delete-above-high-watermark",
    /// State machines answer before the records they rest on are committed.
    ReplyBeforeCommit = "reply-before-commit",
    /// Whoever waits for a sync is put on the list, and nobody is told to run one.
    SyncNotAsked = "sync-not-asked",
    /// A wait for an offset ends one record early.
    WokenEarly = "woken-early",
    /// A start folds all but the last batch of a state's records.
    LastBatchNotReplayed = "last-batch-not-replayed",
    /// Files of a topic whose deletion was interrupted are set aside instead of removed.
    DeletionNotFinished = "deletion-not-finished",
    /// A commit of an older generation is accepted.
    OldGenerationCommits = "old-generation-commits",
    /// The old self of a static member goes on as a member.
    StaticMemberNotFenced = "static-member-not-fenced",
    /// A generation is announced before it is logged.
    GenerationNotLogged = "generation-not-logged",
    /// A rebalance gives out assignments under the generation that was.
    GenerationKept = "generation-kept",
    /// Committed offsets are answered for another topic of the same name.
    OffsetsOfOldTopic = "offsets-of-old-topic",
    /// A publisher's repeat is not looked for among its results.
    ResultsForgotten = "results-forgotten",
    /// A publisher that gave a message up goes on under the same producer epoch.
    PublisherEpochKept = "publisher-epoch-kept",
    /// A compaction drops tombstones the first time that it sees them.
    TombstoneDroppedEarly = "tombstone-dropped-early",
    /// A compaction drops the newest record of a key too.
    NewestRecordDropped = "newest-record-dropped",
    /// A compacted segment takes the place of the others before it is synced.
    SwapBeforeSync = "swap-before-sync",
    /// A compaction takes what is not committed and not durable.
    CompactionUnlimited = "compaction-unlimited",
    /// Records are taken although less is free than is kept back.
    WatermarkIgnored = "watermark-ignored",
    /// A disk that was full is taken for full, whatever becomes free.
    WatermarkNeverLeft = "watermark-never-left",
    /// Those who wait for a data directory that fails are told that all is durable.
    FailedDirectoryAcks = "failed-directory-acks",
    /// One stalled disk is taken for all of them.
    StallSpreads = "stall-spreads",
    /// A partition that lies in a missing data directory is begun anew in another.
    MissingBegunAnew = "missing-begun-anew",
    /// The guard holds nothing.
    GuardHoldIgnored = "guard-hold-ignored",
    /// The guard holds beyond its cap.
    GuardCapIgnored = "guard-cap-ignored",
    /// A scrub passes over damage.
    ScrubPassesOver = "scrub-passes-over",
    /// A follower cuts its log to the high watermark that it knows (KIP-101).
    TruncateToHighWatermark = "truncate-to-high-watermark",
    /// A leader sends to followers whose logs differ from its own (KIP-279, KIP-595).
    NoDivergenceCheck = "no-divergence-check",
    /// A follower joins the in-sync set before it has what is committed.
    ExpandEarly = "expand-early",
    /// Who is in sync is judged by a queue's records alone, whatever a follower lacks of its deliveries.
    InSyncByRecords = "in-sync-by-records",
    /// Whoever is asked for as in sync counts for a queue's records, and not for its deliveries.
    AskedForInOneLog = "asked-for-in-one-log",
    /// The high watermark of a delivery log passes what a follower lacks of it.
    DeliveriesCommittedAlone = "deliveries-committed-alone",
    /// The high watermark does not wait for those whom the controller may have let in (KIP-497).
    NoMaximalIsr = "no-maximal-isr",
    /// A refused expansion stops counting, although a copy of the request may still be accepted.
    RefusedForgotten = "refused-forgotten",
    /// A follower takes an answer that was given to another position.
    StaleAnswerApplied = "stale-answer-applied",
    /// A follower takes a lower high watermark than it knew.
    HighWatermarkRegresses = "high-watermark-regresses",
    /// The high watermark passes what the fewest allowed replicas hold, not all in-sync ones.
    QuorumHighWatermark = "quorum-high-watermark",
    /// A leader leaves replicas out before the controller agrees (KIP-497).
    LocalShrink = "local-shrink",
    /// An in-sync set is accepted that rests on an older state of the partition (KIP-497).
    NoPartitionEpochFence = "no-partition-epoch-fence",
    /// An in-sync set is accepted whose members have started anew since they were judged (KIP-903).
    NoBrokerEpochFence = "no-broker-epoch-fence",
    /// Nobody is elected because they are eligible (KIP-966).
    ElrIgnored = "elr-ignored",
    /// Replicas stay eligible although the high watermark moves without them (KIP-966).
    EligibleKept = "eligible-kept",
    /// A replica that may have lost what a relaxed topic acknowledged stays in sync (KIP-966).
    DirtyStaysEligible = "dirty-stays-eligible",
    /// A follower tells that records are durable before they are.
    DurableToldEarly = "durable-told-early",
    /// A follower that is told to cut its log leaves it as it is.
    CutNotDone = "cut-not-done",
    /// A log start does not follow where others have deleted records.
    LogStartNotFollowed = "log-start-not-followed",
    /// Who deletes records is answered before the in-sync replicas have deleted them.
    DeletionAnsweredEarly = "deletion-answered-early",
    /// A leader never tells its lines unless it has records to send.
    LinesNeverTold = "lines-never-told",
    /// A follower tells its position once, and waits for ever when that is lost.
    PositionToldOnce = "position-told-once",
    /// A leader that hears of the next one goes on.
    OldLeaderGoesOn = "old-leader-goes-on",
    /// The receipt of an earlier delivery works for the one that came after it.
    StaleReceiptWorks = "stale-receipt-works",
    /// A new leader lets the clock of a queue run on by more than has passed.
    LeaseShortenedByFailover = "lease-shortened-by-failover",
    /// A lease is over once people's clocks say so.
    LeaseByWall = "lease-by-wall",
    /// A message group is open again once one of several held messages is done.
    GroupUnlockedEarly = "group-unlocked-early",
    /// What is asked of deliveries is answered before it is committed.
    DeliveriesAnsweredEarly = "deliveries-answered-early",
    /// A message is received once more than it may be.
    OneReceiveTooMany = "one-receive-too-many",
    /// What another queue hands over again is delivered again.
    HandedOverTwice = "handed-over-twice",
    /// A new leader forgets which ids were sent.
    IdsForgotten = "ids-forgotten",
    /// A subscription gets the number of the one that ended last.
    SubscriptionNumberReused = "subscription-number-reused",
    /// Records are removed once the queue's own subscription is done with their messages.
    ForgottenByOne = "forgotten-by-one",
    /// Records are removed although it is not committed that their messages are done with.
    ForgottenEarly = "forgotten-early",
    /// A delay ends with the second before it should.
    DelayRoundedDown = "delay-rounded-down",
    /// Deliveries of records that a new leader has not got are kept, for those that get their place.
    LostRecordsKept = "lost-records-kept",
    /// Who waits for messages is not told of those that become ready.
    ReceiverNotWoken = "receiver-not-woken",
    /// What was handed out by a name is given back when one of those who asked by it has hung up.
    NamedGivenBack = "named-given-back",
    /// Who begins with a snapshot of deliveries passes it over.
    SnapshotPassedOver = "snapshot-passed-over",
    /// A snapshot of deliveries misses who holds what.
    SnapshotWithoutLeases = "snapshot-without-leases",
    /// A snapshot of deliveries misses how often messages were received.
    SnapshotWithoutCounts = "snapshot-without-counts",
    /// A snapshot of deliveries misses until when messages are delayed.
    SnapshotWithoutDelays = "snapshot-without-delays",
    /// A snapshot of deliveries misses what is on its way to another queue.
    SnapshotWithoutMoves = "snapshot-without-moves",
}

impl Mutant {
    /// The one with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Mutant> {
        Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }
}

#[cfg(towpath_mutants)]
mod switch {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Mutant;

    /// One more than the number of the mutant; 0 is none.
    static ON: AtomicUsize = AtomicUsize::new(0);

    /// Plants one bug in this process, or none.
    pub fn plant(mutant: Option<Mutant>) {
        ON.store(mutant.map_or(0, |mutant| mutant as usize + 1), Ordering::Relaxed);
    }

    /// Whether this bug is planted.
    #[must_use]
    #[inline]
    pub fn is_on(mutant: Mutant) -> bool {
        ON.load(Ordering::Relaxed) == mutant as usize + 1
    }
}

#[cfg(towpath_mutants)]
pub use switch::{is_on, plant};

/// Whether this bug is planted: never, in a build without `--cfg towpath_mutants`.
#[cfg(not(towpath_mutants))]
#[must_use]
#[inline(always)]
pub const fn is_on(_: Mutant) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn mutants_have_names_of_their_own_and_are_off() {
        let names: BTreeSet<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), Mutant::ALL.len());
        for mutant in Mutant::ALL {
            assert_eq!(Mutant::find(mutant.name()), Some(*mutant));
            assert!(mutant.about().ends_with('.'), "{mutant:?}");
            assert!(!is_on(*mutant));
        }
    }
}
