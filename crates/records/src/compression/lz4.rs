//! The LZ4 frame format, as far as Kafka has it: one frame of independent blocks.
//!
//! The frame is walked here because a reader behind `std::io::Read` allocates the block size that
//! the frame declares, up to 12 MiB for a frame of 20 bytes; this one decodes straight into the
//! output. Linked blocks and frames after the first are refused: Java's consumers can read neither
//! (they fail on the former and stop silently before the latter).
//!
//! ```text
//! magic u32 LE │ flags, block size, [content size u64], header checksum u8
//! blocks: length u32 LE (high bit: stored as is), bytes, [checksum u32]    … length 0 ends them
//! [content checksum u32]
//! ```

use std::io::Write;

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use super::{Compression, CompressionError};

const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT_BLOCKS: u8 = 1 << 5;
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const RESERVED_FLAG: u8 = 1 << 1;
const DICTIONARY: u8 = 1;
/// High bit of a block length: the block is stored as it is.
const STORED: u32 = 1 << 31;
/// One byte of a match length stands for at most 255 bytes, so no block grows by more.
const EXPANSION_MAX: usize = 255;

struct Frame {
    block_bytes_max: usize,
    block_checksums: bool,
    content_checksum: bool,
    content_size: Option<u64>,
}

pub(super) fn decode(bytes: &[u8], cap: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let mut rest = bytes;
    let frame = take_frame_header(&mut rest)?;
    loop {
        let length = u32::from_le_bytes(take(&mut rest)?);
        if length == 0 {
            break;
        }
        let block = take_slice(&mut rest, (length & !STORED) as usize)?;
        if frame.block_bytes_max < block.len() {
            return Err(damaged("a block is larger than the frame allows"));
        }
        if frame.block_checksums {
            check(block, take(&mut rest)?, "a block checksum differs")?;
        }
        if length & STORED != 0 {
            append_stored(block, cap, out)?;
        } else {
            append_compressed(block, frame.block_bytes_max, cap, out)?;
        }
    }
    if frame.content_size.is_some_and(|size| size != out.len() as u64) {
        return Err(damaged("the content has another size than declared"));
    }
    if frame.content_checksum {
        check(out, take(&mut rest)?, "the content checksum differs")?;
    }
    if !rest.is_empty() {
        return Err(damaged("bytes follow the frame"));
    }
    Ok(())
}

fn take_frame_header(rest: &mut &[u8]) -> Result<Frame, CompressionError> {
    if take::<4>(rest)? != MAGIC {
        return Err(damaged("it does not begin with the frame magic"));
    }
    let descriptor = *rest;
    let [flags, block_size] = take(rest)?;
    if flags & VERSION_MASK != VERSION || flags & RESERVED_FLAG != 0 {
        return Err(damaged("the frame version is unknown"));
    }
    if flags & DICTIONARY != 0 {
        return Err(damaged("it needs a dictionary"));
    }
    if flags & INDEPENDENT_BLOCKS == 0 {
        return Err(damaged("its blocks are linked, which Kafka's clients cannot read"));
    }
    // 4 to 7 stand for 64 KiB, 256 KiB, 1 MiB and 4 MiB; every other bit is reserved.
    let block_bytes_max = match block_size {
        0x40 => 64 << 10,
        0x50 => 256 << 10,
        0x60 => 1 << 20,
        0x70 => 4 << 20,
        _ => return Err(damaged("the block size is unknown")),
    };
    let content_size =
        if flags & CONTENT_SIZE == 0 { None } else { Some(u64::from_le_bytes(take(rest)?)) };
    let descriptor = &descriptor[..descriptor.len() - rest.len()];
    let [checksum] = take(rest)?;
    if checksum != (XxHash32::oneshot(0, descriptor) >> 8) as u8 {
        return Err(damaged("the frame header checksum differs"));
    }
    Ok(Frame {
        block_bytes_max,
        block_checksums: flags & BLOCK_CHECKSUMS != 0,
        content_checksum: flags & CONTENT_CHECKSUM != 0,
        content_size,
    })
}

fn append_stored(block: &[u8], cap: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    if cap - out.len() < block.len() {
        return Err(CompressionError::TooLarge { cap });
    }
    out.extend_from_slice(block);
    Ok(())
}

fn append_compressed(
    block: &[u8],
    block_bytes_max: usize,
    cap: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let start = out.len();
    let size_max = block_bytes_max.min(block.len() * EXPANSION_MAX);
    let room = size_max.min(cap - start);
    out.resize(start + room, 0);
    match lz4_flex::block::decompress_into(block, &mut out[start..]) {
        Ok(made) => {
            out.truncate(start + made);
            Ok(())
        }
        Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < size_max => {
            Err(CompressionError::TooLarge { cap })
        }
        Err(_) => Err(damaged("a block is not lz4")),
    }
}

fn check(bytes: &[u8], stored: [u8; 4], problem: &'static str) -> Result<(), CompressionError> {
    if XxHash32::oneshot(0, bytes) == u32::from_le_bytes(stored) {
        Ok(())
    } else {
        Err(damaged(problem))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], CompressionError> {
    let (taken, after) = rest.split_first_chunk().ok_or(damaged("it is cut off"))?;
    *rest = after;
    Ok(*taken)
}

fn take_slice<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], CompressionError> {
    let (taken, after) = rest.split_at_checked(len).ok_or(damaged("it is cut off"))?;
    *rest = after;
    Ok(taken)
}

fn damaged(problem: &'static str) -> CompressionError {
    CompressionError::damaged(Compression::Lz4, problem)
}

pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let frame = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(frame, out);
    encoder.write_all(bytes).expect("writing to a Vec does not fail");
    encoder.finish().expect("writing to a Vec does not fail");
}
