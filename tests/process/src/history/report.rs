//! What a check found.

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name in the catalogue, such as `INV-R1`.
    pub invariant: &'static str,
    /// What happened, to which partition, record or group.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Counts of one check, and what was broken.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Records that are there.
    pub checked: u64,
    /// Records that had been acknowledged.
    pub acked: u64,
    /// Acknowledged records that are missing, or not where they were said to be.
    pub lost: u64,
    /// Records that are there more than once.
    pub duplicated: u64,
    /// Records that overtook an earlier one of the same writer and partition.
    pub reordered: u64,
    /// Broken promises, the first [`Report::VIOLATIONS_MAX`] of them.
    pub violations: Vec<Violation>,
}

impl Report {
    /// How many are told; one cause tends to break thousands.
    pub const VIOLATIONS_MAX: usize = 20;

    /// Notes a broken promise.
    pub fn broken(&mut self, invariant: &'static str, what: String) {
        if self.violations.len() < Report::VIOLATIONS_MAX {
            self.violations.push(Violation { invariant, what });
        }
    }
}
