//! Incremental fetch sessions (KIP-227): the broker remembers which partitions a consumer reads,
//! so that neither side repeats what has not changed.
//!
//! A session belongs to no connection. The cache is bounded, in sessions and in partitions of all of
//! them; a full one gives up the session that has been idle longest, and whose client then starts
//! anew.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use towpath_model::Uuid;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::FetchPartition;

/// A topic as a session names it: by name, or from version 13 on by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicKey {
    pub(crate) name: Arc<str>,
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

/// Most partitions that all sessions together remember: some 50 MB.
const PARTITIONS_MAX: usize = 500_000;

/// All sessions of a broker.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    slots: usize,
    partitions_max: usize,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    sessions: HashMap<i32, Arc<Mutex<Session>>>,
    /// Invariant: the sum of the sessions' partitions.
    partitions: usize,
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
        FetchSessions { slots, partitions_max: PARTITIONS_MAX, cache: Mutex::default() }
    }

    /// Finds, begins, continues or ends the session of a request.
    pub(crate) fn plan(&self, ask: &Ask<'_>) -> Plan {
        let mut cache = self.cache.lock().expect("no panic holds the sessions");
        match (ask.id, ask.epoch) {
            (0, -1) => Plan::Sessionless,
            (0, 0) => self.begin(&mut cache, ask),
            (id, -1) => {
                cache.remove(id);
                Plan::Sessionless
            }
            (id, 0) => {
                cache.remove(id);
                self.begin(&mut cache, ask)
            }
            (id, _) => self.carry_on(&mut cache, id, ask),
        }
    }

    fn begin(&self, cache: &mut Cache, ask: &Ask<'_>) -> Plan {
        if self.slots == 0 || self.partitions_max < ask.partitions.len() {
            return Plan::Sessionless;
        }
        while self.slots <= cache.sessions.len()
            || self.partitions_max - ask.partitions.len() < cache.partitions
        {
            cache.remove_idlest();
        }
        let mut session = Session {
            next_epoch: 1,
            uses_ids: ask.uses_ids,
            partitions: Vec::new(),
            used_at: Instant::now(),
        };
        session.update(ask);
        let id = unused_id(&cache.sessions);
        cache.partitions += session.partitions.len();
        let session = Arc::new(Mutex::new(session));
        cache.sessions.insert(id, Arc::clone(&session));
        Plan::Full { id, session }
    }

    fn carry_on(&self, cache: &mut Cache, id: i32, ask: &Ask<'_>) -> Plan {
        let Some(session) = cache.sessions.get(&id).cloned() else {
            return Plan::Refused(ErrorCode::FetchSessionIdNotFound);
        };
        let mut carried_on = session.lock().expect("no panic holds a session");
        if carried_on.uses_ids != ask.uses_ids {
            return Plan::Refused(ErrorCode::FetchSessionTopicIdError);
        }
        if carried_on.next_epoch != ask.epoch {
            return Plan::Refused(ErrorCode::InvalidFetchSessionEpoch);
        }
        carried_on.next_epoch = epoch_after(ask.epoch);
        carried_on.used_at = Instant::now();
        let before = carried_on.partitions.len();
        carried_on.update(ask);
        let after = carried_on.partitions.len();
        drop(carried_on);
        cache.partitions = cache.partitions - before + after;
        if after == 0 {
            cache.remove(id);
            return Plan::Sessionless;
        }
        // This session has just been used: it is the last one to go.
        while self.partitions_max < cache.partitions {
            cache.remove_idlest();
        }
        if !cache.sessions.contains_key(&id) {
            return Plan::Refused(ErrorCode::FetchSessionIdNotFound);
        }
        Plan::Incremental { id, session }
    }
}

