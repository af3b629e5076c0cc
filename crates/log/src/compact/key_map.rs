//! The newest offset of each key, within a fixed number of bytes.
//!
//! ```text
//!  slots    1 + number of an entry, or 0         open addressing, grown by doubling
//!  entries  hash, offset, place of the key       in chunks, so that nothing is copied to grow
//!  keys     the keys themselves                  in chunks
//! ```
//!
//! Keys are compared whole. A hash would take less room, and two keys with one hash would cost a
//! record; strangers choose the keys. The hash is seeded, so that they cannot choose slow ones.

use std::hash::{BuildHasher, RandomState};

use towpath_model::Offset;

const ENTRY_BYTES: usize = size_of::<Entry>();
const SLOT_BYTES: usize = size_of::<u32>();
const CHUNK_BYTES_MAX: usize = 64 << 10;
const SLOTS_MIN: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: Offset,
    hash: u32,
    chunk: u32,
    at: u32,
    len: u32,
}

/// There is no room for another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// Invariant: `bytes() <= bytes_max`, also while it grows.
#[derive(Debug)]
pub(super) struct KeyMap {
    bytes_max: usize,
    chunk_bytes: usize,
    hasher: RandomState,
    slots: Vec<u32>,
    entries: Vec<Vec<Entry>>,
    len: usize,
    keys: Vec<Vec<u8>>,
    key_bytes: usize,
}

impl KeyMap {
    /// Least bytes with which a map of any use can be made.
    pub(super) const BYTES_MIN: usize = 16 << 10;

    /// At least [`Self::BYTES_MIN`] bytes at most.
    pub(super) fn new(bytes_max: usize) -> KeyMap {
        let bytes_max = bytes_max.max(Self::BYTES_MIN);
        KeyMap {
            bytes_max,
            chunk_bytes: (bytes_max / 16).min(CHUNK_BYTES_MAX),
            hasher: RandomState::new(),
            slots: vec![0; SLOTS_MIN],
            entries: Vec::new(),
            len: 0,
            keys: Vec::new(),
            key_bytes: 0,
        }
    }

    /// Whether a key is small enough to be in any map of this size. One that is not stays in the
    /// log with all of its records.
    pub(super) fn can_hold(&self, key: &[u8]) -> bool {
        key.len() <= self.bytes_max / 4
    }

