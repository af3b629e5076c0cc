//! Receives, in the order in which their answers left: what each may be given.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_model::{Offset, Time};
use towpath_queue::Receipt;

use super::lease::Lease;
use super::{Account, Asked, Copy, Handed, Place, TICK, Written, at_least};
use crate::profile::{Violation, ensure};

impl Account {
    /// Somebody wants messages.
    pub(in super::super) fn receive_asked(
        &mut self,
        place: Place,
        at: Time,
        visibility: Duration,
        attempt: Option<u64>,
    ) -> Asked {
        let calls = self.calls.entry(place).or_default();
        calls.pending += 1;
        let unknown = calls.unknown;
        self.numbers += 1;
        let number = self.numbers;
        if let Some(attempt) = attempt {
            self.named
                .entry((place, attempt))
                .or_default()
                .push((number, at + at_least(visibility)));
            let (partition, subscription) = place;
            let all = (partition, Offset(0))..=(partition, Offset(i64::MAX));
            for (_, copy) in self.copies.range_mut(all) {
                let told = copy.told.get_mut(&subscription);
                let lease = told.and_then(|told| told.lease.as_mut());
                if let Some(lease) = lease.filter(|lease| lease.attempt == Some(attempt)) {
                    lease.may_end(number, at + at_least(visibility));
                }
            }
        }
        Asked { place, at, visibility, attempt, number, unknown, left: None, is_late: false }
    }

    /// A receive's answer leaves a broker. `is_late`: somebody else leads by then.
    pub(in super::super) fn receive_left(&mut self, asked: &mut Asked, at: Time, is_late: bool) {
        self.numbers += 1;
        asked.is_late = is_late;
        asked.left = Some((self.numbers, at));
        self.queues.entry(asked.place).or_default().insert(self.numbers, None);
    }

    /// A receive ends without anybody knowing what it was given. Returns what others were given.
    pub(in super::super) fn receive_unknown(
        &mut self,
        asked: &Asked,
    ) -> Result<Vec<(Asked, Vec<Handed>)>, Violation> {
        let calls = self.calls.entry(asked.place).or_default();
        calls.pending -= 1;
        calls.unknown += 1;
        if let Some((nth, _)) = asked.left {
            self.queues.entry(asked.place).or_default().remove(&nth);
        }
        self.look(asked.place)
    }

    /// A receive was answered, and this was read. Returns what it was given, and what those were given that had
    /// to be looked at after it; nothing while there is somebody before it.
    pub(in super::super) fn received(
        &mut self,
        asked: Asked,
        handed: Vec<Handed>,
    ) -> Result<Vec<(Asked, Vec<Handed>)>, Violation> {
        let place = asked.place;
        let (nth, _) = asked.left.expect("its answer has left");
        self.queues.entry(place).or_default().insert(nth, Some((asked, handed)));
        self.look(place)
    }

    pub(super) fn look(&mut self, place: Place) -> Result<Vec<(Asked, Vec<Handed>)>, Violation> {
        let mut looked_at = Vec::new();
        while let Some(first) = self.queues.entry(place).or_default().first_entry() {
            if first.get().is_none() {
                break;
            }
            let Some((asked, handed)) = first.remove() else { break };
            self.look_at(&asked, &handed)?;
            looked_at.push((asked, handed));
        }
        Ok(looked_at)
    }

    pub(super) fn look_at(&mut self, asked: &Asked, handed: &[Handed]) -> Result<(), Violation> {
        let (_, left) = asked.left.expect("its answer has left");
        self.calls.entry(asked.place).or_default().pending -= 1;
        for one in handed {
            self.learn(asked.place, one)?;
        }
        self.check_groups(asked, left, handed)?;
        handed.iter().try_for_each(|one| self.handed(asked, left, one))
    }

    /// What was received is committed.
    pub(super) fn learn(
        &mut self,
        (partition, _): Place,
        handed: &Handed,
    ) -> Result<(), Violation> {
        let offset = handed.receipt.offset;
        let Written { number, group, from, .. } = handed.written;
        let is_it = |copy: &Copy| (copy.number, copy.group, copy.from) == (number, group, from);
        if self.copies.get(&(partition, offset)).is_some_and(is_it) {
            return Ok(());
        }
        let Some(message) = self.messages.get(&number) else {
            let detail = format!("{partition}: {:?} was sent by nobody", handed.written);
            return Err(Violation::new("INV-Q1", detail));
        };
        let sent_at = message.sent_at;
        let all = (partition, offset, 0)..=(partition, offset, u64::MAX);
        let claim =
            self.claims.range(all).find(|(_, copy)| is_it(copy)).map(|(_, copy)| copy.claim);
        // Nobody has heard where it was put.
        let claim =
            claim.unwrap_or_else(|| self.appended(partition, offset, &handed.written, sent_at));
        self.committed(partition, offset, claim)
    }

