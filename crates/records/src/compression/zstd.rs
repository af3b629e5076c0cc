//! Zstandard, decoded in one call into the output, which needs no window memory of its own:
//! a streaming reader would set aside the window that the frame declares, up to 128 MiB.
//!
//! Java's frames do not tell their content's size (and nobody should believe it), so the room is
//! doubled and the call repeated until it fits or the cap is reached. Kept buffers make the first
//! call succeed nearly always, and all repeats together cost no more than one of the last size.

use zstd::zstd_safe::{CCtx, DCtx, compress_bound};

use super::{Compression, CompressionError};

/// What the Java client uses where `compression.zstd.level` is not set.
const LEVEL: i32 = 3;
const FIRST_BYTES: usize = 16 << 10;
/// `ZSTD_error_dstSize_tooSmall`, numbered for good since zstd 1.3.1; errors are returned negated.
const OUTPUT_TOO_SMALL: usize = 0_usize.wrapping_sub(70);

pub(super) struct Decoder(DCtx<'static>);

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder(DCtx::create())
    }

    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        cap: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        if bytes.is_empty() {
            return Err(damaged("it is cut off"));
        }
        loop {
            match self.0.decompress(out, bytes) {
                Ok(_) if cap < out.len() => return Err(CompressionError::TooLarge { cap }),
                Ok(_) => return Ok(()),
                Err(OUTPUT_TOO_SMALL) if cap <= out.capacity() => {
                    return Err(CompressionError::TooLarge { cap });
                }
                Err(OUTPUT_TOO_SMALL) => {
                    let room = (2 * out.capacity()).max(FIRST_BYTES).min(cap);
                    out.clear();
                    out.reserve_exact(room);
                }
                Err(_) => return Err(damaged("not a zstd frame")),
            }
        }
    }
}

fn damaged(problem: &'static str) -> CompressionError {
    CompressionError::damaged(Compression::Zstd, problem)
}

pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut frame = Vec::with_capacity(compress_bound(bytes.len()));
    CCtx::create()
        .compress(&mut frame, bytes, LEVEL)
        .expect("the room is what zstd asks for in the worst case");
    out.extend_from_slice(&frame);
}
