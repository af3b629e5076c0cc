//! Frames on their way into a socket: small ones copied together, large ones as they are.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::{HEAD_BYTES, Kind, PIECE_BYTES, head};

/// Bytes that are copied rather than sent from where they are.
const COPY_MAX: usize = 2 * 1024;

/// What is written at once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pieces: Vec<Bytes>,
    tail: BytesMut,
    bytes: usize,
    pub(crate) messages: u64,
}

impl Batch {
    /// Adds a message that fits into a frame.
    pub(crate) fn message(&mut self, parts: impl IntoIterator<Item = Bytes, IntoIter: Clone>) {
        self.frame(Kind::Message, &[], parts);
        self.messages += 1;
    }

    /// Adds a piece of a large message. Whether it is complete now.
    pub(crate) fn piece(&mut self, large: &mut Large) -> bool {
        let total = large.total.to_be_bytes();
        let (kind, prefix) = match large.left == large.total as usize {
            true => (Kind::FirstPiece, &total[..]),
            false => (Kind::Piece, &[][..]),
        };
        self.frame(kind, prefix, large.cut(PIECE_BYTES));
        let is_complete = large.left == 0;
        self.messages += u64::from(is_complete);
        is_complete
    }

    /// Adds a question whether somebody is there.
    pub(crate) fn ping(&mut self) {
        self.frame(Kind::Ping, &[], []);
    }

    fn frame(
        &mut self,
        kind: Kind,
        prefix: &[u8],
        parts: impl IntoIterator<Item = Bytes, IntoIter: Clone>,
    ) {
        let parts = parts.into_iter();
        let payload = prefix.len() + parts.clone().map(|part| part.len()).sum::<usize>();
        self.tail.put_slice(&head(kind, payload));
        self.tail.put_slice(prefix);
        for part in parts {
            if part.len() <= COPY_MAX {
                self.tail.put_slice(&part);
            } else {
                self.pieces.push(self.tail.split().freeze());
                self.pieces.push(part);
            }
        }
        self.bytes += HEAD_BYTES + payload;
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is to be written, in order.
    pub(crate) fn into_pieces(mut self) -> Vec<Bytes> {
        if !self.tail.is_empty() {
            self.pieces.push(self.tail.freeze());
        }
        self.pieces
    }
}

/// A message that is being cut to pieces.
#[derive(Debug)]
pub(crate) struct Large {
    parts: VecDeque<Bytes>,
    total: u32,
    left: usize,
}

impl Large {
    /// `None`: not even in pieces.
    pub(crate) fn new(parts: Vec<Bytes>) -> Option<Large> {
        let left: usize = parts.iter().map(Bytes::len).sum();
        Some(Large { total: u32::try_from(left).ok()?, left, parts: parts.into() })
    }

    fn cut(&mut self, mut bytes_max: usize) -> Vec<Bytes> {
        let mut cut = Vec::new();
        while 0 < bytes_max
            && let Some(part) = self.parts.front_mut()
        {
            let piece = part.split_to(part.len().min(bytes_max));
            if !part.has_remaining() {
                self.parts.pop_front();
            }
            bytes_max -= piece.len();
            self.left -= piece.len();
            cut.push(piece);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{FRAME_BYTES_MAX, Inbox, Received, next_frame};
    use super::*;
    use crate::limits::Ledger;

    fn received(batch: Batch, inbox: &mut Inbox) -> Vec<Bytes> {
        let ledger = Ledger::new(64 << 20);
        let mut input = BytesMut::new();
        batch.into_pieces().iter().for_each(|piece| input.extend_from_slice(piece));
        let mut messages = Vec::new();
        while let Some((kind, payload)) = next_frame(&mut input, FRAME_BYTES_MAX).unwrap() {
            match inbox.accept(kind, payload, &ledger).unwrap() {
                Received::Message(message, _) => messages.push(message),
                Received::Ping | Received::Nothing => {}
                Received::Dropped => panic!("there is memory"),
            }
        }
        assert!(input.is_empty());
        messages
    }

    #[test]
    fn messages_arrive_as_they_were_put() {
        let mut batch = Batch::default();
        let large = Bytes::from(vec![7; 3 * COPY_MAX]);
        batch.message([Bytes::from_static(b"ab"), large.clone(), Bytes::from_static(b"cd")]);
        batch.ping();
        batch.message([Bytes::new()]);
        assert_eq!(batch.bytes(), 5 + 4 + large.len() + 5 + 5);
        let messages = received(batch, &mut Inbox::new(0));
        assert_eq!(messages[0], [b"ab", &large[..], b"cd"].concat());
        assert_eq!((messages[1].len(), messages.len()), (0, 2));
    }

    #[test]
    fn a_large_message_arrives_in_pieces() {
        let parts = [vec![1; 10], vec![2; FRAME_BYTES_MAX], vec![3; PIECE_BYTES]];
        let whole = parts.concat();
        let mut large = Large::new(parts.map(Bytes::from).to_vec()).unwrap();
        let mut inbox = Inbox::new(whole.len());
        loop {
            let mut batch = Batch::default();
            let is_complete = batch.piece(&mut large);
            assert!(batch.bytes() <= PIECE_BYTES + 9);
            let messages = received(batch, &mut inbox);
            if is_complete {
                assert_eq!(messages, [whole]);
                return;
            }
            assert!(messages.is_empty());
        }
    }
}
