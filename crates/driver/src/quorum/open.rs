//! From a data directory to a member of the quorum.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use towpath_log::disk::Disk;
use towpath_log::{DataDirectory, LogConfig, LogPlace, QuorumState};
use towpath_metadata::raft::{
    Consensus, LogIndex, MemberId, Payload, Raft, RaftStart, Settings as RaftSettings, Term, Vote,
};
use towpath_metadata::{Image, Record};
use towpath_model::{Offset, TopicName, TopicPartition};

use super::{Quorum, QuorumSlot, command, log, snapshot};
use crate::driver::Settings;
use crate::recover::RecoverError;

/// A leader is missed after so many ticks, half a second, to twice as many.
const ELECTION_TICKS: usize = 10;
/// A leader says that it is there every two ticks.
const HEARTBEAT_TICKS: usize = 2;
/// Entries that may wait for the image.
const UNAPPLIED_ENTRIES_MAX: u64 = 100_000;
/// Entries kept in memory although a snapshot has them, for members that are a little behind.
const TRAILING_ENTRIES: u64 = 4_096;

/// Partitions that a record says were removed, with their topics' names.
pub(crate) type Removed = BTreeMap<TopicPartition, TopicName>;

/// How this broker comes to its quorum, where its data directory does not know yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Formation {
    /// It is one by itself.
    #[default]
    Alone,
    /// It is one of these, which all begin at the same time.
    With(BTreeSet<MemberId>),
    /// It joins one that there is.
    Joining,
}

/// A quorum as it was left.
pub(crate) struct Opened<D: Disk> {
    pub(crate) quorum: Quorum<D>,
    /// The metadata that is certain: as of the snapshot.
    pub(crate) image: Image,
    /// The metadata as of the end of the log, committed or not.
    pub(crate) newest: Image,
    pub(crate) removed: Removed,
}

impl<D: Disk> Opened<D> {
    pub(crate) fn open(
        directory: &DataDirectory<D>,
        settings: &Settings,
    ) -> Result<Opened<D>, RecoverError> {
        let (files, QuorumState { vote, snapshot }) = directory.quorum_files()?;
        let (mut log, recovery) = directory.open_log(LogPlace::Metadata, LogConfig::default())?;
        recovery.refuse_damage()?;
        let unreadable = |source| RecoverError::Record { offset: Offset::ZERO, source };
        let vote = vote.as_deref().map(Vote::decode).transpose().map_err(unreadable)?;
        let snapshot = snapshot.as_deref().map(snapshot::decode).transpose().map_err(unreadable)?;
        let first = snapshot.as_ref().map_or(LogIndex(1), |snapshot| snapshot.index.next());
        if let Some(snapshot) = &snapshot
            && !log::goes_on_from(&log, snapshot.index, snapshot.term)
        {
            log::begin_anew(&mut log, first)?;
        }
        let entries = log::entries(&log, first)?;

        let me = MemberId::new(settings.broker_id, directory.identity().directory_id);
        let empty = || Image::new(settings.broker_id, settings.statics.clone());
        let image = match &snapshot {
            Some(snapshot) => {
                let records = command::decode(&snapshot.data).map_err(unreadable)?;
                let mut image = empty();
                records.iter().for_each(|record| image.apply(record));
                image
            }
            None => empty(),
        };
        let (mut newest, mut removed) = (image.clone(), Removed::new());
        for entry in &entries {
            let Payload::Command(bytes) = &entry.payload else { continue };
            let offset = log::offset_of(entry.index);
            let records =
                command::decode(bytes).map_err(|source| RecoverError::Record { offset, source })?;
            for record in records {
                if let Record::PartitionRemoved { partition } = &record
                    && let Some(topic) = newest.topic_by_id(partition.topic)
                {
                    removed.insert(*partition, topic.name.clone());
                }
                newest.apply(&record);
            }
        }

        let first_voters = match &settings.formation {
            Formation::Alone => Some(BTreeSet::from([me])),
            Formation::With(voters) => Some(voters.clone()),
            Formation::Joining => None,
        };
        let (applied, applied_term) =
            snapshot.as_ref().map_or((LogIndex(0), Term(0)), |s| (s.index, s.term));
        let seed = u64::from_be_bytes(settings.incarnation.0[..8].try_into().expect("eight of 16"));
        let core = Raft::start(RaftStart {
            me,
            vote: vote.unwrap_or_default(),
            first_voters,
            snapshot,
            entries,
            commit: LogIndex(0),
            applied,
            settings: RaftSettings {
                election_ticks: ELECTION_TICKS,
                heartbeat_ticks: HEARTBEAT_TICKS,
                unapplied_entries_max: UNAPPLIED_ENTRIES_MAX,
                trailing_entries: TRAILING_ENTRIES,
            },
            seed,
        })
        .map_err(|error| unreadable(towpath_model::FoldError(error.to_string())))?;
        let slot = QuorumSlot {
            core: Box::new(core) as Box<dyn Consensus + Send>,
            log,
            unpersisted: VecDeque::new(),
            unwritten: VecDeque::new(),
            controller: None,
            remote: BTreeMap::new(),
            last_remote: 0,
            asked: BTreeMap::new(),
            early: Vec::new(),
            applied,
            applied_term,
            awaits_sync: false,
            failed: false,
            next_tick: None,
            since_snapshot: 0,
            snapshot_every_bytes: snapshot::EVERY_BYTES,
        };
        let quorum = Quorum { me, slot: Mutex::new(slot), files: Mutex::new(files) };
        Ok(Opened { quorum, image, newest, removed })
    }
}
