//! How often something interesting happened.
//!
//! A simulation that never tears a write proves nothing about torn writes. So every fault, and
//! every place in a checker that needs a rare state, counts itself, the campaign prints the sums,
//! and a profile names the counts that must not be zero.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    counts: BTreeMap<&'static str, u64>,
}

impl Events {
    /// No events yet.
    #[must_use]
    pub fn new() -> Events {
        Events::default()
    }

    /// Notes that `event` happened once more.
    pub fn note(&mut self, event: &'static str) {
        self.add(event, 1);
    }

    /// Notes that `event` happened `times` more.
    pub fn add(&mut self, event: &'static str, times: u64) {
        if 0 < times {
            *self.counts.entry(event).or_insert(0) += times;
        }
    }

    /// How often `event` happened.
    #[must_use]
    pub fn count(&self, event: &str) -> u64 {
        self.counts.get(event).copied().unwrap_or(0)
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Events) {
        for (event, times) in &other.counts {
            self.add(event, *times);
        }
    }

    /// All counts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counts.iter().map(|(event, times)| (*event, *times))
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (event, times) in self.iter() {
            writeln!(f, "  {times:>12}  {event}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_runs_add_up() {
        let mut all = Events::new();
        let mut one = Events::new();
        one.note("write torn");
        one.add("name lost", 0);
        all.merge(&one);
        all.merge(&one);
        assert_eq!(all.count("write torn"), 2);
        assert_eq!(all.count("name lost"), 0);
        assert_eq!(all.to_string(), "             2  write torn\n");
    }
}
