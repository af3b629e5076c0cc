//! What a group committed and where it went on. Only for topics that keep everything: their
//! offsets have no gaps, so a member that starts at `o` is given `o`, `o + 1`, `o + 2`…
//!
//! ```text
//!   0 ─────── committed ─────── tried ─── delivered end
//!                 └─ a member may start here ─┘
//! ```

use std::collections::BTreeMap;

use super::{Place, Report, Violation};

/// One group's history.
#[derive(Debug, Default)]
pub struct GroupHistory {
    progress: BTreeMap<Place, Progress>,
    holds: BTreeMap<(u32, Place), Hold>,
    resumed: u64,
    broken: Report,
}

/// How far the group is in one partition.
#[derive(Debug, Default)]
struct Progress {
    /// The highest offset whose commit was acknowledged.
    committed: i64,
    /// The highest offset that was ever sent to be committed.
    tried: i64,
    /// Everything before it was given to a member.
    delivered_end: i64,
}

/// A member's hold on a partition.
#[derive(Debug)]
enum Hold {
    /// Gained when so much was committed, nothing given yet.
    Gained { committed: i64 },
    /// The next record must be this one.
    Reading { next: i64 },
}

impl GroupHistory {
    /// A member gained a partition.
    pub fn gained(&mut self, member: u32, place: &Place) {
        let committed = self.progress.entry(place.clone()).or_default().committed;
        self.holds.insert((member, place.clone()), Hold::Gained { committed });
    }

    /// A member gave a partition up, or lost it.
    pub fn given_up(&mut self, member: u32, place: &Place) {
        self.holds.remove(&(member, place.clone()));
    }

    /// A member ended, with or without a word.
    pub fn ended(&mut self, member: u32) {
        self.holds.retain(|(holder, _), _| *holder != member);
    }

    /// A member was given the record at `offset`.
    pub fn delivered(&mut self, member: u32, place: &Place, offset: i64) {
        let progress = self.progress.entry(place.clone()).or_default();
        let Some(hold) = self.holds.get_mut(&(member, place.clone())) else {
            let what = format!("member {member} was given {place} {offset} without owning it");
            self.broken.broken("INV-C1", what);
            return;
        };
        match *hold {
            Hold::Gained { committed } => {
                self.resumed += 1;
                if offset < committed {
                    let what = format!(
                        "{place}: {committed} was committed, member {member} went on at {offset}"
                    );
                    self.broken.broken("INV-C2", what);
                }
                if progress.tried.max(committed) < offset {
                    let what = format!(
                        "{place}: at most {} was ever committed, member {member} went on at {offset}",
                        progress.tried
                    );
                    self.broken.broken("INV-C3", what);
                }
            }
            Hold::Reading { next } if next != offset => {
                let what = format!("{place}: member {member} was given {offset} instead of {next}");
                self.broken.broken("INV-C3", what);
            }
            Hold::Reading { .. } => {}
        }
        *hold = Hold::Reading { next: offset + 1 };
        progress.delivered_end = progress.delivered_end.max(offset + 1);
    }

    /// A member is about to commit: what it was given of the partitions it holds. Returns that.
    pub fn committing(&mut self, member: u32) -> BTreeMap<Place, i64> {
        let mut positions = BTreeMap::new();
        for ((holder, place), hold) in &self.holds {
            if let Hold::Reading { next } = hold
                && *holder == member
            {
                positions.insert(place.clone(), *next);
                let progress = self.progress.entry(place.clone()).or_default();
                progress.tried = progress.tried.max(*next);
            }
        }
        positions
    }

    /// A commit was acknowledged.
    pub fn committed(&mut self, positions: &BTreeMap<Place, i64>) {
        for (place, offset) in positions {
            let progress = self.progress.entry(place.clone()).or_default();
            progress.committed = progress.committed.max(*offset);
        }
    }

    /// How far every partition was delivered.
    pub fn delivered_end(&self, place: &Place) -> i64 {
        self.progress.get(place).map_or(0, |progress| progress.delivered_end)
    }

    /// The highest offset whose commit was acknowledged, per partition.
    pub fn committed_ends(&self) -> BTreeMap<Place, i64> {
        self.progress.iter().map(|(place, p)| (place.clone(), p.committed)).collect()
    }

    /// How often a member took a partition up.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// What was broken.
    pub fn violations(&self) -> &[Violation] {
        &self.broken.violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place::new("t", 0)
    }

    /// Member 1 was given 0..5 and has committed that; 5..8 it was given, and only tried to.
    fn history() -> GroupHistory {
        let mut history = GroupHistory::default();
        history.gained(1, &place());
        (0..5).for_each(|offset| history.delivered(1, &place(), offset));
        let positions = history.committing(1);
        history.committed(&positions);
        (5..8).for_each(|offset| history.delivered(1, &place(), offset));
        history.committing(1);
        history.ended(1);
        history
    }

    fn start_at(offset: i64) -> Vec<&'static str> {
        let mut history = history();
        history.gained(2, &place());
        history.delivered(2, &place(), offset);
        history.violations().iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn a_member_may_start_between_what_was_committed_and_what_was_tried() {
        assert_eq!(start_at(5), Vec::<&str>::new());
        assert_eq!(start_at(8), Vec::<&str>::new());
        assert_eq!(start_at(4), ["INV-C2"]);
        assert_eq!(start_at(9), ["INV-C3"]);
    }

    #[test]
    fn a_member_may_not_skip() {
        let mut history = history();
        history.gained(2, &place());
        history.delivered(2, &place(), 6);
        history.delivered(2, &place(), 8);
        assert_eq!(history.violations()[0].invariant, "INV-C3");
    }

    #[test]
    fn nobody_is_given_what_they_do_not_own() {
        let mut history = history();
        history.delivered(1, &place(), 8);
        assert_eq!(history.violations()[0].invariant, "INV-C1");
    }
}
