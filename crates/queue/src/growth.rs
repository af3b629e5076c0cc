//! When a queue gets more partitions.
//!
//! The partitions of one broker have to do with more messages than the queue wants them to, for some time: then there
//! is one more for each broker, but not more than twice as many as there were. That broker sees this alone; how many
//! partitions there are to be is said as a number, so two that see it at once add them once.

use std::time::Duration;

use towpath_model::Time;

/// What a queue wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthRule {
    /// Messages per second and partition that are too many.
    pub rate: u32,
    /// For how long.
    pub after: Duration,
    /// Partitions that it has at most, but for those that somebody else adds.
    pub partitions_max: u32,
}

/// What one broker sees of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Partitions of the queue.
    pub partitions: u32,
    /// Those of them that this broker leads.
    pub led: u32,
    /// Messages per second of these.
    pub messages_per_second: f64,
    /// Brokers that may lead some.
    pub brokers: u32,
}

impl Load {
    /// Messages per second of one partition that this broker leads, on the average.
    #[must_use]
    pub fn of_one(&self) -> f64 {
        self.messages_per_second / f64::from(self.led.max(1))
    }
}

/// How long a queue has had too much to do, as one broker sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Growth {
    busy_since: Option<Time>,
    partitions: u32,
}

impl Growth {
    /// How many partitions the queue should have; nothing: as many as it has. Asked every few seconds.
    pub fn look(&mut self, now: Time, load: &Load, rule: &GrowthRule) -> Option<u32> {
        let is_as_before =
            std::mem::replace(&mut self.partitions, load.partitions) == load.partitions;
        let is_busy = f64::from(rule.rate) < load.of_one();
        if !is_busy || !is_as_before {
            self.busy_since = None;
        }
        if !is_busy || rule.partitions_max <= load.partitions {
            return None;
        }
        let since = *self.busy_since.get_or_insert(now);
        if now - since < rule.after {
            return None;
        }
        self.busy_since = None;
        let more = load.brokers.clamp(1, load.partitions.max(1));
        Some((load.partitions + more).min(rule.partitions_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: GrowthRule =
        GrowthRule { rate: 100, after: Duration::from_secs(60), partitions_max: 12 };

    fn load(partitions: u32, messages_per_second: f64) -> Load {
        Load { partitions, led: 1, messages_per_second, brokers: 3 }
    }

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_queue_grows_when_it_is_busy_for_long_enough() {
        let mut growth = Growth::default();
        let mut look = |second, rate| growth.look(at(second), &load(3, rate), &RULE);
        assert_eq!((look(0, 150.0), look(59, 150.0)), (None, None));
        assert_eq!(look(60, 150.0), Some(6));
        // Whether that has come to pass or not: not again at once.
        assert_eq!((look(61, 150.0), look(120, 150.0), look(121, 150.0)), (None, None, Some(6)));
    }

    #[test]
    fn a_pause_begins_the_time_anew() {
        let mut growth = Growth::default();
        let mut look = |second, rate| growth.look(at(second), &load(3, rate), &RULE);
        assert_eq!((look(0, 150.0), look(50, 100.0), look(100, 150.0)), (None, None, None));
        assert_eq!((look(159, 150.0), look(160, 150.0)), (None, Some(6)));
    }

    #[test]
    fn partitions_that_came_begin_the_time_anew() {
        let mut growth = Growth::default();
        let mut look =
            |second, partitions| growth.look(at(second), &load(partitions, 150.0), &RULE);
        assert_eq!(
            (look(0, 3), look(50, 6), look(100, 6), look(110, 6)),
            (None, None, None, Some(9))
        );
    }

    #[test]
    fn there_is_one_more_for_each_broker_twice_as_many_at_most_and_a_maximum() {
        let grown = |partitions, brokers, rule: &GrowthRule| {
            let mut growth = Growth::default();
            let load = Load { brokers, ..load(partitions, 150.0) };
            growth.look(at(0), &load, rule);
            growth.look(at(60), &load, rule)
        };
        assert_eq!(grown(1, 3, &RULE), Some(2));
        assert_eq!(grown(2, 3, &RULE), Some(4));
        assert_eq!((grown(6, 3, &RULE), grown(6, 1, &RULE)), (Some(9), Some(7)));
        assert_eq!(
            (grown(11, 3, &RULE), grown(12, 3, &RULE), grown(20, 3, &RULE)),
            (Some(12), None, None)
        );
        assert_eq!(grown(1, 3, &GrowthRule { partitions_max: 1, ..RULE }), None);
    }

    #[test]
    fn what_counts_is_the_mean_of_those_that_are_led_here() {
        let rule = GrowthRule { after: Duration::ZERO, ..RULE };
        let mut growth = Growth::default();
        let mut look = |led| {
            let load = Load { led, ..load(6, 150.0) };
            growth.look(at(0), &load, &rule);
            growth.look(at(1), &load, &rule)
        };
        assert_eq!((look(1), look(2)), (Some(9), None));
    }
}
