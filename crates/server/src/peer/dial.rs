//! Makes a connection to a peer, and talks until both know each other.

use std::io;
use std::net::SocketAddr;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use towpath_model::BrokerId;

use super::context::Context;
use super::handshake::{Handshake, Refusal};
use super::hello::{Class, Hello, PeerAddress};
use crate::connection::tune;

/// Bytes read at once before somebody is known.
const ROOM: usize = 2 * 1024;
/// What is still read from somebody who was refused, so that they can read why: in bytes and time.
const FAREWELL_BYTES: usize = 64 * 1024;
const FAREWELL_MAX: std::time::Duration = std::time::Duration::from_millis(200);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nobody listens there: the machine says so.
    #[error("nobody listens there")]
    NobodyListens,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether nobody but this machine can be at either end.
pub(crate) fn is_local(socket: &TcpStream) -> bool {
    let is_loopback = |address: io::Result<SocketAddr>| {
        address.is_ok_and(|address| address.ip().to_canonical().is_loopback())
    };
    is_loopback(socket.peer_addr()) && is_loopback(socket.local_addr())
}

/// Dials a peer, and learns who answers. `expects`: who is to answer.
pub(crate) async fn dial(
    context: &Context,
    address: &PeerAddress,
    class: Class,
    expects: Option<BrokerId>,
) -> Result<(TcpStream, Hello), Failure> {
    let deadline = Instant::now() + context.limits.resolve_max;
    let resolved = tokio::net::lookup_host((address.host.as_str(), address.port));
    let resolved =
        timeout_at(deadline, resolved).await.map_err(|_| slow("the name's resolution"))??;
    let mut socket = connect(context, resolved.take(ADDRESSES_MAX).collect()).await?;
    tune(&socket);
    let mut out = Vec::new();
    let is_local = is_local(&socket);
    if context.secret.is_none() && !is_local {
        return Err(Refusal::NotLoopback.into());
    }
    let mine = context.hello(class, expects);
    let mut handshake = Handshake::dial(mine, context.secret.clone(), is_local, &mut out);
    let shaken = shake(&mut socket, &mut handshake, out);
    let shaken = timeout(context.limits.handshake_max, shaken).await.map_err(|_| Refusal::Slow)?;
    Ok((socket, shaken?))
}

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

fn slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} took too long"))
}

async fn connect(context: &Context, addresses: Vec<SocketAddr>) -> Result<TcpStream, Failure> {
    let mut failure = None;
    for address in addresses {
        let connected = timeout(context.limits.dial_max, TcpStream::connect(address)).await;
        match connected.unwrap_or_else(|_| Err(slow("the connection"))) {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                // One address that is silent, of several: the process may still be there.
                let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
                match failure {
                    None if is_refused => failure = Some(Failure::NobodyListens),
                    None | Some(Failure::NobodyListens) if !is_refused => {
                        failure = Some(error.into());
                    }
                    _ => {}
                }
            }
        }
    }
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    Err(failure.unwrap_or_else(|| unknown().into()))
}

/// Talks until the other side is known, beginning with `out`.
pub(crate) async fn shake(
    socket: &mut TcpStream,
    handshake: &mut Handshake,
    mut out: Vec<u8>,
) -> Result<Hello, Failure> {
    let mut input = BytesMut::new();
    loop {
        if !out.is_empty() {
            socket.write_all(&out).await?;
            out.clear();
        }
        if socket.read_buf(&mut (&mut input).limit(ROOM)).await? == 0 {
            let ended = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(ended, "it hung up during the handshake").into());
        }
        match handshake.receive(&mut input, &mut out) {
            Ok(None) => {}
            Ok(Some(hello)) => return Ok(hello),
            Err(refusal) => {
                take_leave(socket, &out).await;
                return Err(refusal.into());
            }
        }
    }
}

/// Sends the last words. What the other side has sent is read, within bounds: the system would throw
/// our words away with it.
pub(crate) async fn take_leave(socket: &mut TcpStream, words: &[u8]) {
    if words.is_empty() {
        return;
    }
    let leave = async {
        socket.write_all(words).await?;
        socket.shutdown().await?;
        let mut left = FAREWELL_BYTES;
        let mut ignored = [0; ROOM];
        while 0 < left {
            match socket.read(&mut ignored).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        io::Result::Ok(())
    };
    // A courtesy: whether it arrives does not matter.
    let _ = timeout(FAREWELL_MAX, leave).await;
}
