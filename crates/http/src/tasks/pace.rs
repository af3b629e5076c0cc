//! How fast a task goes: so many messages per second, and never more at once than those of one second.

use std::time::Duration;

use tokio::time::Instant;

pub(super) struct Pace {
    rate: Option<u32>,
    next_at: Instant,
}

impl Pace {
    /// Begins a second late: whoever had the task before may have moved a second's worth just now.
    pub(super) fn new(rate: Option<u32>, now: Instant) -> Pace {
        let next_at = if rate.is_some() { now + Duration::from_secs(1) } else { now };
        Pace { rate, next_at }
    }

    /// When messages may be moved again.
    pub(super) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// How many messages may be moved then.
    pub(super) fn at_once(&self) -> usize {
        self.rate.map_or(usize::MAX, |rate| usize::try_from(rate).unwrap_or(usize::MAX))
    }

    /// So many messages have been moved. Time in which none was does not count for later.
    pub(super) fn moved(&mut self, many: u64, now: Instant) {
        let Some(rate) = self.rate else { return };
        let takes = Duration::from_secs(1).mul_f64(many as f64 / f64::from(rate.max(1)));
        self.next_at = self.next_at.max(now) + takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_nothing_is_saved_up() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut pace = Pace::new(Some(100), start);
        assert_eq!((pace.next_at(), pace.at_once()), (start + second, 100));
        pace.moved(100, start + second);
        assert_eq!(pace.next_at(), start + 2 * second);
        pace.moved(50, start + 2 * second);
        assert_eq!(pace.next_at(), start + second * 5 / 2);
        // A long pause.
        pace.moved(100, start + 60 * second);
        assert_eq!(pace.next_at(), start + 61 * second);
        let mut free = Pace::new(None, start);
        free.moved(1_000_000, start);
        assert_eq!((free.next_at(), free.at_once()), (start, usize::MAX));
    }
}
