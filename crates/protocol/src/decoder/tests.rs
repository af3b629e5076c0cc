use super::*;

const F: &str = "Test.field";

#[test]
fn varints_up_to_32_bits_are_read_and_longer_ones_refused() {
    for (bytes, value) in [
        (&[0x00][..], 0),
        (&[0x7f], 127),
        (&[0x80, 0x01], 128),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], u32::MAX),
        (&[0x80, 0x00], 0), // padded: Kafka takes it too
    ] {
        let mut d = Decoder::new(bytes);
        assert_eq!(d.uvarint(F), Ok(value));
        assert_eq!(d.remaining(), 0);
    }
    for bytes in [&[0xff, 0xff, 0xff, 0xff, 0x1f][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]] {
        let error = Decoder::new(bytes).uvarint(F);
        assert_eq!(error, Err(DecodeError::VarintTooLong { field: F, position: 0 }));
    }
}

#[test]
fn lengths_below_minus_one_are_refused() {
    let negative = DecodeError::NegativeLength { field: F, position: 0, length: -2 };
    assert_eq!(Decoder::new(&[0xff, 0xfe]).string(false, F), Err(negative));
    assert_eq!(Decoder::new(&[0xff, 0xff, 0xff, 0xfe]).bytes(false, F), Err(negative));
    let read = Decoder::new(&[0xff, 0xff, 0xff, 0xfe]).array(false, 1, F, |d| d.i8(F));
    assert_eq!(read, Err(negative));
}

#[test]
fn null_is_refused_where_it_is_not_allowed() {
    let null = DecodeError::NullNotAllowed { field: F, position: 0 };
    for (bytes, flexible) in [(&[0xff, 0xff][..], false), (&[0], true)] {
        assert_eq!(Decoder::new(bytes).string(flexible, F), Err(null));
        assert_eq!(Decoder::new(bytes).nullable_string(flexible, false, F), Err(null));
        assert_eq!(Decoder::new(bytes).nullable_string(flexible, true, F), Ok(None));
    }
    let read = |nullable| Decoder::new(&[0xff]).nullable_struct(nullable, F, |d| d.i8(F));
    assert_eq!(read(false), Err(null));
    assert_eq!(read(true), Ok(None));
}

#[test]
fn a_count_is_checked_against_the_bytes_before_room_is_made() {
    // 2 + 1 elements of four bytes claimed, eleven bytes there.
    let mut bytes = vec![4];
    bytes.extend_from_slice(&[0; 11]);
    let read = Decoder::new(&bytes).array(true, 4, F, |d| d.i32(F));
    let error = DecodeError::TooManyElements { field: F, position: 0, count: 3, limit: 2 };
    assert_eq!(read, Err(error));

    // Elements that take no bytes have an absolute bound.
    let read = Decoder::new(&[0, 0, 0x03, 0xe9]).array(false, 0, F, |_| Ok(()));
    let error = DecodeError::TooManyElements { field: F, position: 0, count: 1001, limit: 1000 };
    assert_eq!(read, Err(error));
}

#[test]
fn a_million_elements_is_the_most() {
    let mut bytes = 1_000_001_u32.to_be_bytes().to_vec();
    bytes.resize(1_000_005, 0);
    let read = Decoder::new(&bytes).array(false, 1, F, |d| d.i8(F));
    let (count, limit) = (1_000_001, 1_000_000);
    assert_eq!(read, Err(DecodeError::TooManyElements { field: F, position: 0, count, limit }));

    bytes[..4].copy_from_slice(&1_000_000_u32.to_be_bytes());
    let read = Decoder::new(&bytes).array(false, 1, F, |d| d.i8(F)).expect("it fits");
    assert_eq!((read.len(), read.capacity()), (1_000_000, 1_000_000));
}

