//! What happens to which message at which second: delays that end, messages that grow too old.
//!
//! A delayed message is not a thing in memory: it is a few bytes in the list of its second. A million of
//! them, delayed by a day, take a few megabytes. Entries are not looked up and not removed: whoever takes
//! them out asks whether they still mean something. When something happens to one message is not looked up either:
//! whoever wants to know asks for many at once, and the lists in which they may be are read through once.

use std::collections::{BTreeMap, BTreeSet};

use towpath_model::Offset;
use towpath_model::mutant::{self, Mutant};

use crate::time::QueueTime;

/// Milliseconds of one list. Nothing happens early, and at most this much late.
pub(crate) const GRAIN_MS: u64 = 1_000;

/// Offsets by the second at which they are due.
#[derive(Debug, Clone, Default)]
pub(crate) struct DueIndex {
    seconds: BTreeMap<u64, PackedOffsets>,
}

/// Offsets, each as the zigzag varint of its distance to the one before.
#[derive(Debug, Clone, Default)]
struct PackedOffsets {
    bytes: Vec<u8>,
    last: i64,
    /// The least and the greatest of them, where there is any.
    span: Option<(Offset, Offset)>,
}

impl PackedOffsets {
    fn push(&mut self, offset: Offset) {
        let distance = offset.0 - self.last;
        let mut rest = ((distance << 1) ^ (distance >> 63)) as u64;
        while 0x80 <= rest {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
        self.last = offset.0;
        let (least, greatest) = self.span.unwrap_or((offset, offset));
        self.span = Some((least.min(offset), greatest.max(offset)));
    }

    fn may_have(&self, any_of: &BTreeSet<Offset>) -> bool {
        let within = self.span.map(|(least, greatest)| any_of.range(least..=greatest));
        within.is_some_and(|mut within| within.next().is_some())
    }

    fn iter(&self) -> impl Iterator<Item = Offset> + '_ {
        let (mut at, mut last) = (0, 0);
        std::iter::from_fn(move || {
            let (mut value, mut shift) = (0_u64, 0);
            loop {
                let byte = *self.bytes.get(at)?;
                at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            last += (value >> 1) as i64 ^ -((value & 1) as i64);
            Some(Offset(last))
        })
    }
}

impl DueIndex {
    /// When something that is meant for `at` happens.
    pub(crate) fn second_of(at: QueueTime) -> QueueTime {
        let seconds = match mutant::is_on(Mutant::DelayRoundedDown) {
            true => at.0 / GRAIN_MS,
            false => at.0.div_ceil(GRAIN_MS),
        };
        QueueTime(seconds.saturating_mul(GRAIN_MS))
    }

    /// Notes that something happens to `offset` at `at`.
    pub(crate) fn add(&mut self, at: QueueTime, offset: Offset) {
        self.seconds.entry(Self::second_of(at).0).or_default().push(offset);
    }

    /// The first moment at which something is due.
    pub(crate) fn first(&self) -> Option<QueueTime> {
        self.seconds.keys().next().copied().map(QueueTime)
    }

    /// Takes out one list that is due by `now`: when it was due, and its offsets.
    pub(crate) fn take(&mut self, now: QueueTime) -> Option<(QueueTime, Vec<Offset>)> {
        let (second, _) = self.seconds.range(..=now.0).next()?;
        let second = *second;
        let packed = self.seconds.remove(&second)?;
        Some((QueueTime(second), packed.iter().collect()))
    }

    /// What is due by `now`, without taking it out.
    pub(crate) fn due(&self, now: QueueTime) -> impl Iterator<Item = (QueueTime, Offset)> + '_ {
        let lists = self.seconds.range(..=now.0);
        lists.flat_map(|(second, list)| list.iter().map(|offset| (QueueTime(*second), offset)))
    }

    /// Everything, by time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (QueueTime, Offset)> + '_ {
        self.due(QueueTime::MAX)
    }

    /// When something happens to each of these, where anything does. Reads every list once in which one of them may
    /// be: what was given the same delay lies together, and no more is read than that.
    pub(crate) fn times_of(&self, offsets: &BTreeSet<Offset>) -> BTreeMap<Offset, QueueTime> {
        let lists = self.lists_with(offsets);
        let times = lists.flat_map(|(at, list)| list.iter().map(move |offset| (offset, at)));
        times.filter(|(offset, _)| offsets.contains(offset)).collect()
    }

    fn lists_with<'a>(
        &'a self,
        offsets: &'a BTreeSet<Offset>,
    ) -> impl Iterator<Item = (QueueTime, &'a PackedOffsets)> {
        let lists = self.seconds.iter().filter(|(_, list)| list.may_have(offsets));
        lists.map(|(second, list)| (QueueTime(*second), list))
    }

    /// Bytes that the lists take.
    pub(crate) fn bytes(&self) -> usize {
        let of_list = |list: &PackedOffsets| list.bytes.capacity() + size_of::<PackedOffsets>();
        self.seconds.values().map(of_list).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_due_early() {
        let mut due = DueIndex::default();
        due.add(QueueTime(1), Offset(7));
        due.add(QueueTime(1_000), Offset(3));
        due.add(QueueTime(1_001), Offset(900));
        assert_eq!(due.first(), Some(QueueTime(1_000)));
        assert_eq!(due.take(QueueTime(999)), None);
        assert_eq!(
            due.take(QueueTime(5_000)),
            Some((QueueTime(1_000), vec![Offset(7), Offset(3)]))
        );
        assert_eq!(due.take(QueueTime(5_000)), Some((QueueTime(2_000), vec![Offset(900)])));
        assert_eq!(due.take(QueueTime::MAX), None);
    }

    #[test]
    fn a_million_delayed_by_a_day_take_a_few_megabytes() {
        let mut due = DueIndex::default();
        for offset in 0..1_000_000_i64 {
            // Spread over the day, in no order.
            let at = (offset * 7_919) % 86_400_000;
            due.add(QueueTime(at as u64), Offset(offset));
        }
        assert!(due.bytes() < 12 << 20, "{} bytes", due.bytes());
        assert_eq!(due.iter().count(), 1_000_000);
    }

    #[test]
    fn when_it_is_whose_turn_costs_the_same_however_many_others_there_are() {
        let entries_read = |count: i64| {
            let mut due = DueIndex::default();
            for offset in 0..count {
                // A hundred in a second, each delayed by a day.
                due.add(QueueTime(86_400_000 + offset as u64 * 10), Offset(offset));
            }
            let wanted = BTreeSet::from([Offset(777), Offset(778), Offset(count + 5)]);
            let times = due.times_of(&wanted);
            let second = DueIndex::second_of(QueueTime(86_407_770));
            assert_eq!(times, BTreeMap::from([(Offset(777), second), (Offset(778), second)]));
            due.lists_with(&wanted).map(|(_, list)| list.iter().count()).sum::<usize>()
        };
        assert_eq!((entries_read(10_000), entries_read(100_000)), (100, 100));
    }
}
