//! The state as a whole, as records of the delivery log: they travel to new replicas, and what lies
//! before them may be removed.

use std::sync::Arc;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{FoldError, Offset, Timestamp};

use crate::bytes::{Reader, put_bytes, put_i64, put_option, put_u64};
use crate::dedup::Seen;
use crate::deliveries::{Deliveries, Messages};
use crate::named::Named;
use crate::ranges::OffsetRanges;
use crate::record::{DeadReason, Record, Return, key, put_key};
use crate::settled::SettledSet;
use crate::subscription::{Attempt, Known, Live, Move, Place, Subscription};
use crate::time::QueueTime;

/// Bytes of one part.
const PART_BYTES: usize = 64 << 10;

/// How the bytes of a snapshot are to be read.
pub(crate) const VERSION: u8 = 2;

/// Parts of a snapshot that is being read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    next: u32,
    bytes: Vec<u8>,
}

impl Parts {
    /// Says whether the part continues what was read before.
    pub(crate) fn add(&mut self, part: u32, bytes: &[u8]) -> bool {
        if part == 0 {
            *self = Parts::default();
        }
        if part != self.next {
            return false;
        }
        self.next += 1;
        self.bytes.extend(bytes);
        true
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deliveries {
    /// The records from which a partition of which nothing is known gets this state.
    /// Whoever has folded the log until then is at the same point with the first one, which says what
    /// time it is.
    pub(crate) fn snapshot(&self) -> Vec<Record> {
        let time = Record::Ticked { at: self.clock.last() };
        let bytes = self.to_bytes();
        let parts = bytes.chunks(PART_BYTES);
        let last = parts.len() - 1;
        let part = |(part, bytes): (usize, &[u8])| Record::Snapshot {
            part: u32::try_from(part).expect("fewer parts than 2^32"),
            is_last: part == last,
            bytes: bytes.into(),
        };
        std::iter::once(time).chain(parts.enumerate().map(part)).collect()
    }

    /// The folded state in bytes: equal bytes, equal states. Who waits is not part of it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_u64(&mut out, self.clock.last().0);
        put_u64(&mut out, u64::from(self.next_subscription));
        put_u64(&mut out, u64::from(self.partitions));
        put_u64(&mut out, self.next_lease);
        put_messages(&mut out, &self.messages);
        put_u64(&mut out, self.dedup.len() as u64);
        for (key, seen) in self.dedup.iter() {
            put_key(&mut out, key);
            put_i64(&mut out, seen.offset.0);
            put_u64(&mut out, seen.until.0);
        }
        put_u64(&mut out, self.subscriptions.len() as u64);
        for (number, own) in &self.subscriptions {
            put_u64(&mut out, u64::from(*number));
            put_subscription(&mut out, own);
        }
        out
    }

    /// Takes over a snapshot. What cannot be read is a bug of who wrote it, or of the disk, and the checksums
    /// of the log have found that.
    pub(crate) fn restore(&mut self, bytes: &[u8]) {
        self.read(bytes).expect("a snapshot that passed its checksums can be read");
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), FoldError> {
        let reader = &mut Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Reader::error("the snapshot is of another version"));
        }
        self.clock.told(reader.time()?);
        self.next_subscription = reader.u32()?;
        self.partitions = reader.u32()?;
        self.next_lease = reader.u64()?;
        self.messages = messages(reader)?;
        for _ in 0..reader.count()? {
            let key = key(reader)?;
            let seen = Seen { offset: reader.offset()?, until: reader.time()? };
            self.dedup.insert(key, seen);
        }
        self.subscriptions.clear();
        for _ in 0..reader.count()? {
            let number = reader.u32()?;
            let own = subscription(reader, &self.messages)?;
            self.subscriptions.insert(number, own);
        }
        if reader.is_empty() { Ok(()) } else { Err(Reader::error("the snapshot goes on")) }
    }
}

