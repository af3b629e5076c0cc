//! Incremental fetch sessions (KIP-227): the broker remembers which partitions a consumer reads,
//! so that neither side repeats what has not changed.
//!
//! A session belongs to no connection. The cache is bounded; a full one gives up the session that
//! has been idle longest, and whose client then starts anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use towpath_model::Uuid;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::FetchPartition;

/// A topic as a session names it: by name, or from version 13 on by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicKey {
    pub(crate) name: String,
    pub(crate) id: Uuid,
}

/// What a session remembers of one partition.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub(crate) wanted: FetchPartition,
    /// High watermark, log start offset and error of the last answer that listed the partition.
    last_told: Option<(i64, i64, i16)>,
}

/// One consumer's session.
#[derive(Debug)]
pub(crate) struct Session {
    /// The epoch that the next request must carry.
    next_epoch: i32,
    uses_ids: bool,
    /// In the order in which they are answered: what was answered with records goes to the back,
    /// so that the first partitions do not starve the others.
    pub(crate) partitions: Vec<(TopicKey, Remembered)>,
    used_at: Instant,
}

/// All sessions of a broker.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    slots: usize,
    sessions: Mutex<HashMap<i32, Arc<Mutex<Session>>>>,
}

/// What a fetch request means for sessions.
pub(crate) enum Plan {
    /// Answer what the request names; remember nothing.
    Sessionless,
    /// Answer everything, in a session that begins with this request.
    Full { id: i32, session: Arc<Mutex<Session>> },
    /// Answer what has changed.
    Incremental { id: i32, session: Arc<Mutex<Session>> },
    /// The whole request is refused.
    Refused(ErrorCode),
}

/// The parts of a request that concern its session.
pub(crate) struct Ask<'a> {
    pub(crate) id: i32,
    pub(crate) epoch: i32,
    pub(crate) uses_ids: bool,
    pub(crate) partitions: &'a [(TopicKey, FetchPartition)],
    pub(crate) forgotten: &'a [(TopicKey, i32)],
}

impl FetchSessions {
    /// Sessions for at most this many consumers.
    pub(crate) fn new(slots: usize) -> Self {
        FetchSessions { slots, sessions: Mutex::new(HashMap::new()) }
    }

    /// Finds, begins, continues or ends the session of a request.
    pub(crate) fn plan(&self, ask: &Ask<'_>) -> Plan {
        let mut sessions = self.sessions.lock().expect("no panic holds the sessions");
        match (ask.id, ask.epoch) {
            (0, -1) => Plan::Sessionless,
            (0, 0) => self.begin(&mut sessions, ask),
            (id, -1) => {
                sessions.remove(&id);
                Plan::Sessionless
            }
            (id, 0) => {
                sessions.remove(&id);
                self.begin(&mut sessions, ask)
            }
            (id, epoch) => {
                let Some(session) = sessions.get(&id).cloned() else {
                    return Plan::Refused(ErrorCode::FetchSessionIdNotFound);
                };
                let mut continued = session.lock().expect("no panic holds a session");
                if continued.uses_ids != ask.uses_ids {
                    return Plan::Refused(ErrorCode::FetchSessionTopicIdError);
                }
                if continued.next_epoch != epoch {
                    return Plan::Refused(ErrorCode::InvalidFetchSessionEpoch);
                }
                continued.next_epoch = epoch_after(epoch);
                continued.used_at = Instant::now();
                continued.update(ask);
                if continued.partitions.is_empty() {
                    sessions.remove(&id);
                    return Plan::Sessionless;
                }
                drop(continued);
                Plan::Incremental { id, session }
            }
        }
    }

    fn begin(&self, sessions: &mut HashMap<i32, Arc<Mutex<Session>>>, ask: &Ask<'_>) -> Plan {
        if self.slots == 0 {
            return Plan::Sessionless;
        }
        if self.slots <= sessions.len() {
            let idlest = sessions
                .iter()
                .min_by_key(|(_, s)| s.lock().map_or_else(|_| Instant::now(), |s| s.used_at))
                .map(|(id, _)| *id);
            idlest.and_then(|id| sessions.remove(&id));
        }
        let mut session = Session {
            next_epoch: 1,
            uses_ids: ask.uses_ids,
            partitions: Vec::new(),
            used_at: Instant::now(),
        };
        session.update(ask);
        let id = unused_id(sessions);
        let session = Arc::new(Mutex::new(session));
        sessions.insert(id, Arc::clone(&session));
        Plan::Full { id, session }
    }
}

/// Ids are hard to guess, so that a client cannot stumble into another one's session.
fn unused_id(sessions: &HashMap<i32, Arc<Mutex<Session>>>) -> i32 {
    loop {
        let random = crate::node::random_uuid().0;
        let id = i32::from_be_bytes([random[0], random[1], random[2], random[3]]) & i32::MAX;
        if id != 0 && !sessions.contains_key(&id) {
            return id;
        }
    }
}

