//! Sends to a peer over one connection, and hears whether it is still there.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::Records;
use super::batch::{Batch, Large, Part, send};
use super::context::Context;
use super::frame::{FRAME_BYTES_MAX, Kind, Malformed, next_frame};
use super::handshake::Refusal;
use super::hello::Class;
use super::link::Peer;
use super::queue::Queue;

/// Bytes gathered before they are written although more wait.
const GATHER_BYTES: usize = 512 << 10;
/// Records asked of the handler at once.
const RECORDS_BYTES: usize = 1 << 20;
/// What a receiver may say is small.
const ANSWER_BYTES_MAX: usize = 16;
/// A receiver of records may have many of them before it when it is asked whether it is there. On the
/// other connection nothing takes long.
const PATIENCE_WITH_RECORDS: u32 = 6;

/// Why a connection to a peer ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("it hung up")]
    HungUp,
    #[error("no answer for {0:?}")]
    Silent(Duration),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Malformed> for Ended {
    fn from(malformed: Malformed) -> Ended {
        Ended::Refused(malformed.into())
    }
}

/// Sends what waits for one peer.
pub(crate) struct Writer<'a> {
    context: &'a Arc<Context>,
    peer: &'a Peer,
    queue: &'a Queue,
    class: Class,
    socket: &'a TcpStream,
    /// The message that is going out in pieces.
    large: Option<Large>,
    reading: &'a mut Option<JoinHandle<Records>>,
    /// What came of it.
    fetched: Option<Records>,
    /// When the question that is not answered was asked.
    asked_at: Option<Instant>,
    next_ping: Instant,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        context: &'a Arc<Context>,
        peer: &'a Peer,
        class: Class,
        socket: &'a TcpStream,
        reading: &'a mut Option<JoinHandle<Records>>,
    ) -> Writer<'a> {
        let next_ping = Instant::now() + context.limits.ping_every;
        let queue = peer.queue(class);
        Writer {
            context,
            peer,
            queue,
            class,
            socket,
            large: None,
            reading,
            fetched: None,
            asked_at: None,
            next_ping,
        }
    }

    /// Until the connection ends.
    pub(crate) async fn run(self) -> Ended {
        let (socket, has_answered) = (self.socket, AtomicBool::new(false));
        let ended = tokio::select! {
            ended = self.write(&has_answered) => ended,
            ended = hear(socket, &has_answered) => ended,
        };
        match ended {
            Err(ended) => ended,
        }
    }

    async fn write(mut self, has_answered: &AtomicBool) -> Result<Infallible, Ended> {
        let (counted, stall_max) =
            (self.context.metrics.of(self.class), self.context.limits.stall_max);
        loop {
            // With a peer that takes everything at once there is nothing here that waits.
            tokio::task::consume_budget().await;
            let mut batch = self.gather();
            if self.next_ping <= Instant::now() {
                self.ask(has_answered, &mut batch)?;
            }
            if batch.bytes() == 0 {
                self.wait().await;
                continue;
            }
            let messages = batch.messages;
            let sent = send(self.socket, batch.into_parts(), stall_max).await?;
            counted.bytes_out.inc_by(sent as u64);
            counted.messages_out.inc_by(messages);
        }
    }

    /// Until there is something to do.
    async fn wait(&mut self) {
        let Writer { queue, reading, next_ping, .. } = self;
        let read = async {
            match reading {
                Some(reading) => reading.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = queue.wait() => {}
            read = read => {
                *self.reading = None;
                self.fetched = Some(read.unwrap_or(Records::Nothing));
            }
            () = sleep_until(*next_ping) => {}
        }
    }

    /// What waits, as much as is written at once.
    fn gather(&mut self) -> Batch {
        let mut batch = Batch::default();
        while batch.bytes() < GATHER_BYTES
            && let Some(message) = self.queue.pop()
        {
            batch.message([message.into()]);
        }
        if self.class == Class::Records && self.large.is_none() {
            self.gather_records(&mut batch);
        }
        if self.large.is_none() {
            self.large =
                self.queue.pop_large().and_then(|message| Large::new(vec![message.into()]));
        }
        if self.large.as_mut().is_some_and(|large| batch.piece(large)) {
            self.large = None;
        }
        batch
    }

    /// Takes records, one message at most: it is written before the next one is asked for.
    fn gather_records(&mut self, batch: &mut Batch) {
        if let Some(read) = self.reading.as_mut().and_then(FutureExt::now_or_never) {
            *self.reading = None;
            self.fetched = Some(read.unwrap_or(Records::Nothing));
        }
        match self.fetched.take() {
            Some(Records::Message(parts)) => {
                self.queue.records_are_ready();
                return self.put(parts, batch);
            }
            // Others may be waiting behind it.
            Some(Records::Nothing) => self.queue.records_are_ready(),
            Some(Records::Cold) | None => {}
        }
        if GATHER_BYTES <= batch.bytes() || !self.queue.take_readiness() {
            return;
        }
        let handler = &self.context.handler;
        match handler.next_records(self.peer.id, RECORDS_BYTES, false) {
            Records::Nothing => {}
            Records::Message(parts) => {
                self.queue.records_are_ready();
                self.put(parts, batch);
            }
            Records::Cold if self.reading.is_some() => {}
            Records::Cold => {
                let (context, to) = (Arc::clone(self.context), self.peer.id);
                *self.reading = Some(tokio::spawn(async move {
                    let handler = Arc::clone(&context.handler);
                    let read = move || handler.next_records(to, RECORDS_BYTES, true);
                    // It fails when the broker stops.
                    context.cold_reads.run(read).await.unwrap_or(Records::Nothing)
                }));
            }
        }
    }

    fn put(&mut self, parts: Vec<Part>, batch: &mut Batch) {
        let bytes: usize = parts.iter().map(Part::size).sum();
        if bytes <= FRAME_BYTES_MAX {
            return batch.message(parts);
        }
        let max = self.context.limits.message_bytes_max;
        self.large = if bytes <= max { Large::new(parts) } else { None };
        if self.large.is_none() {
            self.context.metrics.of(self.class).dropped.inc();
            tracing::error!(peer = %self.peer.id, bytes, max, "records for another broker are dropped: \
                a message between brokers may not be that large");
        }
    }

    /// Asks whether the receiver is there. Fails when it owes an answer for too long: bytes that the
    /// system has taken say nothing about a machine that is gone.
    fn ask(&mut self, has_answered: &AtomicBool, batch: &mut Batch) -> Result<(), Ended> {
        let now = Instant::now();
        self.next_ping = now + self.context.limits.ping_every;
        if has_answered.swap(false, Ordering::AcqRel) {
            self.asked_at = None;
        }
        let patience = match self.class {
            Class::Control => self.context.limits.stall_max,
            Class::Records => self.context.limits.stall_max * PATIENCE_WITH_RECORDS,
        };
        let asked_at = *self.asked_at.get_or_insert(now);
        if patience < now - asked_at {
            return Err(Ended::Silent(patience));
        }
        batch.ping();
        Ok(())
    }
}

/// Reads what a receiver says, which is that it is there, until it hangs up.
async fn hear(socket: &TcpStream, has_answered: &AtomicBool) -> Result<Infallible, Ended> {
    let mut input = BytesMut::new();
    loop {
        socket.readable().await?;
        input.reserve(ANSWER_BYTES_MAX);
        match socket.try_read_buf(&mut input) {
            Ok(0) => return Err(Ended::HungUp),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        while let Some((kind, payload)) = next_frame(&mut input, ANSWER_BYTES_MAX)? {
            match (kind, payload.first_chunk::<2>()) {
                (Kind::Pong, None) => has_answered.store(true, Ordering::Release),
                (Kind::Refused, Some(code)) => {
                    return Err(Refusal::Told(u16::from_be_bytes(*code)).into());
                }
                (kind, _) => return Err(Malformed::Order(kind).into()),
            }
        }
    }
}
