//! The frames between brokers: `length u32 │ kind u8 │ payload`, and the pieces of large messages.
//!
//! A message of more than [`FRAME_BYTES_MAX`] goes out in pieces, one such message at a time; smaller
//! ones pass between its pieces, so that a snapshot of the metadata does not hold up a heartbeat.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::{Charge, Ledger};

/// What a connection between brokers begins with, in both directions. As the length of a Kafka frame it
/// is negative, and it begins neither TLS nor HTTP: all three listeners refuse each other's callers at once.
pub const MAGIC: [u8; 8] = *b"\xf7TowPeer";

/// Largest payload of a frame, in bytes, after the handshake.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// Payload of one piece of a larger message, in bytes.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Length and kind.
pub(crate) const HEAD_BYTES: usize = 5;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Who the sender is.
    Hello,
    /// That the sender knows the secret; without one, empty.
    Proof,
    /// Why the sender closes the connection: a code.
    Refused,
    /// A message.
    Message,
    /// The length of a larger message, and its beginning.
    FirstPiece,
    /// More of it.
    Piece,
    /// Is somebody there?
    Ping,
    /// Yes.
    Pong,
}

const KINDS: [Kind; 8] = [
    Kind::Hello,
    Kind::Proof,
    Kind::Refused,
    Kind::Message,
    Kind::FirstPiece,
    Kind::Piece,
    Kind::Ping,
    Kind::Pong,
];

/// Bytes that no peer of ours sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A length out of bounds.
    #[error("a frame of {length} bytes; here it may have {max}")]
    Length {
        /// What it says.
        length: u32,
        /// What it may.
        max: usize,
    },
    /// A kind that this level does not have.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// A frame that does not belong there.
    #[error("a frame of kind {0:?} where it has no place")]
    Order(Kind),
    /// A large message that is none.
    #[error("a message in pieces of {0} bytes, which is out of bounds")]
    Total(u32),
    /// More pieces than the message has.
    #[error("more pieces than their message has bytes")]
    TooManyPieces,
}

/// The head of a frame.
pub(crate) fn head(kind: Kind, payload: usize) -> [u8; HEAD_BYTES] {
    let length = u32::try_from(1 + payload).expect("frames are small");
    let [a, b, c, d] = length.to_be_bytes();
    let kind = KINDS.iter().position(|known| *known == kind).expect("all kinds are there");
    [a, b, c, d, 1 + kind as u8]
}

/// Puts a whole small frame.
pub(crate) fn put(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    out.put_slice(&head(kind, payload.len()));
    out.put_slice(payload);
}

/// Bytes of the frame that `input` begins with, head included; of a head, if that has not arrived.
pub(crate) fn needed(input: &[u8]) -> usize {
    let prefix = input.first_chunk::<4>();
    prefix.map_or(HEAD_BYTES, |prefix| 4 + u32::from_be_bytes(*prefix) as usize)
}

/// Cuts a complete frame off the input.
///
/// # Errors
/// [`Malformed`], as soon as the head is there.
pub fn next_frame(
    input: &mut BytesMut,
    payload_max: usize,
) -> Result<Option<(Kind, Bytes)>, Malformed> {
    let Some(prefix) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix);
    if length == 0 || payload_max < length as usize - 1 {
        return Err(Malformed::Length { length, max: payload_max });
    }
    let Some(number) = input.get(4).copied() else { return Ok(None) };
    let kind = usize::from(number).checked_sub(1).and_then(|at| KINDS.get(at));
    let kind = *kind.ok_or(Malformed::Kind(number))?;
    if input.len() < 4 + length as usize {
        return Ok(None);
    }
    input.advance(HEAD_BYTES);
    Ok(Some((kind, input.split_to(length as usize - 1).freeze())))
}

/// What a frame means to the receiver of messages.
#[derive(Debug)]
pub enum Received {
    /// A message is complete. The charge covers it when it came in pieces.
    Message(Bytes, Charge),
    /// The sender wants an answer.
    Ping,
    /// Nothing yet.
    Nothing,
    /// There is no memory for the message that begins; its sender will repeat it.
    Dropped,
}