/// Epochs count on and wrap from the largest to 1.
fn epoch_after(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

impl Session {
    fn update(&mut self, ask: &Ask<'_>) {
        let mut places: BTreeMap<(TopicKey, i32), usize> = BTreeMap::new();
        for (at, (topic, remembered)) in self.partitions.iter().enumerate() {
            places.insert((topic.clone(), remembered.wanted.partition), at);
        }
        for (topic, wanted) in ask.partitions {
            match places.get(&(topic.clone(), wanted.partition)) {
                Some(at) => self.partitions[*at].1.wanted = wanted.clone(),
                None => {
                    places.insert((topic.clone(), wanted.partition), self.partitions.len());
                    let remembered = Remembered { wanted: wanted.clone(), last_told: None };
                    self.partitions.push((topic.clone(), remembered));
                }
            }
        }
        if !ask.forgotten.is_empty() {
            let forgotten: BTreeSet<_> = ask.forgotten.iter().cloned().collect();
            self.partitions
                .retain(|(topic, r)| !forgotten.contains(&(topic.clone(), r.wanted.partition)));
        }
    }

    /// Whether a partition's answer says something new; remembers what it says, and moves
    /// partitions with records to the back.
    pub(crate) fn tell(&mut self, topic: &TopicKey, partition: i32, told: Told) -> bool {
        let found = self
            .partitions
            .iter()
            .position(|(key, remembered)| key == topic && remembered.wanted.partition == partition);
        let Some(at) = found else { return true };
        let now = (told.high_watermark, told.log_start_offset, told.error);
        let remembered = &mut self.partitions[at].1;
        let is_new = told.has_records || told.error != 0 || remembered.last_told != Some(now);
        remembered.last_told = Some(now);
        if told.has_records {
            let answered = self.partitions.remove(at);
            self.partitions.push(answered);
        }
        is_new
    }
}

/// What an answer says about a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) has_records: bool,
    pub(crate) high_watermark: i64,
    pub(crate) log_start_offset: i64,
    pub(crate) error: i16,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> TopicKey {
        TopicKey { name: name.to_owned(), id: Uuid::ZERO }
    }

    fn wanted(partition: i32) -> FetchPartition {
        FetchPartition { partition, ..Default::default() }
    }

    fn ask(id: i32, epoch: i32, partitions: &[(TopicKey, FetchPartition)]) -> Ask<'_> {
        Ask { id, epoch, uses_ids: false, partitions, forgotten: &[] }
    }

    #[test]
    fn a_session_counts_its_epochs_and_survives_a_wrong_one() {
        let sessions = FetchSessions::new(2);
        let partitions = [(key("t"), wanted(0))];
        let Plan::Full { id, .. } = sessions.plan(&ask(0, 0, &partitions)) else { panic!("full") };
        assert!(matches!(
            sessions.plan(&ask(id, 2, &[])),
            Plan::Refused(ErrorCode::InvalidFetchSessionEpoch)
        ));
        assert!(matches!(sessions.plan(&ask(id, 1, &[])), Plan::Incremental { .. }));
        assert!(matches!(sessions.plan(&ask(id, -1, &[])), Plan::Sessionless));
        assert!(matches!(
            sessions.plan(&ask(id, 2, &[])),
            Plan::Refused(ErrorCode::FetchSessionIdNotFound)
        ));
    }

    #[test]
    fn a_full_cache_gives_up_the_idlest_session() {
        let sessions = FetchSessions::new(1);
        let partitions = [(key("t"), wanted(0))];
        let Plan::Full { id: first, .. } = sessions.plan(&ask(0, 0, &partitions)) else { panic!() };
        let Plan::Full { id: second, .. } = sessions.plan(&ask(0, 0, &partitions)) else {
            panic!()
        };
        assert_eq!(sessions.sessions.lock().unwrap().len(), 1);
        assert!(matches!(
            sessions.plan(&ask(first, 1, &[])),
            Plan::Refused(ErrorCode::FetchSessionIdNotFound)
        ));
        assert!(matches!(sessions.plan(&ask(second, 1, &[])), Plan::Incremental { .. }));
    }

    #[test]
    fn only_news_is_told_and_answered_partitions_go_to_the_back() {
        let sessions = FetchSessions::new(1);
        let partitions = [(key("t"), wanted(0)), (key("t"), wanted(1))];
        let Plan::Full { session, .. } = sessions.plan(&ask(0, 0, &partitions)) else { panic!() };
        let mut session = session.lock().unwrap();
        let quiet = Told { has_records: false, high_watermark: 5, log_start_offset: 0, error: 0 };
        assert!(session.tell(&key("t"), 0, quiet));
        assert!(!session.tell(&key("t"), 0, quiet));
        assert!(session.tell(&key("t"), 0, Told { high_watermark: 6, ..quiet }));
        assert!(session.tell(&key("t"), 0, Told { has_records: true, ..quiet }));
        let order: Vec<i32> = session.partitions.iter().map(|(_, r)| r.wanted.partition).collect();
        assert_eq!(order, [1, 0]);
    }

    #[test]
    fn a_session_without_partitions_ends() {
        let sessions = FetchSessions::new(1);
        let partitions = [(key("t"), wanted(0))];
        let Plan::Full { id, .. } = sessions.plan(&ask(0, 0, &partitions)) else { panic!() };
        let forgotten = [(key("t"), 0)];
        let forget = Ask { forgotten: &forgotten, ..ask(id, 1, &[]) };
        assert!(matches!(sessions.plan(&forget), Plan::Sessionless));
        assert!(sessions.sessions.lock().unwrap().is_empty());
    }

    #[test]
    fn epochs_wrap_to_one() {
        assert_eq!(epoch_after(i32::MAX), 1);
    }
}
