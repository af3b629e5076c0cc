//! What workers of a queue were given, and whether that was right.
//!
//! Clients know only when they asked and when they were answered; a decision fell somewhere between. Only what
//! is wrong wherever it fell is counted:
//!
//! ```text
//!             asked      answered                       asked + visibility
//!   first     ├── granted ──┤══════════ surely held ══════════┤
//!   second                    asked ├── granted ──┤ answered        a second holder
//! ```
//!
//! ```text
//!   Q1   what was acknowledged is received          Q2   nobody else has it while it is held
//!   Q4   what was deleted does not come again       Q5   a message group in order, and by one
//!   Q6   the count of receives grows                Q7   a repeated send is one message
//!   Q8   nothing comes before its delay is over
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Violation;

/// A message, by the number that its sender gave it.
type Number = u64;

/// How a send ended.
#[derive(Debug, Clone)]
struct Sent {
    group: Option<u64>,
    /// Not before this, since the send was begun.
    due: Duration,
    is_acked: bool,
}

/// One delivery, in the time since the history began.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Which message.
    pub message: Number,
    /// The id that the queue gave it.
    pub id: String,
    /// Which receive brought it; one receive may bring several.
    pub receive: u64,
    /// When the receive was begun.
    pub asked: Duration,
    /// When it was answered.
    pub answered: Duration,
    /// For how long the message is hidden from others.
    pub visibility: Duration,
    /// How often it was received, with this time.
    pub receives: u64,
}

#[derive(Debug)]
struct Delivery {
    delivered: Delivered,
    /// The holder has begun to give it up: to delete it, or to give it back.
    given_up: Option<Duration>,
}

impl Delivery {
    /// Until when it is surely held.
    fn held_until(&self) -> Duration {
        let until = self.delivered.asked + self.delivered.visibility;
        self.given_up.map_or(until, |given_up| given_up.min(until))
    }

    /// Whether `other` was granted while this one was surely held.
    fn excludes(&self, other: &Delivery) -> bool {
        let (mine, theirs) = (&self.delivered, &other.delivered);
        mine.receive != theirs.receive
            && mine.answered <= theirs.asked
            && theirs.answered < self.held_until()
    }
}

/// What is known of one queue.
#[derive(Debug, Default)]
pub struct DeliveryHistory {
    sent: BTreeMap<Number, Sent>,
    deliveries: Vec<Delivery>,
    /// When a delete was acknowledged.
    deleted: BTreeMap<Number, Duration>,
    /// A delete had no answer: it may have been done.
    perhaps_deleted: BTreeSet<Number>,
}

impl DeliveryHistory {
    /// A message is about to be sent: not to be delivered before `due`. Numbers of a group grow in the order
    /// of its sends.
    pub fn sending(&mut self, message: Number, group: Option<u64>, due: Duration) {
        self.sent.entry(message).or_insert(Sent { group, due, is_acked: false });
    }

    /// The queue has the message.
    pub fn acknowledged(&mut self, message: Number) {
        if let Some(sent) = self.sent.get_mut(&message) {
            sent.is_acked = true;
        }
    }

    /// A worker was given a message. The number names this delivery.
    pub fn delivered(&mut self, delivered: Delivered) -> usize {
        self.deliveries.push(Delivery { delivered, given_up: None });
        self.deliveries.len() - 1
    }

    /// A worker begins to delete a message, or to give it back.
    pub fn gives_up(&mut self, delivery: usize, at: Duration) {
        self.deliveries[delivery].given_up = Some(at);
    }

    /// A delete was acknowledged.
    pub fn deleted(&mut self, delivery: usize, at: Duration) {
        let message = self.deliveries[delivery].delivered.message;
        self.deleted.entry(message).or_insert(at);
    }

    /// A delete had no answer.
    pub fn perhaps_deleted(&mut self, delivery: usize) {
        self.perhaps_deleted.insert(self.deliveries[delivery].delivered.message);
    }

