//! Where a message may have gone, and whether every promise was kept in the end.

use towpath_model::{Offset, Time, TopicPartition};

use super::{Account, Copy, Place, TICK, Twin, at_least};

impl Account {
    /// Whether a message may have gone where it grows too old.
    pub(super) fn may_have_expired(
        &self,
        partition: TopicPartition,
        copy: &Copy,
        now: Time,
    ) -> bool {
        let ttl = self.messages[&copy.number].ttl.filter(|_| copy.from.is_none());
        let limits = [ttl, self.rules[&partition].retention];
        limits.into_iter().flatten().any(|limit| copy.sent_at + at_least(limit) <= now + TICK)
    }

    pub(super) fn may_be_moved(&self, place: &Place, copy: &Copy, now: Time) -> bool {
        let rules = &self.rules[&place.0];
        let told = copy.told.get(&place.1);
        let receives = told.map_or(0, |told| u64::from(told.receives));
        let calls = self.calls.get(place).copied().unwrap_or_default();
        let unknown = calls.unknown + calls.pending - told.map_or(0, |told| told.unknown);
        let is_exceeded =
            rules.receives_max.is_some_and(|max| u64::from(max) <= receives + unknown);
        let is_old = rules.expired_are_dead_letters && self.may_have_expired(place.0, copy, now);
        told.is_some_and(|told| told.may_be_moved.is_some_and(|at| at <= now))
            || (rules.has_dead_letters && (is_exceeded || is_old))
    }

    /// Whether a message may have been settled, for whatever reason.
    pub(super) fn may_have_left(
        &self,
        place: &Place,
        copy: &Copy,
        offset: Offset,
        now: Time,
    ) -> bool {
        let told = copy.told.get(&place.1);
        let is_done = told.is_some_and(|told| {
            told.deleted.is_some() || told.may_be_gone.is_some_and(|at| at <= now)
        });
        is_done
            || copy.deletion_asked.is_some_and(|at| at <= now)
            || self.may_be_moved(place, copy, now)
            || self.may_have_expired(place.0, copy, now)
            || !self.others(place.0, offset).is_empty()
            || self.may_repeat(place.0, offset)
    }

    /// The first promise of a send that is not kept yet: its message was not worked, dropped, moved to where
    /// that is so, or too old (INV-Q1).
    pub(in super::super) fn open(&self, now: Time) -> Option<String> {
        self.copies.iter().find_map(|((partition, offset), copy)| {
            copy.acknowledged_at?;
            self.places_of(*partition).find_map(|place| {
                let (partition, number) = place;
                let is_kept = self.is_kept(&place, *offset, now);
                (!is_kept).then(|| {
                    format!("{partition}/{number}: message at {offset} is nowhere: {copy:?}")
                })
            })
        })
    }

    /// Whether the promise of a send is kept, by this copy of its message or by another one.
    fn is_kept(&self, place: &Place, offset: Offset, now: Time) -> bool {
        let others = self.others(place.0, offset);
        self.is_accounted_for(place, offset, now)
            || self.was_repeated(place, offset, now)
            || others.into_iter().any(|other| self.is_accounted_for(place, other, now))
    }

    /// Whether it may be another copy of one that may have gone before anybody heard of it.
    pub(super) fn was_repeated(&self, place: &Place, offset: Offset, now: Time) -> bool {
        let (partition, _) = *place;
        let twin = self.twin_of(partition, &self.copies[&(partition, offset)]);
        let all = (partition, Offset(0), 0)..(partition, offset, 0);
        self.claims.range(all).any(|((_, at, _), copy)| {
            let is_twin = twin.is_some() && self.twin_of(partition, copy) == twin;
            is_twin && self.has_come_to_its_end(place, *at, copy, now)
        })
    }

    pub(super) fn is_accounted_for(&self, place: &Place, offset: Offset, now: Time) -> bool {
        let copy = &self.copies[&(place.0, offset)];
        self.has_come_to_its_end(place, offset, copy, now)
    }

    pub(super) fn has_come_to_its_end(
        &self,
        place: &Place,
        offset: Offset,
        copy: &Copy,
        now: Time,
    ) -> bool {
        let (partition, number) = *place;
        let rules = &self.rules[&partition];
        let goes_elsewhere = rules.expired_are_dead_letters && rules.has_dead_letters;
        let is_gone = copy.told.get(&number).is_some_and(|told| {
            told.deleted.is_some() || told.may_be_gone.is_some() || told.arrived.is_some()
        });
        let arrived = self.twins.get(&Twin::From((partition, offset, number)));
        is_gone
            || self.may_lack(place, offset, copy)
            || copy.deletion_asked.is_some()
            || (self.may_have_expired(partition, copy, now) && !goes_elsewhere)
            || arrived.into_iter().flatten().any(|(to, at)| {
                self.places_of(*to).all(|place| {
                    self.is_accounted_for(&place, *at, now) || self.was_repeated(&place, *at, now)
                })
            })
    }

    /// Messages that were acknowledged.
    pub(in super::super) fn acknowledged_count(&self) -> u64 {
        self.copies.values().filter(|copy| copy.acknowledged_at.is_some()).count() as u64
    }
}
