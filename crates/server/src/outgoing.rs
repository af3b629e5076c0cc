//! An answer on its way out: bytes from memory, and file regions handed over without a copy.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::Interest;
use tokio::net::TcpStream;
use towpath_driver::DiskFile;
use towpath_protocol::{Frame, Piece};

/// A stretch of a file.
pub(crate) struct Region<F> {
    pub(crate) file: Arc<F>,
    pub(crate) position: u64,
}

/// One frame and the files that its regions lie in.
pub(crate) struct Outgoing<F> {
    pub(crate) frame: Frame,
    pub(crate) regions: Vec<Region<F>>,
}

impl<F> From<Frame> for Outgoing<F> {
    fn from(frame: Frame) -> Self {
        Outgoing { frame, regions: Vec::new() }
    }
}

/// Chunk of the copying path, where the system cannot send from a file.
const COPY_BYTES: usize = 1024 * 1024;

/// Sends what gathered: small answers in one write, regions from their files.
pub(crate) async fn send<F: DiskFile>(
    socket: &TcpStream,
    gathered: &mut Vec<Outgoing<F>>,
    stall_max: Duration,
) -> io::Result<usize> {
    let mut sent = 0;
    let mut head: Vec<Bytes> = Vec::new();
    for outgoing in gathered.drain(..) {
        for piece in outgoing.frame.pieces {
            match piece {
                Piece::Bytes(bytes) => head.push(bytes),
                Piece::Region { index, len } => {
                    sent += write_all(socket, &mut head, stall_max).await?;
                    let region = outgoing.regions.get(index as usize);
                    let region = region.expect("an answer names the regions it carries");
                    send_region(socket, region, len as usize, stall_max).await?;
                    sent += len as usize;
                }
            }
        }
    }
    sent += write_all(socket, &mut head, stall_max).await?;
    Ok(sent)
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "what was sent is not read at the other end")
}

async fn writable(socket: &TcpStream, stall_max: Duration) -> io::Result<()> {
    tokio::time::timeout(stall_max, socket.writable()).await.map_err(|_| stalled())?
}

/// Sends bytes from memory, which takes as long as the other side needs; fails when it takes none for
/// `stall_max`.
pub(crate) async fn write_all(
    socket: &TcpStream,
    pieces: &mut Vec<Bytes>,
    stall_max: Duration,
) -> io::Result<usize> {
    let total = pieces.iter().map(Bytes::len).sum();
    let mut first = 0;
    while first < pieces.len() {
        let slices: Vec<io::IoSlice<'_>> =
            pieces[first..].iter().take(64).map(|piece| io::IoSlice::new(piece)).collect();
        let mut written = match socket.try_write_vectored(&slices) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                writable(socket, stall_max).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        while first < pieces.len() && pieces[first].len() <= written {
            written -= pieces[first].len();
            first += 1;
        }
        if first < pieces.len() {
            pieces[first].advance(written);
        }
    }
    pieces.clear();
    Ok(total)
}

/// Sends a region of a file, without a copy where the system can.
pub(crate) async fn send_region<F: DiskFile>(
    socket: &TcpStream,
    region: &Region<F>,
    len: usize,
    stall_max: Duration,
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(file) = region.file.as_std() {
        return sendfile(socket, file, region.position, len, stall_max).await;
    }
    copy(socket, &*region.file, region.position, len, stall_max).await
}

#[cfg(target_os = "linux")]
async fn sendfile(
    socket: &TcpStream,
    file: &std::fs::File,
    position: u64,
    len: usize,
    stall_max: Duration,
) -> io::Result<()> {
    let (mut offset, end) = (position, position + len as u64);
    while offset < end {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let sent = socket.try_io(Interest::WRITABLE, || {
            let mut at = offset;
            Ok(rustix::fs::sendfile(socket.as_fd(), file.as_fd(), Some(&mut at), left)?)
        });
        match sent {
            Ok(0) => return Err(shorter_than_promised()),
            Ok(sent) => offset += sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                writable(socket, stall_max).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn copy<F: DiskFile>(
    socket: &TcpStream,
    file: &F,
    position: u64,
    len: usize,
    stall_max: Duration,
) -> io::Result<()> {
    let (mut offset, end) = (position, position + len as u64);
    while offset < end {
        let want = usize::try_from(end - offset).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let mut buffer = vec![0; want];
        let read = file.read_at(&mut buffer, offset)?;
        if read == 0 {
            return Err(shorter_than_promised());
        }
        buffer.truncate(read);
        write_all(socket, &mut vec![Bytes::from(buffer)], stall_max).await?;
        offset += read as u64;
    }
    Ok(())
}

fn shorter_than_promised() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a segment is shorter than its index says")
}