/// Puts the pieces of large messages together. Memory is charged for all of a message when it
/// begins, and taken as it arrives.
#[derive(Debug)]
pub struct Inbox {
    message_bytes_max: usize,
    /// Invariant: `left > 0`.
    large: Option<Large>,
}

#[derive(Debug)]
struct Large {
    /// `None`: there was no memory; its pieces are passed over.
    kept: Option<(Vec<u8>, Charge)>,
    left: usize,
}

impl Inbox {
    /// For messages of at most so many bytes.
    #[must_use]
    pub fn new(message_bytes_max: usize) -> Inbox {
        Inbox { message_bytes_max, large: None }
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// [`Malformed`]: the connection has to end.
    pub fn accept(
        &mut self,
        kind: Kind,
        mut payload: Bytes,
        ledger: &Ledger,
    ) -> Result<Received, Malformed> {
        match kind {
            Kind::Message => Ok(Received::Message(payload, Charge::default())),
            Kind::FirstPiece if self.large.is_none() => {
                let total = payload.try_get_u32().map_err(|_| Malformed::Order(kind))?;
                let is_large = FRAME_BYTES_MAX < total as usize;
                if !is_large || self.message_bytes_max < total as usize {
                    return Err(Malformed::Total(total));
                }
                let mut charge = Charge::default();
                let is_kept = ledger.try_cover(&mut charge, total as usize);
                let kept = is_kept.then(|| (Vec::new(), charge));
                self.large = Some(Large { kept, left: total as usize });
                let received = self.extend(&payload)?;
                Ok(if is_kept { received } else { Received::Dropped })
            }
            Kind::Piece if self.large.is_some() => self.extend(&payload),
            Kind::Ping if payload.is_empty() => Ok(Received::Ping),
            kind => Err(Malformed::Order(kind)),
        }
    }

    fn extend(&mut self, piece: &[u8]) -> Result<Received, Malformed> {
        let Some(large) = &mut self.large else { return Ok(Received::Nothing) };
        large.left = large.left.checked_sub(piece.len()).ok_or(Malformed::TooManyPieces)?;
        if let Some((bytes, _)) = &mut large.kept {
            if bytes.capacity() < bytes.len() + piece.len() {
                // By doubling, and never beyond the whole.
                let rest = piece.len() + large.left;
                bytes.reserve_exact(rest.min(bytes.len().max(piece.len())));
            }
            bytes.extend_from_slice(piece);
        }
        if 0 < large.left {
            return Ok(Received::Nothing);
        }
        let kept = self.large.take().and_then(|large| large.kept);
        Ok(kept
            .map_or(Received::Nothing, |(bytes, charge)| Received::Message(bytes.into(), charge)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, payload: &[u8]) -> BytesMut {
        let mut out = Vec::new();
        put(&mut out, kind, payload);
        BytesMut::from(&out[..])
    }

    #[test]
    fn a_frame_is_cut_off_when_it_is_complete() {
        let whole = frame(Kind::Message, b"abc");
        for cut in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..cut]);
            assert_eq!(next_frame(&mut input, 3), Ok(None));
        }
        let mut input = whole.clone();
        input.extend_from_slice(b"next");
        let (kind, payload) = next_frame(&mut input, 3).unwrap().unwrap();
        assert_eq!((kind, &payload[..], &input[..]), (Kind::Message, &b"abc"[..], &b"next"[..]));
    }

    #[test]
    fn what_cannot_be_a_frame_is_refused_by_its_head() {
        let length = |bytes: [u8; 4]| next_frame(&mut BytesMut::from(&bytes[..]), 3);
        assert!(matches!(length([0, 0, 0, 0]), Err(Malformed::Length { length: 0, .. })));
        assert!(matches!(length([0, 0, 0, 5]), Err(Malformed::Length { length: 5, .. })));
        assert!(matches!(length(*b"GET "), Err(Malformed::Length { .. })));
        let kind = |number| next_frame(&mut BytesMut::from(&[0, 0, 0, 1, number][..]), 3);
        assert_eq!(kind(0), Err(Malformed::Kind(0)));
        assert_eq!(kind(9), Err(Malformed::Kind(9)));
    }

