//! After a stop that was not clean: writes the frames into their segments again.
//!
//! Two passes. The first finds what was forgotten later (a truncation, a deletion), because frames
//! before that must not be written; the second writes the rest, in order, where the segment's bytes
//! differ, as the disk has them. Every segment that was touched is synced once. The files go when
//! the next one says how far each log is durable ([`super::WriteAhead::take_over`]). Frames of a
//! segment that cannot be read are set aside for a later start.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, TopicPartition, Uuid};

use super::aside::Aside;
use super::frame::{
    self, ALIGNMENT, Decoded, FIRST_FRAME_AT, FrameKind, HEADER_LEN, Use, frame_bytes,
};
use super::{file_number, file_path, number_in_head};
use crate::disk::{Disk, DiskFile};
use crate::envelope::read_full;
use crate::error::LogError;
use crate::place::FileKind;

const WINDOW_BYTES: usize = 1 << 20;
/// Segments that are open at once.
const OPEN_MAX: usize = 128;

/// What a replay found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Valid frames.
    pub(crate) frames: u64,
    /// Bytes that segments lacked and got.
    pub(crate) repaired_bytes: u64,
    /// Frames whose segment is gone: removed by retention.
    pub(crate) without_segment: u64,
    /// Places where frames that had been synced are unreadable.
    pub(crate) damaged: u64,
    /// Up to where logs that exist were durable for certain.
    pub(crate) durable: BTreeMap<TopicPartition, Durable>,
    /// A number no file had.
    pub(crate) next_number: u64,
    /// The files with lower numbers have been replayed.
    pub(crate) done_below: u64,
    /// The file of frames that could not be replayed, if there are any.
    pub(crate) aside: Option<u64>,
    /// Whose they are, and why.
    pub(crate) unreplayed: BTreeMap<TopicPartition, String>,
}

/// A log's end as a frame knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) segment: Offset,
    pub(crate) position: u64,
    pub(crate) next_offset: Offset,
}

/// Where a log's frames are void from, for frames before the `nth`.
struct Forgotten {
    nth: u64,
    segment: Offset,
    position: u64,
    /// Segments from here on are not meant.
    until: Offset,
}

