use super::*;

const F: &str = "Test.field";

#[test]
fn regions_are_counted_in_the_prefix_and_keep_their_place() {
    let mut e = Encoder::new();
    e.i16(7);
    e.records(false, Blob::Region { index: 3, len: 1000 }, F).expect("a frame takes regions");
    e.records(true, Blob::Region { index: 4, len: 0 }, F).expect("an empty one too");
    e.records(true, Blob::Region { index: 5, len: 200 }, F).expect("a frame takes regions");
    e.i8(9);
    assert_eq!(e.len(), 2 + 4 + 1000 + 1 + 2 + 200 + 1);
    let frame = e.finish().expect("it is short enough");

    let head = [0, 0, 0x04, 0xba, 0, 7, 0, 0, 0x03, 0xe8];
    assert_eq!(
        frame.pieces,
        [
            Piece::Bytes(Bytes::copy_from_slice(&head)),
            Piece::Region { index: 3, len: 1000 },
            Piece::Bytes(Bytes::copy_from_slice(&[1, 0xc9, 0x01])),
            Piece::Region { index: 5, len: 200 },
            Piece::Bytes(Bytes::copy_from_slice(&[9])),
        ]
    );
    assert_eq!(frame.len(), 4 + 0x04ba);
    assert_eq!(frame.into_bytes(), None);
}

#[test]
fn adjacent_and_final_regions_leave_no_empty_pieces() {
    let mut e = Encoder::new();
    e.records(false, Blob::Region { index: 0, len: 5 }, F).expect("a frame takes regions");
    let frame = e.finish().expect("it is short enough");
    assert_eq!(frame.pieces.len(), 2);
    assert!(frame.pieces.iter().all(|piece| !piece.is_empty()));
}

#[test]
fn a_frame_beyond_31_bits_is_refused() {
    let mut e = Encoder::new();
    e.records(false, Blob::Region { index: 0, len: i32::MAX as u32 - 1 }, F).expect("31 bits");
    let len = 4 + i32::MAX as usize - 1;
    assert_eq!(e.finish(), Err(EncodeError::FrameTooLarge { len }));

    let mut e = Encoder::new();
    let error = e.records(false, Blob::Region { index: 0, len: u32::MAX }, F);
    let limit = i32::MAX as usize - 1;
    assert_eq!(error, Err(EncodeError::TooLong { field: F, len: u32::MAX as usize, limit }));
}

#[test]
fn what_is_not_a_frame_takes_no_regions() {
    let mut e = Encoder::new();
    e.records(true, Blob::Region { index: 0, len: 1 }, F).expect("a frame takes regions");
    assert_eq!(e.into_body(), Err(EncodeError::RegionNotAllowed { field: "body" }));

    let mut e = Encoder::new();
    let region = Blob::Region { index: 0, len: 1 };
    let error = e.tagged_field(0, F, |e| e.records(true, region, F));
    assert_eq!(error, Err(EncodeError::RegionNotAllowed { field: F }));
}

#[test]
fn a_tagged_field_has_its_size_in_front() {
    for len in [0, 1, 127, 128, 20_000] {
        let content = vec![0xab; len];
        let mut e = Encoder::new();
        e.tagged_field(5, F, |e| {
            content.iter().for_each(|&byte| e.i8(byte as i8));
            Ok(())
        })
        .expect("it has no regions");
        let mut expected = Encoder::new();
        expected.uvarint(5);
        expected.uvarint(len as u32);
        content.iter().for_each(|&byte| expected.i8(byte as i8));
        assert_eq!(e.into_body(), expected.into_body());
    }
}

#[test]
fn strings_longer_than_16_bits_can_say_are_refused() {
    let text = "a".repeat(32_768);
    for flexible in [false, true] {
        let error = Encoder::new().string(flexible, &text, F);
        let error_expected = EncodeError::TooLong { field: F, len: 32_768, limit: 32_767 };
        assert_eq!(error, Err(error_expected));
        assert_eq!(Encoder::new().string(flexible, &text[1..], F), Ok(()));
    }
}