    /// Messages that were acknowledged.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.sent.values().filter(|sent| sent.is_acked).count() as u64
    }

    /// Deliveries so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.deliveries.len() as u64
    }

    /// When the first message came that was asked for after `since`.
    #[must_use]
    pub fn first_after(&self, since: Duration) -> Option<Duration> {
        let after = self.deliveries.iter().filter(|it| since <= it.delivered.asked);
        after.map(|it| it.delivered.answered).min()
    }

    /// Acknowledged messages that nobody can have deleted yet.
    #[must_use]
    pub fn left(&self) -> Vec<Number> {
        let is_gone = |it| self.deleted.contains_key(it) || self.perhaps_deleted.contains(it);
        let left = self.sent.iter().filter(|(it, sent)| sent.is_acked && !is_gone(it));
        left.map(|(number, _)| *number).collect()
    }

    /// All that is known of a message, for people.
    #[must_use]
    pub fn story(&self, message: Number) -> String {
        let deliveries = self.deliveries.iter().filter(|it| it.delivered.message == message);
        let deliveries: Vec<&Delivery> = deliveries.collect();
        format!("{:?}, deliveries {deliveries:?}", self.sent.get(&message))
    }

    /// What is wrong with what has happened so far; [`DeliveryHistory::left`] is no part of it.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut by_message: BTreeMap<Number, Vec<&Delivery>> = BTreeMap::new();
        let mut by_group: BTreeMap<u64, Vec<&Delivery>> = BTreeMap::new();
        for delivery in &self.deliveries {
            let message = delivery.delivered.message;
            by_message.entry(message).or_default().push(delivery);
            match self.sent.get(&message) {
                None => {
                    found.push(violation("INV-T4", format!("message {message} was never sent")))
                }
                Some(sent) => {
                    if let Some(group) = sent.group {
                        by_group.entry(group).or_default().push(delivery);
                    }
                    if delivery.delivered.answered < sent.due {
                        let early = sent.due - delivery.delivered.answered;
                        found.push(violation(
                            "INV-Q8",
                            format!("message {message} came {early:?} before its delay was over"),
                        ));
                    }
                }
            }
        }
        for (message, deliveries) in &mut by_message {
            self.check_message(*message, deliveries, &mut found);
        }
        for (group, deliveries) in &mut by_group {
            check_group(*group, deliveries, &mut found);
        }
        found
    }

    fn check_message(
        &self,
        message: Number,
        deliveries: &mut [&Delivery],
        found: &mut Vec<Violation>,
    ) {
        deliveries.sort_by_key(|it| it.delivered.asked);
        let ids: BTreeSet<&str> = deliveries.iter().map(|it| it.delivered.id.as_str()).collect();
        if 1 < ids.len() {
            found.push(violation("INV-Q7", format!("message {message} is there twice: {ids:?}")));
        }
        for (at, first) in deliveries.iter().enumerate() {
            for second in &deliveries[at + 1..] {
                let (a, b) = (&first.delivered, &second.delivered);
                if first.excludes(second) {
                    found.push(violation(
                        "INV-Q2",
                        format!("message {message} was given to two at once: {a:?}, {b:?}"),
                    ));
                }
                if a.answered <= b.asked && b.receives <= a.receives {
                    found.push(violation(
                        "INV-Q6",
                        format!("the count of message {message} does not grow: {a:?}, {b:?}"),
                    ));
                }
            }
        }
        let Some(deleted) = self.deleted.get(&message) else { return };
        for late in deliveries.iter().filter(|it| *deleted < it.delivered.asked) {
            found.push(violation(
                "INV-Q4",
                format!("message {message} was deleted at {deleted:?}: {:?}", late.delivered),
            ));
        }
    }
}

fn check_group(group: u64, deliveries: &mut [&Delivery], found: &mut Vec<Violation>) {
    // The lock of the group.
    deliveries.sort_by_key(|it| it.delivered.asked);
    for (at, first) in deliveries.iter().enumerate() {
        let held_until = first.held_until();
        let later = deliveries[at + 1..].iter();
        for second in later.take_while(|it| it.delivered.asked < held_until) {
            let (a, b) = (&first.delivered, &second.delivered);
            if a.message != b.message && first.excludes(second) {
                found.push(violation(
                    "INV-Q5",
                    format!("group {group} goes on while a message of it is held: {a:?}, {b:?}"),
                ));
            }
        }
    }
    // Its order: when each message may have been given out first, and when it surely was.
    let mut firsts: BTreeMap<Number, (Duration, Duration)> = BTreeMap::new();
    for Delivered { message, asked, answered, .. } in deliveries.iter().map(|it| &it.delivered) {
        let first = firsts.entry(*message).or_insert((*asked, *answered));
        *first = (first.0.min(*asked), first.1.min(*answered));
    }
    let mut latest: Option<(Number, Duration)> = None;
    for (message, (asked, answered)) in firsts {
        if let Some((before, at)) = latest.filter(|(_, at)| answered < *at) {
            found.push(violation(
                "INV-Q5",
                format!(
                    "group {group} is out of order: message {message} came at {answered:?}, \
                     {before} was asked for at {at:?}"
                ),
            ));
        }
        if latest.is_none_or(|(_, latest)| latest < asked) {
            latest = Some((message, asked));
        }
    }
}

