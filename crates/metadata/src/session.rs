//! Who is there: what the controller hears from brokers, and what follows when it hears nothing.
//!
//! ```text
//! heartbeat ─▶ the session lasts broker.session.timeout.ms from now; whoever is ready is unfenced
//! connection refused, says another broker ─▶ the session lasts 100 ms at most
//! session over ─▶ fenced: out of leaderships and in-sync sets
//! ```
//!
//! Sessions are the controller's own and not logged: a new controller gives everybody a full one.
//! What follows from them is. A cluster of one has no sessions: nobody could take over.

use std::time::Duration;

use towpath_model::{BrokerId, Now, Time};

use crate::broker::Broker;
use crate::cluster::{Beat, Heartbeat};
use crate::elect::Electorate;
use crate::metadata::{Decided, Metadata};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;

/// How much longer a broker is waited for whose port refuses connections.
const SILENT_GRACE: Duration = Duration::from_millis(100);

/// What the controller keeps to itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Soft {
    /// A broker was heard.
    Heard(Session),
    /// Whether partitions may be left that do not follow the rules of elections yet.
    Unsettled(bool),
    /// When the cluster is looked over next.
    UpkeepAt(Time),
    /// When leaders are moved back next.
    PreferredAt(Time),
}

/// A broker as the controller hears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Whose.
    pub broker: BrokerId,
    /// Until when it counts as there; lies in the past for one that has been silent since.
    pub ends_at: Time,
    /// Number of its newest heartbeat.
    pub sequence: u64,
    /// How far it had applied the metadata then.
    pub applied: u64,
}

impl Metadata {
    pub(crate) fn full_session(&self, now: Now, broker: BrokerId) -> Session {
        let ends_at = now.time + self.image().broker_config().broker_session_timeout;
        Session { broker, ends_at, sequence: 0, applied: 0 }
    }

    /// Whether there is nobody who could take over.
    pub(crate) fn is_alone(&self) -> bool {
        self.image().broker_count() <= 1
    }

    pub(crate) fn heartbeat(&self, now: Now, heard: Heartbeat) -> Decided {
        let mut records = Vec::new();
        let beat = self.beat(now, heard, &mut records);
        (records, Reply::Beat(beat))
    }

    fn beat(&self, now: Now, heard: Heartbeat, records: &mut Vec<Record>) -> Result<Beat, Refusal> {
        let before = self.image().registered(heard.broker, heard.epoch)?;
        let known = self.sessions.get(&heard.broker);
        let is_late = known.is_some_and(|session| heard.sequence < session.sequence);
        if is_late {
            return Ok(Beat { is_fenced: before.fenced, may_shut_down: false });
        }
        let mut after = before.clone();
        after.offline =
            after.directories.iter().copied().filter(|id| heard.offline.contains(id)).collect();
        if heard.wants_shutdown {
            after.in_controlled_shutdown |= !self.is_alone();
        } else if heard.is_ready && !after.in_controlled_shutdown {
            after.fenced = false;
        }
        let is_fenced = after.fenced;
        let may_shut_down = heard.wants_shutdown && self.may_shut_down(before, &heard);
        if after != *before {
            let mut electorate = self.image().electorate();
            electorate.brokers.insert(after.id, after.clone());
            records.push(Record::Broker(after));
            self.settle_all(&electorate, records);
        }
        if !self.is_alone() {
            let session = Session {
                sequence: heard.sequence,
                applied: heard.applied,
                ..self.full_session(now, heard.broker)
            };
            records.push(Record::Soft(Soft::Heard(session)));
        }
        Ok(Beat { is_fenced, may_shut_down })
    }

    /// Once it leads nothing, and all others have applied what it has: they know who leads instead.
    fn may_shut_down(&self, broker: &Broker, heard: &Heartbeat) -> bool {
        if self.is_alone() || broker.fenced {
            return true;
        }
        let others = self.image().brokers().filter(|other| other.id != broker.id && !other.fenced);
        let mut sessions = others.map(|other| self.sessions.get(&other.id));
        broker.in_controlled_shutdown
            && self.image().load(broker.id).leaders == 0
            && sessions.all(|session| session.is_some_and(|other| heard.applied <= other.applied))
    }

    /// A broker's port refuses connections: its process is gone, or about to be replaced.
    pub(crate) fn broker_silent(&self, now: Now, broker: BrokerId) -> Decided {
        let mut records = Vec::new();
        if let Some(session) = self.sessions.get(&broker) {
            let ends_at = session.ends_at.min(now.time + SILENT_GRACE);
            records.push(Record::Soft(Soft::Heard(Session { ends_at, ..*session })));
        }
        (records, Reply::Noted)
    }

    /// Fences whoever has been silent for too long.
    pub(crate) fn fence_silent(&self, now: Now, records: &mut Vec<Record>) {
        let mut electorate = self.image().electorate();
        for broker in self.image().brokers().filter(|broker| !broker.fenced) {
            let session = self.sessions.get(&broker.id);
            if session.is_some_and(|session| session.ends_at <= now.time) {
                let fenced = Broker { fenced: true, ..broker.clone() };
                electorate.brokers.insert(broker.id, fenced.clone());
                records.push(Record::Broker(fenced));
            }
        }
        if !records.is_empty() || self.unsettled {
            self.settle_all(&electorate, records);
        }
    }

    /// Brings partitions in line with the brokers as they are now: at most so many at once, the rest
    /// when time is asked next.
    pub(crate) fn settle_all(&self, electorate: &Electorate, records: &mut Vec<Record>) {
        let mut left = SETTLED_AT_ONCE;
        let changes = self.image().unsettled(electorate).take(SETTLED_AT_ONCE + 1);
        let mut is_left = false;
        for record in changes {
            is_left = left == 0;
            if is_left {
                break;
            }
            left -= 1;
            records.push(record);
        }
        if is_left != self.unsettled {
            records.push(Record::Soft(Soft::Unsettled(is_left)));
        }
    }

    pub(crate) fn apply_soft(&mut self, soft: &Soft) {
        match soft {
            Soft::Heard(session) => {
                self.sessions.insert(session.broker, *session);
            }
            Soft::Unsettled(unsettled) => self.unsettled = *unsettled,
            Soft::UpkeepAt(at) => self.upkeep_at = Some(*at),
            Soft::PreferredAt(at) => self.preferred_at = Some(*at),
        }
    }

    /// A new controller has heard nobody yet.
    pub(crate) fn fresh_sessions(&self, now: Now) -> Vec<Record> {
        if self.is_alone() {
            return Vec::new();
        }
        let sessions = self.image().brokers().map(|broker| self.full_session(now, broker.id));
        let mut records: Vec<_> =
            sessions.map(|session| Record::Soft(Soft::Heard(session))).collect();
        records.push(Record::Soft(Soft::Unsettled(true)));
        records.push(Record::Soft(Soft::UpkeepAt(now.time)));
        let check = self.image().broker_config().leader_imbalance_check;
        records.push(Record::Soft(Soft::PreferredAt(now.time + check)));
        records
    }

    /// When the next broker is fenced, if it stays silent.
    pub(crate) fn next_fencing(&self) -> Option<Time> {
        if self.is_alone() {
            return None;
        }
        if self.unsettled {
            return Some(Time(0));
        }
        let watched = self.sessions.values().filter(|session| {
            self.image().broker(session.broker).is_some_and(|broker| !broker.fenced)
        });
        watched.map(|session| session.ends_at).min()
    }
}

/// Most partitions that one decision settles after brokers came or went: some hundreds of KiB.
const SETTLED_AT_ONCE: usize = 4_000;