fn put_messages(out: &mut Vec<u8>, messages: &Messages) {
    put_i64(out, messages.start.0);
    put_i64(out, messages.admitted_to.0);
    put_i64(out, messages.aged_to.0);
    put_u64(out, messages.ages.len() as u64);
    for (first, at) in &messages.ages {
        put_i64(out, first.0);
        put_u64(out, at.0);
    }
    put_settled(out, &messages.void);
    put_i64(out, messages.forgotten_to.0);
    let everything = Offset(0)..Offset(i64::MAX);
    let groups = messages.group_of.range(everything);
    put_u64(out, messages.group_of.range(Offset(0)..Offset(i64::MAX)).count() as u64);
    for (offset, number) in groups {
        put_i64(out, offset.0);
        let name = messages.names.name(crate::groups::GroupNumber(number));
        put_bytes(out, name.map_or(&[], |name| name));
    }
    put_u64(out, messages.priorities.len() as u64);
    for (offset, priority) in &messages.priorities {
        put_i64(out, offset.0);
        out.push(*priority);
    }
    put_u64(out, messages.delayed);
    for (until, offset) in messages.delays.iter() {
        put_u64(out, until.0);
        put_i64(out, offset.0);
    }
    put_u64(out, messages.expires.len() as u64);
    for (offset, at) in &messages.expires {
        put_i64(out, offset.0);
        put_u64(out, at.0);
    }
}

fn messages(reader: &mut Reader<'_>) -> Result<Messages, FoldError> {
    let mut messages = Messages {
        start: reader.offset()?,
        admitted_to: reader.offset()?,
        aged_to: reader.offset()?,
        ..Messages::default()
    };
    for _ in 0..reader.count()? {
        messages.ages.push_back((reader.offset()?, reader.time()?));
    }
    messages.void = settled(reader)?;
    messages.forgotten_to = reader.offset()?;
    for _ in 0..reader.count()? {
        let offset = reader.offset()?;
        let number = messages.names.hold(&reader.blob()?);
        messages.group_of.insert(offset, number.0);
    }
    for _ in 0..reader.count()? {
        messages.priorities.insert(reader.offset()?, reader.u8()?);
    }
    messages.delayed = reader.count()? as u64;
    for _ in 0..messages.delayed {
        let (until, offset) = (reader.time()?, reader.offset()?);
        let is_forgotten = mutant::is_on(Mutant::SnapshotWithoutDelays);
        let until = if is_forgotten { QueueTime::default() } else { until };
        messages.delays.add(until, offset);
        if messages.group_of.get(offset).is_some() {
            messages.early.insert(offset, until);
        }
    }
    for _ in 0..reader.count()? {
        let (offset, at) = (reader.offset()?, reader.time()?);
        messages.expires.insert(offset, at);
        // One that is over already is looked at by whoever leads next.
        messages.expiries.add(at, offset);
    }
    Ok(messages)
}

fn put_settled(out: &mut Vec<u8>, set: &SettledSet) {
    put_i64(out, set.start().0);
    put_runs(out, set.runs());
}

fn settled(reader: &mut Reader<'_>) -> Result<SettledSet, FoldError> {
    let mut set = SettledSet::starting_at(reader.offset()?);
    runs(reader)?.into_iter().for_each(|run| set.insert_run(run));
    Ok(set)
}

fn put_runs<'a>(out: &mut Vec<u8>, runs: impl Iterator<Item = std::ops::Range<Offset>> + 'a) {
    let runs: Vec<_> = runs.collect();
    put_u64(out, runs.len() as u64);
    for run in runs {
        put_i64(out, run.start.0);
        put_u64(out, (run.end - run.start) as u64);
    }
}

fn runs(reader: &mut Reader<'_>) -> Result<Vec<std::ops::Range<Offset>>, FoldError> {
    reader.list(|reader| {
        let start = reader.offset()?;
        let length =
            i64::try_from(reader.u64()?).map_err(|_| Reader::error("a run is too long"))?;
        let end = start.0.checked_add(length).ok_or_else(|| Reader::error("a run is too long"))?;
        Ok(start..Offset(end))
    })
}

fn put_subscription(out: &mut Vec<u8>, own: &Subscription) {
    put_bytes(out, own.name.as_bytes());
    put_settled(out, &own.settled);
    // Those that came back stand below, with what is known of them.
    let is_new = |offset: &Offset| own.live.get(*offset).is_none();
    put_u64(out, own.ready.len() as u64);
    for (priority, ready) in &own.ready {
        out.push(priority.0);
        let mut ready = ready.clone();
        let live: Vec<Offset> = ready.iter().filter(|offset| !is_new(offset)).collect();
        live.into_iter().for_each(|offset| {
            ready.remove(offset);
        });
        put_runs(out, ready.runs());
    }
    let in_groups: OffsetRanges =
        own.groups.iter().map(|(_, offset)| offset).filter(is_new).collect();
    put_runs(out, in_groups.runs());
    put_u64(out, own.live.len() as u64);
    for (offset, live) in own.live.iter() {
        put_i64(out, offset.0);
        put_live(out, live);
    }
    put_u64(out, own.moving.len() as u64);
    for (offset, Move { to, reason, note }) in own.moving.iter() {
        put_i64(out, offset.0);
        put_bytes(out, to.as_bytes());
        out.push(reason.byte());
        put_option(out, note.as_deref(), |out, note| put_bytes(out, note.as_bytes()));
    }
    put_u64(out, own.named.len() as u64);
    for (name, Named { at, first_lease, offsets }) in own.named.iter() {
        put_bytes(out, name);
        put_u64(out, at.0);
        put_u64(out, *first_lease);
        crate::bytes::put_offsets(out, offsets.iter().copied());
    }
}

