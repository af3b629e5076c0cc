//! One Kafka connection: frames in, answers out, in the order of the requests.
//!
//! Everything happens in the connection's own task: it reads what is there, decodes every complete
//! frame, lets each handler do its part at once (an append happens here and now), and awaits the
//! answers concurrently. What a stranger sends costs only this task, which lives until the peer
//! hangs up, breaks a rule or a bound, or the listener stops.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::first_bytes::Stranger;
use crate::kafka::{self, Answer, Answered, Peer};
use crate::limits::{Charge, Ledger, Limits, SMALL_BYTES};
use crate::node::Node;
use crate::outgoing::{Outgoing, send};

pub(crate) type File = crate::disk::NodeFile;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the peer {}", .0.advice())]
    Stranger(Stranger),
    #[error("a frame of {length} bytes; the most is {max} (socket.request.max.bytes)")]
    FrameTooLarge { length: i32, max: usize },
    #[error("no request for {0:?} (connections.max.idle.ms)")]
    Idle(Duration),
    #[error("a request did not arrive within {0:?}")]
    Slow(Duration),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Bytes that a read makes room for, and that are charged for it: few until a connection has shown
/// that it sends many. Somebody who sends a byte and stalls must not hold what belongs to others.
pub(crate) const ROOM_MIN: usize = 1024;
const ROOM_MAX: usize = 64 * 1024;
const _: () = assert!(ROOM_MAX <= SMALL_BYTES);

/// Bytes of answers in memory beyond which no further request of the connection is begun: somebody
/// who asks and does not read must not fill the machine with what was asked for.
const HELD_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that may wait in the kernel to be sent over a connection. Many megabytes otherwise do, for
/// a reader on the same machine or network, and have left the processor's caches when they are sent:
/// half the CPU time per byte. What is under way and not yet acknowledged does not count, so that long
/// lines are filled all the same.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 128 << 10;

/// How long a connection may begin one request after the other before others get a turn.
const TURN_MAX: Duration = Duration::from_micros(500);

/// Answers gathered before they are written although more are ready.
const GATHER_MAX: usize = 64;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    node: Arc<Node>,
    mut socket: TcpStream,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
) {
    let Ok(local) = socket.local_addr() else { return };
    tune(&socket);
    let mut connection = Connection {
        peer: Peer::new(peer, local),
        input: BytesMut::new(),
        room: ROOM_MIN,
        charge: Charge::default(),
        under_way: UnderWay::default(),
        output: Vec::new(),
        heard: false,
        stop,
        node,
    };
    match connection.run(&mut socket).await {
        Ok(()) => {}
        Err(Ended::Io(error)) => tracing::debug!(%peer, %error, "connection ended"),
        Err(Ended::Idle(limit)) => tracing::debug!(%peer, ?limit, "idle connection closed"),
        Err(ended) => {
            connection.node.metrics().connections_refused.inc();
            if let Some(suppressed) = connection.node.may_complain() {
                tracing::warn!(%peer, suppressed, "kafka connection closed: {ended}");
            }
            if let Ended::Stranger(stranger) = &ended {
                // A courtesy: whether it arrives does not matter.
                let _ = socket.try_write(stranger.answer());
            }
        }
    }
}

/// Sets what every connection wants of the kernel.
pub(crate) fn tune(socket: &TcpStream) {
    // What is sent is gathered here; waiting for more bytes in the kernel would only add latency.
    let _ = socket.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_MAX);
}

