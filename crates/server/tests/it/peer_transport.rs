//! Transports between brokers in this process, and what stands in for one.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::runtime::Runtime;
use towpath_model::{BrokerId, Uuid};
use towpath_server::peer::{
    Addresses, Class, FRAME_BYTES_MAX, Handshake, Hello, Kind, LEVELS, PeerAddress, PeerHandler,
    PeerLimits, PeerMetrics, PeerSettings, Peers, Records, Secret, next_frame,
};
use towpath_server::random_uuid;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a handler was told.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) messages: Vec<(BrokerId, Bytes)>,
    pub(crate) hellos: Vec<Hello>,
    pub(crate) lost: Vec<(BrokerId, bool)>,
    /// What is handed out as records, and how often that was.
    pub(crate) records: VecDeque<Bytes>,
    pub(crate) handed_out: usize,
    /// Records that a device has to be waited for.
    pub(crate) cold: VecDeque<Bytes>,
    /// No device answers.
    pub(crate) is_stalled: bool,
    pub(crate) waiting: usize,
}

/// Remembers what it is told.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Recorder {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        // A test that has failed still stops its transports.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen());
        self.changed.notify_all();
    }

    /// Waits until it has seen something.
    pub(crate) fn until(&self, what: &str, has_come: impl Fn(&Seen) -> bool) {
        let waited = self.changed.wait_timeout_while(self.seen(), PATIENCE, |seen| !has_come(seen));
        let is_late = waited.unwrap().1.timed_out();
        assert!(!is_late, "{what} has not come");
    }
}

impl PeerHandler for Recorder {
    fn receive(&self, from: BrokerId, message: Bytes) {
        self.change(|seen| seen.messages.push((from, message)));
    }

    fn next_records(&self, _: BrokerId, _: usize, may_wait: bool) -> Records {
        let mut seen = self.seen();
        if !may_wait {
            if let Some(records) = seen.records.pop_front() {
                seen.handed_out += 1;
                return Records::Message(vec![
                    records.slice(..1).into(),
                    records.slice(1..).into(),
                ]);
            }
            return if seen.cold.is_empty() { Records::Nothing } else { Records::Cold };
        }
        seen.waiting += 1;
        self.changed.notify_all();
        seen = self.changed.wait_while(seen, |seen| seen.is_stalled).unwrap();
        seen.waiting -= 1;
        seen.cold.pop_front().map_or(Records::Nothing, |cold| Records::Message(vec![cold.into()]))
    }

    fn connected(&self, _: BrokerId, hello: &Hello) {
        self.change(|seen| seen.hellos.push(hello.clone()));
    }

    fn disconnected(&self, peer: BrokerId, refused: bool) {
        self.change(|seen| seen.lost.push((peer, refused)));
    }
}

/// How a test's transport differs from the usual one.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) secret: Option<&'static str>,
    /// May change at any time.
    pub(crate) cluster_id: Arc<Mutex<Option<&'static str>>>,
    pub(crate) limits: PeerLimits,
    pub(crate) addresses: Addresses,
    /// 0: any.
    pub(crate) port: u16,
    pub(crate) directory_id: Option<Uuid>,
}

/// A broker's connections to others. Stops when it is dropped.
pub(crate) struct Transport {
    pub(crate) id: BrokerId,
    pub(crate) peers: Peers,
    pub(crate) handler: Arc<Recorder>,
    pub(crate) addresses: Addresses,
    pub(crate) metrics: PeerMetrics,
    pub(crate) address: SocketAddr,
    runtime: Runtime,
}

impl Transport {
    pub(crate) fn start(id: i32, options: Options) -> Transport {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let handler = Arc::new(Recorder::default());
        let (addresses, metrics) = (options.addresses.clone(), PeerMetrics::default());
        let inside = runtime.enter();
        let at = SocketAddr::from(([127, 0, 0, 1], options.port));
        let listener = runtime.block_on(tokio::net::TcpListener::bind(at)).unwrap();
        let address = listener.local_addr().unwrap();
        let cluster_id = Arc::clone(&options.cluster_id);
        let settings = PeerSettings {
            me: BrokerId(id),
            directory_id: options.directory_id.unwrap_or_else(random_uuid),
            incarnation: random_uuid(),
            cluster_id: Arc::new(move || cluster_id.lock().unwrap().map(str::to_owned)),
            listener,
            advertised: Some(peer_address(address)),
            secret: options.secret.map(|text| Secret::new(text.as_bytes()).unwrap()),
            addresses: addresses.clone(),
            limits: options.limits,
            metrics: metrics.clone(),
        };
        let peers = Peers::start(settings, Arc::clone(&handler) as Arc<dyn PeerHandler>);
        drop(inside);
        Transport { id: BrokerId(id), peers, handler, addresses, metrics, address, runtime }
    }

    /// Says where others are.
    pub(crate) fn knows(&self, others: &[&Transport]) {
        let others = others.iter().map(|other| (other.id, peer_address(other.address)));
        self.addresses.replace(others);
    }

    /// Waits until messages reach another one.
    pub(crate) fn reaches(&self, other: BrokerId) {
        for class in Class::ALL {
            eventually(|| self.peers.is_connected(other, class));
        }
    }

