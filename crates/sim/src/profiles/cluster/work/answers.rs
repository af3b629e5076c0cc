//! Answers: what the account makes of them when they leave a broker, and what clients do when they hear them.

use towpath_driver::{Condition, Delivery, Outcome};
use towpath_model::{BrokerId, Offset, Token, TopicPartition};
use towpath_queue::{Receipt, Reply, Request};

use super::account::{Act, Asked, Handed, Written};
use super::clients::{Receiving, Waiter};
use crate::profile::Violation;
use crate::profiles::cluster::world::{Waiting, World};

/// Receipts that clients keep; older ones are forgotten.
const KEPT_MAX: usize = 40;

impl World {
    /// An answer leaves a broker.
    pub(in super::super) fn work_leaves(
        &mut self,
        of: BrokerId,
        waiter: &Waiter,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        let now = self.now;
        match (waiter, delivery) {
            (Waiter::Sent { partition, base, claims, .. }, Delivery::Wait(Outcome::Reached)) => {
                self.acknowledgements_leave(*partition, *base, claims)
            }
            (
                Waiter::Settled { place, act, receipts, call },
                Delivery::Deliveries(Reply::Receipts(outcomes)),
            ) => {
                let is_newest = !self.is_replaced(of, place.0.delivery_log());
                let (place, act, call) = (*place, *act, *call);
                self.work
                    .account
                    .settle_answered(place, act, receipts, outcomes, call, now, is_newest)
            }
            (
                Waiter::Settled { place, .. }
                | Waiter::Received(Receiving { asked: Asked { place, .. }, .. }),
                Delivery::Deliveries(Reply::UnknownSubscription),
            ) => match self.is_replaced(of, place.0.delivery_log()) {
                // It may have begun where somebody else leads.
                true => Ok(()),
                false => self.work.account.not_found(*place),
            },
            (Waiter::Carries(carrying), delivery) => self.carried(carrying, delivery),
            (Waiter::Named(naming), delivery) => self.naming_leaves(of, naming, delivery),
            _ => Ok(()),
        }
    }

    pub(super) fn acknowledgements_leave(
        &mut self,
        partition: TopicPartition,
        base: Offset,
        claims: &[u64],
    ) -> Result<(), Violation> {
        for (index, claim) in claims.iter().enumerate() {
            let offset = base + index as i64;
            self.work.account.acknowledged(partition, offset, *claim, self.now)?;
        }
        Ok(())
    }

    /// When it left is known to whoever it reaches.
    pub(in super::super) fn stamp(&mut self, of: BrokerId, token: Token) {
        let Some(Waiting::Work(waiter)) = self.waits.get(&(of, token)) else { return };
        let Waiter::Received(receiving) = waiter.as_ref() else { return };
        let is_late = self.is_replaced(of, receiving.asked.place.0.delivery_log());
        let now = self.now;
        if let Some(Waiting::Work(waiter)) = self.waits.get_mut(&(of, token))
            && let Waiter::Received(receiving) = waiter.as_mut()
        {
            self.work.account.receive_left(&mut receiving.asked, now, is_late);
        }
    }

    /// Nobody will hear.
    pub(in super::super) fn work_given_up(&mut self, waiter: Waiter) -> Result<(), Violation> {
        match waiter {
            Waiter::Received(Receiving { asked, .. })
            | Waiter::Reads { receiving: Receiving { asked, .. }, .. } => {
                let looked_at = self.work.account.receive_unknown(&asked)?;
                self.hand_over_all(looked_at)
            }
            Waiter::Named(naming) => {
                self.naming_over(&naming);
                Ok(())
            }
            Waiter::Sent { .. } | Waiter::Settled { .. } | Waiter::Carries(_) | Waiter::Nothing => {
                Ok(())
            }
        }
    }