#[test]
fn elements_are_charged_against_the_size_of_the_input() {
    #[derive(Debug, PartialEq)]
    struct Wide {
        _memory: [u64; 100],
    }
    let mut bytes = 100_u32.to_be_bytes().to_vec();
    bytes.resize(104, 0);
    let mut d = Decoder::new(&bytes);
    let read = d.array(false, 1, F, |d| d.i8(F).map(|_| Wide { _memory: [0; 100] }));
    let left = 104 * 64 + 64 * 1024;
    assert_eq!(read, Err(DecodeError::TooLarge { field: F, position: 0, wanted: 80_000, left }));
    assert_eq!(d.memory_charged(), 0);

    let mut d = Decoder::new(&bytes);
    assert_eq!(d.array(false, 1, F, |d| d.i8(F).map(i64::from)).map(|read| read.len()), Ok(100));
    assert_eq!(d.memory_charged(), 800);
}

#[test]
fn unknown_tags_are_skipped_and_known_ones_must_fill_their_size() {
    // Two tagged fields: 7 with three bytes, 1 with one byte.
    let bytes = [2, 7, 3, 0xaa, 0xbb, 0xcc, 1, 1, 0x2a];
    let mut seen = None;
    let mut d = Decoder::new(&bytes);
    let read = d.tagged_fields(F, |tag, d| {
        if tag != 1 {
            return Ok(false);
        }
        seen = Some(d.i8(F)?);
        Ok(true)
    });
    assert_eq!(read, Ok(()));
    assert_eq!(seen, Some(42));
    assert_eq!(d.finish(), Ok(()));

    // One byte more than the content takes.
    let mut d = Decoder::new(&[1, 1, 2, 0x2a, 0x00]);
    let read = d.tagged_fields(F, |_, d| d.i8(F).map(|_| true));
    assert_eq!(read, Err(DecodeError::TagSize { field: F, position: 4, unread: 1 }));

    // Content that would reach beyond its size, though the bytes are there.
    let mut d = Decoder::new(&[1, 1, 1, 0x2a, 0x00]);
    let read = d.tagged_fields(F, |_, d| d.i16(F).map(|_| true));
    let error = DecodeError::UnexpectedEnd { field: F, position: 3, needed: 2, available: 1 };
    assert_eq!(read, Err(error));
}

#[test]
fn tagged_fields_are_counted_before_they_are_read() {
    let mut bytes = vec![0x91, 0x4e]; // 10,001
    bytes.resize(2 + 2 * 10_001, 0);
    let read = Decoder::new(&bytes).tagged_fields(F, |_, _| Ok(false));
    let (count, limit) = (10_001, 10_000);
    assert_eq!(read, Err(DecodeError::TooManyElements { field: F, position: 0, count, limit }));
}

#[test]
fn strings_are_utf_8_and_not_longer_than_16_bits_can_say() {
    let read = Decoder::new(&[0, 2, 0xc3, 0x28]).string(false, F);
    assert_eq!(read, Err(DecodeError::InvalidUtf8 { field: F, position: 2 }));

    let mut bytes = vec![0x81, 0x80, 0x02]; // 32768 + 1
    bytes.resize(3 + 32_768, b'a');
    let read = Decoder::new(&bytes).string(true, F);
    let (len, limit) = (32_768, 32_767);
    assert_eq!(read, Err(DecodeError::TooLong { field: F, position: 0, len, limit }));
}

#[test]
fn bytes_after_the_message_are_refused() {
    let mut d = Decoder::new(&[1, 2, 3]);
    assert_eq!(d.i8(F), Ok(1));
    assert_eq!(d.finish(), Err(DecodeError::TrailingBytes { position: 1, count: 2 }));
}

#[test]
fn records_are_borrowed_from_the_input() {
    let bytes = [0, 0, 0, 2, 0xaa, 0xbb];
    let Ok(Blob::Bytes(records)) = Decoder::new(&bytes).records(false, F) else {
        panic!("records decode to bytes");
    };
    assert!(std::ptr::eq(records, &bytes[4..]));
}
