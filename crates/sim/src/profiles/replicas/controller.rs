//! A controller that never fails: registrations, sessions, and one partition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_model::{BrokerEpoch, BrokerId, LeaderEpoch, Time};
use towpath_replication::{InSyncProposal, Incarnation};

use crate::events::Events;

/// What every broker is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// Rises with every change.
    pub(super) version: u64,
    pub(super) leader: Option<BrokerId>,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) partition_epoch: i32,
    pub(super) replicas: Vec<BrokerId>,
    pub(super) in_sync: BTreeSet<BrokerId>,
    /// Who is not in sync and holds everything that is committed (KIP-966).
    pub(super) eligible: BTreeSet<BrokerId>,
    pub(super) registrations: BTreeMap<BrokerId, Registration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registration {
    /// Which start of the process.
    pub(super) life: u64,
    pub(super) epoch: BrokerEpoch,
    pub(super) is_fenced: bool,
}

impl State {
    pub(super) fn epoch_of(&self, broker: BrokerId) -> Option<BrokerEpoch> {
        self.registrations.get(&broker).map(|registration| registration.epoch)
    }

    /// Unfenced, and of this registration.
    pub(super) fn is_eligible(&self, incarnation: Incarnation) -> bool {
        self.registrations.get(&incarnation.broker).is_some_and(|registration| {
            registration.epoch == incarnation.epoch && !registration.is_fenced
        })
    }

    fn is_unfenced(&self, broker: BrokerId) -> bool {
        self.registrations.get(&broker).is_some_and(|registration| !registration.is_fenced)
    }
}

/// A leader's request for another in-sync set.
#[derive(Debug, Clone)]
pub(super) struct Alter {
    pub(super) sender: Incarnation,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) proposal: InSyncProposal,
}

#[derive(Debug)]
pub(super) struct Controller {
    pub(super) state: State,
    heard: BTreeMap<BrokerId, Time>,
    min_in_sync: usize,
}

impl Controller {
    pub(super) fn new(replicas: i32, min_in_sync: u32) -> Controller {
        let replicas: Vec<BrokerId> = (1..=replicas).map(BrokerId).collect();
        let state = State {
            version: 0,
            leader: None,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            in_sync: replicas.iter().copied().collect(),
            eligible: BTreeSet::new(),
            replicas,
            registrations: BTreeMap::new(),
        };
        Controller { state, heard: BTreeMap::new(), min_in_sync: min_in_sync as usize }
    }

    /// A start of a broker; it is fenced until its first heartbeat.
    pub(super) fn register(&mut self, broker: BrokerId, life: u64, events: &mut Events) {
        let known = self.state.registrations.get(&broker).map(|known| known.life);
        if known.is_some_and(|known| life <= known) {
            return;
        }
        if let Some(known) = self.state.registrations.get_mut(&broker) {
            known.is_fenced = true;
        }
        self.leave(broker, events);
        self.state.version += 1;
        let epoch = BrokerEpoch(self.state.version as i64);
        let registration = Registration { life, epoch, is_fenced: true };
        self.state.registrations.insert(broker, registration);
    }

    pub(super) fn heartbeat(&mut self, now: Time, sender: Incarnation, events: &mut Events) {
        let Some(known) = self.state.registrations.get_mut(&sender.broker) else { return };
        if known.epoch != sender.epoch {
            return;
        }
        self.heard.insert(sender.broker, now);
        if known.is_fenced {
            known.is_fenced = false;
            self.state.version += 1;
            if self.state.leader.is_none() {
                self.elect(events);
            }
        }
    }

    /// Fences whoever has been silent for a session.
    pub(super) fn expire(&mut self, now: Time, session: Duration, events: &mut Events) {
        for broker in self.state.replicas.clone() {
            let is_silent = self.heard.get(&broker).is_none_or(|at| session < now - *at);
            if is_silent && self.state.is_unfenced(broker) {
                events.note("controller: broker fenced");
                self.state.version += 1;
                let known = self.state.registrations.get_mut(&broker);
                known.expect("it is unfenced").is_fenced = true;
                self.leave(broker, events);
            }
        }
    }

    /// Whether the proposal was accepted.
    pub(super) fn alter(&mut self, alter: &Alter, events: &mut Events) -> bool {
        let state = &self.state;
        let Alter { sender, leader_epoch, proposal } = alter;
        if state.leader != Some(sender.broker)
            || state.leader_epoch != *leader_epoch
            || state.epoch_of(sender.broker) != Some(sender.epoch)
        {
            events.note("controller: proposal refused, not the leader");
            return false;
        }
        if state.partition_epoch != proposal.partition_epoch {
            events.note("controller: proposal refused, stale partition epoch");
            return false;
        }
        let is_fit = |(broker, epoch): (&BrokerId, &Option<BrokerEpoch>)| {
            let is_member = state.in_sync.contains(broker);
            is_member
                || epoch
                    .is_some_and(|epoch| state.is_eligible(Incarnation { broker: *broker, epoch }))
        };
        if !proposal.followers.iter().all(is_fit) {
            events.note("controller: proposal refused, member not eligible");
            return false;
        }
        let mut in_sync: BTreeSet<BrokerId> = proposal.followers.keys().copied().collect();
        in_sync.insert(sender.broker);
        let is_expansion = in_sync.iter().any(|broker| !self.state.in_sync.contains(broker));
        events.note(match (is_expansion, in_sync == self.state.in_sync) {
            (true, _) => "controller: expansion accepted",
            (_, true) => "controller: same set accepted",
            _ => "controller: shrink accepted",
        });
        self.set_in_sync(in_sync);
        true
    }

    /// Takes a broker out of the in-sync set, unless it is the last one, and of leadership.
    fn leave(&mut self, broker: BrokerId, events: &mut Events) {
        let is_member = self.state.in_sync.contains(&broker);
        if is_member && 1 < self.state.in_sync.len() {
            let mut left = self.state.in_sync.clone();
            left.remove(&broker);
            self.set_in_sync(left);
        }
        if self.state.leader == Some(broker) {
            self.elect(events);
        }
    }

    fn set_in_sync(&mut self, in_sync: BTreeSet<BrokerId>) {
        let state = &mut self.state;
        if in_sync.len() < self.min_in_sync {
            state.eligible.extend(state.in_sync.iter().filter(|broker| !in_sync.contains(broker)));
            state.eligible.retain(|broker| !in_sync.contains(broker));
        } else {
            state.eligible.clear();
        }
        state.in_sync = in_sync;
        state.partition_epoch += 1;
        state.version += 1;
    }

    fn elect(&mut self, events: &mut Events) {
        let state = &mut self.state;
        let unfenced = |broker: &&BrokerId| {
            state.registrations.get(*broker).is_some_and(|known| !known.is_fenced)
        };
        let of_set = |set: &BTreeSet<BrokerId>| {
            let members = state.replicas.iter().filter(|broker| set.contains(broker));
            members.into_iter().find(unfenced).copied()
        };
        let from_in_sync = of_set(&state.in_sync);
        let leader = from_in_sync.or_else(|| of_set(&state.eligible));
        if let (None, Some(elected)) = (from_in_sync, leader) {
            events.note("controller: eligible replica elected");
            let before = std::mem::replace(&mut state.in_sync, BTreeSet::from([elected]));
            state.eligible.extend(before);
            state.eligible.remove(&elected);
        }
        if leader.is_some() {
            events.note("controller: leader elected");
        }
        state.leader = leader;
        state.leader_epoch = LeaderEpoch(state.leader_epoch.0 + 1);
        state.partition_epoch += 1;
        state.version += 1;
    }
}