    /// Takes note of a record; later ones of its key come later.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> Result<(), Full> {
        let hash = self.hash_of(key);
        if let Some(entry) = self.find(key, hash).map(|nth| self.entry_mut(nth)) {
            entry.offset = entry.offset.max(offset);
            return Ok(());
        }
        self.make_room(key.len())?;
        let (chunk, at) = self.store(key);
        let (nth, len) = (self.len, key.len() as u32);
        self.len += 1;
        let newest = self.entries.last_mut().expect("room was made");
        newest.push(Entry { offset, hash, chunk, at, len });
        place(&mut self.slots, hash, nth);
        Ok(())
    }

    /// The newest offset of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Offset> {
        let nth = self.find(key, self.hash_of(key))?;
        Some(self.entry(nth).offset)
    }

    /// Keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let entries = self.entries.len() * self.entries_per_chunk() * ENTRY_BYTES;
        self.slots.len() * SLOT_BYTES + entries + self.key_bytes
    }

    fn entries_per_chunk(&self) -> usize {
        (self.chunk_bytes / ENTRY_BYTES).max(1)
    }

    fn hash_of(&self, key: &[u8]) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    fn entry(&self, nth: usize) -> &Entry {
        let per_chunk = self.entries_per_chunk();
        &self.entries[nth / per_chunk][nth % per_chunk]
    }

    fn entry_mut(&mut self, nth: usize) -> &mut Entry {
        let per_chunk = self.entries_per_chunk();
        &mut self.entries[nth / per_chunk][nth % per_chunk]
    }

    fn find(&self, key: &[u8], hash: u32) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // There is always an empty slot.
        while let Some(nth) = (self.slots[at] as usize).checked_sub(1) {
            let entry = self.entry(nth);
            if entry.hash == hash && self.key(entry) == key {
                return Some(nth);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        let at = entry.at as usize;
        &self.keys[entry.chunk as usize][at..at + entry.len as usize]
    }

    fn make_room(&mut self, key_bytes: usize) -> Result<(), Full> {
        let mut more = 0;
        let needs_entries = self.len == self.entries.len() * self.entries_per_chunk();
        if needs_entries {
            more += self.entries_per_chunk() * ENTRY_BYTES;
        }
        let left = self.keys.last().map_or(0, |chunk| chunk.capacity() - chunk.len());
        let needs_keys = self.keys.is_empty() || left < key_bytes;
        if needs_keys {
            more += self.chunk_bytes.max(key_bytes);
        }
        if self.bytes_max < self.bytes() + more || u32::MAX as usize <= self.len + 1 {
            return Err(Full);
        }
        if self.slots.len() * 3 / 4 <= self.len {
            self.grow_slots(more)?;
        }
        if needs_entries {
            self.entries.push(Vec::with_capacity(self.entries_per_chunk()));
        }
        if needs_keys {
            let chunk = Vec::with_capacity(self.chunk_bytes.max(key_bytes));
            self.key_bytes += chunk.capacity();
            self.keys.push(chunk);
        }
        Ok(())
    }

    /// Where there is no room for the old and the new slots together, the old ones get fuller.
    fn grow_slots(&mut self, more: usize) -> Result<(), Full> {
        let doubled = self.slots.len() * 2;
        if self.bytes_max < self.bytes() + more + doubled * SLOT_BYTES {
            let is_full = self.slots.len() * 15 / 16 <= self.len;
            return if is_full { Err(Full) } else { Ok(()) };
        }
        let mut slots = vec![0; doubled];
        let entries = self.entries.iter().flatten();
        entries.enumerate().for_each(|(nth, entry)| place(&mut slots, entry.hash, nth));
        self.slots = slots;
        Ok(())
    }

    fn store(&mut self, key: &[u8]) -> (u32, u32) {
        let nth = self.keys.len() - 1;
        let chunk = &mut self.keys[nth];
        let at = chunk.len();
        chunk.extend_from_slice(key);
        (nth as u32, at as u32)
    }
}

fn place(slots: &mut [u32], hash: u32, nth: usize) {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while slots[at] != 0 {
        at = (at + 1) & mask;
    }
    slots[at] = nth as u32 + 1;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_knows_what_a_map_knows_until_it_is_full() {
        for bytes_max in [KeyMap::BYTES_MIN, 100_000, 3_000_000] {
            let mut map = KeyMap::new(bytes_max);
            let mut model = BTreeMap::new();
            let mut refused = 0;
            for n in 0..60_000_i64 {
                // Keys of 0 to 40 bytes, many of them again and again.
                let number = (n * n + 17 * n) % 20_011;
                let key = format!("{number:040}").into_bytes();
                let key = &key[..(number % 41) as usize];
                match map.put(key, Offset(n)) {
                    Ok(()) => drop(model.insert(key.to_vec(), Offset(n))),
                    Err(Full) => {
                        refused += 1;
                        assert!(!model.contains_key(key), "a known key needs no room");
                    }
                }
                assert!(map.bytes() <= bytes_max);
            }
            assert_eq!(map.len(), model.len());
            for (key, offset) in &model {
                assert_eq!(map.get(key), Some(*offset));
            }
            assert_eq!(map.get(b"never"), None);
            assert!(bytes_max / 150 < map.len() || refused == 0, "{} keys", map.len());
        }
    }

    #[test]
    fn a_key_that_it_can_hold_always_fits_an_empty_map() {
        let mut map = KeyMap::new(0);
        let key = vec![1; KeyMap::BYTES_MIN / 4];
        assert!(map.can_hold(&key));
        assert_eq!(map.put(&key, Offset(1)), Ok(()));
        assert!(!map.can_hold(&vec![1; KeyMap::BYTES_MIN / 4 + 1]));
    }
}
