//! Who leads, who is in sync, who is eligible: the rules that every change of a partition ends in.
//!
//! ```text
//! in sync, can serve ─▶ leads                                  (whoever is to be emptied: only where nobody else can)
//! none? eligible, can serve ─▶ leads, alone in sync          (KIP-966: it holds all that is committed)
//! none? ─▶ nobody leads, and the last in-sync replicas stay so
//! only where the topic or the operator allows it: any replica that can serve    (unclean)
//! ```
//!
//! A replica that leaves the in-sync set while fewer than `min.insync.replicas` stay becomes
//! eligible: the high watermark stands still from then on, so the replica misses nothing that is
//! committed. Once enough are in sync, it moves again, and nobody is eligible any more. These two
//! sentences are only true together, so both are decided here, from the same number.

use std::collections::BTreeMap;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerId, LeaderEpoch};

use crate::broker::Broker;
use crate::topic::PartitionState;

/// The brokers as they are after what is being decided.
#[derive(Debug, Clone)]
pub(crate) struct Electorate {
    pub(crate) brokers: BTreeMap<BrokerId, Broker>,
}

/// When a leader is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Election {
    /// When the one there is cannot stay.
    Needed,
    /// So that the first replica leads, if it is in sync.
    Preferred,
    /// In any case: the same leader begins a new epoch.
    Anew,
    /// When the one there is cannot stay; a replica that may lack committed records will do.
    Unclean,
}

/// How a partition is settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'r> {
    /// `min.insync.replicas` as configured.
    pub(crate) min: u32,
    pub(crate) election: Election,
    /// Replicas that have lost committed records, so that they are never eligible.
    pub(crate) disqualified: &'r [BrokerId],
}

impl Electorate {
    /// Whether a broker's replica can lead and be in sync now.
    pub(crate) fn is_usable(&self, id: BrokerId, state: &PartitionState) -> bool {
        let broker = self.brokers.get(&id);
        broker.is_some_and(|broker| broker.is_active() && broker.holds(state.directory_of(id)))
    }

    /// Whether a broker is to be emptied: then it leads only what nobody else can.
    fn is_drained(&self, id: BrokerId) -> bool {
        self.brokers.get(&id).is_some_and(|broker| broker.drained)
    }

    /// Whether a leader is to be emptied, and somebody else who is in sync can lead.
    pub(crate) fn gives_way(&self, state: &PartitionState) -> bool {
        let can_lead = |id: &BrokerId| self.is_usable(*id, state) && !self.is_drained(*id);
        state.leader.is_some_and(|leader| self.is_drained(leader))
            && state.in_sync.iter().any(can_lead)
    }

    /// Who leads a new partition.
    pub(crate) fn first_leader(&self, state: &PartitionState) -> Option<BrokerId> {
        let usable = || state.in_sync.iter().copied().filter(|id| self.is_usable(*id, state));
        usable().find(|id| !self.is_drained(*id)).or_else(|| usable().next())
    }

    /// Takes everybody out of the in-sync set who cannot serve, unless nobody would be left.
    pub(crate) fn without_unusable(&self, state: &mut PartitionState) {
        let usable: Vec<BrokerId> =
            state.in_sync.iter().copied().filter(|id| self.is_usable(*id, state)).collect();
        if !usable.is_empty() {
            state.in_sync = usable;
        }
    }

    /// The state that follows from a wanted one: reassignment completed, eligible replicas noted, a
    /// leader elected, epochs raised. `None` where nothing changes.
    pub(crate) fn settle(
        &self,
        before: &PartitionState,
        wanted: PartitionState,
        rules: Rules<'_>,
    ) -> Option<PartitionState> {
        let mut next = wanted;
        complete(&mut next);
        let order = next.replicas.clone();
        let in_order = |keep: &dyn Fn(&BrokerId) -> bool| -> Vec<BrokerId> {
            order.iter().copied().filter(|id| keep(id)).collect()
        };
        next.in_sync = in_order(&|id| next.in_sync.contains(id));

        // Whoever holds everything that was committed when it left.
        let complete = in_order(&|id| {
            (before.in_sync.contains(id) || before.eligible.contains(id))
                && !rules.disqualified.contains(id)
        });
        let min = next.min_in_sync(rules.min);
        let eligible = |in_sync: &[BrokerId]| -> Vec<BrokerId> {
            if min <= in_sync.len() && !mutant::is_on(Mutant::EligibleKept) {
                return Vec::new();
            }
            complete.iter().copied().filter(|id| !in_sync.contains(id)).collect()
        };
        next.eligible = eligible(&next.in_sync);

        let (leader, how) = self.elect(before, &next, rules.election);
        next.leader = leader;
        match how {
            Elected::InSync => {}
            Elected::Eligible => {
                next.in_sync = leader.into_iter().collect();
                next.eligible = eligible(&next.in_sync);
            }
            Elected::Unclean => {
                next.in_sync = leader.into_iter().collect();
                next.eligible = Vec::new();
            }
        }

        let is_elected = leader != before.leader
            || (leader.is_some() && rules.election == Election::Anew)
            || how != Elected::InSync;
        if is_elected {
            next.unclean = how == Elected::Unclean;
        }
        let loses_replica = before.replicas.iter().any(|id| !next.replicas.contains(id));
        if is_elected || loses_replica {
            next.leader_epoch = LeaderEpoch(before.leader_epoch.0 + 1);
        }
        if next == *before {
            return None;
        }
        next.partition_epoch = before.partition_epoch + 1;
        Some(next)
    }

    fn elect(
        &self,
        before: &PartitionState,
        next: &PartitionState,
        election: Election,
    ) -> (Option<BrokerId>, Elected) {
        let can_lead = |id: &BrokerId| self.is_usable(*id, next);
        let in_sync = |id: &BrokerId| next.in_sync.contains(id) && can_lead(id);
        let stays_on = |id: &BrokerId| in_sync(id) && !self.is_drained(*id);
        let preferred = next.replicas.first().copied().filter(stays_on);
        let preferred = preferred.filter(|_| election == Election::Preferred);
        let among = |can: &dyn Fn(&BrokerId) -> bool| {
            let first = || next.replicas.iter().copied().find(can);
            before.leader.filter(can).or_else(first)
        };
        let leader = preferred.or_else(|| among(&stays_on)).or_else(|| among(&in_sync));
        if leader.is_some() {
            return (leader, Elected::InSync);
        }
        let eligible = next.eligible.iter().copied().find(can_lead);
        if eligible.is_some() && !mutant::is_on(Mutant::ElrIgnored) {
            return (eligible, Elected::Eligible);
        }
        let any = next.replicas.iter().copied().find(can_lead);
        if any.is_some() && election == Election::Unclean {
            return (any, Elected::Unclean);
        }
        (None, Elected::InSync)
    }
}

/// Out of which set the leader came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elected {
    InSync,
    Eligible,
    Unclean,
}

/// Ends a reassignment once all that are to stay are in sync.
fn complete(state: &mut PartitionState) {
    if !state.is_reassigning() {
        return;
    }
    let target = state.target();
    if !target.iter().all(|id| state.in_sync.contains(id)) {
        return;
    }
    state.directories = target.iter().map(|id| state.directory_of(*id)).collect();
    state.in_sync.retain(|id| target.contains(id));
    state.replicas = target;
    state.adding.clear();
    state.removing.clear();
}
