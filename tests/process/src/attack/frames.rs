//! Mutated frames over raw sockets, as fast as the broker takes them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rustix::net::sockopt::set_socket_linger;

use crate::hostile::Hostile;

/// Senders at once.
const SENDERS: u64 = 4;
/// Frames that are written in one go: one that the broker hangs up on takes the rest with it.
const BURST: usize = 4;
/// Bursts over one connection, as long as it lives.
const BURSTS_MAX: usize = 16;
/// How long a sender waits for an answer or an end.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often dialling is tried again; a flood leaves no local port now and then.
const DIALS_MAX: u32 = 1_000;

/// How it went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Frames that were handed to the kernel.
    pub frames: u64,
    /// Connections that they took.
    pub connections: u64,
}

/// Sends at least `count` frames.
pub fn attack(address: SocketAddr, seed: u64, count: u64) -> Result<Outcome> {
    let sent = AtomicU64::new(0);
    let connections = AtomicU64::new(0);
    thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (sent, connections) = (&sent, &connections);
                scope.spawn(move || -> Result<()> {
                    let mut hostile = Hostile::new(seed.wrapping_add(sender));
                    while sent.load(Ordering::Relaxed) < count {
                        let taken = speak(address, &mut hostile)?;
                        sent.fetch_add(taken, Ordering::Relaxed);
                        connections.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        senders.into_iter().try_for_each(|sender| match sender.join() {
            Ok(ended) => ended,
            Err(_) => bail!("a sender panicked"),
        })
    })?;
    let (frames, connections) = (sent.into_inner(), connections.into_inner());
    ensure!(count <= frames, "{frames} of {count} frames were sent");
    Ok(Outcome { frames, connections })
}

/// Sends until the broker hangs up, or enough. Returns how many frames were written.
fn speak(address: SocketAddr, hostile: &mut Hostile) -> Result<u64> {
    let mut stream = dial(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    stream.set_nodelay(true)?;
    // Its end is a reset, which leaves no port behind for a minute.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut answer = [0; 16 << 10];
    let mut sent = 0;
    for _ in 0..BURSTS_MAX {
        let frames: Vec<u8> = (0..BURST).flat_map(|_| hostile.frame()).collect();
        if stream.write_all(&frames).is_err() {
            break;
        }
        sent += BURST as u64;
        match stream.read(&mut answer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    Ok(sent)
}

/// Dials, and waits for a free local port if need be.
pub(super) fn dial(address: SocketAddr) -> Result<TcpStream> {
    let mut tried = 0;
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(error.into());
            }
            Err(error) if tried == DIALS_MAX => return Err(error.into()),
            Err(_) => {
                tried += 1;
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
