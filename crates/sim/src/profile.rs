//! One arrangement of product, workload, faults and checkers, and how a broken promise is told.

use std::fmt;

use crate::events::Events;
use crate::trace::Trace;

/// A kind of run.
pub trait Profile: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// What it exercises, in one line.
    fn about(&self) -> &'static str;

    /// Events that a campaign of [`crate::campaign::SEEDS_FOR_ALL_EVENTS`] seeds must have seen:
    /// if one is missing, the generator has gone silent, and the campaign fails.
    fn must_happen(&self) -> &'static [&'static str];

    /// How many seeds of an ordinary profile cost as much as one of this. A campaign over all
    /// profiles runs so many times fewer of it.
    fn cost(&self) -> u64 {
        1
    }

    /// One run. Everything follows from `seed`.
    ///
    /// # Errors
    /// The first broken promise.
    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation>;
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one: an id of the invariant catalogue, such as `INV-R1`.
    pub invariant: &'static str,
    /// What was promised and what was found.
    pub detail: String,
}

impl Violation {
    /// A broken promise.
    pub fn new(invariant: &'static str, detail: impl Into<String>) -> Violation {
        Violation { invariant, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

impl std::error::Error for Violation {}

/// Checks a promise: `ensure!(holds, "INV-…", "detail {}", …)` returns a [`Violation`] otherwise.
macro_rules! ensure {
    ($holds:expr, $invariant:literal, $($detail:tt)+) => {
        if !$holds {
            return Err($crate::profile::Violation::new($invariant, format!($($detail)+)).into());
        }
    };
}
pub(crate) use ensure;
