//! Snappy, in both dresses it has in Kafka.
//!
//! Java wraps blocks of raw snappy in a frame of its own ("Xerial": 8 bytes of magic, version 1,
//! oldest compatible version 1, then blocks with an i32 length each); Go, Node and Python clients
//! mostly send one raw block. Both are read, told apart by the magic: a raw block cannot begin so,
//! its first element would copy from before the start.

use super::{Compression, CompressionError};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const FRAME_HEADER_LEN: usize = 16;
const FRAME_VERSION: i32 = 1;
/// Java's block size.
const BLOCK_BYTES: usize = 32 << 10;
/// An element of 3 bytes makes at most 64, so no block grows by more than this factor.
const EXPANSION_MAX: usize = 22;

#[derive(Default)]
pub(super) struct Decoder(snap::raw::Decoder);

impl Decoder {
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        cap: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        if !bytes.starts_with(&MAGIC) {
            return self.decode_block(bytes, cap, out);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            // Java's writer starts a new frame when streams are joined; its reader skips them.
            if rest.starts_with(&MAGIC) {
                rest = after_frame_header(rest)?;
                continue;
            }
            let (block, after) = take_block(rest)?;
            self.decode_block(block, cap, out)?;
            rest = after;
        }
        Ok(())
    }

    fn decode_block(
        &mut self,
        block: &[u8],
        cap: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        let declared =
            snap::raw::decompress_len(block).map_err(|_| damaged("a block has no valid length"))?;
        if EXPANSION_MAX * block.len() < declared {
            return Err(damaged("a block declares more than it can hold"));
        }
        let start = out.len();
        if cap - start < declared {
            return Err(CompressionError::TooLarge { cap });
        }
        out.resize(start + declared, 0);
        let made = self
            .0
            .decompress(block, &mut out[start..])
            .map_err(|_| damaged("a block is not snappy"))?;
        out.truncate(start + made);
        Ok(())
    }
}

fn after_frame_header(bytes: &[u8]) -> Result<&[u8], CompressionError> {
    let header =
        bytes.first_chunk::<FRAME_HEADER_LEN>().ok_or(damaged("the frame header is cut off"))?;
    // Of the two versions in it, Java looks at the writer's only; others look at none.
    let version = i32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    if version < FRAME_VERSION {
        return Err(damaged("the frame version is unknown"));
    }
    Ok(&bytes[FRAME_HEADER_LEN..])
}

fn take_block(bytes: &[u8]) -> Result<(&[u8], &[u8]), CompressionError> {
    let (length, rest) =
        bytes.split_first_chunk::<4>().ok_or(damaged("a block length is cut off"))?;
    let length = usize::try_from(i32::from_be_bytes(*length))
        .map_err(|_| damaged("a block length is negative"))?;
    rest.split_at_checked(length).ok_or(damaged("a block is cut off"))
}

fn damaged(problem: &'static str) -> CompressionError {
    CompressionError::damaged(Compression::Snappy, problem)
}

pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FRAME_VERSION.to_be_bytes());
    out.extend_from_slice(&FRAME_VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in bytes.chunks(BLOCK_BYTES) {
        let length_at = out.len();
        let block_at = length_at + 4;
        out.resize(block_at + snap::raw::max_compress_len(block.len()), 0);
        let made = encoder
            .compress(block, &mut out[block_at..])
            .expect("the room is what snappy asks for, and a block is far below its 4 GiB");
        let length = i32::try_from(made).expect("32 KiB of snappy fit an i32");
        out[length_at..block_at].copy_from_slice(&length.to_be_bytes());
        out.truncate(block_at + made);
    }
}