    /// An answer has reached whoever runs beside the broker.
    pub(in super::super) fn work_heard(
        &mut self,
        of: BrokerId,
        waiter: Waiter,
        delivery: Delivery,
    ) -> Result<(), Violation> {
        match (waiter, delivery) {
            (Waiter::Received(receiving), Delivery::Deliveries(reply)) => {
                self.receive_answered(of, receiving, reply)
            }
            (Waiter::Reads { receiving, messages }, Delivery::Wait(Outcome::Reached)) => {
                self.hand_over_messages(of, receiving, &messages)
            }
            (Waiter::Sent { numbers, .. }, Delivery::Wait(Outcome::Reached)) => {
                let is_lost = !self.is_healing && self.chance.percent(self.swarm.loses_answers);
                if !is_lost {
                    self.work.unheard.retain(|(_, number, _)| !numbers.contains(number));
                }
                Ok(())
            }
            (Waiter::Settled { act, receipts, place, .. }, Delivery::Deliveries(_)) => {
                if act == Act::Delete {
                    self.events.note("work: deleted");
                    // Some try again later.
                    if self.chance.percent(70) {
                        self.work
                            .kept
                            .retain(|(of, receipt)| *of != place || !receipts.contains(receipt));
                    }
                }
                Ok(())
            }
            (Waiter::Carries(carrying), delivery) => self.carry_on(of, carrying, delivery),
            (waiter, _) => self.work_given_up(waiter),
        }
    }

    fn receive_answered(
        &mut self,
        of: BrokerId,
        receiving: Receiving,
        reply: Reply,
    ) -> Result<(), Violation> {
        let place = receiving.asked.place;
        let messages = match reply {
            Reply::Received { messages, .. } => messages,
            Reply::OverLimit => Vec::new(),
            Reply::UnknownSubscription => {
                self.events.note("work: subscription not found");
                Vec::new()
            }
            other => {
                let detail = format!("{}/{}: a receive is answered by {other:?}", place.0, place.1);
                return Err(Violation::new("INV-Q1", detail));
            }
        };
        if receiving.is_given_up {
            let receipts: Vec<Receipt> = messages.iter().map(|message| message.receipt).collect();
            if !receipts.is_empty() && self.nodes[&of].is_awake(self.now) {
                self.events.note("work: given back unclaimed");
                let request = Request::Unclaim { subscription: place.1, receipts };
                self.ask_queue(of, place.0, request, Waiter::Nothing)?;
            }
            return self.work_given_up(Waiter::Received(receiving));
        }
        let Some(last) = messages.iter().map(|message| message.receipt.offset).max() else {
            self.events.note("work: nothing received");
            let looked_at = self.work.account.received(receiving.asked, Vec::new())?;
            return self.hand_over_all(looked_at);
        };
        let token = self.token();
        let waiter = Waiter::Reads { receiving, messages };
        self.waits.insert((of, token), Waiting::Work(Box::new(waiter)));
        let condition = Condition::HighWatermark(last.next());
        let is_there = self.call(of, |driver| driver.watch(place.0, token, condition))?;
        if is_there == Some(true)
            && let Some(Waiting::Work(waiter)) = self.waits.remove(&(of, token))
        {
            return self.work_heard(of, *waiter, Delivery::Wait(Outcome::Reached));
        }
        Ok(())
    }

    /// The messages are read, and go to whoever has asked for them.
    fn hand_over_messages(
        &mut self,
        of: BrokerId,
        receiving: Receiving,
        messages: &[towpath_queue::Delivery],
    ) -> Result<(), Violation> {
        let place = receiving.asked.place;
        let offsets: Vec<Offset> = messages.iter().map(|one| one.receipt.offset).collect();
        let Some(found) = self.read_messages(of, place.0, &offsets)? else {
            return self.work_given_up(Waiter::Received(receiving));
        };
        let mut handed = Vec::new();
        for one in messages {
            let Some(stored) = found.get(&one.receipt.offset) else { continue };
            let written: Written = stored.written()?;
            handed.push(Handed { receipt: one.receipt, receives: one.receives, written });
        }
        let looked_at = self.work.account.received(receiving.asked, handed)?;
        self.hand_over_all(looked_at)
    }

    fn hand_over_all(&mut self, all: Vec<(Asked, Vec<Handed>)>) -> Result<(), Violation> {
        for (asked, handed) in all {
            self.trace.remark(|| format!("{asked:?} gives {handed:?}"));
            self.events.add("work: message received", handed.len() as u64);
            let again = handed.iter().filter(|one| 1 < one.receives).count();
            self.events.add("work: message received again", again as u64);
            let place = asked.place;
            if self.is_healing {
                self.drained(place, &handed)?;
                continue;
            }
            if !handed.is_empty() && self.chance.percent(self.swarm.loses_answers) {
                self.events.note("work: messages lost on the way");
                continue;
            }
            self.work.kept.extend(handed.iter().map(|one| (place, one.receipt)));
            let excess = self.work.kept.len().saturating_sub(KEPT_MAX);
            self.work.kept.drain(..excess);
        }
        Ok(())
    }
}