struct Connection {
    node: Arc<Node>,
    peer: Peer,
    input: BytesMut,
    /// What the next read makes room for, in bytes.
    room: usize,
    /// What the bytes in `input` are charged with.
    charge: Charge,
    under_way: UnderWay,
    output: Vec<Outgoing<File>>,
    /// A whole request has arrived before.
    heard: bool,
    /// Changes when the broker stops: nothing more is read then.
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn run(&mut self, socket: &mut TcpStream) -> Result<(), Ended> {
        let limits = self.node.limits().clone();
        // When the request that is arriving began, or the last one did; and its newest byte.
        let (mut since, mut last_byte_at) = (Instant::now(), Instant::now());
        loop {
            let mut turn = Turn::default();
            while self.may_begin(&limits) && !*self.stop.borrow() {
                let Some(frame) = self.next_frame()? else { break };
                self.heard = true;
                since = Instant::now();
                if turn.is_over(since) {
                    tokio::task::yield_now().await;
                    turn = Turn::default();
                }
                let charge = std::mem::take(&mut self.charge);
                let Connection { node, peer, .. } = &mut *self;
                let answer = node.guarded(|| kafka::handle(node, peer, frame));
                self.under_way.push(answer, charge);
            }
            if self.input.is_empty() {
                // An idle connection holds no buffer; the old one belongs to the requests cut
                // from it.
                self.input = BytesMut::new();
            }
            self.gather_ready().await?;
            if !self.output.is_empty() {
                let sent = send(socket, &mut self.output, limits.write_stall_max).await?;
                self.node.metrics().bytes_out.inc_by(sent as u64);
                continue;
            }
            let is_stopping = *self.stop.borrow();
            if is_stopping && self.under_way.is_empty() {
                return Ok(());
            }
            let may_read = !is_stopping && self.may_begin(&limits);
            let begun = !self.input.is_empty();
            let needed = self.needed();
            let patience = if begun { limits.arrival_max(needed) } else { limits.idle_max };
            let mut deadline = since + patience;
            if begun {
                deadline = deadline.min(last_byte_at + limits.request_wait_max);
            }
            let Connection { node, input, room, charge, under_way, stop, .. } = &mut *self;
            tokio::select! {
                biased;
                answered = under_way.next(node), if !under_way.is_empty() => self.take(answered)?,
                _ = stop.changed(), if !is_stopping => {}
                read = timeout_at(deadline, receive(node.ledger(), socket, input, needed, room, charge)),
                    if may_read =>
                {
                    match read {
                        Err(_) if begun => return Err(Ended::Slow(patience)),
                        Err(_) if !self.under_way.is_empty() => since = Instant::now(),
                        Err(_) => return Err(Ended::Idle(patience)),
                        Ok(Ok(0)) => return Ok(()),
                        Ok(Ok(read)) => {
                            last_byte_at = Instant::now();
                            if !begun {
                                since = last_byte_at;
                            }
                            self.node.metrics().bytes_in.inc_by(read as u64);
                        }
                        Ok(Err(error)) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Whether one more request may be begun, or read.
    fn may_begin(&self, limits: &Limits) -> bool {
        self.under_way.len() < limits.in_flight_max
            && self.under_way.held_bytes < HELD_BYTES_MAX
            && !self.under_way.is_next_held_up()
    }

    /// Bytes of the frame that has begun to arrive.
    fn needed(&self) -> usize {
        match self.input.first_chunk::<4>() {
            Some(prefix) => 4 + usize::try_from(i32::from_be_bytes(*prefix)).unwrap_or(0),
            None => 4,
        }
    }

    /// Takes a complete frame off the input, without its length.
    fn next_frame(&mut self) -> Result<Option<BytesMut>, Ended> {
        let Some(prefix) = self.input.first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*prefix);
        let max = self.node.limits().frame_bytes_max;
        let bytes = match usize::try_from(length) {
            Ok(bytes) if bytes <= max => bytes,
            _ if !self.heard => return Err(Ended::Stranger(Stranger::of(&self.input))),
            _ => return Err(Ended::FrameTooLarge { length, max }),
        };
        if self.input.len() < 4 + bytes {
            return Ok(None);
        }
        self.input.advance(4);
        Ok(Some(self.input.split_to(bytes)))
    }

    /// Takes every answer that is ready, in order.
    async fn gather_ready(&mut self) -> Result<(), Ended> {
        let mut bytes = 0;
        while self.output.len() < GATHER_MAX && bytes < HELD_BYTES_MAX && !self.under_way.is_empty()
        {
            let Some(answered) = self.under_way.ready(&self.node).await else { break };
            bytes += answered.held_bytes();
            self.take(answered)?;
        }
        Ok(())
    }

    fn take(&mut self, answered: Answered) -> Result<(), Ended> {
        match answered {
            Answered::Frame(outgoing) => self.output.push(outgoing),
            Answered::Nothing => {}
            Answered::Close(why) => return Err(Ended::Refused(why)),
        }
        Ok(())
    }
}

/// The time for which a connection begins one request after the other, while others wait for its
/// worker.
#[derive(Debug, Default)]
struct Turn {
    began: Option<Instant>,
}

impl Turn {
    /// Whether the request that would begin `now` is for the next turn.
    fn is_over(&mut self, now: Instant) -> bool {
        TURN_MAX < now - *self.began.get_or_insert(now)
    }
}

/// Reads what has arrived. Memory is taken, and charged, only once there is something to read: an
/// idle connection holds none. While the ledger is full the socket is not read; answers still go
/// out meanwhile, which is what empties the ledger.
pub(crate) async fn receive(
    ledger: &Ledger,
    socket: &mut TcpStream,
    input: &mut BytesMut,
    needed: usize,
    room: &mut usize,
    charge: &mut Charge,
) -> io::Result<usize> {
    socket.readable().await?;
    // The first piece of every request comes from the part of the ledger that large ones cannot
    // exhaust.
    ledger.cover(charge, input.len() + *room).await;
    make_room(input, needed, *room);
    let read = socket.read_buf(&mut input.limit(*room)).await?;
    *room = next_room(*room, read);
    Ok(read)
}

/// Makes room for `room` bytes more in the buffer of a frame of `needed` bytes. A large one grows by
/// doubling like any, but never to more than its frame.
fn make_room(input: &mut BytesMut, needed: usize, room: usize) {
    if input.capacity() - input.len() < room {
        let doubled = (2 * input.len()).min(needed);
        let mut larger = BytesMut::with_capacity(doubled.max(input.len() + room));
        larger.extend_from_slice(input);
        *input = larger;
    }
}

/// Room for the next read, after one that found `read` bytes.
fn next_room(room: usize, read: usize) -> usize {
    if room <= read {
        (4 * room).min(ROOM_MAX)
    } else if read < room / 8 {
        (room / 2).max(ROOM_MIN)
    } else {
        room
    }
}

/// Requests that have been carried out or begun, and whose answers are still to come.
#[derive(Default)]
struct UnderWay {
    answers: VecDeque<(Answer, Charge)>,
    /// What those take in memory that are there already.
    held_bytes: usize,
}

impl UnderWay {
    fn push(&mut self, answer: Answer, charge: Charge) {
        if let Answer::Now(answered) = &answer {
            self.held_bytes += answered.held_bytes();
        }
        self.answers.push_back((answer, charge));
    }

    fn len(&self) -> usize {
        self.answers.len()
    }

    fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Whether the newest request has to be finished before the next one may begin.
    fn is_next_held_up(&self) -> bool {
        matches!(self.answers.back(), Some((Answer::InOrder(..), _)))
    }

    /// The oldest answer. The younger ones make progress meanwhile.
    async fn next(&mut self, node: &Node) -> Answered {
        std::future::poll_fn(|context| self.poll(node, context)).await
    }

    /// The oldest answer if it is there already.
    async fn ready(&mut self, node: &Node) -> Option<Answered> {
        std::future::poll_fn(|context| match self.poll(node, context) {
            Poll::Ready(answered) => Poll::Ready(Some(answered)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn poll(&mut self, node: &Node, context: &mut Context<'_>) -> Poll<Answered> {
        let Some((oldest, _)) = self.answers.front_mut() else { return Poll::Pending };
        let answered = match oldest {
            Answer::Now(_) => self.answers.pop_front().map(|(answer, _)| answer),
            Answer::Later(future, under_way) | Answer::InOrder(future, under_way) => {
                match node.guarded(|| Pin::new(future).poll(context)) {
                    Poll::Ready(answered) => {
                        drop(under_way.take());
                        self.answers.pop_front();
                        return Poll::Ready(answered);
                    }
                    Poll::Pending => None,
                }
            }
        };
        match answered {
            Some(Answer::Now(answered)) => {
                self.held_bytes -= answered.held_bytes();
                Poll::Ready(answered)
            }
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_its_frame_and_little_more() {
        let needed = 1_000_000;
        let mut input = BytesMut::new();
        while input.len() < needed {
            make_room(&mut input, needed, ROOM_MAX);
            let read = ROOM_MAX.min(needed - input.len());
            input.put_bytes(7, read);
        }
        assert!(input.capacity() < needed + 2 * ROOM_MAX, "{}", input.capacity());
    }

    #[test]
    fn a_turn_ends_after_its_time_however_many_requests_there_are() {
        let (began, mut turn) = (Instant::now(), Turn::default());
        assert!(!turn.is_over(began));
        assert!(!turn.is_over(began + TURN_MAX));
        assert!(turn.is_over(began + TURN_MAX + Duration::from_micros(1)));
    }

    #[test]
    fn room_grows_with_what_arrives_and_shrinks_with_what_does_not() {
        let mut room = ROOM_MIN;
        for _ in 0..10 {
            room = next_room(room, room);
        }
        assert_eq!(room, ROOM_MAX);
        assert_eq!(next_room(ROOM_MAX, ROOM_MAX / 2), ROOM_MAX);
        for _ in 0..10 {
            room = next_room(room, 1);
        }
        assert_eq!(room, ROOM_MIN);
    }
}
