//! Frames on their way into a socket: small ones copied together, large ones as they are, and what lies
//! in a file from there.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;

use super::frame::{HEAD_BYTES, Kind, PIECE_BYTES, head};
use crate::disk::NodeFile;
use crate::outgoing::{Region, send_region, write_all};

/// Bytes that are copied rather than sent from where they are.
const COPY_MAX: usize = 2 * 1024;

/// A part of a message.
#[derive(Debug, Clone)]
pub enum Part {
    /// In memory.
    Bytes(Bytes),
    /// In a file whose bytes at this place are in memory too; it is sent from there without a copy.
    File {
        /// The file. A part that it has no longer when it is to be sent ends the connection.
        file: Arc<NodeFile>,
        /// Where the part begins.
        position: u64,
        /// Its length in bytes.
        len: usize,
    },
}

impl From<Bytes> for Part {
    fn from(bytes: Bytes) -> Part {
        Part::Bytes(bytes)
    }
}

impl Part {
    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::File { len, .. } => *len,
        }
    }

    /// Cuts off its first `at` bytes.
    fn split_to(&mut self, at: usize) -> Part {
        match self {
            Part::Bytes(bytes) => Part::Bytes(bytes.split_to(at)),
            Part::File { file, position, len } => {
                let front = Part::File { file: Arc::clone(file), position: *position, len: at };
                *position += at as u64;
                *len -= at;
                front
            }
        }
    }
}

/// Sends parts one after the other; the result: how many bytes. Fails when the other side takes none for
/// `stall_max`.
pub(crate) async fn send(
    socket: &TcpStream,
    parts: Vec<Part>,
    stall_max: Duration,
) -> io::Result<usize> {
    let (mut sent, mut gathered) = (0, Vec::new());
    for part in parts {
        match part {
            Part::Bytes(bytes) => gathered.push(bytes),
            Part::File { file, position, len } => {
                sent += write_all(socket, &mut gathered, stall_max).await?;
                send_region(socket, &Region { file, position }, len, stall_max).await?;
                sent += len;
            }
        }
    }
    Ok(sent + write_all(socket, &mut gathered, stall_max).await?)
}

/// What is written at once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    parts: Vec<Part>,
    tail: BytesMut,
    bytes: usize,
    pub(crate) messages: u64,
}

impl Batch {
    /// Adds a message that fits into a frame.
    pub(crate) fn message(&mut self, parts: impl IntoIterator<Item = Part, IntoIter: Clone>) {
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
        parts: impl IntoIterator<Item = Part, IntoIter: Clone>,
    ) {
        let parts = parts.into_iter();
        let payload = prefix.len() + parts.clone().map(|part| part.size()).sum::<usize>();
        self.tail.put_slice(&head(kind, payload));
        self.tail.put_slice(prefix);
        for part in parts {
            match part {
                Part::Bytes(bytes) if bytes.len() <= COPY_MAX => self.tail.put_slice(&bytes),
                part => {
                    self.end_tail();
                    self.parts.push(part);
                }
            }
        }
        self.bytes += HEAD_BYTES + payload;
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push(Part::Bytes(self.tail.split().freeze()));
        }
    }

    /// What is to be sent, in order.
    pub(crate) fn into_parts(mut self) -> Vec<Part> {
        self.end_tail();
        self.parts
    }
}

/// A message that is being cut to pieces.
#[derive(Debug)]
pub(crate) struct Large {
    parts: VecDeque<Part>,
    total: u32,
    left: usize,
}

impl Large {
    /// `None`: not even in pieces.
    pub(crate) fn new(parts: Vec<Part>) -> Option<Large> {
        let left: usize = parts.iter().map(Part::size).sum();
        Some(Large { total: u32::try_from(left).ok()?, left, parts: parts.into() })
    }

