//! Zigzag varints inside records: at most 5 bytes for an i32, at most 10 for an i64.
//!
//! Longer ones and ones whose last byte holds bits that do not fit are refused. Padded ones
//! (`80 00` for 0) are read, as every Kafka reads them: they change nothing for anyone.

/// Reads an i32 off the front of `bytes`.
#[inline]
pub(crate) fn take_i32(bytes: &mut &[u8]) -> Option<i32> {
    let raw = take_u64(bytes, 5)?;
    let raw = u32::try_from(raw).ok()?;
    Some(((raw >> 1) as i32) ^ -((raw & 1) as i32))
}

/// Reads an i64 off the front of `bytes`.
#[inline]
pub(crate) fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    let raw = take_u64(bytes, 10)?;
    Some(((raw >> 1) as i64) ^ -((raw & 1) as i64))
}

#[inline]
fn take_u64(bytes: &mut &[u8], len_max: usize) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    take_longer_u64(bytes, len_max)
}

fn take_longer_u64(bytes: &mut &[u8], len_max: usize) -> Option<u64> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(len_max).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * index);
        if shifted >> (7 * index) != bits {
            return None;
        }
        value |= shifted;
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends an i32.
#[inline]
pub(crate) fn put_i32(out: &mut Vec<u8>, value: i32) {
    put_u64(out, u64::from(zigzag_i32(value)));
}

/// Appends an i64.
#[inline]
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, zigzag_i64(value));
}

#[inline]
fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_i32`] appends.
pub(crate) fn len_i32(value: i32) -> usize {
    len_u64(u64::from(zigzag_i32(value)))
}

/// Bytes that [`put_i64`] appends.
pub(crate) fn len_i64(value: i64) -> usize {
    len_u64(zigzag_i64(value))
}

fn len_u64(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn zigzag_i32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

fn zigzag_i64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_values_have_the_bytes_of_protocol_buffers() {
        for (value, bytes) in
            [(0, &[0][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (-64, &[127]), (64, &[0x80, 1])]
        {
            let mut out = Vec::new();
            put_i32(&mut out, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn too_long_or_too_large_varints_are_refused() {
        assert_eq!(take_i32(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..]), None);
        assert_eq!(take_i32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
        assert_eq!(take_i32(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..]), Some(i32::MIN));
        assert_eq!(take_i64(&mut &[0xff; 11][..]), None);
        let mut largest = [0xff; 10];
        largest[9] = 2;
        assert_eq!(take_i64(&mut &largest[..]), None);
        largest[9] = 1;
        assert_eq!(take_i64(&mut &largest[..]), Some(i64::MIN));
        assert_eq!(take_i32(&mut &[0x80, 0x80][..]), None);
        assert_eq!(take_i32(&mut &[][..]), None);
    }

    proptest! {
        #[test]
        fn what_was_put_is_taken(small: i32, large: i64) {
            let mut out = Vec::new();
            put_i32(&mut out, small);
            prop_assert_eq!(out.len(), len_i32(small));
            put_i64(&mut out, large);
            prop_assert_eq!(out.len(), len_i32(small) + len_i64(large));
            let mut rest = &out[..];
            prop_assert_eq!(take_i32(&mut rest), Some(small));
            prop_assert_eq!(take_i64(&mut rest), Some(large));
            prop_assert!(rest.is_empty());
        }
    }
}
