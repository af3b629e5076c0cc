//! Which messages are done with: a bit each, whatever lies between the oldest that is not and the
//! newest that is.
//!
//! There is no bound on that distance. A page whose messages are all settled is one entry of a map, so
//! ten million of them behind one that is stuck take a hundred kilobytes.

use std::collections::BTreeMap;
use std::ops::Range;

use towpath_model::Offset;

/// Offsets of one page.
const PAGE: i64 = 4_096;
const WORDS: usize = PAGE as usize / 64;

/// The settled offsets of one subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledSet {
    /// Everything before this is settled.
    start: i64,
    pages: BTreeMap<i64, Page>,
    /// Offsets at or after `start` that are settled.
    ahead: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Page {
    Full,
    Some(Box<[u64; WORDS]>, u32),
}

impl Page {
    fn empty() -> Page {
        Page::Some(Box::new([0; WORDS]), 0)
    }

    fn count(&self) -> u32 {
        match self {
            Page::Full => PAGE as u32,
            Page::Some(_, count) => *count,
        }
    }

    fn contains(&self, at: i64) -> bool {
        match self {
            Page::Full => true,
            Page::Some(words, _) => words[(at / 64) as usize] & (1 << (at % 64)) != 0,
        }
    }

    /// Says whether it was not there.
    fn insert(&mut self, at: i64) -> bool {
        let Page::Some(words, count) = self else { return false };
        let (word, bit) = (&mut words[(at / 64) as usize], 1_u64 << (at % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        *count += u32::from(is_new);
        if *count == PAGE as u32 {
            *self = Page::Full;
        }
        is_new
    }

    /// Adds all of them; says how many were not there.
    fn add(&mut self, bits: &Bits) -> u32 {
        let before = self.count();
        match (&mut *self, bits) {
            (Page::Full, _) | (_, Bits::None) => return 0,
            (_, Bits::All) => *self = Page::Full,
            (Page::Some(words, count), Bits::Some(more)) => {
                words.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
                *count = words.iter().map(|word| word.count_ones()).sum();
                if *count == PAGE as u32 {
                    *self = Page::Full;
                }
            }
        }
        self.count() - before
    }

    /// The first offset at or after `at` that is not there; the page's end if there is none.
    fn first_gap(&self, at: i64) -> i64 {
        let Page::Some(words, _) = self else { return PAGE };
        let mut at = at;
        while at < PAGE {
            let gaps = !words[(at / 64) as usize] >> (at % 64);
            if gaps != 0 {
                return at + i64::from(gaps.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        PAGE
    }
}

impl SettledSet {
    /// Nothing from `start` on is settled.
    pub fn starting_at(start: Offset) -> SettledSet {
        SettledSet { start: start.0, pages: BTreeMap::new(), ahead: 0 }
    }

    /// Everything before this is settled.
    pub fn start(&self) -> Offset {
        Offset(self.start)
    }

    /// How many at or after [`SettledSet::start`] are settled.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Whether `offset` is settled.
    pub fn contains(&self, offset: Offset) -> bool {
        offset.0 < self.start
            || self.pages.get(&(offset.0 / PAGE)).is_some_and(|page| page.contains(offset.0 % PAGE))
    }

    /// Settles one; says whether it was not settled before.
    pub fn insert(&mut self, offset: Offset) -> bool {
        if offset.0 < self.start {
            return false;
        }
        let page = self.pages.entry(offset.0 / PAGE).or_insert_with(Page::empty);
        let is_new = page.insert(offset.0 % PAGE);
        self.ahead += u64::from(is_new);
        if offset.0 == self.start {
            self.advance();
        }
        is_new
    }

    /// Settles a run.
    pub fn insert_run(&mut self, run: Range<Offset>) {
        if run.start.0 <= self.start && self.pages.is_empty() {
            // However long it is.
            self.start = self.start.max(run.end.0);
            return;
        }
        let mut at = run.start.0.max(self.start);
        while at < run.end.0 {
            let number = at / PAGE;
            let page_end = (number + 1) * PAGE;
            if at == number * PAGE && page_end <= run.end.0 {
                let before = self.pages.insert(number, Page::Full).map_or(0, |page| page.count());
                self.ahead += u64::from(PAGE as u32 - before);
                at = page_end;
                continue;
            }
            let page = self.pages.entry(number).or_insert_with(Page::empty);
            self.ahead += u64::from(page.insert(at % PAGE));
            at += 1;
        }
        self.advance();
    }

    /// Moves `start` over everything that is settled.
    fn advance(&mut self) {
        let before = self.start;
        while let Some(page) = self.pages.get(&(self.start / PAGE)) {
            let number = self.start / PAGE;
            let gap = page.first_gap(self.start % PAGE);
            self.start = number * PAGE + gap;
            if gap < PAGE {
                break;
            }
            self.pages.remove(&number);
        }
        self.ahead -= u64::try_from(self.start - before).expect("a start moves forward");
    }

    /// Forgets that anything at or after `end` is settled.
    pub fn truncate(&mut self, end: Offset) {
        if end.0 <= self.start {
            *self = SettledSet::starting_at(end);
            return;
        }
        let kept: Vec<Range<Offset>> = self
            .runs()
            .map(|run| run.start..run.end.min(end))
            .filter(|run| run.start < run.end)
            .collect();
        *self = SettledSet::starting_at(self.start());
        kept.into_iter().for_each(|run| self.insert_run(run));
    }

    /// Adds what of `within` is in every one of `sets`, a page at a time.
    pub fn add_common(&mut self, sets: &[&SettledSet], within: Range<Offset>) {
        let start = within.start.max(self.start());
        // However long it is.
        let common_start = sets.iter().map(|set| set.start).min().unwrap_or(0).min(within.end.0);
        if start.0 == self.start && self.pages.is_empty() {
            self.start = self.start.max(common_start);
        }
        for (base, bits) in common_pages(sets, start.max(self.start())..within.end) {
            let number = base / PAGE;
            if bits.count() == 0 {
                continue;
            }
            let page = self.pages.entry(number).or_insert_with(Page::empty);
            self.ahead += u64::from(page.add(&bits));
        }
        self.advance();
    }

    /// How many offsets at or after `from` are settled, but for those before [`SettledSet::start`].
    pub fn count_from(&self, from: Offset) -> u64 {
        let before = |(number, page): (&i64, &Page)| {
            let page_start = number * PAGE;
            if self.start <= page_start && page_start + PAGE <= from.0 {
                return u64::from(page.count());
            }
            let within = page_start.max(self.start)..(page_start + PAGE).min(from.0);
            self.count_within(Offset(within.start)..Offset(within.end))
        };
        let last = (from.0 - 1).div_euclid(PAGE);
        self.ahead.saturating_sub(self.pages.range(..=last).map(before).sum())
    }

    /// How many offsets in `within` are settled.
    pub fn count_within(&self, within: Range<Offset>) -> u64 {
        count_common(&[self], within)
    }

    /// The settled runs in `within`, in order; two of them may touch.
    pub fn runs_within(&self, within: Range<Offset>) -> impl Iterator<Item = Range<Offset>> {
        let pages: Vec<(i64, Bits)> = common_pages(&[self], within).collect();
        pages.into_iter().flat_map(|(base, bits)| {
            let page = match bits {
                Bits::None => return Vec::new(),
                Bits::All => Page::Full,
                Bits::Some(words) => Page::Some(Box::new(words), 0),
            };
            let runs = runs_of(base, &page, base);
            runs.into_iter().map(|(start, end)| Offset(start)..Offset(end)).collect()
        })
    }

    /// The bits of a page.
    fn bits(&self, number: i64) -> Bits {
        let base = number * PAGE;
        if base + PAGE <= self.start {
            return Bits::All;
        }
        let mut bits = match self.pages.get(&number) {
            None => Bits::None,
            Some(Page::Full) => return Bits::All,
            Some(Page::Some(words, _)) => Bits::Some(**words),
        };
        if base < self.start {
            let words = bits.words();
            set_bits(words, 0, self.start - base);
        }
        bits
    }

    /// The offsets in `within` that are not settled, in order.
    pub fn unsettled(&self, within: Range<Offset>) -> impl Iterator<Item = Offset> + '_ {
        let mut at = within.start.0.max(self.start);
        let end = within.end.0;
        std::iter::from_fn(move || {
            while at < end {
                let Some(page) = self.pages.get(&(at / PAGE)) else {
                    at += 1;
                    return Some(Offset(at - 1));
                };
                let base = at / PAGE * PAGE;
                at = base + page.first_gap(at - base);
                if at < base + PAGE && at < end {
                    at += 1;
                    return Some(Offset(at - 1));
                }
            }
            None
        })
    }

    /// The settled runs at or after [`SettledSet::start`], in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<Offset>> + '_ {
        let mut open: Option<(i64, i64)> = None;
        let mut pages = self.pages.iter();
        let mut within = Vec::new().into_iter();
        std::iter::from_fn(move || {
            loop {
                let next: Option<(i64, i64)> = within.next();
                let Some((start, end)) = next else {
                    let Some((number, page)) = pages.next() else {
                        return open.take().map(|(start, end)| Offset(start)..Offset(end));
                    };
                    within = runs_of(*number * PAGE, page, self.start).into_iter();
                    continue;
                };
                match &mut open {
                    Some((_, open_end)) if *open_end == start => *open_end = end,
                    _ => {
                        let done = open.replace((start, end));
                        if let Some((start, end)) = done {
                            return Some(Offset(start)..Offset(end));
                        }
                    }
                }
            }
        })
    }
}

/// The bits of a page of one set or of what several have in common.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack, in a loop over pages")]
enum Bits {
    None,
    All,
    Some([u64; WORDS]),
}

impl Bits {
    fn words(&mut self) -> &mut [u64; WORDS] {
        match self {
            Bits::None => *self = Bits::Some([0; WORDS]),
            Bits::All => *self = Bits::Some([u64::MAX; WORDS]),
            Bits::Some(_) => {}
        }
        let Bits::Some(words) = self else { unreachable!("both others have become this") };
        words
    }

    fn and(self, other: Bits) -> Bits {
        match (self, other) {
            (Bits::None, _) | (_, Bits::None) => Bits::None,
            (Bits::All, bits) | (bits, Bits::All) => bits,
            (Bits::Some(mut words), Bits::Some(other)) => {
                words.iter_mut().zip(other.iter()).for_each(|(word, other)| *word &= other);
                Bits::Some(words)
            }
        }
    }

    /// Forgets what is not in `[from, to)` of the page.
    fn clip(&mut self, from: i64, to: i64) {
        if (from, to) == (0, PAGE) || matches!(self, Bits::None) {
            return;
        }
        let mut mask = [0; WORDS];
        set_bits(&mut mask, from, to);
        self.words().iter_mut().zip(mask).for_each(|(word, mask)| *word &= mask);
    }

    fn count(&self) -> u64 {
        match self {
            Bits::None => 0,
            Bits::All => PAGE as u64,
            Bits::Some(words) => words.iter().map(|word| u64::from(word.count_ones())).sum(),
        }
    }
}

/// Sets the bits `[from, to)`.
fn set_bits(words: &mut [u64; WORDS], from: i64, to: i64) {
    for (at, word) in (0..).step_by(64).zip(words.iter_mut()) {
        let (low, high) = ((from - at).clamp(0, 64), (to - at).clamp(0, 64));
        let below = |bit: i64| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
        *word |= below(high) & !below(low);
    }
}

/// What of `within` is in every one of `sets`, page by page, each with its first offset.
fn common_pages(sets: &[&SettledSet], within: Range<Offset>) -> impl Iterator<Item = (i64, Bits)> {
    let (start, end) = (within.start.0, within.end.0.max(within.start.0));
    let pages = (start / PAGE)..((end + PAGE - 1) / PAGE);
    pages.filter(|_| !sets.is_empty()).map(move |number| {
        let base = number * PAGE;
        let mut bits = sets.iter().fold(Bits::All, |bits, set| match bits {
            Bits::None => Bits::None,
            bits => bits.and(set.bits(number)),
        });
        bits.clip((start - base).max(0), (end - base).min(PAGE));
        (base, bits)
    })
}

/// How many offsets in `within` are in every one of `sets`.
pub(crate) fn count_common(sets: &[&SettledSet], within: Range<Offset>) -> u64 {
    common_pages(sets, within).map(|(_, bits)| bits.count()).sum()
}

/// The settled runs of one page, from `start` on.
fn runs_of(base: i64, page: &Page, start: i64) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    if *page == Page::Full {
        return vec![(base.max(start), base + PAGE)];
    }
    for at in 0..PAGE {
        let offset = base + at;
        if offset < start || !page.contains(at) {
            continue;
        }
        match runs.last_mut() {
            Some((_, end)) if *end == offset => *end += 1,
            _ => runs.push((offset, offset + 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(set: &SettledSet, model: &BTreeSet<i64>, end: i64) {
        let unsettled: Vec<i64> = (0..end).filter(|at| !model.contains(at)).collect();
        let found: Vec<i64> = set.unsettled(Offset(0)..Offset(end)).map(|at| at.0).collect();
        assert_eq!(found, unsettled);
        let start = unsettled.first().copied().unwrap_or(end);
        assert_eq!(set.start().0, start);
        let ahead: Vec<i64> = model.range(start..).copied().collect();
        assert_eq!(set.ahead(), ahead.len() as u64);
        let runs: Vec<i64> = set.runs().flat_map(|run| run.start.0..run.end.0).collect();
        assert_eq!(runs, ahead);
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            steps in prop::collection::vec((0i64..13_000, prop_oneof![Just(1), 2i64..300, 4_000i64..9_000]), 1..30),
            cut in prop::option::of(0i64..13_000),
        ) {
            let (mut set, mut model) = (SettledSet::default(), BTreeSet::new());
            for (start, len) in steps {
                if len == 1 {
                    prop_assert_eq!(set.insert(Offset(start)), model.insert(start));
                } else {
                    set.insert_run(Offset(start)..Offset(start + len));
                    model.extend(start..start + len);
                }
            }
            check(&set, &model, 25_000);
            if let Some(cut) = cut {
                set.truncate(Offset(cut));
                model.retain(|at| *at < cut);
                check(&set, &model, 25_000);
            }
        }
    }

    proptest! {
        #[test]
        fn what_sets_have_in_common_is_found(
            sets in prop::collection::vec(
                (0i64..9_000, prop::collection::vec((0i64..13_000, 1i64..5_000), 0..9)), 1..4),
            start in 0i64..9_000,
            len in 0i64..13_000,
        ) {
            let made = |(start, runs): &(i64, Vec<(i64, i64)>)| {
                let mut set = SettledSet::starting_at(Offset(*start));
                runs.iter().for_each(|(at, len)| set.insert_run(Offset(*at)..Offset(at + len)));
                set
            };
            let sets: Vec<SettledSet> = sets.iter().map(made).collect();
            let sets: Vec<&SettledSet> = sets.iter().collect();
            let is_common = |at: &i64| sets.iter().all(|set| set.contains(Offset(*at)));
            let within = Offset(start)..Offset(start + len);
            let common: Vec<i64> = (start..start + len).filter(is_common).collect();
            prop_assert_eq!(count_common(&sets, within.clone()), common.len() as u64);
            let mut sum = SettledSet::default();
            sum.insert_run(Offset(11_000)..Offset(12_000));
            sum.add_common(&sets, within.clone());
            let mut model: BTreeSet<i64> = common.iter().copied().chain(11_000..12_000).collect();
            check(&sum, &model, 25_000);
            let runs: Vec<i64> =
                sum.runs_within(within.clone()).flat_map(|run| run.start.0..run.end.0).collect();
            let ahead = model.range(sum.start().0.max(start)..).count() as u64;
            prop_assert_eq!(sum.count_from(Offset(start)), ahead);
            prop_assert!(model.range(start..start + len).eq(runs.iter()));
            sum.add_common(&sets, Offset(0)..Offset(start));
            model.extend((0..start).filter(is_common));
            check(&sum, &model, 25_000);
        }
    }

    #[test]
    fn ten_million_behind_one_that_is_stuck_are_few_pages() {
        let mut set = SettledSet::default();
        set.insert_run(Offset(1)..Offset(10_000_000));
        assert_eq!(set.start(), Offset(0));
        assert_eq!(set.ahead(), 9_999_999);
        assert_eq!(set.runs().count(), 1);
        assert!(set.insert(Offset(0)));
        assert_eq!(set.start(), Offset(10_000_000));
        assert_eq!(set.ahead(), 0);
    }
}