    fn cut(&mut self, mut bytes_max: usize) -> Vec<Part> {
        let mut cut = Vec::new();
        while 0 < bytes_max
            && let Some(part) = self.parts.front_mut()
        {
            let piece = part.split_to(part.size().min(bytes_max));
            if part.size() == 0 {
                self.parts.pop_front();
            }
            bytes_max -= piece.size();
            self.left -= piece.size();
            cut.push(piece);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use towpath_driver::{Disk, DiskFile};

    use super::super::frame::{FRAME_BYTES_MAX, Inbox, Received, next_frame};
    use super::*;
    use crate::disk::NodeDisk;
    use crate::limits::Ledger;

    /// What the other side reads of these parts.
    fn sent(parts: Vec<Part>) -> BytesMut {
        let mut all = BytesMut::new();
        for part in parts {
            match part {
                Part::Bytes(bytes) => all.extend_from_slice(&bytes),
                Part::File { file, position, len } => {
                    let mut bytes = vec![0; len];
                    assert_eq!(file.read_at(&mut bytes, position).unwrap(), len);
                    all.extend_from_slice(&bytes);
                }
            }
        }
        all
    }

    fn file_of(directory: &tempfile::TempDir, bytes: &[u8]) -> Arc<NodeFile> {
        let file = NodeDisk::default().create(&directory.path().join("file")).unwrap();
        file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
        Arc::new(file)
    }

    fn received(batch: Batch, inbox: &mut Inbox) -> Vec<Bytes> {
        let ledger = Ledger::new(64 << 20);
        let mut input = sent(batch.into_parts());
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
        let parts = [Bytes::from_static(b"ab"), large.clone(), Bytes::from_static(b"cd")];
        batch.message(parts.map(Part::from));
        batch.ping();
        batch.message([Bytes::new().into()]);
        assert_eq!(batch.bytes(), 5 + 4 + large.len() + 5 + 5);
        let messages = received(batch, &mut Inbox::new(0));
        assert_eq!(messages[0], [b"ab", &large[..], b"cd"].concat());
        assert_eq!((messages[1].len(), messages.len()), (0, 2));
    }

    #[test]
    fn a_large_message_arrives_in_pieces() {
        let [first, second, third] = [vec![1; 10], vec![2; FRAME_BYTES_MAX], vec![3; PIECE_BYTES]];
        let whole = [&first[..], &second[..], &third[..]].concat();
        let directory = tempfile::tempdir().unwrap();
        let file = file_of(&directory, &[b"before", &second[..], b"behind"].concat());
        let second = Part::File { file, position: 6, len: second.len() };
        let parts = vec![Bytes::from(first).into(), second, Bytes::from(third).into()];
        let mut large = Large::new(parts).unwrap();
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

    #[tokio::test]
    async fn what_lies_in_a_file_is_sent_from_there_between_what_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let stored = vec![8; 3 << 20];
        let file = file_of(&directory, &stored);
        let part = |position| Part::File { file: Arc::clone(&file), position, len: 1 << 20 };
        let mut batch = Batch::default();
        batch.message([Bytes::from_static(b"head").into(), part(0), part(2 << 20)]);
        batch.message([Bytes::from_static(b"next").into()]);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut receiver, _) = listener.accept().await.unwrap();
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut receiver, &mut read).await.unwrap();
            read
        });
        let expected = batch.bytes();
        let patience = Duration::from_secs(20);
        assert_eq!(send(&sender, batch.into_parts(), patience).await.unwrap(), expected);
        // What a file has no longer cannot be made up for.
        let cut = vec![part(stored.len() as u64)];
        assert!(send(&sender, cut, patience).await.is_err());
        drop(sender);
        let mut input = BytesMut::from(&reading.await.unwrap()[..]);
        let (_, first) = next_frame(&mut input, FRAME_BYTES_MAX).unwrap().unwrap();
        assert_eq!(first, [b"head", &stored[..2 << 20]].concat());
        let (_, second) = next_frame(&mut input, FRAME_BYTES_MAX).unwrap().unwrap();
        assert_eq!((&second[..], input.len()), (&b"next"[..], 0));
    }
}
