//! What the leaders of a queue's partitions have seen since they lead, added up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use towpath_queue::{DeadReason, Observed, RECEIVES_UP_TO, Return, Settlement, Worked};

/// How many, by a name or a bound.
type Counts = BTreeMap<String, u64>;

/// The sum over partitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QueueObserved {
    /// Messages that came in one second, in the last minute.
    pub(crate) arrivals_per_second: f64,
    /// Messages that were done with in one second, in the last minute.
    pub(crate) served_per_second: f64,
    /// Since each partition's leader leads.
    pub(crate) counts: EventCounts,
    /// In the last quarter to half of an hour.
    pub(crate) recent: RecentWork,
}

/// What happened how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EventCounts {
    /// Messages that came.
    pub(crate) admitted: u64,
    /// Messages that repeated others, and are not delivered.
    pub(crate) duplicates: u64,
    /// Messages that were handed out, each time counted.
    pub(crate) received: u64,
    /// Messages that came back, by why.
    pub(crate) returned: Counts,
    /// Messages that are done with, by how.
    pub(crate) settled: Counts,
    /// Messages that lie in another queue now, by why.
    pub(crate) moved: Counts,
    /// Messages that were deleted, by how often they had been received: up to so often, and `more`.
    pub(crate) receives: Counts,
}

/// How work went lately.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RecentWork {
    /// Messages that were deleted, by how long they had been held: less than so many milliseconds.
    pub(crate) processing_ms: Counts,
    /// Messages that were deleted after their lease had ended.
    pub(crate) late_deletes: u64,
    /// Leases that ended by themselves.
    pub(crate) leases_ended: u64,
    /// Times that a lease was prolonged.
    pub(crate) extended: u64,
}

impl QueueObserved {
    pub(super) fn of(seen: &Observed) -> QueueObserved {
        let returned = Return::ALL.map(|why| (why.name().to_owned(), seen.returned(why)));
        let settled = Settlement::ALL.map(|how| (how.name().to_owned(), seen.settled(how)));
        let moved = DeadReason::ALL.map(|reason| (reason.name().to_owned(), seen.moved(reason)));
        let bounds = RECEIVES_UP_TO.iter().map(u32::to_string).chain(["more".to_owned()]);
        let processing = seen.recent.processing.buckets();
        QueueObserved {
            arrivals_per_second: seen.arrivals_per_second,
            served_per_second: seen.served_per_second,
            counts: EventCounts {
                admitted: seen.admitted,
                duplicates: seen.duplicates,
                received: seen.received,
                returned: returned.into(),
                settled: settled.into(),
                moved: moved.into(),
                receives: bounds.zip(seen.receives).collect(),
            },
            recent: RecentWork {
                processing_ms: processing.map(|(end, count)| (end.to_string(), count)).collect(),
                late_deletes: seen.recent.late_deletes,
                leases_ended: seen.recent.leases_ended,
                extended: seen.recent.extended,
            },
        }
    }

    pub(super) fn add(&mut self, more: QueueObserved) {
        self.arrivals_per_second += more.arrivals_per_second;
        self.served_per_second += more.served_per_second;
        let (counts, more_counts) = (&mut self.counts, more.counts);
        counts.admitted += more_counts.admitted;
        counts.duplicates += more_counts.duplicates;
        counts.received += more_counts.received;
        add(&mut counts.returned, more_counts.returned);
        add(&mut counts.settled, more_counts.settled);
        add(&mut counts.moved, more_counts.moved);
        add(&mut counts.receives, more_counts.receives);
        let (recent, more_recent) = (&mut self.recent, more.recent);
        add(&mut recent.processing_ms, more_recent.processing_ms);
        recent.late_deletes += more_recent.late_deletes;
        recent.leases_ended += more_recent.leases_ended;
        recent.extended += more_recent.extended;
    }
}

fn add(counts: &mut Counts, more: Counts) {
    more.into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
}

impl RecentWork {
    /// As advice is drawn from it.
    pub(super) fn worked(&self) -> Worked {
        let bucket = |(end, count): (&String, &u64)| Some((end.parse::<u64>().ok()?, *count));
        let mut processing: Vec<(u64, u64)> =
            self.processing_ms.iter().filter_map(bucket).collect();
        processing.sort_unstable();
        Worked { processing, late_deletes: self.late_deletes, extended: self.extended }
    }
}

/// How deliveries of several partitions went lately.
pub(crate) fn worked<'o>(led: impl Iterator<Item = &'o Observed>) -> Worked {
    let mut sum = QueueObserved::default();
    led.for_each(|seen| sum.add(QueueObserved::of(seen)));
    sum.recent.worked()
}
