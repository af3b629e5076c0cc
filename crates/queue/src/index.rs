//! From offset to a small value, for offsets that lie close together: a page of 256 slots costs one
//! entry of a map, so a million neighbours are looked up among four thousand.

use std::collections::BTreeMap;
use std::ops::Range;

use towpath_model::Offset;

const PAGE: i64 = 256;
/// No value.
const NONE: u32 = u32::MAX;

/// A map from offsets to values below `u32::MAX`.
#[derive(Debug, Clone, Default)]
pub(crate) struct OffsetIndex {
    pages: BTreeMap<i64, Page>,
}

#[derive(Debug, Clone)]
struct Page {
    slots: Box<[u32; PAGE as usize]>,
    count: u32,
}

impl OffsetIndex {
    pub(crate) fn get(&self, offset: Offset) -> Option<u32> {
        let page = self.pages.get(&(offset.0 / PAGE))?;
        Some(page.slots[(offset.0 % PAGE) as usize]).filter(|value| *value != NONE)
    }

    /// Sets a value; returns the one before.
    pub(crate) fn insert(&mut self, offset: Offset, value: u32) -> Option<u32> {
        assert!(value != NONE, "the highest value means none");
        let page = self
            .pages
            .entry(offset.0 / PAGE)
            .or_insert_with(|| Page { slots: Box::new([NONE; PAGE as usize]), count: 0 });
        let before = std::mem::replace(&mut page.slots[(offset.0 % PAGE) as usize], value);
        page.count += u32::from(before == NONE);
        Some(before).filter(|before| *before != NONE)
    }

    pub(crate) fn remove(&mut self, offset: Offset) -> Option<u32> {
        let page = self.pages.get_mut(&(offset.0 / PAGE))?;
        let before = std::mem::replace(&mut page.slots[(offset.0 % PAGE) as usize], NONE);
        page.count -= u32::from(before != NONE);
        if page.count == 0 {
            self.pages.remove(&(offset.0 / PAGE));
        }
        Some(before).filter(|before| *before != NONE)
    }

    /// The offsets in `within` that have a value, in order, each with it.
    pub(crate) fn range(&self, within: Range<Offset>) -> impl Iterator<Item = (Offset, u32)> + '_ {
        let (from, to) = (within.start.0, within.end.0);
        let pages = self.pages.range(from.div_euclid(PAGE)..=to.div_euclid(PAGE).max(from / PAGE));
        pages.flat_map(move |(number, page)| {
            let base = number * PAGE;
            page.slots
                .iter()
                .zip(base..)
                .filter(move |(value, at)| **value != NONE && from <= *at && *at < to)
                .map(|(value, at)| (Offset(at), *value))
        })
    }
}

/// A map from offsets to values of any size.
#[derive(Debug, Clone)]
pub(crate) struct OffsetMap<T> {
    index: OffsetIndex,
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for OffsetMap<T> {
    fn default() -> Self {
        OffsetMap { index: OffsetIndex::default(), values: Vec::new(), free: Vec::new() }
    }
}

impl<T> OffsetMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    pub(crate) fn get(&self, offset: Offset) -> Option<&T> {
        self.values[self.index.get(offset)? as usize].as_ref()
    }

    pub(crate) fn get_mut(&mut self, offset: Offset) -> Option<&mut T> {
        self.values[self.index.get(offset)? as usize].as_mut()
    }

    pub(crate) fn insert(&mut self, offset: Offset, value: T) -> Option<T> {
        if let Some(at) = self.index.get(offset) {
            return self.values[at as usize].replace(value);
        }
        let at = match self.free.pop() {
            Some(at) => {
                self.values[at as usize] = Some(value);
                at
            }
            None => {
                self.values.push(Some(value));
                u32::try_from(self.values.len() - 1).expect("fewer live messages than 2^32")
            }
        };
        self.index.insert(offset, at);
        None
    }

    pub(crate) fn remove(&mut self, offset: Offset) -> Option<T> {
        let at = self.index.remove(offset)?;
        self.free.push(at);
        let value = self.values[at as usize].take();
        if self.free.len() == self.values.len() {
            self.values = Vec::new();
            self.free = Vec::new();
        }
        value
    }

    /// Everything, in order of offsets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Offset, &T)> + '_ {
        self.range(Offset(0)..Offset(i64::MAX))
    }

    pub(crate) fn range(&self, within: Range<Offset>) -> impl Iterator<Item = (Offset, &T)> + '_ {
        let found = self.index.range(within);
        found.filter_map(|(offset, at)| Some((offset, self.values[at as usize].as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), 0i64..900, 0u8..9), 0..120)) {
            let (mut map, mut model) = (OffsetMap::default(), BTreeMap::new());
            for (adds, offset, value) in steps {
                let offset = Offset(offset);
                if adds {
                    prop_assert_eq!(map.insert(offset, value), model.insert(offset, value));
                } else {
                    prop_assert_eq!(map.remove(offset), model.remove(&offset));
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(map.iter().map(|(at, value)| (at, *value)).eq(model.clone()));
                prop_assert_eq!(map.get(offset), model.get(&offset));
                let (from, to) = (Offset(200), Offset(600));
                let within = map.range(from..to).map(|(at, _)| at);
                prop_assert!(within.eq(model.range(from..to).map(|(at, _)| *at)));
            }
        }
    }
}