fn violation(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Asked for at once, answered a second later, hidden for ten.
    fn delivery(message: Number, asked: u64, receives: u64) -> Delivered {
        Delivered {
            message,
            id: format!("id-{message}"),
            receive: asked,
            asked: seconds(asked),
            answered: seconds(asked + 1),
            visibility: seconds(10),
            receives,
        }
    }

    fn history() -> DeliveryHistory {
        let mut history = DeliveryHistory::default();
        for message in 0..4 {
            history.sending(message, (message < 2).then_some(7), Duration::ZERO);
            history.acknowledged(message);
        }
        history
    }

    fn broken(history: &DeliveryHistory) -> Vec<&'static str> {
        history.violations().iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn a_second_holder_is_found_and_a_later_one_is_none() {
        let mut history = history();
        history.delivered(delivery(2, 0, 1));
        history.delivered(delivery(2, 10, 2));
        assert_eq!(broken(&history), Vec::<&str>::new());
        history.delivered(delivery(2, 15, 3));
        assert_eq!(broken(&history), ["INV-Q2"]);
    }

    #[test]
    fn what_was_given_back_may_go_to_others() {
        let mut history = history();
        let first = history.delivered(delivery(2, 0, 1));
        history.gives_up(first, seconds(2));
        history.delivered(delivery(2, 2, 2));
        assert_eq!(broken(&history), Vec::<&str>::new());
    }

    #[test]
    fn what_comes_again_after_its_delete_is_found() {
        let mut history = history();
        let first = history.delivered(delivery(2, 0, 1));
        history.gives_up(first, seconds(2));
        history.deleted(first, seconds(3));
        assert_eq!(history.left(), [0, 1, 3]);
        let unanswered = history.delivered(delivery(3, 0, 1));
        history.perhaps_deleted(unanswered);
        assert_eq!(history.left(), [0, 1]);
        history.delivered(delivery(2, 4, 2));
        assert_eq!(broken(&history), ["INV-Q4"]);
    }

    #[test]
    fn a_count_that_stands_still_is_found() {
        let mut history = history();
        history.delivered(delivery(2, 0, 1));
        history.delivered(delivery(2, 20, 1));
        assert_eq!(broken(&history), ["INV-Q6"]);
    }

    #[test]
    fn a_group_is_kept_closed_and_in_order() {
        let mut history = history();
        history.delivered(delivery(0, 0, 1));
        history.delivered(delivery(1, 3, 1));
        assert_eq!(broken(&history), ["INV-Q5"], "while the first one is held");

        let mut history = self::history();
        history.delivered(delivery(1, 0, 1));
        history.delivered(delivery(0, 20, 1));
        assert_eq!(broken(&history), ["INV-Q5"], "the second one first");

        let mut history = self::history();
        history.delivered(delivery(0, 0, 1));
        history.delivered(Delivered { receive: 0, ..delivery(1, 0, 1) });
        assert_eq!(broken(&history), Vec::<&str>::new(), "both at once");
    }

    #[test]
    fn a_copy_and_what_comes_early_or_was_never_sent_are_found() {
        let mut history = history();
        history.sending(9, None, seconds(5));
        history.delivered(delivery(9, 1, 1));
        history.delivered(delivery(2, 0, 1));
        history.delivered(Delivered { id: "another".to_owned(), ..delivery(2, 30, 2) });
        history.delivered(delivery(77, 0, 1));
        let mut found = broken(&history);
        found.sort_unstable();
        assert_eq!(found, ["INV-Q7", "INV-Q8", "INV-T4"]);
    }
}
