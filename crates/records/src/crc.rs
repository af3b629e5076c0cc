//! CRC-32C (Castagnoli): the checksum of batches on the wire and, in our own files, of everything
//! else. Uses the processor's instructions where they exist.

use thiserror::Error;

use crate::header::{BatchHeader, checksummed};

/// A batch whose bytes are not those that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("batch declares CRC {stored:#010x}, its bytes have {computed:#010x}")]
pub struct CrcMismatch {
    /// What the header says.
    pub stored: u32,
    /// What the bytes say.
    pub computed: u32,
}

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Compares the checksum of a whole batch with the one in its header.
///
/// # Panics
/// When `batch` is not exactly as long as `header` says.
pub fn check_crc(header: &BatchHeader, batch: &[u8]) -> Result<(), CrcMismatch> {
    assert_eq!(header.size_in_bytes(), batch.len());
    let computed = crc32c(checksummed(batch));
    if computed == header.crc() {
        Ok(())
    } else {
        Err(CrcMismatch { stored: header.crc(), computed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_has_the_check_values_of_rfc_3720() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }
}
