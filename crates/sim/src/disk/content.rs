//! One file's bytes, three times over: what the disk has, what a reader sees, what lies between.
//!
//! ```text
//! durable ── pending changes, in order ──▶ cached        sync: durable takes every pending change
//!                                                        power loss: it takes some sectors of some
//!                                                        kill -9: nothing happens, the cache stays
//! ```
//!
//! After a failed sync `cached` and `durable` differ although nothing is pending, as on ext4: the
//! pages count as clean, and the next sync succeeds without writing them. Only who drops them from
//! the cache, or a power loss, sees what the disk has.

use super::fate::{Fate, SECTOR_BYTES};
use crate::events::Events;
use crate::rng::Rng;

/// What a cache keeps or drops as a whole.
const PAGE_BYTES: usize = 4096;

/// The bytes of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    durable: Vec<u8>,
    cached: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { position, bytes: written } => put(bytes, *position, written),
            Change::Length(length) => bytes.resize(*length, 0),
        }
    }
}

impl Content {
    /// What a reader sees.
    pub(super) fn cached(&self) -> &[u8] {
        &self.cached
    }

    /// What no power loss can take.
    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn write(&mut self, position: usize, bytes: &[u8]) {
        self.change(Change::Write { position, bytes: bytes.to_vec() });
    }

    pub(super) fn set_len(&mut self, length: usize) {
        if length != self.cached.len() {
            self.change(Change::Length(length));
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.pending.push(change);
    }

    /// Everything written so far is on the disk now.
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A sync that failed: some of it may have been written, and all of it counts as clean.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        let written = self.after_power_loss(rng, &mut Events::new());
        self.durable = written;
        self.pending.clear();
    }

    /// Clean pages of `[from, to)` are read from the disk again; says whether that showed other
    /// bytes. The pages of a file with pending changes count as dirty, and stay.
    pub(super) fn drop_cached(&mut self, from: usize, to: usize) -> bool {
        if !self.pending.is_empty() || self.cached == self.durable {
            return false;
        }
        let from = (from - from % PAGE_BYTES).min(self.durable.len());
        let to = to.checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        let to = to.clamp(from, self.durable.len());
        let before = self.cached.clone();
        // What a failed sync has lost of the length shows at once.
        self.cached.resize(self.durable.len(), 0);
        self.cached[from..to].copy_from_slice(&self.durable[from..to]);
        self.cached != before
    }

    /// The power went: the disk keeps some of the pending sectors, readers see what it kept.
    pub(super) fn lose_power(&mut self, rng: &mut Rng, events: &mut Events) {
        self.durable = self.after_power_loss(rng, events);
        self.pending.clear();
        self.cached.clone_from(&self.durable);
    }

    /// Flips one bit on the disk and in the cache, below anything that notices (fault F4).
    pub(super) fn flip_bit(&mut self, position: usize, bit: u8) {
        for bytes in [&mut self.durable, &mut self.cached] {
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= 1 << (bit & 7);
            }
        }
    }

    fn after_power_loss(&self, rng: &mut Rng, events: &mut Events) -> Vec<u8> {
        let mut left = self.durable.clone();
        if self.pending.is_empty() {
            return left;
        }
        let pieces: Vec<Piece<'_>> =
            self.pending.iter().enumerate().flat_map(|(of, change)| pieces(of, change)).collect();
        let fate = Fate::draw(rng);
        let kept = fate.keeps(rng, pieces.len());
        for (piece, _) in pieces.iter().zip(&kept).filter(|(_, kept)| **kept) {
            piece.apply(&mut left);
        }
        count(&pieces, &kept, self.pending.len(), events);
        if fate != Fate::LoseAll {
            spoil_the_last_lost_sector(&pieces, &kept, &mut left, rng, events);
        }
        if left.len() < self.cached.len() && rng.percent(30) {
            events.note("disk: length kept without its bytes");
            let length = rng.between(left.len() as u64, self.cached.len() as u64) as usize;
            left.resize(length, 0);
        }
        left
    }
}

/// The part of a pending change that reaches the disk whole or not at all.
struct Piece<'a> {
    of: usize,
    part: Part<'a>,
}

enum Part<'a> {
    Sector { position: usize, bytes: &'a [u8] },
    Length(usize),
}

impl Piece<'_> {
    fn apply(&self, left: &mut Vec<u8>) {
        match self.part {
            Part::Sector { position, bytes } => put(left, position, bytes),
            Part::Length(length) => left.resize(length, 0),
        }
    }
}

fn pieces(of: usize, change: &Change) -> Vec<Piece<'_>> {
    match change {
        Change::Length(length) => vec![Piece { of, part: Part::Length(*length) }],
        Change::Write { position, bytes } => {
            let mut out = Vec::new();
            let mut at = 0;
            while at < bytes.len() {
                let sector = SECTOR_BYTES as usize;
                let room = sector - (position + at) % sector;
                let end = (at + room).min(bytes.len());
                out.push(Piece {
                    of,
                    part: Part::Sector { position: position + at, bytes: &bytes[at..end] },
                });
                at = end;
            }
            out
        }
    }
}

/// A sector that was under the head when the power went: zeros or noise where the new bytes
/// should be. What was durable in the same sector stays, as drives promise for a single sector.
fn spoil_the_last_lost_sector(
    pieces: &[Piece<'_>],
    kept: &[bool],
    left: &mut Vec<u8>,
    rng: &mut Rng,
    events: &mut Events,
) {
    let lost = pieces.iter().zip(kept).rev().find_map(|(piece, kept)| match piece.part {
        Part::Sector { position, bytes } if !*kept => Some((position, bytes.len())),
        _ => None,
    });
    let Some((position, len)) = lost else { return };
    let mut spoiled = vec![0; len];
    match rng.below(5) {
        0 => {
            events.note("disk: last sector is noise");
            rng.fill(&mut spoiled);
        }
        1 => events.note("disk: last sector is zero"),
        _ => return,
    }
    put(left, position, &spoiled);
}

fn count(pieces: &[Piece<'_>], kept: &[bool], changes: usize, events: &mut Events) {
    let mut seen = vec![(0u64, 0u64); changes];
    let mut out_of_order = false;
    let mut lost_before = false;
    for (piece, kept) in pieces.iter().zip(kept) {
        let (whole, survived) = &mut seen[piece.of];
        *whole += 1;
        *survived += u64::from(*kept);
        out_of_order |= *kept && lost_before;
        lost_before |= !*kept;
    }
    for (whole, survived) in seen {
        if survived == 0 {
            events.note("disk: write forgotten");
        } else if survived < whole {
            events.note("disk: write torn");
        } else {
            events.note("disk: unsynced write kept");
        }
    }
    if out_of_order {
        events.note("disk: writes kept out of order");
    }
}

/// Writes into `bytes`, growing it with zeros where `position` lies beyond its end.
fn put(bytes: &mut Vec<u8>, position: usize, written: &[u8]) {
    let end = position + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[position..end].copy_from_slice(written);
}