    /// Sends until it arrives: brokers repeat what matters.
    pub(crate) fn repeat(&self, to: &Transport, class: Class, message: &[u8]) {
        let is_it = |(from, received): &(BrokerId, Bytes)| *from == self.id && received == message;
        eventually(|| {
            self.peers.send(to.id, class, message.to_vec());
            to.handler.seen().messages.iter().any(is_it)
        });
    }

    /// Sends once, over a connection that is there, and waits until it has arrived.
    pub(crate) fn send(&self, to: &Transport, class: Class, message: &[u8]) {
        self.reaches(to.id);
        assert!(self.peers.send(to.id, class, message.to_vec()));
        to.receives(self.id, message);
    }

    pub(crate) fn receives(&self, from: BrokerId, message: &[u8]) {
        let is_it = |(sender, received): &(BrokerId, Bytes)| *sender == from && received == message;
        self.handler.until("a message", |seen| seen.messages.iter().any(is_it));
    }

    /// Ends it; the port is free then.
    pub(crate) fn stop(&self) {
        self.runtime.block_on(self.peers.stop());
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Nobody waits for a device any more.
        self.handler.change(|seen| seen.is_stalled = false);
        self.stop();
    }
}

pub(crate) fn peer_address(address: SocketAddr) -> PeerAddress {
    address.to_string().parse().unwrap()
}

pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it has not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn hello(id: i32, class: Class) -> Hello {
    let nonce = [random_uuid().0, random_uuid().0].concat();
    Hello {
        levels: LEVELS,
        class,
        has_secret: false,
        node_id: BrokerId(id),
        directory_id: Uuid([id as u8; 16]),
        incarnation: random_uuid(),
        nonce: nonce.try_into().unwrap(),
        expects: None,
        cluster_id: None,
        address: None,
    }
}

/// One end of a connection that does as a test says.
pub(crate) struct Puppet {
    pub(crate) socket: TcpStream,
    pub(crate) input: BytesMut,
    pub(crate) theirs: Hello,
}

impl Puppet {
    /// Dials a transport without a secret.
    pub(crate) fn dial(to: SocketAddr, mine: Hello) -> Puppet {
        let socket = TcpStream::connect(to).unwrap();
        let mut out = Vec::new();
        let handshake = Handshake::dial(mine, None, true, &mut out);
        Puppet::talk(socket, handshake, out)
    }

    /// Takes the next connection of a transport without a secret.
    pub(crate) fn accept(listener: &TcpListener, id: i32) -> Puppet {
        let (socket, _) = listener.accept().unwrap();
        let handshake = Handshake::accept(hello(id, Class::Control), None, true);
        Puppet::talk(socket, handshake, Vec::new())
    }

    /// The connections for both classes.
    pub(crate) fn accept_both(listener: &TcpListener, id: i32) -> (Puppet, Puppet) {
        let (one, other) = (Puppet::accept(listener, id), Puppet::accept(listener, id));
        match one.theirs.class {
            Class::Control => (one, other),
            Class::Records => (other, one),
        }
    }

    fn talk(mut socket: TcpStream, mut handshake: Handshake, mut out: Vec<u8>) -> Puppet {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let is_dialling = !out.is_empty();
        let mut input = BytesMut::new();
        let theirs = loop {
            socket.write_all(&out).unwrap();
            out.clear();
            let mut room = [0; 1024];
            let read = socket.read(&mut room).unwrap();
            assert!(0 < read, "hung up");
            input.extend_from_slice(&room[..read]);
            if let Some(theirs) = handshake.receive(&mut input, &mut out).unwrap() {
                break theirs;
            }
        };
        if !is_dialling {
            handshake.welcome(&mut out);
            socket.write_all(&out).unwrap();
        }
        Puppet { socket, input, theirs }
    }

    pub(crate) fn send(&mut self, kind: u8, payload: &[u8]) {
        let length = u32::try_from(1 + payload.len()).unwrap();
        self.socket.write_all(&length.to_be_bytes()).unwrap();
        self.socket.write_all(&[kind]).unwrap();
        self.socket.write_all(payload).unwrap();
    }

    /// The next message; the question whether somebody is there is answered if `is_alive`.
    pub(crate) fn message(&mut self, is_alive: bool) -> Option<Bytes> {
        loop {
            while let Some((kind, payload)) = next_frame(&mut self.input, FRAME_BYTES_MAX).unwrap()
            {
                match kind {
                    Kind::Message => return Some(payload),
                    Kind::Ping if is_alive => self.send(PONG, b""),
                    _ => {}
                }
            }
            let mut room = vec![0; 64 << 10];
            match self.socket.read(&mut room) {
                Ok(0) => return None,
                Ok(read) => self.input.extend_from_slice(&room[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        is_closed(&mut self.socket)
    }
}

/// As `docs/peer-protocol.md` numbers the kinds.
pub(crate) const HELLO: u8 = 1;
pub(crate) const MESSAGE: u8 = 4;
pub(crate) const FIRST_PIECE: u8 = 5;
pub(crate) const PING: u8 = 7;
pub(crate) const PONG: u8 = 8;

/// Whether the other side hangs up, whatever it says before.
pub(crate) fn is_closed(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut ignored = [0; 4096];
    loop {
        match socket.read(&mut ignored) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return matches!(
                    error.kind(),
                    std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
                );
            }
        }
    }
}