    pub(super) fn handed(
        &mut self,
        asked: &Asked,
        left: Time,
        handed: &Handed,
    ) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        let Handed { receipt: Receipt { offset, lease }, receives, .. } = *handed;
        let what = format!("{partition}/{number}: message at {offset}");
        self.check_subscription(asked, handed)?;
        self.check_delay(asked.place, offset, left, &what)?;
        self.check_twins(asked, left, offset, &what)?;
        self.check_way(asked, left, handed, &what)?;
        let rules = &self.rules[&partition];
        if let Some(max) = rules.receives_max.filter(|_| rules.has_dead_letters) {
            ensure!(
                receives <= max,
                "INV-Q6",
                "{what} is received {receives} times, {max} are allowed"
            );
        }
        let calls = self.calls[&asked.place];
        let copy = self.copies.get_mut(&(partition, offset)).expect("learnt of before");
        let sent_at = copy.sent_at;
        copy.first_seen.get_or_insert(left);
        let told = copy.told.entry(number).or_default();
        if let Some(deleted) = told.deleted {
            ensure!(
                lease <= deleted,
                "INV-Q4",
                "{what} was deleted by delivery {deleted}, and is delivered by {lease}"
            );
        }
        let mut from = asked.at.max(sent_at);
        if let Some(before) = &mut told.lease {
            if asked.is_late && lease < before.number {
                return Ok(());
            }
            ensure!(
                before.number <= lease,
                "INV-Q2",
                "{what} is delivered by {lease}, after {}",
                before.number
            );
            if lease == before.number {
                ensure!(
                    asked.attempt.is_some() && asked.attempt == before.attempt,
                    "INV-Q2",
                    "{what} is delivered by {lease} again"
                );
                ensure!(
                    receives == told.receives,
                    "INV-Q6",
                    "{what}: delivery {lease} is the receive {}, and now {receives}",
                    told.receives
                );
                before.surely_ends(asked.number);
                return Ok(());
            }
            ensure!(
                before.until() <= left + TICK,
                "INV-Q2",
                "{what} is delivered by {lease} at {left:?}, {before:?} holds it"
            );
            from = from.max(before.until());
        }
        let least = (told.receives + 1).saturating_sub(told.uncounted);
        let most = u64::from(told.receives) + 1 + calls.unknown - told.unknown + calls.pending;
        ensure!(
            least <= receives && u64::from(receives) <= most,
            "INV-Q6",
            "{what}: receive {receives} after {}, {least} to {most} would be right",
            told.receives
        );
        told.receives = receives;
        told.uncounted = 0;
        told.unknown = asked.unknown;
        let (first_until, attempt) = (from + at_least(asked.visibility), asked.attempt);
        let mut newest = Lease { number: lease, first_until, attempt, changes: Vec::new() };
        // Whoever has asked by the same name may have got the same, for less long.
        let again = attempt.and_then(|attempt| self.named.get(&(asked.place, attempt)));
        for (call, until) in again.into_iter().flatten() {
            if *call != asked.number {
                newest.may_end(*call, *until);
            }
        }
        told.lease = Some(newest);
        Ok(())
    }

    pub(super) fn check_delay(
        &self,
        place: Place,
        offset: Offset,
        left: Time,
        what: &str,
    ) -> Result<(), Violation> {
        let (partition, _) = place;
        let copy = &self.copies[&(partition, offset)];
        if !self.is_known_in_full(&place, offset, copy) {
            return Ok(());
        }
        let usual = self.rules[&partition].delay;
        let own = self.messages[&copy.number].delay.filter(|_| copy.from.is_none());
        let ready = copy.sent_at + at_least(own.unwrap_or(usual));
        ensure!(
            ready <= left + TICK,
            "INV-Q8",
            "{what} is delivered at {left:?}, before {ready:?}"
        );
        Ok(())
    }

    /// One message of those that are the same is delivered.
    pub(super) fn check_twins(
        &self,
        asked: &Asked,
        left: Time,
        offset: Offset,
        what: &str,
    ) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        let copy = &self.copies[&(partition, offset)];
        for other in self.others(partition, offset) {
            let twin = &self.copies[&(partition, other)];
            let is_delivered = twin.told.get(&number).is_some_and(|told| told.lease.is_some());
            if !is_delivered {
                continue;
            }
            ensure!(
                copy.from.is_none(),
                "INV-Q6",
                "{what} comes from {:?}, as does that at {other}",
                copy.from
            );
            let first = copy.sent_at.min(twin.sent_at);
            let window = self.rules[&partition].dedup_window;
            let was_purged = self.purged.get(&partition).is_some_and(|at| first <= *at);
            ensure!(
                was_purged || first + at_least(window) <= left,
                "INV-Q7",
                "{what} is a repeat of that at {other} within {window:?}, and both are delivered"
            );
        }
        Ok(())
    }

    /// What moves from one queue to another is delivered by one of them.
    pub(super) fn check_way(
        &mut self,
        asked: &Asked,
        left: Time,
        handed: &Handed,
        what: &str,
    ) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        let offset = handed.receipt.offset;
        let told = self.copies[&(partition, offset)].told.get(&number);
        if let Some((to, at, arrived)) = told.and_then(|told| told.arrived) {
            ensure!(
                asked.at < arrived,
                "INV-Q1",
                "{what} is delivered, and was before as {to} at {at}"
            );
        }
        let Some((source, at, by)) = handed.written.from else { return Ok(()) };
        let Some(parent) = self.copies.get(&(source, at)) else { return Ok(()) };
        let may_move = self.may_be_moved(&(source, by), parent, left);
        ensure!(
            may_move,
            "INV-Q6",
            "{what} comes from {source} at {at}, where nothing says that it goes"
        );
        let parent_told = parent.told.get(&by).cloned().unwrap_or_default();
        if let Some(receives) = handed.written.dead_receives {
            let calls = self.calls.get(&(source, by)).copied().unwrap_or_default();
            let least = parent_told.receives.saturating_sub(parent_told.uncounted);
            let most = u64::from(parent_told.receives) + calls.unknown - parent_told.unknown
                + calls.pending;
            ensure!(
                least <= receives && u64::from(receives) <= most,
                "INV-Q6",
                "{what} says that it was received {receives} times, it was {least} to {most}"
            );
        }
        ensure!(
            parent.number == handed.written.number,
            "INV-Q6",
            "{what} is message {}, at its source it was {}",
            handed.written.number,
            parent.number
        );
        let parent = self.copies.get_mut(&(source, at)).expect("looked up above");
        let told = parent.told.entry(by).or_default();
        told.arrived.get_or_insert((partition, offset, left));
        Ok(())
    }

    /// Messages of a group come in order, and none while another one is held (INV-Q5).
    pub(super) fn check_groups(
        &self,
        asked: &Asked,
        left: Time,
        handed: &[Handed],
    ) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        if asked.is_late || !self.rules[&partition].is_fifo {
            return Ok(());
        }
        let mut before: BTreeMap<Option<u8>, Vec<Offset>> = BTreeMap::new();
        let is_again = |one: &&Handed| {
            let told = self.copies[&(partition, one.receipt.offset)].told.get(&number);
            let lease = told.and_then(|told| told.lease.as_ref());
            lease.is_some_and(|lease| one.receipt.lease <= lease.number)
        };
        let is_known = |offset: Offset| {
            let copy = &self.copies[&(partition, offset)];
            self.is_known_in_full(&asked.place, offset, copy)
        };
        let new = handed.iter().filter(|one| !is_again(one) && is_known(one.receipt.offset));
        for one in new {
            let offset = one.receipt.offset;
            let group = one.written.group;
            let here = before.entry(group).or_default();
            let what = || format!("{partition}/{number}: {offset} of group {group:?}");
            ensure!(
                here.last().is_none_or(|last| *last < offset),
                "INV-Q5",
                "{} is delivered after {here:?}",
                what()
            );
            for other in self.groups[&(partition, group)].iter().filter(|at| **at != offset) {
                if here.contains(other) || !is_known(*other) {
                    continue;
                }
                let copy = &self.copies[&(partition, *other)];
                let told = copy.told.get(&number);
                let lease = told.and_then(|told| told.lease.as_ref());
                let has_left = self.may_have_left(&asked.place, copy, *other, left);
                ensure!(
                    has_left || lease.is_none_or(|lease| lease.until() <= left + TICK),
                    "INV-Q5",
                    "{} is delivered while that at {other} is held: {lease:?}",
                    what()
                );
                let is_sure = copy.acknowledged_at.is_some_and(|at| at <= asked.at);
                ensure!(
                    !(*other < offset && is_sure)
                        || has_left
                        || self.may_lack(&asked.place, *other, copy),
                    "INV-Q5",
                    "{} is delivered before that at {other}: {copy:?}",
                    what()
                );
            }
            here.push(offset);
        }
        Ok(())
    }
}
