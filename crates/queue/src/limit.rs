//! How much a queue takes: a bound on the messages that are not done with, on their bytes, and on how long the
//! oldest that could be received has waited.
//!
//! ```text
//!                 80 %              limit
//!   reject   takes all │ takes all    │ refuses
//!   block    takes all │ takes all    │ refuses: the sender waits for room
//!   sample   takes all │ ever fewer   │ refuses
//! ```
//!
//! It is asked before a batch is appended, so what is refused was never there. Which sends are taken near a limit
//! follows from a hash that comes with them, and from nothing else.

use std::fmt;
use std::time::Duration;

use towpath_model::properties::LimitPolicy;

/// What is taken, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Messages that some subscription is not done with.
    pub messages: Option<u64>,
    /// Their bytes, about.
    pub bytes: Option<u64>,
    /// Age of the oldest message that can be received.
    pub age: Option<Duration>,
    /// What becomes of sends near a limit, and at it.
    pub policy: LimitPolicy,
}

/// How full a partition of a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    /// Messages that some subscription is not done with.
    pub messages: u64,
    /// Their bytes, about.
    pub bytes: u64,
    /// Age of the oldest message that can be received.
    pub oldest_waiting: Option<Duration>,
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Messages.
    Messages,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Age,
}

/// Why a send is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit {
    /// What there is too much of.
    pub measure: Measure,
    /// How much there is.
    pub present: u64,
    /// How much was to be added.
    pub asked: u64,
    /// How much there may be in this partition.
    pub limit: u64,
    /// There would be room; it is kept for others.
    pub is_sampled: bool,
    /// What the queue does at its limit.
    pub policy: LimitPolicy,
}

impl OverLimit {
    /// Whether what was to be added, taken as a whole, does not fit into an empty partition either.
    #[must_use]
    pub fn never_fits(&self) -> bool {
        self.limit != 0 && self.limit < self.asked
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimit { present, asked, limit, .. } = self;
        if self.never_fits() {
            let (what, property) = match self.measure {
                Measure::Messages => ("messages", "queue.limit.messages"),
                Measure::Bytes | Measure::Age => ("bytes", "queue.limit.bytes"),
            };
            return write!(
                f,
                "a batch of {asked} {what} never fits, for its share of {property} is {limit}: send smaller batches \
                 (batch.size, linger.ms), or raise {property}"
            );
        }
        match self.measure {
            Measure::Messages => write!(
                f,
                "it holds {present} messages, and its share of queue.limit.messages is {limit}"
            )?,
            Measure::Bytes => {
                write!(
                    f,
                    "it holds {present} bytes, and its share of queue.limit.bytes is {limit}"
                )?;
            }
            Measure::Age => write!(
                f,
                "its oldest message has waited for {present} ms, and queue.limit.age.ms is {limit}"
            )?,
        }
        if self.is_sampled {
            write!(f, "; so near to that it takes only a part of what is sent")?;
        }
        Ok(())
    }
}

/// From this part of a limit on, not everything is taken; in thousandths.
const SAMPLED_FROM: u64 = 800;

impl Limits {
    /// Whether there is any.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.messages.is_some() || self.bytes.is_some() || self.age.is_some()
    }

    /// The part of one of `partitions`: together they take as much as the queue does, but each can take one
    /// message, and one byte, if the queue takes anything.
    #[must_use]
    pub fn share_of(self, partition: u64, partitions: u64) -> Limits {
        let partitions = partitions.max(1);
        let share = |limit: u64| {
            let share = limit / partitions + u64::from(partition < limit % partitions);
            share.max(1.min(limit))
        };
        Limits { messages: self.messages.map(share), bytes: self.bytes.map(share), ..self }
    }

    /// Whether so many messages of so many bytes are taken where so much is held. `hash` tells this send from others.
    ///
    /// # Errors
    /// [`OverLimit`].
    pub fn admit(&self, fill: &Fill, more: (u64, u64), hash: u32) -> Result<(), OverLimit> {
        let (messages, bytes) = more;
        let age = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let measures = [
            (Measure::Messages, self.messages, fill.messages, messages),
            (Measure::Bytes, self.bytes, fill.bytes, bytes),
            (Measure::Age, self.age.map(age), fill.oldest_waiting.map_or(0, age), 0),
        ];
        let mut fullest: Option<(u64, OverLimit)> = None;
        for (measure, limit, present, more) in measures {
            let Some(limit) = limit else { continue };
            let policy = self.policy;
            let over =
                OverLimit { measure, present, asked: more, limit, is_sampled: false, policy };
            if limit < present.saturating_add(more) {
                return Err(over);
            }
            let full = full_per_mille(present, limit);
            if fullest.is_none_or(|(other, _)| other < full) {
                fullest = Some((full, OverLimit { is_sampled: true, ..over }));
            }
        }
        match fullest {
            Some((full, over)) if self.policy == LimitPolicy::Sample && !is_taken(full, hash) => {
                Err(over)
            }
            _ => Ok(()),
        }
    }
}

