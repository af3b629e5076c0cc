//! Open-loop produce: every request has a time at which it is due, and its latency counts from
//! there. A broker that stalls is charged with every request that was due meanwhile.
//!
//! One connection, two blocking threads: timers of an event loop are as coarse as what is measured.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::broker::Broker;
use crate::load::{histogram, micros};
use crate::wire::{check_produced, correlation_of, number, produce_frame};

/// How long an answer may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Larger answers are none of ours.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A schedule.
#[derive(Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) begin: Instant,
    pub(crate) every: Duration,
    pub(crate) count: u32,
}

impl Schedule {
    /// `rate` requests per second for `span`, beginning a moment from now.
    pub(crate) fn new(rate: u32, span: Duration) -> Schedule {
        let every = Duration::from_secs(1) / rate;
        let count = (span.as_secs_f64() * f64::from(rate)).ceil() as u32;
        Schedule { begin: Instant::now() + Duration::from_millis(20), every, count: count.max(1) }
    }

    pub(crate) fn due(&self, at: u32) -> Instant {
        self.begin + self.every * at
    }
}

/// A blocking connection.
pub(crate) fn connect(broker: &Broker) -> Result<TcpStream> {
    let socket = TcpStream::connect(broker.address())?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// The next answer, without its length, in `buffer`.
pub(crate) fn receive<'b>(socket: &mut TcpStream, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length))?;
    ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
    buffer.resize(length, 0);
    socket.read_exact(buffer)?;
    Ok(buffer)
}

/// Waits until `due`, to within some tens of microseconds. Late is late: nothing is skipped.
fn wait_until(due: Instant) {
    if let Some(left) = due.checked_duration_since(Instant::now()) {
        thread::sleep(left);
    }
}

/// Produces on schedule until it is over or `stop` is set; gives back the latencies.
pub(crate) fn produce(
    broker: &Broker,
    topic: &str,
    batch: &[u8],
    schedule: Schedule,
    stop: &AtomicBool,
) -> Result<Histogram<u64>> {
    // A timer as exact as the system has it; without it, sleeps are 50 µs longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut reading = connect(broker)?;
    let mut writing = reading.try_clone()?;
    let mut frame = produce_frame(topic, 0, batch)?;
    let (told, count) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<()> {
            for at in 0..schedule.count {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                wait_until(schedule.due(at));
                number(&mut frame, i32::try_from(at)?);
                told.send(())?;
                writing.write_all(&frame)?;
            }
            Ok(())
        });
        let (mut latency, mut buffer) = (histogram(), Vec::new());
        while count.recv().is_ok() {
            let answer = receive(&mut reading, &mut buffer)?;
            check_produced(answer)?;
            let at = u32::try_from(correlation_of(answer)?)?;
            let late = Instant::now().saturating_duration_since(schedule.due(at));
            latency.saturating_record(micros(late));
        }
        sender.join().ok().context("the sender panicked")??;
        Ok(latency)
    })
}