    fn first_piece(total: usize, piece: &[u8]) -> Bytes {
        let mut bytes = u32::try_from(total).unwrap().to_be_bytes().to_vec();
        bytes.extend(piece);
        bytes.into()
    }

    const TOTAL: usize = FRAME_BYTES_MAX + 3;

    #[test]
    fn small_messages_pass_between_the_pieces_of_a_large_one() {
        let ledger = Ledger::new(64 << 20);
        let mut inbox = Inbox::new(TOTAL);
        let first = first_piece(TOTAL, b"abc");
        let received = inbox.accept(Kind::FirstPiece, first, &ledger).unwrap();
        assert!(matches!(received, Received::Nothing));
        let small = inbox.accept(Kind::Message, Bytes::from_static(b"small"), &ledger).unwrap();
        assert!(matches!(small, Received::Message(bytes, _) if &bytes[..] == b"small"));
        let rest = Bytes::from(vec![7; FRAME_BYTES_MAX]);
        let large = inbox.accept(Kind::Piece, rest, &ledger).unwrap();
        let Received::Message(bytes, _) = large else { panic!("it is complete") };
        assert_eq!((bytes.len(), &bytes[..4]), (TOTAL, &b"abc\x07"[..]));
        // There is room for the next one.
        let more = inbox.accept(Kind::Piece, Bytes::from_static(b"x"), &ledger);
        assert_eq!(more.err(), Some(Malformed::Order(Kind::Piece)));
    }

    #[test]
    fn pieces_that_are_too_many_or_of_no_large_message_are_refused() {
        let ledger = Ledger::new(64 << 20);
        let accept =
            |inbox: &mut Inbox, kind, bytes: Bytes| inbox.accept(kind, bytes, &ledger).err();
        for total in [0, FRAME_BYTES_MAX, TOTAL + 1] {
            let refused = accept(&mut Inbox::new(TOTAL), Kind::FirstPiece, first_piece(total, b""));
            assert_eq!(refused, Some(Malformed::Total(u32::try_from(total).unwrap())));
        }
        let mut inbox = Inbox::new(TOTAL);
        assert_eq!(accept(&mut inbox, Kind::FirstPiece, first_piece(TOTAL, b"1234")), None);
        let again = accept(&mut inbox, Kind::FirstPiece, first_piece(TOTAL, b""));
        assert_eq!(again, Some(Malformed::Order(Kind::FirstPiece)));
        let too_many = Bytes::from(vec![7; FRAME_BYTES_MAX]);
        assert_eq!(accept(&mut inbox, Kind::Piece, too_many), Some(Malformed::TooManyPieces));
        let handshake = accept(&mut inbox, Kind::Hello, Bytes::new());
        assert_eq!(handshake, Some(Malformed::Order(Kind::Hello)));
    }

    #[test]
    fn a_large_message_without_memory_for_it_is_passed_over_and_holds_up_nothing() {
        let ledger = Ledger::new(1 << 20);
        let mut inbox = Inbox::new(TOTAL);
        let first = inbox.accept(Kind::FirstPiece, first_piece(TOTAL, b"abc"), &ledger).unwrap();
        assert!(matches!(first, Received::Dropped));
        let small = inbox.accept(Kind::Message, Bytes::new(), &ledger).unwrap();
        assert!(matches!(small, Received::Message(..)));
        let rest = Bytes::from(vec![7; FRAME_BYTES_MAX]);
        assert!(matches!(inbox.accept(Kind::Piece, rest, &ledger).unwrap(), Received::Nothing));
        assert!(inbox.large.is_none());
    }
}
