//! Connections that hold on to what they have: a byte now and then, half a request, answers that
//! nobody takes. Each kind has a deadline by which the broker must be rid of it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kafka::{KafkaConnection, fetch_request};
use crate::{Addresses, BrokerProcess};

/// Bytes are written this far apart.
const DRIP: Duration = Duration::from_secs(1);
/// How much later than its deadline a connection may be closed: the machine is busy.
const SLACK: Duration = Duration::from_secs(20);
/// A topic with more than socket buffers hold.
const LARGE_TOPIC: &str = "large";
/// Fetches that are sent by whoever takes no answers.
const DEAF_FETCHES: usize = 12;

/// What a slow connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A frame byte by byte.
    KafkaDrip,
    /// Half a frame, then silence.
    KafkaHalf,
    /// A part of a length, then silence.
    KafkaLength,
    /// Fetches, and takes no answer.
    KafkaDeaf,
    /// A head byte by byte.
    HttpHeadDrip,
    /// A body byte by byte.
    HttpBodyDrip,
    /// A chunked body that stops.
    HttpChunkHalf,
    /// Nothing at all.
    HttpSilent,
}

impl Kind {
    /// Eleven of fifteen speak Kafka: HTTP has room for fewer.
    const ROUND: [Kind; 15] = [
        Kind::KafkaDrip,
        Kind::KafkaHalf,
        Kind::KafkaLength,
        Kind::KafkaDrip,
        Kind::HttpHeadDrip,
        Kind::KafkaHalf,
        Kind::KafkaDrip,
        Kind::HttpBodyDrip,
        Kind::KafkaLength,
        Kind::KafkaDrip,
        Kind::KafkaHalf,
        Kind::HttpChunkHalf,
        Kind::KafkaDrip,
        Kind::KafkaLength,
        Kind::HttpSilent,
    ];

    /// Few are deaf: each may fill megabytes of the kernel's buffers, on this same machine.
    fn of(index: usize) -> Kind {
        if index % 64 == 63 { Kind::KafkaDeaf } else { Kind::ROUND[index % Kind::ROUND.len()] }
    }

    fn is_http(self) -> bool {
        matches!(
            self,
            Kind::HttpHeadDrip | Kind::HttpBodyDrip | Kind::HttpChunkHalf | Kind::HttpSilent
        )
    }

    /// What the broker's documentation promises.
    fn deadline(self) -> Duration {
        Duration::from_secs(match self {
            Kind::KafkaDrip | Kind::KafkaHalf | Kind::KafkaLength | Kind::KafkaDeaf => 30,
            Kind::HttpBodyDrip | Kind::HttpChunkHalf => 30,
            Kind::HttpHeadDrip | Kind::HttpSilent => 60,
        })
    }

    fn first_words(self, fetch: &[u8]) -> Vec<u8> {
        match self {
            Kind::KafkaDrip => vec![0, 1, 0, 0],
            Kind::KafkaHalf => vec![0, 0, 0, 100, 0, 18, 0, 3],
            Kind::KafkaLength => vec![0, 0],
            Kind::KafkaDeaf => fetch.repeat(DEAF_FETCHES),
            Kind::HttpHeadDrip => b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-drip: ".to_vec(),
            Kind::HttpBodyDrip => b"POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
                content-length: 1000000\r\n\r\n{\"value\":\""
                .to_vec(),
            Kind::HttpChunkHalf => b"POST /topics/hostile/messages HTTP/1.1\r\nhost: localhost\r\n\
                transfer-encoding: chunked\r\n\r\nfffff\r\n{\"val"
                .to_vec(),
            Kind::HttpSilent => Vec::new(),
        }
    }

    fn drips(self) -> bool {
        matches!(self, Kind::KafkaDrip | Kind::HttpHeadDrip | Kind::HttpBodyDrip)
    }
}

struct Slow {
    kind: Kind,
    stream: TcpStream,
    since: Instant,
    closed_after: Option<Duration>,
}

/// How the slow connections fared.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// How many there were.
    pub opened: usize,
    /// When the last was closed, after it was opened.
    pub longest: Duration,
}

/// Lets this process, and those that it starts, have as many files as the system allows.
pub fn raise_file_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

/// Writes the topic that those who take no answers fetch.
pub fn prepare(broker: &BrokerProcess) -> Result<()> {
    let mut kafka = KafkaConnection::open(broker.addresses.kafka)?;
    kafka.create_topic(LARGE_TOPIC, 1, &[])?;
    let value = vec![b'x'; 900_000];
    (0..8).try_for_each(|_| kafka.produce(LARGE_TOPIC, 0, &[&value]).map(drop))
}

/// Opens `count` slow connections, keeps them alive as slowly as can be, and waits until the broker
/// has closed all of them.
pub fn attack(broker: &BrokerProcess, count: usize) -> Result<Outcome> {
    let mut kafka = KafkaConnection::open(broker.addresses.kafka)?;
    let fetch = kafka.frame(&fetch_request(LARGE_TOPIC, 0, 0), 12)?;
    drop(kafka);
    let mut open: Vec<Slow> = Vec::with_capacity(count);
    for index in 0..count {
        open.push(connect(broker.addresses, Kind::of(index), &fetch)?);
    }
    let mut closed: Vec<Slow> = Vec::with_capacity(count);
    let mut last_drip = Instant::now();
    while !open.is_empty() {
        let drips = DRIP <= last_drip.elapsed();
        if drips {
            last_drip = Instant::now();
        }
        for slow in &mut open {
            slow.look(drips);
            let waited = slow.since.elapsed();
            let (kind, deadline) = (slow.kind, slow.kind.deadline());
            ensure!(
                waited < deadline + SLACK,
                "{kind:?} is open after {waited:?}, not {deadline:?}"
            );
        }
        closed.extend(open.extract_if(.., |slow| slow.closed_after.is_some()));
        thread::sleep(Duration::from_millis(100));
    }
    for slow in &closed {
        let (kind, after) = (slow.kind, slow.closed_after.unwrap_or_default());
        let early = kind.deadline() / 2;
        ensure!(early < after, "{kind:?} was closed after {after:?} already");
    }
    let longest = closed.iter().filter_map(|slow| slow.closed_after).max().unwrap_or_default();
    Ok(Outcome { opened: closed.len(), longest })
}

fn connect(addresses: Addresses, kind: Kind, fetch: &[u8]) -> Result<Slow> {
    let address = if kind.is_http() { addresses.http } else { addresses.kafka };
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&kind.first_words(fetch))?;
    stream.set_nonblocking(true)?;
    Ok(Slow { kind, stream, since: Instant::now(), closed_after: None })
}

impl Slow {
    fn look(&mut self, drips: bool) {
        let is_closed = match self.kind {
            // What it does not take hides the end from it, until it is past its deadline.
            Kind::KafkaDeaf if self.since.elapsed() < self.kind.deadline() + SLACK / 2 => false,
            _ => self.is_closed() || (drips && self.kind.drips() && !self.drip()),
        };
        if is_closed {
            self.closed_after = Some(self.since.elapsed());
        }
    }

    /// Takes what has come.
    fn is_closed(&mut self) -> bool {
        let mut answer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut answer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    fn drip(&mut self) -> bool {
        self.stream.write(b"a").is_ok()
    }
}