impl Limits {
    /// How much of the limit that is used up most is, in thousandths; 0 where there is none.
    #[must_use]
    pub fn full_per_mille(&self, fill: &Fill) -> u64 {
        let ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let measures = [
            (fill.messages, self.messages),
            (fill.bytes, self.bytes),
            (fill.oldest_waiting.map_or(0, ms), self.age.map(ms)),
        ];
        let full = measures.iter().filter_map(|(present, limit)| Some((*present, (*limit)?)));
        full.map(|(present, limit)| full_per_mille(present, limit)).max().unwrap_or(0)
    }
}

/// How much of a limit is used up, in thousandths.
fn full_per_mille(present: u64, limit: u64) -> u64 {
    let full = u128::from(present) * 1_000 / u128::from(limit.max(1));
    u64::try_from(full).unwrap_or(u64::MAX)
}

/// From all at [`SAMPLED_FROM`] to none at the limit.
fn is_taken(full: u64, hash: u32) -> bool {
    let taken = 1_000_u64.saturating_sub(full) * 1_000 / (1_000 - SAMPLED_FROM);
    // What is hashed may differ in its last bits alone.
    let spread = (u64::from(hash.wrapping_mul(0x9e37_79b1)) * 1_000) >> 32;
    spread < taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(messages: u64) -> Fill {
        Fill { messages, bytes: messages * 100, oldest_waiting: None }
    }

    fn limits(policy: LimitPolicy) -> Limits {
        Limits { messages: Some(1_000), bytes: Some(90_000), age: None, policy }
    }

    #[test]
    fn what_fits_is_taken_to_the_last_message() {
        for policy in [LimitPolicy::Reject, LimitPolicy::Block] {
            let limits = Limits { bytes: None, ..limits(policy) };
            assert_eq!(limits.admit(&filled(990), (10, 9), 7), Ok(()));
            let refused = limits.admit(&filled(991), (10, 9), 7).unwrap_err();
            let expected = OverLimit {
                measure: Measure::Messages,
                present: 991,
                asked: 10,
                limit: 1_000,
                is_sampled: false,
                policy,
            };
            assert_eq!(refused, expected);
            assert!(refused.to_string().contains("991 messages"), "{refused}");
        }
    }

    #[test]
    fn what_never_fits_says_so() {
        let limits = limits(LimitPolicy::Block);
        let refused = |more| limits.admit(&filled(0), more, 7).unwrap_err();
        assert!(refused((1_001, 9)).never_fits());
        let text = refused((1, 90_001)).to_string();
        assert!(text.contains("90001 bytes never fits") && text.contains("batch.size"), "{text}");
        assert!(!limits.admit(&filled(999), (2, 9), 7).unwrap_err().never_fits());
        // A queue that takes nothing takes nothing for the time being.
        let none = Limits { messages: Some(0), ..Limits::default() };
        assert!(!none.admit(&filled(0), (1, 1), 7).unwrap_err().never_fits());
    }

    #[test]
    fn bytes_and_age_have_limits_too() {
        let limits = limits(LimitPolicy::Reject);
        assert_eq!(limits.admit(&filled(900), (1, 1), 0).unwrap_err().measure, Measure::Bytes);
        let limits = Limits { age: Some(Duration::from_secs(5)), ..Limits::default() };
        let waiting =
            |ms| Fill { oldest_waiting: Some(Duration::from_millis(ms)), ..filled(9_999) };
        assert_eq!(limits.admit(&waiting(5_000), (1, 1), 0), Ok(()));
        let refused = limits.admit(&waiting(5_001), (1, 1), 0).unwrap_err();
        assert_eq!((refused.measure, refused.present, refused.limit), (Measure::Age, 5_001, 5_000));
        assert_eq!(Limits::default().admit(&waiting(u64::MAX), (1, 1), 0), Ok(()));
    }

    #[test]
    fn ever_fewer_sends_are_taken_near_the_limit_and_always_the_same() {
        let limits = Limits { bytes: None, ..limits(LimitPolicy::Sample) };
        let taken = |messages: u64| {
            let sends = (0..10_000_u32)
                .filter(|hash| limits.admit(&filled(messages), (1, 1), *hash).is_ok());
            sends.count()
        };
        assert_eq!((taken(0), taken(800), taken(1_000)), (10_000, 10_000, 0));
        for (messages, share) in [(850, 7_500), (900, 5_000), (950, 2_500)] {
            assert!(taken(messages).abs_diff(share) < 200, "{} at {messages}", taken(messages));
        }
        let refused =
            (0..).find_map(|hash| limits.admit(&filled(900), (1, 1), hash).err()).unwrap();
        assert!(refused.is_sampled);
        assert!(refused.to_string().contains("a part of what is sent"), "{refused}");
    }

    #[test]
    fn partitions_take_as_much_together_as_their_queue_does() {
        let limits = Limits { messages: Some(100), bytes: Some(2), ..Limits::default() };
        let shares: Vec<Limits> = (0..3).map(|partition| limits.share_of(partition, 3)).collect();
        let messages = |share: &Limits| share.messages.unwrap();
        assert_eq!(shares.iter().map(messages).collect::<Vec<_>>(), [34, 33, 33]);
        // A message group has one partition: it must not be one that takes nothing.
        assert!(shares.iter().all(|share| share.bytes == Some(1)));
        let none = Limits { messages: Some(0), ..Limits::default() };
        assert_eq!(none.share_of(0, 3).messages, Some(0));
    }
}
