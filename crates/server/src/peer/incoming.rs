//! Accepts connections of peers, and reads what they send.
//!
//! Of each peer and class the newest connection counts: the peer has made it because the older one is
//! gone, or because it has been started anew. Until the older one's last message has been taken the newer
//! one is not read, so that a peer costs one thread at most, however often it comes back while a
//! disk does not answer.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use towpath_model::{BrokerId, Uuid};

use super::Routes;
use super::context::Context;
use super::dial::{Failure, is_local, shake, take_leave};
use super::frame::{FRAME_BYTES_MAX, Inbox, Kind, Malformed, Received, head, needed, next_frame};
use super::handshake::{Handshake, Refusal};
use super::hello::{Class, Hello};
use crate::connection::{ROOM_MIN, receive, tune};
use crate::connection_slots::ConnectionSlot;
use crate::limits::{Charge, Ledger};

/// The peers that are connected to this broker.
#[derive(Debug, Default)]
pub(crate) struct Senders(Mutex<BTreeMap<BrokerId, Sender>>);

#[derive(Debug)]
struct Sender {
    directory_id: Uuid,
    /// Those that are open or end.
    connections: usize,
    /// The newest of each class; dropped, it ends.
    newest: [Option<oneshot::Sender<()>>; Class::ALL.len()],
    /// For one of each class that reads.
    turns: [Arc<tokio::sync::Mutex<()>>; Class::ALL.len()],
}

/// A connection's place among them.
struct Place<'a> {
    senders: &'a Senders,
    peer: BrokerId,
    /// Ends when a newer one takes the place.
    replaced: oneshot::Receiver<()>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Senders {
    fn enter(&self, hello: &Hello, peers_max: usize) -> Result<Place<'_>, Refusal> {
        let mut senders = self.0.lock().expect("nothing panics over the list of peers");
        if !senders.contains_key(&hello.node_id) && peers_max <= senders.len() {
            return Err(Refusal::TooManyPeers);
        }
        let sender = senders.entry(hello.node_id).or_insert_with(|| Sender {
            directory_id: hello.directory_id,
            connections: 0,
            newest: Default::default(),
            turns: Default::default(),
        });
        if sender.directory_id != hello.directory_id {
            return Err(Refusal::TakenNodeId(hello.node_id));
        }
        sender.connections += 1;
        let (keep, replaced) = oneshot::channel();
        sender.newest[hello.class.index()] = Some(keep);
        let turn = Arc::clone(&sender.turns[hello.class.index()]);
        Ok(Place { senders: self, peer: hello.node_id, replaced, turn })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut senders = self.senders.0.lock().expect("nothing panics over the list of peers");
        let Some(sender) = senders.get_mut(&self.peer) else { return };
        sender.connections -= 1;
        if sender.connections == 0 {
            senders.remove(&self.peer);
        }
    }
}

/// Why a peer's connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("it hung up")]
    HungUp,
    #[error("nothing arrived for {0:?}")]
    Silent(Duration),
    #[error("a newer connection of it")]
    Replaced,
    #[error("it sent {0}")]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves a connection that was accepted, until it ends. The slot is for those who are not known yet.
pub(crate) async fn serve(
    context: Arc<Context>,
    senders: Arc<Senders>,
    routes: Arc<Routes>,
    mut socket: TcpStream,
    from: SocketAddr,
    slot: ConnectionSlot,
) {
    tune(&socket);
    let welcomed = welcome(&context, &senders, &mut socket).await;
    let (hello, place) = match welcomed {
        Ok(welcomed) => welcomed,
        Err(failure) => return complain(&context, from, &failure),
    };
    drop(slot);
    let peer = hello.node_id;
    if let Some(address) = &hello.address {
        let limits = &context.limits;
        if !context.addresses.learn(peer, address.clone(), limits.peers_max) {
            tracing::warn!(%peer, "a broker is not called back: there are as many peers as may be");
        }
    }
    routes.called(peer);
    tracing::debug!(%peer, %from, class = hello.class.name(), "a broker has connected");
    context.handler.connected(peer, &hello);
    let ended = read(&context, &hello, &mut socket, place).await;
    match &ended {
        Err(Ended::Malformed(_)) => {
            if let Some(suppressed) = context.may_complain() {
                tracing::warn!(%peer, %from, suppressed, "connection of another broker closed: {ended:?}");
            }
        }
        _ => tracing::debug!(%peer, %from, class = hello.class.name(), "{ended:?}"),
    }
}