/// Replays all files in `directory`. `path_of` names a partition's directory, if its topic's
/// exists; `shows_cached`: reads may show what the disk lacks, unless they are told not to.
pub(crate) fn replay<D: Disk>(
    disk: &D,
    directory: &Path,
    directory_id: Uuid,
    shows_cached: bool,
    path_of: impl Fn(TopicPartition) -> Option<PathBuf>,
) -> Result<Replayed, LogError> {
    let names = disk.list(directory).map_err(LogError::io("list", directory))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| file_number(name)).collect();
    numbers.sort_unstable();
    let mut replayed = Replayed { next_number: 1, ..Replayed::default() };
    replayed.next_number = numbers.last().map_or(1, |last| last + 1);
    replayed.done_below = replayed.next_number;
    if numbers.is_empty() {
        return Ok(replayed);
    }
    let files = Files { disk, directory, directory_id, numbers: &numbers, shows_cached };
    let mut forgotten: BTreeMap<TopicPartition, Vec<Forgotten>> = BTreeMap::new();
    let mut nth = 0;
    replayed.damaged = files.for_each(|frame| {
        note(frame, nth, &mut forgotten, &mut replayed);
        nth += 1;
        Ok(())
    })?;
    let mut segments = Segments::new(disk, shows_cached);
    let mut aside = Aside::new(disk, directory, directory_id, replayed.next_number);
    nth = 0;
    files.for_each(|decoded| {
        let frame = &decoded.frame;
        let void_from = forgotten.get(&frame.partition);
        nth += 1;
        if frame.kind != FrameKind::Append {
            return Ok(());
        }
        let keep = valid_bytes(decoded, nth, void_from.map_or(&[], Vec::as_slice));
        let payload = &decoded.payload[..keep];
        if payload.is_empty() {
            return Ok(());
        }
        let path = path_of(frame.partition)
            .map(|partition| FileKind::Segment.path(&partition, frame.segment));
        let Some(path) = path else {
            replayed.without_segment += 1;
            return Ok(());
        };
        if aside.holds(frame.partition) {
            return aside.keep(frame, payload);
        }
        match segments.write(path, frame.position, payload) {
            Ok(Some(repaired)) => replayed.repaired_bytes += repaired,
            Ok(None) => replayed.without_segment += 1,
            Err(error) if error.is_of_one_log() => {
                aside.reasons.insert(frame.partition, error.to_string());
                aside.keep(frame, payload)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    })?;
    if !mutant::is_on(Mutant::ReplayNotSynced) {
        segments.sync_all()?;
    }
    replayed.aside = aside.finish()?;
    replayed.unreplayed = aside.reasons;
    if let Some(number) = replayed.aside {
        replayed.next_number = number + 1;
    }
    // A log that was deleted may be created again, and is another one then.
    let mut gone = Vec::new();
    for partition in replayed.durable.keys() {
        let path = path_of(*partition);
        let is_there = path.as_deref().is_some_and(|path| disk.exists(path).unwrap_or(true));
        if !is_there {
            gone.push(*partition);
        }
    }
    for partition in gone {
        replayed.durable.remove(&partition);
    }
    Ok(replayed)
}

fn note(
    decoded: &Decoded<'_>,
    nth: u64,
    forgotten: &mut BTreeMap<TopicPartition, Vec<Forgotten>>,
    replayed: &mut Replayed,
) {
    let frame = &decoded.frame;
    replayed.frames += 1;
    match frame.kind {
        FrameKind::Append | FrameKind::Mark => {
            let to = frame.end(decoded.payload.len());
            let durable = replayed.durable.entry(frame.partition).or_insert(to);
            if durable.next_offset < to.next_offset {
                *durable = to;
            }
        }
        FrameKind::Forget => {
            let (segment, position) = (frame.segment, frame.position);
            forgotten.entry(frame.partition).or_default().push(Forgotten {
                nth,
                segment,
                position,
                until: Offset(i64::MAX),
            });
            // The checkpoint had been lowered before.
            if let Some(durable) = replayed.durable.get_mut(&frame.partition)
                && frame.offset < durable.next_offset
            {
                *durable = frame.end(0);
            }
        }
        FrameKind::Replaced => {
            let (segment, until) = (frame.segment, frame.next_offset);
            let void = Forgotten { nth, segment, position: 0, until };
            forgotten.entry(frame.partition).or_default().push(void);
        }
    }
}

/// How many bytes of the frame no later forget voids. `nth` counts this frame and those before.
fn valid_bytes(decoded: &Decoded<'_>, nth: u64, forgotten: &[Forgotten]) -> usize {
    let frame = &decoded.frame;
    let mut keep = decoded.payload.len() as u64;
    for void in forgotten.iter().filter(|void| nth <= void.nth && frame.segment < void.until) {
        if void.segment < frame.segment {
            return 0;
        }
        if void.segment == frame.segment {
            keep = keep.min(void.position.saturating_sub(frame.position));
        }
    }
    keep as usize
}

/// The write-ahead files, oldest first.
struct Files<'d, D> {
    disk: &'d D,
    directory: &'d Path,
    directory_id: Uuid,
    numbers: &'d [u64],
    shows_cached: bool,
}

impl<D: Disk> Files<'_, D> {
    /// Calls `act` for every valid frame, in order; returns how many damaged places there were.
    fn for_each(
        &self,
        mut act: impl FnMut(&Decoded<'_>) -> Result<(), LogError>,
    ) -> Result<u64, LogError> {
        let mut damaged = 0;
        for number in self.numbers {
            let path = file_path(self.directory, *number);
            let failed = |source| LogError::io("read", &path)(source);
            let file = self.disk.open(&path).map_err(failed)?;
            if self.shows_cached {
                file.drop_cached(0, u64::MAX).map_err(failed)?;
            }
            let mut head = [0; FIRST_FRAME_AT as usize];
            let read = read_full(&file, &mut head, 0).map_err(failed)?;
            if number_in_head(&head[..read], self.directory_id) != Some(*number) {
                continue;
            }
            let mut window =
                Window::new(&file, Use::new(self.directory_id, *number)).map_err(failed)?;
            loop {
                while let Some(decoded) = window.frame().map_err(failed)? {
                    act(&decoded)?;
                    let bytes = frame_bytes(decoded.payload.len()) as u64;
                    window.position += bytes;
                }
                if !window.skip_damage().map_err(failed)? {
                    break;
                }
                damaged += 1;
            }
        }
        Ok(damaged)
    }
}

