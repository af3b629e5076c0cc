//! Strangers who mean harm, while an honest client goes on. Nothing crashes, memory stays where it
//! was, and the honest client is served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towpath_process::hostile::{Hostile, TOPIC, bomb};
use towpath_process::kafka::KafkaConnection;
use towpath_process::{BrokerProcess, Cost};
use towpath_records::Compression;

use crate::support::{dev, eventually};

/// How much the broker's memory may grow, whatever strangers send.
const GROWTH_MAX: u64 = 64 << 20;

/// How long the honest client may wait for one of its requests, at worst. Well under a second is
/// meant and printed; the bound only tells a client that is shut out from a busy machine.
const HONEST_WAIT_MAX: Duration = Duration::from_secs(30);

/// How often the honest client must have been served, at least.
const SERVED_MIN: u64 = 5;

/// An honest client and a look at the broker's memory, until [`Watch::end`].
struct Watch {
    ends: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    served: Arc<AtomicU64>,
    before: u64,
    honest: JoinHandle<Duration>,
    memory: JoinHandle<()>,
}

impl Watch {
    fn begin(broker: &BrokerProcess) -> Watch {
        let ends = Arc::new(AtomicBool::new(false));
        let peak = Arc::new(AtomicU64::new(0));
        let served = Arc::new(AtomicU64::new(0));
        let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
        kafka.create_topic("honest", 1, &[]).unwrap();
        kafka.produce("honest", 0, &[b"first"]).unwrap();
        let before = broker.cost().unwrap().anonymous_bytes;
        let memory = thread::spawn({
            let (ends, peak, pid) = (ends.clone(), peak.clone(), broker.pid());
            move || {
                while !ends.load(Ordering::Relaxed) {
                    let Ok(cost) = Cost::of(pid) else { return };
                    peak.fetch_max(cost.anonymous_bytes, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let honest = thread::spawn({
            let (ends, served) = (ends.clone(), served.clone());
            move || be_honest(&mut kafka, &ends, &served)
        });
        Watch { ends, peak, served, before, honest, memory }
    }

    /// Ends, and says what must hold.
    fn end(self, broker: &mut BrokerProcess) {
        let is_served = || self.served.load(Ordering::Relaxed) > SERVED_MIN;
        eventually(HONEST_WAIT_MAX, || (is_served() || self.honest.is_finished()).then_some(()));
        self.ends.store(true, Ordering::Relaxed);
        let longest = self.honest.join().expect("the honest client was not served");
        self.memory.join().unwrap();
        broker.check_running().unwrap();
        let log = broker.log();
        assert!(!log.contains("panicked"), "{log}");
        println!("the honest client waited {longest:?} at most");
        assert!(longest < HONEST_WAIT_MAX, "the honest client waited {longest:?}");
        let grown = self.peak.load(Ordering::Relaxed).saturating_sub(self.before);
        println!("memory grew by {} KiB", grown >> 10);
        assert!(grown < GROWTH_MAX, "memory grew by {} KiB", grown >> 10);
    }
}

/// Publishes and reads back until told to end. Returns the longest wait.
fn be_honest(kafka: &mut KafkaConnection, ends: &AtomicBool, served: &AtomicU64) -> Duration {
    let mut longest = Duration::ZERO;
    while !ends.load(Ordering::Relaxed) {
        let began = Instant::now();
        let value = served.load(Ordering::Relaxed).to_string().into_bytes();
        let offset = kafka.produce("honest", 0, &[&value]).unwrap();
        let (records, _) = kafka.read_all("honest", 0, offset).unwrap();
        assert_eq!(records[0].value.as_ref(), Some(&value));
        served.fetch_add(1, Ordering::Relaxed);
        longest = longest.max(began.elapsed());
        thread::sleep(Duration::from_millis(20));
    }
    longest
}

/// Sends frames until the broker hangs up or all are sent, taking what answers come.
fn send_frames(address: SocketAddr, frames: &[Vec<u8>]) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = vec![0; 64 << 10];
    for frame in frames {
        if stream.write_all(frame).is_err() {
            return;
        }
        if matches!(stream.read(&mut answer), Ok(0)) {
            return;
        }
    }
}

fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum.or(Some(8_192)), maximum: limit.maximum };
    setrlimit(Resource::Nofile, wanted).unwrap();
}

#[test]
fn frames_of_any_length_type_and_content_do_no_harm() {
    let (mut broker, _data) = dev();
    let address = broker.addresses.kafka;
    KafkaConnection::open(address).unwrap().create_topic(TOPIC, 2, &[]).unwrap();
    let watch = Watch::begin(&broker);
    let strangers: Vec<_> = (0..4)
        .map(|seed| {
            thread::spawn(move || {
                let mut hostile = Hostile::new(seed);
                let ends = Instant::now() + Duration::from_secs(10);
                let mut sent = 0;
                while Instant::now() < ends && sent < 5_000 {
                    let frames: Vec<_> = (0..8).map(|_| hostile.frame()).collect();
                    send_frames(address, &frames);
                    sent += frames.len();
                }
                sent
            })
        })
        .collect();
    let sent: usize = strangers.into_iter().map(|stranger| stranger.join().unwrap()).sum();
    println!("{sent} frames");
    watch.end(&mut broker);
    assert!(400 < sent, "only {sent} frames were sent");
}

#[test]
fn slow_connections_cost_little_and_hold_nobody_up() {
    raise_file_limit();
    let (mut broker, _data) = dev();
    let address = broker.addresses.kafka;
    let watch = Watch::begin(&broker);
    let mut slow: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    // A frame of 50 MB, byte by byte.
    for stream in &mut slow {
        stream.write_all(&50_000_000_i32.to_be_bytes()).unwrap();
    }
    for byte in 0..40_u8 {
        for stream in &mut slow {
            stream.write_all(&[byte]).unwrap();
        }
        thread::sleep(Duration::from_millis(50));
    }
    watch.end(&mut broker);
}

#[test]
fn clients_that_never_read_their_answers_cost_little() {
    let (mut broker, _data) = dev();
    let address = broker.addresses.kafka;
    let mut kafka = KafkaConnection::open(address).unwrap();
    kafka.create_topic("large", 1, &[]).unwrap();
    let value = vec![b'x'; 500_000];
    for _ in 0..8 {
        kafka.produce("large", 0, &[&value]).unwrap();
    }
    let watch = Watch::begin(&broker);
    let fetch = towpath_process::kafka::fetch_request("large", 0, 0);
    let frame = kafka.frame(&fetch, 12).unwrap();
    let mut deaf: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut deaf {
        stream.set_nonblocking(true).unwrap();
        for _ in 0..20 {
            // What does not fit any more is what the broker does not take.
            let _ = stream.write(&frame);
        }
    }
    thread::sleep(Duration::from_secs(2));
    watch.end(&mut broker);
}

#[test]
fn a_thousand_idle_connections_cost_little() {
    raise_file_limit();
    let (mut broker, _data) = dev();
    let watch = Watch::begin(&broker);
    let idle: Vec<_> = (0..1_000)
        .map(|number| {
            let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
            if number % 2 == 0 {
                kafka.topics().unwrap();
            }
            kafka
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    watch.end(&mut broker);
    drop(idle);
}

/// Bombs of every codec that makes one from several connections at once, more than once: what one
/// costs must not add up, neither over threads nor over time.
#[test]
fn decompression_bombs_are_refused_within_bounds() {
    let (mut broker, _data) = dev();
    let address = broker.addresses.kafka;
    let bombs = [
        bomb(Compression::Zstd, 400 << 20),
        bomb(Compression::Gzip, 100 << 20),
        bomb(Compression::Lz4, 100 << 20),
        // Snappy shrinks nothing to less than a twentieth.
        bomb(Compression::Snappy, 40 << 20),
    ];
    let mut kafka = KafkaConnection::open(address).unwrap();
    kafka.create_topic(TOPIC, 1, &[("max.message.bytes", "4000000")]).unwrap();
    let watch = Watch::begin(&broker);
    thread::scope(|scope| {
        for first in 0..8 {
            let bombs = &bombs;
            scope.spawn(move || {
                let mut kafka = KafkaConnection::open(address).unwrap();
                for bomb in bombs.iter().cycle().skip(first).take(2 * bombs.len()) {
                    let refused = kafka.produce_batch(TOPIC, 0, bomb);
                    assert!(refused.is_err(), "a bomb of {} bytes was taken", bomb.len());
                }
            });
        }
    });
    let (records, end) = kafka.read_all(TOPIC, 0, 0).unwrap();
    assert_eq!((records.len(), end), (0, 0));
    watch.end(&mut broker);
}
