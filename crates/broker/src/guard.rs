//! Retention's guard: which expired segments of a topic may go although a group has not read them.
//!
//! ```text
//! expired ── read by every group ──▶ goes
//!     └──── unread ── off, warn ───▶ goes (warn: the loss is recorded)
//!                 └── hold ── up to the cap ──▶ stays
//!                         └── beyond the cap, or the disk fills ──▶ goes, oldest first; recorded
//! ```
//!
//! A group counts from its first committed offset in the topic until its offsets expire or are
//! deleted. The decision is made for all partitions of a topic at once, because they share the cap.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::RetentionGuard;
use towpath_model::{Offset, PartitionIndex, Timestamp};

/// Why a record was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// `retention.ms`.
    RetentionTime,
    /// `retention.bytes`.
    RetentionBytes,
    /// Every subscription of a queue was done with them.
    Settled,
    /// The guard held as many bytes as `retention.guard.max.bytes` allows.
    GuardCap,
    /// The disk filled up, and the guard gave way.
    DiskPressure,
    /// Somebody ordered it.
    DeleteRecords,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 6] = [
        Cause::RetentionTime,
        Cause::RetentionBytes,
        Cause::Settled,
        Cause::GuardCap,
        Cause::DiskPressure,
        Cause::DeleteRecords,
    ];

    /// Its name in metrics and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::RetentionTime => "retention_time",
            Cause::RetentionBytes => "retention_bytes",
            Cause::Settled => "settled",
            Cause::GuardCap => "guard_cap",
            Cause::DiskPressure => "disk_pressure",
            Cause::DeleteRecords => "delete_records",
        }
    }

    /// Whether the guard wanted to hold what went.
    #[must_use]
    pub fn is_override(self) -> bool {
        matches!(self, Cause::GuardCap | Cause::DiskPressure)
    }
}

/// A segment that retention does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredSegment {
    /// First offset after it.
    pub end_offset: Offset,
    /// Its bytes.
    pub bytes: u64,
    /// The time of its newest record.
    pub newest: Timestamp,
    /// What it has expired by: time or size.
    pub cause: Cause,
}

/// What is to be decided about one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expiring {
    /// First offset kept now.
    pub log_start_offset: Offset,
    /// Its expired segments, oldest first.
    pub segments: Vec<ExpiredSegment>,
    /// The committed offsets of its groups.
    pub readers: BTreeMap<Arc<str>, Offset>,
}

/// The rules of a topic at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// `retention.guard`.
    pub guard: RetentionGuard,
    /// `retention.guard.max.bytes`, of all partitions together.
    pub hold_bytes_max: u64,
    /// The disk needs room more than anybody needs these records.
    pub is_disk_pressed: bool,
}

/// Records that a group will never read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unheld {
    /// The group.
    pub group: Arc<str>,
    /// The first of them.
    pub from: Offset,
    /// The first offset after them.
    pub to: Offset,
    /// Why they went.
    pub cause: Cause,
}

/// What happens to one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Where the log start moves; `None`: it stays.
    pub start: Option<Offset>,
    /// What groups lose by it.
    pub losses: Vec<Unheld>,
    /// Bytes of expired segments that stay.
    pub held_bytes: u64,
}

/// Decides which expired segments of a topic's partitions go. A verdict per partition, in order.
#[must_use]
pub fn decide(
    rules: &Rules,
    partitions: &BTreeMap<PartitionIndex, Expiring>,
) -> BTreeMap<PartitionIndex, Verdict> {
    let overrides = overridden(rules, partitions);
    let verdict = |(partition, expiring): (&PartitionIndex, &Expiring)| {
        let going = overrides[partition];
        let mut verdict = Verdict::default();
        for (nth, segment) in expiring.segments.iter().enumerate() {
            match going.fate(nth, segment) {
                None => verdict.held_bytes += segment.bytes,
                Some(cause) => {
                    let from = verdict.start.unwrap_or(expiring.log_start_offset);
                    verdict.start = Some(segment.end_offset);
                    if rules.guard != RetentionGuard::Off {
                        losses(expiring, from, segment.end_offset, cause, &mut verdict.losses);
                    }
                }
            }
        }
        (*partition, verdict)
    };
    partitions.iter().map(verdict).collect()
}

/// What groups lose when the log start moves from `from` to `to`.
pub fn losses(expiring: &Expiring, from: Offset, to: Offset, cause: Cause, lost: &mut Vec<Unheld>) {
    for (group, committed) in &expiring.readers {
        let first = from.max(*committed);
        if to <= first {
            continue;
        }
        let before =
            lost.iter_mut().find(|b| b.group == *group && b.to == first && b.cause == cause);
        match before {
            Some(before) => before.to = to,
            None => lost.push(Unheld { group: group.clone(), from: first, to, cause }),
        }
    }
}

/// How many of a partition's expired segments go, and why those go that somebody has not read.
#[derive(Debug, Clone, Copy)]
struct Going {
    count: usize,
    /// From this one on they go by an override.
    held_from: usize,
    by: Cause,
}

impl Going {
    fn fate(&self, nth: usize, segment: &ExpiredSegment) -> Option<Cause> {
        let cause = if nth < self.held_from { segment.cause } else { self.by };
        (nth < self.count).then_some(cause)
    }
}

fn overridden(
    rules: &Rules,
    partitions: &BTreeMap<PartitionIndex, Expiring>,
) -> BTreeMap<PartitionIndex, Going> {
    let mut going: BTreeMap<PartitionIndex, Going> = BTreeMap::new();
    for (partition, expiring) in partitions {
        let all = expiring.segments.len();
        let holds = rules.guard == RetentionGuard::Hold && !mutant::is_on(Mutant::GuardHoldIgnored);
        let held_from = if holds { unread_from(expiring) } else { all };
        let count = if rules.is_disk_pressed { all } else { held_from };
        let by = if rules.is_disk_pressed { Cause::DiskPressure } else { Cause::GuardCap };
        going.insert(*partition, Going { count, held_from, by });
    }
    let held = |partition: &PartitionIndex, going: &Going| -> u64 {
        partitions[partition].segments[going.count..].iter().map(|segment| segment.bytes).sum()
    };
    let mut total: u64 = going.iter().map(|(partition, going)| held(partition, going)).sum();
    while rules.hold_bytes_max < total && !mutant::is_on(Mutant::GuardCapIgnored) {
        let next = |(partition, going): (&PartitionIndex, &Going)| {
            let segment = partitions[partition].segments.get(going.count)?;
            Some((segment.newest, *partition, segment.bytes))
        };
        let Some((_, partition, bytes)) = going.iter().filter_map(next).min() else { break };
        going.entry(partition).and_modify(|going| going.count += 1);
        total -= bytes;
    }
    going
}

/// The first expired segment with a record that some group has not read.
fn unread_from(expiring: &Expiring) -> usize {
    let Some(slowest) = expiring.readers.values().min() else { return expiring.segments.len() };
    expiring.segments.partition_point(|segment| segment.end_offset <= *slowest)
}

#[cfg(test)]
mod tests;