/// A part of a write-ahead file in memory, moving forward.
struct Window<'f, F> {
    file: &'f F,
    file_use: Use,
    length: u64,
    position: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl<'f, F: DiskFile> Window<'f, F> {
    fn new(file: &'f F, file_use: Use) -> io::Result<Self> {
        let length = file.len()?;
        let (position, buffer_at) = (FIRST_FRAME_AT, FIRST_FRAME_AT);
        Ok(Window { file, file_use, length, position, buffer: Vec::new(), buffer_at })
    }

    /// The valid frame at the position.
    fn frame(&mut self) -> io::Result<Option<Decoded<'_>>> {
        let file_use = self.file_use;
        let header = self.bytes(HEADER_LEN)?;
        let Some(length) = frame::payload_length(header, file_use) else { return Ok(None) };
        Ok(frame::decode(self.bytes(HEADER_LEN + length)?, file_use))
    }

    /// Up to `wanted` bytes from the position on.
    fn bytes(&mut self, wanted: usize) -> io::Result<&[u8]> {
        let left = self.length.saturating_sub(self.position);
        let wanted = (wanted as u64).min(left) as usize;
        let held = |this: &Self| {
            let skipped = (this.position - this.buffer_at).min(this.buffer.len() as u64) as usize;
            skipped..(skipped + wanted).min(this.buffer.len())
        };
        if held(self).len() < wanted {
            let size = (wanted.max(WINDOW_BYTES) as u64).min(left) as usize;
            self.buffer.resize(size, 0);
            let read = read_full(self.file, &mut self.buffer, self.position)?;
            self.buffer.truncate(read);
            self.buffer_at = self.position;
        }
        let range = held(self);
        Ok(&self.buffer[range])
    }

    /// Where no valid frame is: whether there was one. If so a later valid frame knows that the
    /// file was synced beyond here, and the position moves to the first valid frame.
    fn skip_damage(&mut self) -> io::Result<bool> {
        let broken_at = self.position;
        let mut first_valid = None;
        while self.position + (HEADER_LEN as u64) <= self.length {
            self.position += ALIGNMENT as u64;
            let position = self.position;
            if let Some(decoded) = self.frame()? {
                let is_proof = broken_at < decoded.synced_position;
                let resume = *first_valid.get_or_insert(position);
                if is_proof {
                    self.position = resume;
                    return Ok(true);
                }
            }
        }
        self.position = broken_at;
        Ok(false)
    }
}

/// Segments that are written to; few are open at once, all are synced in the end.
struct Segments<'d, D: Disk> {
    disk: &'d D,
    shows_cached: bool,
    open: BTreeMap<PathBuf, Target<D>>,
    scratch: Vec<u8>,
}

/// A segment; from `true_from` on a read shows what the disk has.
struct Target<D: Disk> {
    file: D::File,
    true_from: u64,
}

impl<'d, D: Disk> Segments<'d, D> {
    fn new(disk: &'d D, shows_cached: bool) -> Self {
        Segments { disk, shows_cached, open: BTreeMap::new(), scratch: Vec::new() }
    }

    /// Writes where the bytes differ; returns how many had to be written, `None` when there is no
    /// such segment.
    fn write(
        &mut self,
        path: PathBuf,
        position: u64,
        payload: &[u8],
    ) -> Result<Option<u64>, LogError> {
        let failed = |source| LogError::io("read", &path)(source);
        if !self.open.contains_key(&path) {
            if !self.disk.exists(&path).map_err(failed)? {
                return Ok(None);
            }
            if self.open.len() == OPEN_MAX {
                self.sync_all()?;
            }
            let file = self.disk.open(&path).map_err(LogError::io("open", &path))?;
            let true_from = if self.shows_cached { u64::MAX } else { 0 };
            self.open.insert(path.clone(), Target { file, true_from });
        }
        let target = self.open.get_mut(&path).expect("just inserted");
        if position < target.true_from {
            let dropped = target.file.drop_cached(position, target.true_from - position);
            dropped.map_err(failed)?;
            target.true_from = position;
        }
        let file = &target.file;
        self.scratch.resize(payload.len(), 0);
        let read = read_full(file, &mut self.scratch, position).map_err(failed)?;
        if self.scratch[..read] == *payload {
            return Ok(Some(0));
        }
        let written = file.write_at(&[IoSlice::new(payload)], position);
        written.map_err(LogError::io("replay into", &path))?;
        Ok(Some(payload.len() as u64))
    }

    fn sync_all(&mut self) -> Result<(), LogError> {
        while let Some((path, target)) = self.open.pop_first() {
            target.file.sync_data().map_err(LogError::io("sync", &path))?;
        }
        Ok(())
    }
}