fn complain(context: &Context, from: SocketAddr, failure: &Failure) {
    match failure {
        // Somebody looks whether the port is open, or thinks better of it.
        Failure::Io(error) => tracing::debug!(%from, %error, "a handshake was not completed"),
        Failure::Refused(Refusal::Itself) => {
            tracing::debug!(%from, "this broker has called itself")
        }
        Failure::Refused(refusal) => {
            if let Some(suppressed) = context.refused(refusal) {
                tracing::warn!(%from, suppressed, "connection to the port for brokers refused: {refusal}");
            }
        }
        Failure::NobodyListens => {}
    }
}

async fn welcome<'a>(
    context: &Context,
    senders: &'a Senders,
    socket: &mut TcpStream,
) -> Result<(Hello, Place<'a>), Failure> {
    let mine = context.hello(Class::Control, None);
    let mut handshake = Handshake::accept(mine, context.secret.clone(), is_local(socket));
    let shaken = shake(socket, &mut handshake, Vec::new());
    let shaken = timeout(context.limits.handshake_max, shaken).await.map_err(|_| Refusal::Slow)?;
    let hello = shaken?;
    let mut out = Vec::new();
    match senders.enter(&hello, context.limits.peers_max) {
        Ok(place) => {
            handshake.welcome(&mut out);
            crate::outgoing::write_all(socket, &mut vec![out.into()], context.limits.stall_max)
                .await?;
            Ok((hello, place))
        }
        Err(refusal) => {
            handshake.refuse(&refusal, &mut out);
            take_leave(socket, &out).await;
            Err(refusal.into())
        }
    }
}

async fn read(
    context: &Context,
    hello: &Hello,
    socket: &mut TcpStream,
    mut place: Place<'_>,
) -> Result<(), Ended> {
    let turn = Arc::clone(&place.turn);
    let reading = async {
        let _turn = turn.lock().await;
        take_messages(context, hello, socket).await
    };
    tokio::select! {
        ended = reading => ended,
        _ = &mut place.replaced => Err(Ended::Replaced),
    }
}

async fn take_messages(
    context: &Context,
    hello: &Hello,
    socket: &mut TcpStream,
) -> Result<(), Ended> {
    let counted = context.metrics.of(hello.class);
    let limits = &context.limits;
    let mut inbox = Inbox::new(limits.message_bytes_max);
    let (mut input, mut room, mut charge) = (BytesMut::new(), ROOM_MIN, Charge::default());
    loop {
        while let Some((kind, payload)) = next_frame(&mut input, FRAME_BYTES_MAX)? {
            let _of_this_frame = std::mem::take(&mut charge);
            match inbox.accept(kind, payload, &context.ledger)? {
                Received::Message(message, _of_its_pieces) => {
                    counted.messages_in.inc();
                    context.handler.receive(hello.node_id, message);
                }
                Received::Ping => answer(socket)?,
                Received::Nothing => {}
                Received::Dropped => {
                    counted.dropped.inc();
                }
            }
            tokio::task::consume_budget().await;
        }
        if input.is_empty() {
            // An idle connection holds no buffer.
            input = BytesMut::new();
        }
        let read = read_more(&context.ledger, socket, &mut input, &mut room, &mut charge);
        match timeout(limits.stall_max, read).await {
            Ok(Ok(0)) => return Err(Ended::HungUp),
            Ok(Ok(read)) => counted.bytes_in.inc_by(read as u64),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Ended::Silent(limits.stall_max)),
        };
    }
}

/// Reads more of what arrives. A large frame whose head is there gets all of its memory at once: its
/// sender has proved who it is, and one that grows as it arrives is copied with every step.
async fn read_more(
    ledger: &Ledger,
    socket: &mut TcpStream,
    input: &mut BytesMut,
    room: &mut usize,
    charge: &mut Charge,
) -> io::Result<usize> {
    let needed = needed(input);
    if needed <= input.len() + *room {
        return receive(ledger, socket, input, needed, room, charge).await;
    }
    socket.readable().await?;
    ledger.cover(charge, needed).await;
    if input.capacity() < needed {
        let mut whole = BytesMut::with_capacity(needed);
        whole.extend_from_slice(input);
        *input = whole;
    }
    let left = needed - input.len();
    socket.read_buf(&mut input.limit(left)).await
}

/// Says that somebody is here. There is always room for that, unless the peer reads no answers.
fn answer(socket: &TcpStream) -> Result<(), Ended> {
    let pong = head(Kind::Pong, 0);
    match socket.try_write(&pong)? {
        written if written == pong.len() => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::WriteZero, "it reads no answers").into()),
    }
}