impl Cache {
    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.lock().expect("no panic holds a session").partitions.len();
        }
    }

    fn remove_idlest(&mut self) {
        let used_at =
            |session: &Mutex<Session>| session.lock().expect("no panic holds a session").used_at;
        let idlest = self.sessions.iter().min_by_key(|(_, session)| used_at(session));
        let id = idlest.map(|(id, _)| *id).expect("only a cache that holds something is full");
        self.remove(id);
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
    /// Where each partition stands.
    fn places(&self) -> HashMap<(&TopicKey, i32), usize> {
        let every = self.partitions.iter().enumerate();
        every.map(|(at, (topic, r))| ((topic, r.wanted.partition), at)).collect()
    }

    /// Takes over what a request wants and forgets; it names no partition twice.
    fn update(&mut self, ask: &Ask<'_>) {
        if !ask.partitions.is_empty() {
            let places = self.places();
            let found = ask.partitions.iter().map(|(topic, w)| places.get(&(topic, w.partition)));
            let found: Vec<Option<usize>> = found.map(|at| at.copied()).collect();
            for ((topic, wanted), at) in ask.partitions.iter().zip(found) {
                let wanted = wanted.clone();
                match at {
                    Some(at) => self.partitions[at].1.wanted = wanted,
                    None => self
                        .partitions
                        .push((topic.clone(), Remembered { wanted, last_told: None })),
                }
            }
        }
        if !ask.forgotten.is_empty() {
            let forgotten: HashSet<(&TopicKey, i32)> =
                ask.forgotten.iter().map(|(topic, partition)| (topic, *partition)).collect();
            self.partitions.retain(|(topic, r)| !forgotten.contains(&(topic, r.wanted.partition)));
        }
    }

    /// Whether each partition's answer says something new; remembers what it says, and moves
    /// partitions with records to the back. One that was forgotten meanwhile is news.
    pub(crate) fn tell(&mut self, answers: &[(&TopicKey, i32, Told)]) -> Vec<bool> {
        let places = self.places();
        let found = answers.iter().map(|(topic, partition, _)| places.get(&(*topic, *partition)));
        let found: Vec<Option<usize>> = found.map(|at| at.copied()).collect();
        let mut is_answered = vec![false; self.partitions.len()];
        let mut is_news = Vec::with_capacity(answers.len());
        for ((_, _, told), at) in answers.iter().zip(found) {
            let Some(at) = at else {
                is_news.push(true);
                continue;
            };
            let now = (told.high_watermark, told.log_start_offset, told.error);
            let last = self.partitions[at].1.last_told.replace(now);
            is_news.push(told.has_records || told.error != 0 || last != Some(now));
            is_answered[at] = told.has_records;
        }
        if is_answered.contains(&true) {
            let all = std::mem::take(&mut self.partitions).into_iter().zip(is_answered);
            let (answered, rest): (Vec<_>, Vec<_>) = all.partition(|(_, answered)| *answered);
            self.partitions = rest.into_iter().chain(answered).map(|(one, _)| one).collect();
        }
        is_news
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
        TopicKey { name: name.into(), id: Uuid::ZERO }
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
        assert_eq!(sessions.cache.lock().unwrap().sessions.len(), 1);
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
        let mut tell = |told| session.tell(&[(&key("t"), 0, told)]);
        assert_eq!(tell(quiet), [true]);
        assert_eq!(tell(quiet), [false]);
        assert_eq!(tell(Told { high_watermark: 6, ..quiet }), [true]);
        assert_eq!(tell(Told { has_records: true, ..quiet }), [true]);
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
        assert!(sessions.cache.lock().unwrap().sessions.is_empty());
    }

    #[test]
    fn all_sessions_together_remember_a_bounded_number_of_partitions() {
        let sessions = FetchSessions { partitions_max: 3, ..FetchSessions::new(9) };
        let two = [(key("t"), wanted(0)), (key("t"), wanted(1))];
        let Plan::Full { id: first, .. } = sessions.plan(&ask(0, 0, &two)) else { panic!() };
        let Plan::Full { id: second, .. } = sessions.plan(&ask(0, 0, &two)) else { panic!() };
        assert!(matches!(
            sessions.plan(&ask(first, 1, &[])),
            Plan::Refused(ErrorCode::FetchSessionIdNotFound)
        ));
        let more = [(key("u"), wanted(0)), (key("u"), wanted(1))];
        assert!(matches!(
            sessions.plan(&ask(second, 1, &more)),
            Plan::Refused(ErrorCode::FetchSessionIdNotFound)
        ));
        assert_eq!(sessions.cache.lock().unwrap().partitions, 0);
        let four: Vec<_> = (0..4).map(|at| (key("t"), wanted(at))).collect();
        assert!(matches!(sessions.plan(&ask(0, 0, &four)), Plan::Sessionless));
    }

    #[test]
    fn epochs_wrap_to_one() {
        assert_eq!(epoch_after(i32::MAX), 1);
    }
}
