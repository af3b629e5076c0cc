//! Named subscriptions: they are made from the start or from now on, worked like all others, and ended, while
//! messages flow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use towpath_driver::Delivery;
use towpath_model::{BrokerId, Time, TopicPartition};
use towpath_queue::{Reply, Request};

use super::clients::Waiter;
use crate::profile::{Violation, ensure};
use crate::profiles::cluster::world::World;

/// Names that subscriptions of a partition have, one after another.
const NAMES: [&str; 2] = ["audit", "search"];

/// A name at a partition.
type Name = (TopicPartition, &'static str);

/// How long everything may take to be as it was asked for, where all is well.
const TIDY_MAX: Duration = Duration::from_secs(10);

/// What is known of a name.
#[derive(Debug, Clone, Default)]
struct State {
    /// Its subscription's number, if that is there for sure.
    number: Option<u32>,
    /// It may be there, with any number.
    may_be_there: bool,
    /// A call about it is under way.
    is_busy: bool,
    /// Every number that its subscriptions had.
    numbers: BTreeSet<u32>,
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct Names {
    states: BTreeMap<Name, State>,
}

/// A call about a subscription.
#[derive(Debug, Clone)]
pub(in super::super) struct Naming {
    name: Name,
    wish: Wish,
    asked: Time,
    /// It may have been there by then, begun in whichever way.
    may_be_older: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Begin { from_start: bool },
    End,
}

impl World {
    /// Somebody wants a subscription, or wants one no more.
    pub(super) fn name_or_end(&mut self) -> Result<(), Violation> {
        let (partition, _) = self.any_place();
        let name = (partition, NAMES[self.rng.index(NAMES.len())]);
        let number = self.work.names.states.get(&name).and_then(|state| state.number);
        let wish = match number {
            Some(_) if self.rng.percent(60) => Wish::End,
            _ => Wish::Begin { from_start: self.rng.percent(60) },
        };
        let Some(of) = self.whom(partition) else { return Ok(()) };
        self.ask_name(of, name, wish)
    }

    fn ask_name(&mut self, of: BrokerId, name: Name, wish: Wish) -> Result<(), Violation> {
        let state = self.work.names.states.entry(name).or_default();
        if state.is_busy {
            return Ok(());
        }
        state.is_busy = true;
        let may_be_older = std::mem::replace(&mut state.may_be_there, true);
        if wish == Wish::End
            && let Some(number) = state.number.take()
        {
            self.work.account.end_asked((name.0, number), self.now);
        }
        let text: Arc<str> = Arc::from(name.1);
        let is_dead = self.work.dead.contains(&name.0);
        let partitions = if is_dead { 1 } else { self.mix().partitions.unsigned_abs() };
        let request = match wish {
            Wish::Begin { from_start } => Request::Subscribe { name: text, from_start, partitions },
            Wish::End => Request::Unsubscribe { name: text, partitions },
        };
        let naming = Naming { name, wish, asked: self.now, may_be_older };
        if !self.ask_queue(of, name.0, request, Waiter::Named(naming.clone()))? {
            self.naming_over(&naming);
        }
        Ok(())
    }

    /// The call has come to its end, with an answer or without.
    pub(super) fn naming_over(&mut self, naming: &Naming) {
        self.work.names.states.entry(naming.name).or_default().is_busy = false;
    }

    /// An answer leaves a broker. What somebody says who has been replaced as the leader may have changed since.
    pub(super) fn naming_leaves(
        &mut self,
        of: BrokerId,
        naming: &Naming,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        let (partition, _) = naming.name;
        if self.is_replaced(of, partition.delivery_log()) {
            return Ok(());
        }
        let now = self.now;
        let state = self.work.names.states.entry(naming.name).or_default();
        match (naming.wish, delivery) {
            (Wish::Begin { from_start }, Delivery::Deliveries(Reply::Subscribed(number))) => {
                ensure!(
                    state.number.is_none_or(|before| before == *number),
                    "INV-Q4",
                    "{:?} is the subscription {number}, and was {state:?}",
                    naming.name
                );
                state.number = Some(*number);
                state.numbers.insert(*number);
                let place = (partition, *number);
                let begin = (!naming.may_be_older).then_some(from_start);
                self.work.account.subscribed(place, begin, naming.asked, now)?;
                self.events.note(match from_start {
                    true => "work: subscribed from the start",
                    false => "work: subscribed from now on",
                });
            }
            (Wish::End, Delivery::Deliveries(Reply::Done | Reply::UnknownSubscription)) => {
                state.may_be_there = false;
                for number in &state.numbers {
                    self.work.account.ended((partition, *number), now);
                }
                self.events.note("work: subscription ended");
            }
            (_, Delivery::Deliveries(other)) => {
                let detail = format!("{naming:?} is answered by {other:?}");
                return Err(Violation::new("INV-Q1", detail));
            }
            _ => {}
        }
        Ok(())
    }

    /// Subscriptions of which nobody knows whether they are there are ended.
    pub(super) fn tidy_names(&mut self) -> Result<(), Violation> {
        let began = self.now;
        loop {
            let states = self.work.names.states.iter();
            let unsure = states.filter(|(_, state)| state.may_be_there && state.number.is_none());
            let unsure: Vec<Name> = unsure.map(|(name, _)| *name).collect();
            if unsure.is_empty() {
                return Ok(());
            }
            ensure!(self.now - began < TIDY_MAX, "INV-Q1", "subscriptions cannot be ended");
            for name in unsure {
                if let Some(of) = self.leading(name.0) {
                    self.ask_name(of, name, Wish::End)?;
                }
            }
            self.run_until(self.now + Duration::from_millis(100))?;
        }
    }
}
