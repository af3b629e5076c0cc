//! What is done with messages: what may come of it, and what is answered.

use towpath_model::{Offset, Time, TopicPartition};
use towpath_queue::{OWN_SUBSCRIPTION, Receipt, ReceiptOutcome};

use super::{Account, Act, Copy, Place, TICK, Told, at_least};
use crate::profile::{Violation, ensure};

impl Account {
    /// Somebody does something with messages that it was given. Returns the number of the call.
    pub(in super::super) fn settle_asked(
        &mut self,
        place: Place,
        act: Act,
        receipts: &[Receipt],
        now: Time,
    ) -> u64 {
        self.numbers += 1;
        let call = self.numbers;
        let goes_to_dead_letters = self.rules[&place.0].has_dead_letters;
        for Receipt { offset, lease } in receipts {
            let Some(told) = self.told(place, *offset) else { continue };
            let Some(newest) = told.lease.as_mut().filter(|newest| newest.number == *lease) else {
                // The message was delivered anew since: nothing may come of it.
                continue;
            };
            match act {
                Act::Delete => drop(told.may_be_gone.get_or_insert(now)),
                Act::Extend(keep) => newest.may_end(call, now + at_least(keep)),
                Act::Release(_) => newest.may_end(call, now),
                Act::Unclaim => {
                    newest.may_end(call, now);
                    told.uncounted += 1;
                }
                Act::Reject if goes_to_dead_letters => {
                    told.may_be_moved.get_or_insert(now);
                }
                Act::Reject => drop(told.may_be_gone.get_or_insert(now)),
            }
        }
        call
    }

    pub(super) fn told(&mut self, (partition, number): Place, offset: Offset) -> Option<&mut Told> {
        let copy = self.copies.get_mut(&(partition, offset))?;
        Some(copy.told.entry(number).or_default())
    }

    /// It is answered; the answer leaves at `left`. `is_newest`: nobody else leads.
    #[expect(clippy::too_many_arguments, reason = "what was asked, and what was answered")]
    pub(in super::super) fn settle_answered(
        &mut self,
        place: Place,
        act: Act,
        receipts: &[Receipt],
        outcomes: &[ReceiptOutcome],
        call: u64,
        left: Time,
        is_newest: bool,
    ) -> Result<(), Violation> {
        for (Receipt { offset, lease }, outcome) in receipts.iter().zip(outcomes) {
            let what = format!("{}/{}: {act:?} of {offset} by {lease}", place.0, place.1);
            let Some(copy) = self.copies.get(&(place.0, *offset)) else { continue };
            let has_left = self.may_have_left(&place, copy, *offset, left);
            let Some(told) = self.told(place, *offset) else { continue };
            let Some(newest) = &mut told.lease else { continue };
            match outcome {
                ReceiptOutcome::Done => {
                    // Who was replaced tells late what was done before somebody else got the message; but what is
                    // deleted nobody gets.
                    let may_be_late = !is_newest && !matches!(act, Act::Delete);
                    ensure!(
                        newest.number <= *lease || may_be_late,
                        "INV-Q4",
                        "{what} is done, and {newest:?} has it"
                    );
                    match act {
                        Act::Delete => told.deleted = Some(*lease),
                        Act::Extend(_) => newest.surely_ends(call),
                        _ => {}
                    }
                }
                ReceiptOutcome::Settled => ensure!(
                    has_left || !is_newest,
                    "INV-Q1",
                    "{what}: it is settled, by nobody: {told:?}"
                ),
                ReceiptOutcome::Unknown => {
                    ensure!(!is_newest, "INV-Q2", "{what}: the delivery is forgotten");
                }
                ReceiptOutcome::Expired => ensure!(
                    newest.number != *lease || newest.until() <= left + TICK || !is_newest,
                    "INV-Q2",
                    "{what}: it is over at {left:?}, {newest:?}"
                ),
                ReceiptOutcome::Superseded | ReceiptOutcome::TooLong => {}
            }
        }
        Ok(())
    }

    /// Everything that is there may go.
    pub(in super::super) fn purge_asked(&mut self, (partition, number): Place, now: Time) {
        // Ids are the queue's: those of named subscriptions do not go.
        if number == OWN_SUBSCRIPTION {
            self.purged.insert(partition, now);
        }
        self.each_copy(partition, Offset(i64::MAX), |copy| {
            copy.told.entry(number).or_default().may_be_gone.get_or_insert(now);
        });
    }

    /// Every record before an offset, or what may be one.
    pub(super) fn each_copy(
        &mut self,
        of: TopicPartition,
        end: Offset,
        mut act: impl FnMut(&mut Copy),
    ) {
        let copies = self.copies.range_mut((of, Offset(0))..(of, end)).map(|(_, copy)| copy);
        let claims = self.claims.range_mut((of, Offset(0), 0)..(of, end, 0)).map(|(_, copy)| copy);
        copies.chain(claims).for_each(&mut act);
    }

    /// Messages are to go, or to go elsewhere.
    pub(in super::super) fn dispose_asked(
        &mut self,
        (partition, number): Place,
        offsets: &[Offset],
        is_moved: bool,
        now: Time,
    ) {
        let note = |copy: &mut Copy| {
            let told = copy.told.entry(number).or_default();
            let since = if is_moved { &mut told.may_be_moved } else { &mut told.may_be_gone };
            since.get_or_insert(now);
        };
        for offset in offsets {
            self.copies.get_mut(&(partition, *offset)).into_iter().for_each(note);
            let all = (partition, *offset, 0)..=(partition, *offset, u64::MAX);
            self.claims.range_mut(all).for_each(|(_, copy)| note(copy));
        }
    }

    /// Records before this are to go.
    pub(in super::super) fn deletion_asked(
        &mut self,
        partition: TopicPartition,
        end: Offset,
        now: Time,
    ) {
        self.each_copy(partition, end, |copy| {
            copy.deletion_asked.get_or_insert(now);
        });
    }

    /// Where messages lie.
    pub(in super::super) fn offsets(&self, partition: TopicPartition) -> Vec<Offset> {
        let all = (partition, Offset(0))..=(partition, Offset(i64::MAX));
        self.copies.range(all).map(|((_, offset), _)| *offset).collect()
    }
}
