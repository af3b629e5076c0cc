//! Whoever carries messages from one queue to another, one in every broker's process, in the steps of
//! `crates/http/src/queues/carry_away.rs`; it dies with its process between any two of them.
//!
//! ```text
//! moves, committed at the source ─▶ read ─▶ append at the destination, committed ─▶ moved, at the source
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use towpath_driver::{Condition, Delivery, Outcome};
use towpath_model::{BrokerId, Offset, TopicPartition};
use towpath_queue::{Departure, Identity, Reply, Request};

use super::DEAD;
use super::account::Place;
use super::clients::Waiter;
use super::records::Stored;
use crate::profile::Violation;
use crate::profiles::cluster::world::{Event, Waiting, World};

/// How often it is looked what is to be carried.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Messages that are carried at once.
const CARRIED_MAX: usize = 20;

/// What a carrier is at: which process, for which subscription of which partition.
#[derive(Debug, Clone)]
pub(in super::super) struct Carrying {
    by: BrokerId,
    starts: u64,
    place: Place,
    at: At,
}

/// How far it has come.
#[derive(Debug, Clone)]
enum At {
    Asks,
    Reads(Vec<Departure>),
    Appends { to: TopicPartition, base: Offset, claims: Vec<u64>, offsets: Vec<Offset> },
}

impl World {
    /// A process looks what is to be carried.
    pub(in super::super) fn carry(&mut self, by: BrokerId, starts: u64) -> Result<(), Violation> {
        if !self.is_same(by, starts) || self.waits_for(by, || Event::Carry(by, starts)) {
            return Ok(());
        }
        self.schedule(self.now + LOOK_EVERY, Event::Carry(by, starts));
        self.clean(by)?;
        if !self.is_same(by, starts) {
            return Ok(());
        }
        let found = self.call(by, |driver| driver.moves_underway())?;
        let ways: BTreeSet<_> = found.into_iter().flatten().collect();
        for (partition, subscription, to) in ways {
            let place = (partition, subscription);
            let request = Request::Moves { subscription, to, max: CARRIED_MAX };
            let carrying = Carrying { by, starts, place, at: At::Asks };
            self.ask_queue(by, partition, request, Waiter::Carries(carrying))?;
        }
        Ok(())
    }

    /// An answer for a carrier leaves a broker.
    pub(super) fn carried(
        &mut self,
        carrying: &Carrying,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        match (&carrying.at, delivery) {
            (At::Appends { to, base, claims, .. }, Delivery::Wait(Outcome::Reached)) => {
                self.acknowledgements_leave(*to, *base, claims)
            }
            _ => Ok(()),
        }
    }

    /// The next step, if the process is still there.
    pub(super) fn carry_on(
        &mut self,
        of: BrokerId,
        carrying: Carrying,
        delivery: Delivery,
    ) -> Result<(), Violation> {
        let Carrying { by, starts, place, at } = carrying;
        if !self.is_same(by, starts) {
            self.events.note("work: carrier died on its way");
            return Ok(());
        }
        match (at, delivery) {
            (At::Asks, Delivery::Deliveries(Reply::Moves(departures))) => {
                let Some(last) = departures.iter().map(|departure| departure.offset).max() else {
                    return Ok(());
                };
                let token = self.token();
                let carrying = Carrying { by, starts, place, at: At::Reads(departures) };
                let waiter = Waiting::Work(Box::new(Waiter::Carries(carrying)));
                self.waits.insert((of, token), waiter);
                let condition = Condition::HighWatermark(last.next());
                let is_there = self.call(of, |driver| driver.watch(place.0, token, condition))?;
                if is_there == Some(true)
                    && let Some(Waiting::Work(waiter)) = self.waits.remove(&(of, token))
                {
                    return self.work_heard(of, *waiter, Delivery::Wait(Outcome::Reached));
                }
                Ok(())
            }
            (At::Reads(departures), Delivery::Wait(Outcome::Reached)) => {
                self.carry_away(by, starts, place, &departures)
            }
            (At::Appends { offsets, .. }, Delivery::Wait(Outcome::Reached)) => {
                if !self.nodes[&by].is_awake(self.now) {
                    return Ok(());
                }
                self.events.add("work: message carried", offsets.len() as u64);
                let request = Request::Moved { subscription: place.1, offsets };
                self.ask_queue(by, place.0, request, Waiter::Nothing).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn carry_away(
        &mut self,
        by: BrokerId,
        starts: u64,
        place: Place,
        departures: &[Departure],
    ) -> Result<(), Violation> {
        let (source, subscription) = place;
        let offsets: Vec<Offset> = departures.iter().map(|departure| departure.offset).collect();
        let Some(found) = self.read_messages(by, source, &offsets)? else { return Ok(()) };
        let mut batches: BTreeMap<TopicPartition, Vec<(Offset, Stored)>> = BTreeMap::new();
        for departure in departures {
            let offset = departure.offset;
            let Some(stored) = found.get(&offset) else { continue };
            let identity =
                Identity { topic: source.topic, partition: source.partition, offset, subscription };
            let carried = stored.carried(&identity, departure.receives);
            let to = self.destination(&departure.way.to, &carried)?;
            batches.entry(to).or_default().push((offset, carried));
        }
        for (to, carried) in batches {
            let Some(leader) = self.leading(to) else { continue };
            let is_cut_off = leader != by
                && [(by, leader), (leader, by)]
                    .iter()
                    .any(|way| self.network.blocked.contains(way));
            if is_cut_off {
                continue;
            }
            let (offsets, stored): (Vec<_>, Vec<_>) = carried.into_iter().unzip();
            self.append(leader, to, &stored, |base, claims| {
                let at = At::Appends { to, base, claims, offsets };
                Waiter::Carries(Carrying { by, starts, place, at })
            })?;
        }
        Ok(())
    }

    /// The partition that takes a message: always the same one.
    fn destination(&self, queue: &Arc<str>, stored: &Stored) -> Result<TopicPartition, Violation> {
        if **queue == *DEAD {
            return Ok(self.work.dead[0]);
        }
        let group = stored.written()?.group.unwrap_or_default();
        Ok(self.work.queues[usize::from(group) % self.work.queues.len()])
    }
}
