//! How the cluster stands, for whoever operates it: brokers by what they are about, partitions by
//! what they lack, and what a drain waits for.
//!
//! Everything here follows from the image alone, but for who is silent since when: only the controller
//! hears brokers, and a new one begins to count anew.

use std::collections::BTreeMap;

use towpath_model::{BrokerId, Now, Time, Timestamp};

use crate::broker::Broker;
use crate::image::Image;
use crate::metadata::Metadata;

/// What a broker is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerState {
    /// There, and takes work.
    Live,
    /// Registered, and not ready yet, or not counted as there for another reason.
    Fenced,
    /// There, and gives away what it leads and holds.
    Draining,
    /// There, and holds nothing.
    Drained,
    /// About to stop: it lets others lead.
    ShuttingDown,
    /// Not there.
    Absent,
}

impl BrokerState {
    /// As people and programs read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BrokerState::Live => "live",
            BrokerState::Fenced => "fenced",
            BrokerState::Draining => "draining",
            BrokerState::Drained => "drained",
            BrokerState::ShuttingDown => "shutting down",
            BrokerState::Absent => "absent",
        }
    }
}

/// The partitions of a cluster, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// All of them.
    pub partitions: usize,
    /// Those that nobody leads.
    pub offline: usize,
    /// Those with fewer replicas in sync than they have; replicas that are only coming do not count.
    pub under_replicated: usize,
    /// Those with fewer replicas in sync than `min.insync.replicas` asks for.
    pub under_min_in_sync: usize,
    /// How many replicas of each broker are not in sync; who has none is missing.
    pub out_of_sync: BTreeMap<BrokerId, usize>,
}

/// A topic whose replicas cannot leave a broker: there is nobody who could hold them instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The topic's name.
    pub topic: String,
    /// How many replicas its partitions have.
    pub replication_factor: usize,
    /// How many of its partitions cannot move.
    pub partitions: usize,
}

impl Image {
    /// What a broker is about, as far as the metadata says: who is silent is known to the controller.
    #[must_use]
    pub fn state_of(&self, broker: &Broker) -> BrokerState {
        if broker.fenced {
            return BrokerState::Fenced;
        }
        if broker.in_controlled_shutdown {
            return BrokerState::ShuttingDown;
        }
        match broker.drained {
            true if 0 < self.load(broker.id).replicas => BrokerState::Draining,
            true => BrokerState::Drained,
            false => BrokerState::Live,
        }
    }

    /// Counts the partitions.
    #[must_use]
    pub fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        for (topic, _, state) in self.partitions() {
            survey.partitions += 1;
            survey.offline += usize::from(state.leader.is_none());
            let in_sync = state.in_sync.len();
            survey.under_replicated += usize::from(in_sync < state.settled_replicas());
            survey.under_min_in_sync += usize::from(in_sync < self.min_in_sync(topic, state));
            let out_of_sync = state.replicas.iter().filter(|id| !state.in_sync.contains(id));
            out_of_sync.for_each(|id| *survey.out_of_sync.entry(*id).or_default() += 1);
        }
        survey
    }

    /// Topics of which a replica cannot leave this broker as brokers are now, by name: every broker
    /// that could take it has one already. Whoever moves a replica needs a leader to copy from, so
    /// partitions without one count too.
    #[must_use]
    pub fn stuck_on(&self, broker: BrokerId) -> Vec<Stuck> {
        let placeable = self.placeable();
        let mut stuck: Vec<Stuck> = Vec::new();
        for (topic, _, state) in self.partitions() {
            if !state.replicas.contains(&broker) || state.removing.contains(&broker) {
                continue;
            }
            let has_room = placeable.iter().any(|other| !state.replicas.contains(&other.id));
            if has_room && state.leader.is_some() {
                continue;
            }
            match stuck.last_mut().filter(|last| last.topic == topic.name.as_str()) {
                Some(last) => last.partitions += 1,
                None => stuck.push(Stuck {
                    topic: topic.name.as_str().to_owned(),
                    replication_factor: state.settled_replicas(),
                    partitions: 1,
                }),
            }
        }
        stuck
    }
}

impl Metadata {
    /// Brokers that do not count as there because nothing has been heard of them, and since when: the
    /// end of their last session.
    #[must_use]
    pub fn silent(&self, now: Now) -> BTreeMap<BrokerId, Timestamp> {
        let ended = |broker: &Broker| -> Option<Time> {
            let session = self.sessions.get(&broker.id).filter(|_| broker.fenced)?;
            (session.ends_at <= now.time).then_some(session.ends_at)
        };
        let silent = self.image().brokers().filter_map(|broker| {
            let for_so_long = now.time - ended(broker)?;
            let millis = i64::try_from(for_so_long.as_millis()).unwrap_or(i64::MAX);
            Some((broker.id, Timestamp(now.wall.0.saturating_sub(millis))))
        });
        silent.collect()
    }
}
