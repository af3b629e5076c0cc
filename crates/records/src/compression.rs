//! The five codecs of a batch, each as all Kafka clients write and read it.
//!
//! Decompressing is where strangers' bytes get larger, so it has one rule: the output grows with
//! what has really been decoded and stops at the caller's cap. Sizes that the input declares are
//! used only to refuse it. What a Java consumer could not read is refused too: an acknowledged
//! record that stops a consumer is a lost one.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::fmt;

use thiserror::Error;

/// Codec of a batch, in its attributes' lowest three bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Raw snappy, or blocks of it in the Xerial frame that Java writes.
    Snappy,
    /// The LZ4 frame format with independent blocks (KIP-57).
    Lz4,
    /// Zstandard frames (KIP-110).
    Zstd,
}

impl Compression {
    /// Every codec, in the order of their ids.
    pub const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    /// The codec with this id, or the id back where it names none.
    pub fn from_id(id: u8) -> Result<Compression, u8> {
        Compression::ALL.get(usize::from(id)).copied().ok_or(id)
    }

    /// Its id in a batch's attributes.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Its name in `compression.type`; `none` is called `uncompressed` there on topics.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why compressed bytes cannot be had in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CompressionError {
    /// They would be larger than the caller allows.
    #[error("decompressed records are larger than {cap} bytes")]
    TooLarge {
        /// What the caller allows.
        cap: usize,
    },
    /// They are not what their codec writes.
    #[error("{codec} data is damaged: {problem}")]
    Damaged {
        /// The codec.
        codec: Compression,
        /// What is wrong.
        problem: &'static str,
    },
}

impl CompressionError {
    fn damaged(codec: Compression, problem: &'static str) -> CompressionError {
        CompressionError::Damaged { codec, problem }
    }
}

/// The codecs' working memory, kept from batch to batch so that a busy thread allocates none.
#[derive(Default)]
pub struct Decompressor {
    gzip: Option<gzip::Decoder>,
    snappy: snappy::Decoder,
    zstd: Option<zstd::Decoder>,
}

impl Decompressor {
    /// One that has not allocated anything yet.
    pub fn new() -> Decompressor {
        Decompressor::default()
    }

    /// Replaces `out` by what `bytes` hold in the clear, at most `cap` bytes. After an error `out`
    /// holds nothing of use.
    pub fn decompress(
        &mut self,
        compression: Compression,
        bytes: &[u8],
        cap: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        out.clear();
        match compression {
            Compression::None if cap < bytes.len() => {
                return Err(CompressionError::TooLarge { cap });
            }
            Compression::None => out.extend_from_slice(bytes),
            Compression::Gzip => {
                self.gzip.get_or_insert_with(gzip::Decoder::new).decode(bytes, cap, out)?;
            }
            Compression::Snappy => self.snappy.decode(bytes, cap, out)?,
            Compression::Lz4 => lz4::decode(bytes, cap, out)?,
            Compression::Zstd => {
                self.zstd.get_or_insert_with(zstd::Decoder::new).decode(bytes, cap, out)?;
            }
        }
        assert!(out.len() <= cap);
        Ok(())
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

/// Appends `bytes` to `out`, compressed as the Java client does it with its default levels: gzip
/// at 6, snappy in Xerial frames of 32 KiB blocks, lz4 in 64 KiB blocks, zstd at 3.
pub fn compress(compression: Compression, bytes: &[u8], out: &mut Vec<u8>) {
    match compression {
        Compression::None => out.extend_from_slice(bytes),
        Compression::Gzip => gzip::encode(bytes, out),
        Compression::Snappy => snappy::encode(bytes, out),
        Compression::Lz4 => lz4::encode(bytes, out),
        Compression::Zstd => zstd::encode(bytes, out),
    }
}

/// Makes room for more output: doubles what is there, never beyond `cap` and one byte, whose use
/// shows that the cap is too small.
fn grow(out: &mut Vec<u8>, cap: usize) -> Result<(), CompressionError> {
    const FIRST: usize = 16 << 10;
    if cap < out.len() {
        return Err(CompressionError::TooLarge { cap });
    }
    if out.len() < out.capacity() {
        return Ok(());
    }
    let room = (cap - out.len()).saturating_add(1);
    out.reserve_exact(out.len().max(FIRST).min(room));
    Ok(())
}

#[cfg(test)]
mod tests;
