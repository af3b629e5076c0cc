//! A circuit breaker: when work fails again and again, the fault is likely not in the messages, and trying
//! the next one only spends its receives.
//!
//! ```text
//! closed ──too many failures──▶ open ──time has passed──▶ half-open ──one succeeds──▶ closed
//!                                ▲                            │
//!                                └────────it fails────────────┘
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// When a worker stops receiving because its work fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerConfig {
    /// So many failures in a row open it; 0 never does.
    pub failures: u32,
    /// So large a part of the last `window` outcomes opens it; nothing: only failures in a row do.
    pub failure_ratio: Option<f64>,
    /// How many outcomes the part is taken of.
    pub window: usize,
    /// How long it stays open before one message is tried.
    pub pause: Duration,
}

impl Default for BreakerConfig {
    /// Twenty failures in a row, half a minute.
    fn default() -> BreakerConfig {
        BreakerConfig {
            failures: 20,
            failure_ratio: None,
            window: 100,
            pause: Duration::from_secs(30),
        }
    }
}

impl BreakerConfig {
    /// Never opens.
    #[must_use]
    pub fn off() -> BreakerConfig {
        BreakerConfig { failures: 0, ..BreakerConfig::default() }
    }
}

/// Where a breaker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Work goes on.
    Closed,
    /// Nothing is received until the pause is over.
    Open,
    /// One message is tried.
    HalfOpen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Instant },
    HalfOpen,
}

/// The breaker itself; the time is told by the caller.
#[derive(Debug)]
pub(super) struct Breaker {
    config: BreakerConfig,
    state: State,
    in_a_row: u32,
    /// The last outcomes, failures as `true`, oldest first. Invariant: at most `config.window`.
    outcomes: VecDeque<bool>,
    opened: u64,
}

impl Breaker {
    pub(super) fn new(config: BreakerConfig) -> Breaker {
        let (state, outcomes) = (State::Closed, VecDeque::new());
        Breaker { config, state, in_a_row: 0, outcomes, opened: 0 }
    }

    /// How many messages may be worked at once, of `parallel`.
    pub(super) fn allowed(&mut self, now: Instant, parallel: usize) -> usize {
        if let State::Open { until } = self.state
            && until <= now
        {
            self.state = State::HalfOpen;
        }
        match self.state {
            State::Closed => parallel,
            State::Open { .. } => 0,
            State::HalfOpen => parallel.min(1),
        }
    }

    /// When it will allow something again, if it allows nothing now.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::HalfOpen => None,
        }
    }

    /// What became of a message. Those that began before it opened tell nothing of what is now.
    pub(super) fn record(&mut self, now: Instant, has_failed: bool) {
        match self.state {
            State::Open { .. } => {}
            State::HalfOpen if has_failed => self.open(now),
            State::HalfOpen => self.close(),
            State::Closed => {
                self.note(has_failed);
                if self.is_too_much() {
                    self.open(now);
                }
            }
        }
    }

    fn note(&mut self, has_failed: bool) {
        self.in_a_row = if has_failed { self.in_a_row.saturating_add(1) } else { 0 };
        if self.config.failure_ratio.is_none() || self.config.window == 0 {
            return;
        }
        if self.outcomes.len() == self.config.window {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(has_failed);
    }

    fn is_too_much(&self) -> bool {
        let in_a_row = 0 < self.config.failures && self.config.failures <= self.in_a_row;
        let failed = self.outcomes.iter().filter(|failed| **failed).count();
        // A part of less than a window says little.
        let is_whole = !self.outcomes.is_empty() && self.outcomes.len() == self.config.window;
        let in_window = self
            .config
            .failure_ratio
            .is_some_and(|ratio| is_whole && ratio * self.outcomes.len() as f64 <= failed as f64);
        in_a_row || in_window
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open { until: now + self.config.pause };
        self.opened += 1;
        self.outcomes.clear();
        self.in_a_row = 0;
    }

    fn close(&mut self) {
        self.state = State::Closed;
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen => BreakerState::HalfOpen,
        }
    }

    /// How often it has opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(30);

    fn breaker(failures: u32, failure_ratio: Option<f64>, window: usize) -> Breaker {
        Breaker::new(BreakerConfig { failures, failure_ratio, window, pause: PAUSE })
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_success_after_the_pause_closes_it() {
        let mut breaker = breaker(3, None, 0);
        let start = Instant::now();
        for has_failed in [true, true, false, true, true] {
            breaker.record(start, has_failed);
            assert_eq!(breaker.allowed(start, 8), 8);
        }
        breaker.record(start, true);
        assert_eq!((breaker.allowed(start, 8), breaker.opens_at()), (0, Some(start + PAUSE)));
        // What was under way tells nothing more.
        breaker.record(start, false);
        assert_eq!(breaker.state(), BreakerState::Open);

        let later = start + PAUSE;
        assert_eq!((breaker.allowed(later, 8), breaker.state()), (1, BreakerState::HalfOpen));
        breaker.record(later, true);
        assert_eq!((breaker.allowed(later, 8), breaker.opened()), (0, 2));
        let again = later + PAUSE;
        assert_eq!(breaker.allowed(again, 8), 1);
        breaker.record(again, false);
        assert_eq!((breaker.allowed(again, 8), breaker.state()), (8, BreakerState::Closed));
    }

    #[test]
    fn a_part_of_a_whole_window_opens_it() {
        let mut breaker = breaker(0, Some(0.5), 4);
        let now = Instant::now();
        for has_failed in [true, true, false, false] {
            assert_eq!(breaker.allowed(now, 1), 1);
            breaker.record(now, has_failed);
        }
        assert_eq!(breaker.allowed(now, 1), 0);
    }

    #[test]
    fn one_that_is_off_never_opens() {
        let mut breaker = Breaker::new(BreakerConfig::off());
        let now = Instant::now();
        (0..1_000).for_each(|_| breaker.record(now, true));
        assert_eq!(breaker.allowed(now, 4), 4);
    }
}