fn put_live(out: &mut Vec<u8>, live: &Live) {
    let Live { place, lease, leased_at, receives, first_received, holder, history } = live;
    match place {
        Place::Leased { until } => {
            out.push(0);
            put_u64(out, until.0);
        }
        Place::Ready => out.push(1),
        Place::Delayed { until } => {
            out.push(2);
            put_u64(out, until.0);
        }
        Place::Moving => out.push(3),
    }
    put_u64(out, *lease);
    put_u64(out, leased_at.0);
    put_u64(out, u64::from(*receives));
    put_i64(out, first_received.0);
    put_bytes(out, holder.as_bytes());
    put_u64(out, history.len() as u64);
    for Attempt { received_at, returned_at, holder, why, note } in history {
        put_u64(out, received_at.0);
        put_u64(out, returned_at.0);
        put_bytes(out, holder.as_bytes());
        out.push(why.byte());
        put_option(out, note.as_deref(), |out, note| put_bytes(out, note.as_bytes()));
    }
}

fn live(reader: &mut Reader<'_>) -> Result<Live, FoldError> {
    Ok(Live {
        place: match reader.u8()? {
            0 => match reader.time()? {
                _ if mutant::is_on(Mutant::SnapshotWithoutLeases) => Place::Ready,
                until => Place::Leased { until },
            },
            1 => Place::Ready,
            2 => Place::Delayed { until: reader.time()? },
            3 => Place::Moving,
            _ => return Err(Reader::error("unknown place of a message")),
        },
        lease: reader.u64()?,
        leased_at: reader.time()?,
        receives: match reader.u32()? {
            _ if mutant::is_on(Mutant::SnapshotWithoutCounts) => 0,
            receives => receives,
        },
        first_received: Timestamp(reader.i64()?),
        holder: reader.text()?,
        history: reader.list(|reader| {
            Ok(Attempt {
                received_at: reader.time()?,
                returned_at: reader.time()?,
                holder: reader.text()?,
                why: Return::from_byte(reader.u8()?)?,
                note: reader.option(Reader::text)?,
            })
        })?,
    })
}

fn subscription(reader: &mut Reader<'_>, known: &Messages) -> Result<Subscription, FoldError> {
    let name = reader.text()?;
    let mut own = Subscription::new(name, Offset::ZERO);
    own.settled = settled(reader)?;
    for _ in 0..reader.count()? {
        let priority = reader.u8()?;
        for run in runs(reader)? {
            own.ready.entry(std::cmp::Reverse(priority)).or_default().insert_run(run);
        }
    }
    for run in runs(reader)? {
        for offset in run.start.0..run.end.0 {
            let offset = Offset(offset);
            let Some(group) = known.group(offset) else {
                return Err(Reader::error("a message stands in no group"));
            };
            own.enter(group, offset, known);
        }
    }
    for _ in 0..reader.count()? {
        let offset = reader.offset()?;
        let live = live(reader)?;
        own.restore(offset, live, known);
    }
    for _ in 0..reader.count()? {
        let offset = reader.offset()?;
        let (to, reason) = (reader.text()?, DeadReason::from_byte(reader.u8()?)?);
        let note = reader.option(Reader::text)?;
        let is_forgotten = mutant::is_on(Mutant::SnapshotWithoutMoves);
        if !is_forgotten {
            own.moving.insert(offset, Move { to, reason, note });
        }
    }
    let mut named: Vec<(Arc<[u8]>, Named)> = Vec::new();
    for _ in 0..reader.count()? {
        let name = reader.blob()?;
        let at: QueueTime = reader.time()?;
        let first_lease = reader.u64()?;
        named.push((name, Named { at, first_lease, offsets: reader.offsets()? }));
    }
    named.sort_by_key(|(_, named)| named.at);
    named.into_iter().for_each(|(name, named)| own.named.insert(name, named));
    own.count_early(known.delayed_offsets(), known);
    Ok(own)
}
