//! gzip, RFC 1952: header and trailer are checked; several members in a row count as one, as
//! Java's reader has it.

use std::io::Write;

use flate2::{Decompress, FlushDecompress, Status};

use super::{Compression, CompressionError, grow};

/// Windows of up to 32 KiB, the most that deflate has.
const WINDOW_BITS: u8 = 15;

pub(super) struct Decoder(Decompress);

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder(Decompress::new_gzip(WINDOW_BITS))
    }

    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        cap: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        let mut rest = bytes;
        loop {
            rest = self.decode_member(rest, cap, out)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Appends one member to `out` and returns what follows it.
    fn decode_member<'a>(
        &mut self,
        bytes: &'a [u8],
        cap: usize,
        out: &mut Vec<u8>,
    ) -> Result<&'a [u8], CompressionError> {
        self.0.reset(true);
        let mut rest = bytes;
        loop {
            grow(out, cap)?;
            let out_before = out.len();
            let in_before = self.0.total_in();
            let status = self
                .0
                .decompress_vec(rest, out, FlushDecompress::None)
                .map_err(|_| CompressionError::damaged(Compression::Gzip, "not a gzip stream"))?;
            let taken = (self.0.total_in() - in_before) as usize;
            rest = &rest[taken..];
            if cap < out.len() {
                return Err(CompressionError::TooLarge { cap });
            }
            if status == Status::StreamEnd {
                return Ok(rest);
            }
            if taken == 0 && out.len() == out_before {
                return Err(CompressionError::damaged(Compression::Gzip, "it is cut off"));
            }
        }
    }
}

pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::new(6));
    encoder.write_all(bytes).expect("writing to a Vec does not fail");
    encoder.finish().expect("writing to a Vec does not fail");
}
