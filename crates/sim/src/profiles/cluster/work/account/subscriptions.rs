//! Subscriptions that come and go, and which messages each must be given.
//!
//! ```text
//! asked ───────▶ answered ─────────────────────▶ end asked ──────▶ end answered
//!       perhaps  │ what is sent from now on       │ perhaps         nothing is given any more
//!                │ and, from the start, what was certainly there
//! ```

use std::collections::BTreeSet;

use towpath_model::{Offset, Time, TopicPartition};

use super::{Account, Asked, Copy, Handed, Place};
use crate::profile::{Violation, ensure};

/// What is known of one.
#[derive(Debug, Clone, Default)]
pub(super) struct Subscription {
    /// It was asked for, and it is there at the latest.
    asked: Time,
    since: Time,
    from_start: bool,
    /// Messages that it must get although they were sent before.
    backlog: BTreeSet<Offset>,
    /// Those of them of which the queue knew group and delay when it began.
    in_full: BTreeSet<Offset>,
    end_asked: Option<Time>,
    ended: Option<Time>,
}

impl Account {
    /// Subscriptions that are there from the beginning of a queue's partition on, up to a number.
    pub(super) fn subscribed_from_the_beginning(&mut self, partition: TopicPartition, count: u32) {
        let own = Subscription { from_start: true, ..Subscription::default() };
        self.subscriptions.extend((0..count).map(|number| ((partition, number), own.clone())));
    }

    /// Every subscription of every partition whose end nobody has asked for.
    pub(in super::super) fn places(&self) -> Vec<Place> {
        let all = self.subscriptions.iter().filter(|(_, own)| own.end_asked.is_none());
        all.map(|(place, _)| *place).collect()
    }

    /// Those whose end was asked for.
    pub(in super::super) fn ended_places(&self) -> Vec<Place> {
        let all = self.subscriptions.iter().filter(|(_, own)| own.end_asked.is_some());
        all.map(|(place, _)| *place).collect()
    }

    /// Those of one partition that were there ever.
    pub(super) fn places_of(&self, partition: TopicPartition) -> impl Iterator<Item = Place> {
        let all = (partition, 0)..=(partition, u32::MAX);
        self.subscriptions.range(all).map(|(place, _)| *place)
    }

    /// A subscription is there, as the only leader says: one that has just begun, from the start or not, or one that
    /// may be older than anybody knows.
    pub(in super::super) fn subscribed(
        &mut self,
        place: Place,
        begin: Option<bool>,
        asked: Time,
        now: Time,
    ) -> Result<(), Violation> {
        let known = self.subscriptions.get(&place);
        let (partition, number) = place;
        if let Some(known) = known {
            ensure!(
                known.ended.is_none_or(|ended| asked < ended),
                "INV-Q4",
                "{partition}: a subscription has the number {number} that another had: {known:?}"
            );
            if known.end_asked.is_none() {
                return Ok(());
            }
        }
        let begin = begin.filter(|_| known.is_none());
        let (backlog, in_full) = match begin {
            Some(true) => self.certainly_there(partition, now),
            _ => Default::default(),
        };
        let (from_start, since) = (begin != Some(false), now);
        let own = Subscription { asked, since, from_start, backlog, in_full, ..Default::default() };
        self.subscriptions.insert(place, own);
        Ok(())
    }

    /// Messages whose records nobody can have removed, and those of them that are known in full.
    fn certainly_there(
        &self,
        partition: TopicPartition,
        now: Time,
    ) -> (BTreeSet<Offset>, BTreeSet<Offset>) {
        // Where order matters, one that begins gets nothing of what all others are done with.
        let rules = &self.rules[&partition];
        let removes_settled = rules.removes_settled || rules.is_fifo;
        let all = (partition, Offset(0))..=(partition, Offset(i64::MAX));
        let (mut there, mut known) = (BTreeSet::new(), BTreeSet::new());
        for ((_, offset), copy) in self.copies.range(all) {
            if copy.deletion_asked.is_some() || self.may_have_expired(partition, copy, now) {
                continue;
            }
            let is_unsettled = |place: &Place| {
                !self.may_lack(place, *offset, copy)
                    && !self.may_have_left(place, copy, *offset, now)
            };
            let unsettled: Vec<Place> = self.places_of(partition).filter(is_unsettled).collect();
            if !removes_settled || !unsettled.is_empty() {
                there.insert(*offset);
            }
            if unsettled.iter().any(|place| self.is_known_in_full(place, *offset, copy)) {
                known.insert(*offset);
            }
        }
        (there, known)
    }

    /// Whether a queue knows a message's group and delay when a subscription gets it: they are forgotten once all
    /// others are done with it, and where order matters it is not given then.
    pub(super) fn is_known_in_full(&self, place: &Place, offset: Offset, copy: &Copy) -> bool {
        let own = self.subscriptions.get(place);
        self.rules[&place.0].is_fifo
            || own.is_some_and(|own| own.since <= copy.sent_at || own.in_full.contains(&offset))
    }

    /// Somebody wants no more of a subscription.
    pub(in super::super) fn end_asked(&mut self, place: Place, now: Time) {
        if let Some(own) = self.subscriptions.get_mut(&place) {
            own.end_asked.get_or_insert(now);
        }
    }

    /// It is not there any more.
    pub(in super::super) fn ended(&mut self, place: Place, now: Time) {
        if let Some(own) = self.subscriptions.get_mut(&place) {
            own.ended.get_or_insert(now);
        }
    }

    /// Somebody was told that there is no such subscription.
    pub(in super::super) fn not_found(&self, place: Place) -> Result<(), Violation> {
        let own = self.subscriptions.get(&place);
        ensure!(
            own.is_none_or(|own| own.end_asked.is_some()),
            "INV-Q1",
            "{}/{}: there is no such subscription, and nobody has ended it: {own:?}",
            place.0,
            place.1
        );
        Ok(())
    }

    /// Whether a subscription need not be given a message: it began later, or has ended.
    pub(super) fn may_lack(&self, place: &Place, offset: Offset, copy: &Copy) -> bool {
        let Some(own) = self.subscriptions.get(place) else { return true };
        let has_all = own.since <= copy.sent_at || own.backlog.contains(&offset);
        own.end_asked.is_some() || !has_all
    }

    /// Nothing is given by a subscription that has ended, nor anything that was there before to one that was to
    /// have only what comes.
    pub(super) fn check_subscription(
        &self,
        asked: &Asked,
        handed: &Handed,
    ) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        let Some(own) = self.subscriptions.get(&asked.place) else { return Ok(()) };
        let offset = handed.receipt.offset;
        ensure!(
            own.ended.is_none_or(|ended| asked.at < ended || asked.is_late),
            "INV-Q4",
            "{partition}/{number}: message at {offset} is delivered, and the subscription has ended: {own:?}"
        );
        let first_seen = self.copies[&(partition, offset)].first_seen;
        ensure!(
            own.from_start || first_seen.is_none_or(|seen| own.asked <= seen),
            "INV-Q4",
            "{partition}/{number}: message at {offset} was there at {first_seen:?}: {own:?}"
        );
        Ok(())
    }
}
