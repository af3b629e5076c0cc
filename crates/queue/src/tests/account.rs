//! What every message went through, told from the records alone, without any of the structures that the
//! engine keeps; and what must never be in such a story (INV-Q1 to Q8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_model::{Now, Offset};

use crate::record::{Record, Return, Verdict};
use crate::{Deliveries, DeliveryConfig, PeekFilter, QueueTime};

/// One message, for the queue's own subscription.
#[derive(Debug, Clone, PartialEq)]
struct Story {
    group: Option<Arc<[u8]>>,
    not_before: QueueTime,
    held: Option<(u64, QueueTime)>,
    receives: u32,
    moving: bool,
    settled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Account {
    is_fifo: bool,
    receives_max: Option<u32>,
    messages: BTreeMap<Offset, Story>,
    last_lease: u64,
    last_at: QueueTime,
}

impl Account {
    pub(super) fn new(config: &DeliveryConfig) -> Account {
        let receives_max = config.receives_max.filter(|_| config.dead_letter_queue.is_some());
        Account { is_fifo: config.is_fifo, receives_max, ..Account::default() }
    }

    pub(super) fn note(&mut self, record: &Record, engine: &Deliveries) {
        if let Some(at) = record.at() {
            assert!(self.last_at <= at, "time goes back: {record:?}");
            self.last_at = at;
        }
        match record {
            Record::Admitted { base, count, specials, .. } => {
                assert_eq!(*base, engine.admitted_to());
                for index in 0..*count {
                    let special = specials.iter().find(|special| special.index == index);
                    let special = special.cloned().unwrap_or_default();
                    let story = Story {
                        group: special.group,
                        not_before: special.not_before.unwrap_or_default(),
                        held: None,
                        receives: 0,
                        moving: false,
                        settled: special.verdict != Verdict::Deliver,
                    };
                    let before = self.messages.insert(*base + i64::from(index), story);
                    assert_eq!(before, None, "an offset is admitted twice");
                }
            }
            Record::Leased { at, subscription: 0, first_lease, until, offsets, .. } => {
                self.lease(*at, *first_lease, *until, offsets);
            }
            Record::Settled { subscription: 0, offsets, .. } => {
                offsets.iter().for_each(|offset| self.story(*offset).settled = true);
            }
            Record::Returned { at, subscription: 0, why, messages, .. } => {
                for (offset, not_before) in messages {
                    let story = self.story(*offset);
                    assert!(!story.settled);
                    match why {
                        Return::MoveFailed => assert!(story.moving),
                        _ => assert!(story.held.is_some()),
                    }
                    if *why == Return::LeaseExpired {
                        let (_, until) = story.held.unwrap();
                        assert!(until <= *at, "a lease is shortened");
                    }
                    story.receives -= u32::from(*why == Return::Unclaimed);
                    story.held = None;
                    story.moving = false;
                    story.not_before = not_before.unwrap_or_default();
                }
            }
            Record::Extended { subscription: 0, messages, .. } => {
                for (offset, until) in messages {
                    let (lease, _) = self.story(*offset).held.expect("only who holds extends");
                    self.story(*offset).held = Some((lease, *until));
                }
            }
            Record::Moving { subscription: 0, offsets, .. } => {
                for offset in offsets {
                    let story = self.story(*offset);
                    assert!(!story.settled && !story.moving);
                    story.held = None;
                    story.moving = true;
                }
            }
            Record::Purged { subscription: 0, end, .. } | Record::Trimmed { start: end, .. } => {
                self.messages.range_mut(..*end).for_each(|(_, story)| story.settled = true);
            }
            Record::Skipped { to, .. } => {
                let after = self.messages.keys().next_back();
                assert!(after.is_none_or(|last| last < to), "messages are passed over");
            }
            Record::Resumed { end, .. } => {
                self.messages.split_off(end);
            }
            _ => {}
        }
    }

    fn story(&mut self, offset: Offset) -> &mut Story {
        self.messages.get_mut(&offset).expect("a message that was admitted")
    }

    fn lease(&mut self, at: QueueTime, first: u64, until: QueueTime, offsets: &[Offset]) {
        assert!(self.last_lease < first, "a receipt is given out twice");
        self.last_lease = first + offsets.len() as u64 - 1;
        assert!(!offsets.is_empty());
        for (lease, offset) in (first..).zip(offsets) {
            if self.is_fifo {
                self.check_order(*offset, offsets);
            }
            let receives_max = self.receives_max;
            let story = self.story(*offset);
            assert!(!story.settled, "{offset:?} was settled");
            assert!(!story.moving, "{offset:?} goes elsewhere");
            assert_eq!(story.held, None, "{offset:?} is held by another");
            assert!(story.not_before <= at, "{offset:?} comes too early");
            assert!(receives_max.is_none_or(|max| story.receives < max), "received too often");
            story.receives += 1;
            story.held = Some((lease, until));
        }
    }

    /// Nothing earlier of the group is left but what was handed out just before, and nothing of it is held
    /// by another receive.
    fn check_order(&self, offset: Offset, handed_out: &[Offset]) {
        let group = &self.messages[&offset].group;
        let same = self.messages.iter().filter(|(_, story)| story.group == *group);
        let left = same.filter(|(_, story)| !story.settled && !story.moving);
        let position = |of: &Offset| handed_out.iter().position(|other| other == of);
        for (other, story) in left {
            let is_before = position(other) < position(&offset) && position(other).is_some();
            assert!(offset <= *other || is_before, "{offset:?} overtakes {other:?}");
            assert!(story.held.is_none() || is_before, "{offset:?} while {other:?} is held");
        }
    }

    /// The engine tells the same story.
    pub(super) fn compare(&self, engine: &Deliveries, now: Now) {
        let (found, more) = engine.peek(now, 0, Offset(0), PeekFilter::Any, usize::MAX, usize::MAX);
        assert_eq!(more, None);
        let found: BTreeMap<Offset, _> =
            found.into_iter().map(|each| (each.offset, each)).collect();
        let left = self.messages.iter().filter(|(_, story)| !story.settled);
        let (mut held, mut moving, mut delayed, mut count) = (0, 0, 0, 0);
        for (offset, story) in left {
            let peeked = found.get(offset).unwrap_or_else(|| panic!("{offset:?} is nowhere"));
            assert_eq!(peeked.receives, story.receives, "{offset:?}");
            use crate::PeekState::{Delayed, Held, Moving};
            assert_eq!(matches!(peeked.state, Held { .. }), story.held.is_some(), "{offset:?}");
            assert_eq!(matches!(peeked.state, Moving(_)), story.moving, "{offset:?}");
            held += u64::from(story.held.is_some());
            moving += u64::from(story.moving);
            delayed += u64::from(matches!(peeked.state, Delayed { .. }));
            count += 1;
        }
        assert_eq!(found.len() as u64, count, "messages from nowhere");
        let stats = engine.stats(now, 0).unwrap();
        assert_eq!((stats.in_flight, stats.moving, stats.delayed), (held, moving, delayed));
        assert_eq!(stats.ready + held + moving + delayed, count);
        let held = self.messages.values().filter(|story| story.held.is_some() && !story.settled);
        let held_groups: BTreeSet<_> = held.filter_map(|story| story.group.as_ref()).collect();
        assert_eq!(stats.held_groups, held_groups.len() as u64);
        assert!(stats.oldest.is_some() == (0 < count) || count == 0);
    }
}
