//! When the leases of running work are extended, and when one counts as lost.
//!
//! A lease is asked to be extended when a third of it has passed. What surprises: the new end is counted
//! from when the request was *sent*, so a lease never ends at the broker before it does here; only the
//! first one begins when its message has arrived, because nobody knows how long the receive had waited.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Of a lease that passes before it is extended.
const EXTENDED_AFTER: u32 = 3;
/// Of a lease that passes before an extension that failed is asked again.
const ASKED_AGAIN_AFTER: u32 = 10;

/// Which delivery, within a worker.
pub(super) type Delivery = u64;

/// The leases of what a worker holds; the time is told by the caller.
#[derive(Debug)]
pub(super) struct Leases {
    visibility: Duration,
    held: BTreeMap<Delivery, Lease>,
}

#[derive(Debug)]
struct Lease {
    receipt: String,
    /// Others may receive the message from then on.
    end: Instant,
    /// When to ask next; nothing while an extension is under way.
    ask_at: Option<Instant>,
}

impl Leases {
    pub(super) fn new(visibility: Duration) -> Leases {
        Leases { visibility, held: BTreeMap::new() }
    }

    /// A message has arrived.
    pub(super) fn begin(&mut self, now: Instant, delivery: Delivery, receipt: String) {
        let ask_at = Some(now + self.visibility / EXTENDED_AFTER);
        self.held.insert(delivery, Lease { receipt, end: now + self.visibility, ask_at });
    }

    /// The message is settled, or given up.
    pub(super) fn end(&mut self, delivery: Delivery) -> Option<String> {
        self.held.remove(&delivery).map(|lease| lease.receipt)
    }

    pub(super) fn receipt(&self, delivery: Delivery) -> Option<&str> {
        self.held.get(&delivery).map(|lease| lease.receipt.as_str())
    }

    /// Which are to be extended now; they count as asked for until their answer.
    pub(super) fn due(&mut self, now: Instant, max: usize) -> Vec<(Delivery, String)> {
        let is_due = |lease: &Lease| lease.ask_at.is_some_and(|ask_at| ask_at <= now);
        let due = self.held.iter_mut().filter(|(_, lease)| is_due(lease)).take(max);
        due.map(|(delivery, lease)| {
            lease.ask_at = None;
            (*delivery, lease.receipt.clone())
        })
        .collect()
    }

    /// The broker has extended one, by a request that was sent at `sent_at`.
    pub(super) fn extended(&mut self, sent_at: Instant, delivery: Delivery) {
        if let Some(lease) = self.held.get_mut(&delivery) {
            lease.end = lease.end.max(sent_at + self.visibility);
            lease.ask_at = Some(sent_at + self.visibility / EXTENDED_AFTER);
        }
    }

    /// Nobody knows whether it was extended.
    pub(super) fn not_extended(&mut self, now: Instant, delivery: Delivery) {
        if let Some(lease) = self.held.get_mut(&delivery) {
            lease.ask_at = Some(now + self.visibility / ASKED_AGAIN_AFTER);
        }
    }

    /// Those whose end has come; they are not extended any more.
    pub(super) fn lost(&mut self, now: Instant) -> Vec<Delivery> {
        let ended = self.held.iter().filter(|(_, lease)| lease.end <= now);
        ended.map(|(delivery, _)| *delivery).collect()
    }

    /// When there is something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.held.values().flat_map(|lease| [Some(lease.end), lease.ask_at]);
        deadlines.flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VISIBILITY: Duration = Duration::from_secs(30);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn one() -> (Leases, Instant) {
        let (mut leases, start) = (Leases::new(VISIBILITY), Instant::now());
        leases.begin(start, 1, "r".to_owned());
        (leases, start)
    }

    #[test]
    fn a_lease_is_extended_when_a_third_of_it_has_passed_and_again_after_that() {
        let (mut leases, start) = one();
        assert_eq!(leases.next_deadline(), Some(at(start, 10)));
        assert!(leases.due(at(start, 9), 500).is_empty());
        assert_eq!(leases.due(at(start, 10), 500), [(1, "r".to_owned())]);
        // It is asked once, and ends where it did as long as nobody answers.
        assert!(leases.due(at(start, 11), 500).is_empty());
        assert_eq!(leases.next_deadline(), Some(at(start, 30)));

        leases.extended(at(start, 10), 1);
        assert_eq!(leases.next_deadline(), Some(at(start, 20)));
        assert!(leases.lost(at(start, 39)).is_empty());
        assert_eq!(leases.lost(at(start, 40)), [1]);
    }

    #[test]
    fn an_extension_without_an_answer_is_asked_again_until_the_lease_has_ended() {
        let (mut leases, start) = one();
        leases.due(at(start, 10), 500);
        leases.not_extended(at(start, 12), 1);
        assert!(leases.due(at(start, 14), 500).is_empty());
        assert_eq!(leases.due(at(start, 15), 500).len(), 1);
        assert_eq!(leases.lost(at(start, 30)), [1]);
        assert_eq!(leases.end(1).as_deref(), Some("r"));
        // Too late: nobody holds it any more.
        leases.extended(at(start, 15), 1);
        assert_eq!(leases.next_deadline(), None);
    }

    #[test]
    fn an_answer_that_was_overtaken_does_not_shorten_a_lease() {
        let (mut leases, start) = one();
        leases.extended(at(start, 20), 1);
        leases.extended(at(start, 10), 1);
        assert!(leases.lost(at(start, 49)).is_empty());
    }
}
