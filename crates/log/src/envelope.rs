//! The frame around every small file of ours: kind, version, format level, length, checksum.
//!
//! See `docs/file-formats.md` §2. It only says whether bytes are what was written; what they mean
//! is each file's own matter.

use std::io::{self, IoSlice};
use std::path::Path;

use towpath_records::crc::crc32c;

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;

/// Bytes before the payload.
pub(crate) const HEADER_LEN: usize = 16;
/// Format level of what this version writes, and the highest that it reads.
pub(crate) const FORMAT_LEVEL: u16 = 1;
/// Version of every kind of envelope so far.
pub(crate) const VERSION: u16 = 1;

const CRC_AT: usize = 4;
/// The checksum covers everything from here on.
const CHECKED_FROM: usize = 8;

/// Which file an envelope is from.
pub(crate) type Kind = [u8; 4];

/// Why bytes are not the envelope that was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Cut off, another kind, or a wrong checksum.
    Damaged,
    /// Whole, but written by another version.
    Version { what: &'static str, found: u16, known: u16 },
}

/// Puts a payload into an envelope.
pub(crate) fn seal(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("our own files are far below 4 GiB");
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len());
    out.extend_from_slice(&kind);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&FORMAT_LEVEL.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(payload);
    let crc = crc32c(&out[CHECKED_FROM..]);
    out[CRC_AT..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
    out
}

/// Takes the payload out of the envelope at the start of `bytes`.
pub(crate) fn open(kind: Kind, bytes: &[u8]) -> Result<&[u8], Unreadable> {
    let header = bytes.first_chunk::<HEADER_LEN>().ok_or(Unreadable::Damaged)?;
    let mut fields = Payload(&header[CRC_AT..]);
    let stored = fields.u32().expect("the header is long enough");
    let version = fields.u16().expect("the header is long enough");
    let level = fields.u16().expect("the header is long enough");
    let length = fields.u32().expect("the header is long enough") as usize;
    let whole = bytes.get(..HEADER_LEN + length).ok_or(Unreadable::Damaged)?;
    if header[..CRC_AT] != kind || crc32c(&whole[CHECKED_FROM..]) != stored {
        return Err(Unreadable::Damaged);
    }
    if version != VERSION {
        return Err(Unreadable::Version { what: "version", found: version, known: VERSION });
    }
    if FORMAT_LEVEL < level {
        let what = "format level";
        return Err(Unreadable::Version { what, found: level, known: FORMAT_LEVEL });
    }
    Ok(&whole[HEADER_LEN..])
}

/// Reads a file of at most `bytes_max` bytes; `None` when it does not exist or is larger.
pub(crate) fn read_file<D: Disk>(
    disk: &D,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, LogError> {
    let failed = |source| LogError::io("read", path)(source);
    if !disk.exists(path).map_err(failed)? {
        return Ok(None);
    }
    let file = disk.open(path).map_err(failed)?;
    let length = file.len().map_err(failed)?;
    if bytes_max < length {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    let found = read_full(&file, &mut bytes, 0).map_err(failed)?;
    bytes.truncate(found);
    Ok(Some(bytes))
}

/// Lets the next read of a file, if it exists, show what the disk has.
pub(crate) fn drop_cached<D: Disk>(disk: &D, path: &Path) -> Result<(), LogError> {
    let drop = || {
        if disk.exists(path)? { disk.open(path)?.drop_cached(0, u64::MAX) } else { Ok(()) }
    };
    drop().map_err(LogError::io("read", path))
}

/// Reads until `buffer` is full or the file ends; returns how many bytes that were.
pub(crate) fn read_full(
    file: &impl DiskFile,
    buffer: &mut [u8],
    position: u64,
) -> io::Result<usize> {
    fill(buffer, |rest, filled| file.read_at(rest, position + filled))
}

/// As [`read_full`], but fails with `WouldBlock` before it waits for the device.
pub(crate) fn read_resident(
    file: &impl DiskFile,
    buffer: &mut [u8],
    position: u64,
) -> io::Result<usize> {
    fill(buffer, |rest, filled| file.read_resident_at(rest, position + filled))
}

/// Calls `read` with what is left of `buffer` and how much is filled, until nothing is left or
/// nothing more comes.
fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], filled as u64)? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    Ok(filled)
}

/// Replaces a file as a whole: after a crash either the old or the new one is there, and after
/// this returns, the new one.
pub(crate) fn replace_file<D: Disk>(disk: &D, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let directory = path.parent().expect("a file of ours lies in a directory");
    let unfinished = path.with_extension("tmp");
    let failed = LogError::io("write", path);
    let write = || {
        if disk.exists(&unfinished)? {
            disk.remove_file(&unfinished)?;
        }
        let file = disk.create(&unfinished)?;
        file.write_at(&[IoSlice::new(bytes)], 0)?;
        file.sync_data()?;
        disk.rename(&unfinished, path)?;
        disk.sync_dir(directory)
    };
    write().map_err(failed)
}

/// Takes numbers and texts out of a payload; `None` when it ends too early.
pub(crate) struct Payload<'a>(pub(crate) &'a [u8]);

impl<'a> Payload<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.u16()?;
        let (taken, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        std::str::from_utf8(taken).ok()
    }
}

/// Appends a text as payloads carry it.
///
/// # Panics
/// When it has more than 65,535 bytes: ids of clusters and of boots are far shorter.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("ids are short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let sealed = seal(*b"TPck", b"payload");
        assert_eq!(open(*b"TPck", &sealed), Ok(&b"payload"[..]));
        assert_eq!(open(*b"TPix", &sealed), Err(Unreadable::Damaged));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open(*b"TPck", &flipped).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(open(*b"TPck", &sealed[..length]), Err(Unreadable::Damaged));
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut sealed = seal(*b"TPfm", b"x");
        sealed[9] = 2;
        let crc = crc32c(&sealed[CHECKED_FROM..]);
        sealed[CRC_AT..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
        let expected = Unreadable::Version { what: "version", found: 2, known: 1 };
        assert_eq!(open(*b"TPfm", &sealed), Err(expected));
    }
}
