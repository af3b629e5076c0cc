//! A set of offsets that mostly come in runs: ten million messages that nobody has received yet are
//! one entry.

use std::collections::BTreeMap;
use std::ops::Range;

use towpath_model::Offset;

/// Offsets as disjoint runs that do not touch each other, each under its first offset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffsetRanges {
    runs: BTreeMap<i64, i64>,
    count: u64,
}

impl OffsetRanges {
    /// How many offsets.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs, in order.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = Range<Offset>> + '_ {
        self.runs.iter().map(|(start, end)| Offset(*start)..Offset(*end))
    }

    /// The offsets, in order.
    pub fn iter(&self) -> impl Iterator<Item = Offset> + '_ {
        self.runs.iter().flat_map(|(start, end)| (*start..*end).map(Offset))
    }

    /// The first offset.
    pub fn first(&self) -> Option<Offset> {
        self.runs.keys().next().copied().map(Offset)
    }

    /// Whether `offset` is in it.
    pub fn contains(&self, offset: Offset) -> bool {
        self.run_at(offset.0).is_some()
    }

    /// The run that holds `offset`.
    fn run_at(&self, offset: i64) -> Option<(i64, i64)> {
        let (start, end) = self.runs.range(..=offset).next_back()?;
        (offset < *end).then_some((*start, *end))
    }

    /// Adds one offset; one that is there stays.
    pub fn insert(&mut self, offset: Offset) {
        self.insert_run(offset..offset.next());
    }

    /// Adds a run; what is there stays.
    pub fn insert_run(&mut self, run: Range<Offset>) {
        let (mut start, mut end) = (run.start.0, run.end.0);
        if end <= start {
            return;
        }
        let touching: Vec<(i64, i64)> = self
            .runs
            .range(..=end)
            .rev()
            .take_while(|(_, other_end)| start <= **other_end)
            .map(|(other, other_end)| (*other, *other_end))
            .collect();
        for (other, other_end) in touching {
            self.runs.remove(&other);
            self.count -= width(other, other_end);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.runs.insert(start, end);
        self.count += width(start, end);
    }

    /// Removes one offset; says whether it was there.
    pub fn remove(&mut self, offset: Offset) -> bool {
        let was_there = self.contains(offset);
        self.remove_run(offset..offset.next());
        was_there
    }

    /// Removes whatever of a run is there.
    pub fn remove_run(&mut self, run: Range<Offset>) {
        let (start, end) = (run.start.0, run.end.0);
        if end <= start {
            return;
        }
        if let Some((first, first_end)) = self.run_at(start) {
            self.cut(first, first_end, start.max(first), end.min(first_end));
        }
        while let Some((first, first_end)) = self.runs.range(start..end).next() {
            let (first, first_end) = (*first, *first_end);
            self.cut(first, first_end, first, end.min(first_end));
        }
    }

    /// Removes `[from, to)` from the run `[start, end)` that holds it.
    fn cut(&mut self, start: i64, end: i64, from: i64, to: i64) {
        self.runs.remove(&start);
        self.count -= width(from, to);
        if start < from {
            self.runs.insert(start, from);
        }
        if to < end {
            self.runs.insert(to, end);
        }
    }
}

impl FromIterator<Offset> for OffsetRanges {
    fn from_iter<I: IntoIterator<Item = Offset>>(offsets: I) -> Self {
        let mut ranges = OffsetRanges::default();
        offsets.into_iter().for_each(|offset| ranges.insert(offset));
        ranges
    }
}

fn width(start: i64, end: i64) -> u64 {
    u64::try_from(end - start).expect("runs are not empty")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(ranges: &OffsetRanges, model: &BTreeSet<i64>) {
        assert_eq!(ranges.len(), model.len() as u64);
        assert!(ranges.iter().map(|offset| offset.0).eq(model.iter().copied()));
        assert_eq!(ranges.first().map(|first| first.0), model.first().copied());
        let mut last_end = None;
        for run in ranges.runs() {
            assert!(run.start < run.end);
            assert!(last_end.is_none_or(|end: Offset| end < run.start), "runs touch");
            last_end = Some(run.end);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0i64..60, 0i64..12), 0..80)) {
            let (mut ranges, mut model) = (OffsetRanges::default(), BTreeSet::new());
            for (adds, start, len) in steps {
                let run = Offset(start)..Offset(start + len);
                if adds {
                    ranges.insert_run(run);
                    model.extend(start..start + len);
                } else {
                    ranges.remove_run(run);
                    model.retain(|offset| !(start..start + len).contains(offset));
                }
                check(&ranges, &model);
                for offset in 0..75 {
                    prop_assert_eq!(ranges.contains(Offset(offset)), model.contains(&offset));
                }
            }
        }
    }
}
